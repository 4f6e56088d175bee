"""What goes wrong between a client and a server."""


class ServingError(RuntimeError):
    """A request that failed.

    Args:
        code: The name of gRPC's code, such as `UNAVAILABLE`, `NOT_FOUND`, `DEADLINE_EXCEEDED` or
            `INVALID_ARGUMENT`, by REST too.
        message: What was said of it.

    Example:
        >>> print(ServingError("NOT_FOUND", "Could not find any versions of model cars"))
        NOT_FOUND: Could not find any versions of model cars
    """

    def __init__(self, code, message):
        # TensorFlow adds the place in the graph in lines of their own.
        self.code, self.message = code, " ".join(message.partition("\n\t [[")[0].split())
        super().__init__(f"{code}: {self.message}")


class ImageError(ValueError):
    """An image that cannot be read, here or by the server.

    Args:
        image: What it is called: its path, or its place among those given.
        reason: Why.
    """

    def __init__(self, image, reason):
        self.image, self.reason = image, reason
        super().__init__(f"{image} cannot be read: {reason}")
