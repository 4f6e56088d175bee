"""The error for requests that a search rejects, with a message for the user."""


class RefusedError(ValueError):
    """A request was rejected.

    Args:
        sentence: Message that states what must hold and what was received.
        status: HTTP status, such as 404.
    """

    def __init__(self, sentence, status=400):
        super().__init__(sentence)
        self.status = status
