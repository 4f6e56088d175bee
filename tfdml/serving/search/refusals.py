"""What a search refuses, as a sentence for the person who asked."""


class RefusedError(ValueError):
    """A request that cannot be answered.

    Args:
        sentence: What must hold, and what was received.
        status: Of HTTP, such as 404.
    """

    def __init__(self, sentence, status=400):
        super().__init__(sentence)
        self.status = status
