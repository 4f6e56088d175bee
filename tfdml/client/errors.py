"""Errors of the client."""


class ServingError(RuntimeError):
    """A request failed.

    Args:
        code: Name of the gRPC status code, such as `UNAVAILABLE`, `NOT_FOUND`, `DEADLINE_EXCEEDED`
            or `INVALID_ARGUMENT`, for REST too.
        message: Reason of the failure.

    Example:
        >>> print(ServingError("NOT_FOUND", "Could not find any versions of model cars"))
        NOT_FOUND: Could not find any versions of model cars
    """

    def __init__(self, code, message):
        # TensorFlow appends the place in the graph on separate lines.
        self.code, self.message = code, " ".join(message.partition("\n\t [[")[0].split())
        super().__init__(f"{code}: {self.message}")


class ImageError(ValueError):
    """An image cannot be read, by the client or the server.

    Args:
        image: Its path, or its position in the input.
        reason: Why it cannot be read.
    """

    def __init__(self, image, reason):
        self.image, self.reason = image, reason
        super().__init__(f"{image} cannot be read: {reason}")
