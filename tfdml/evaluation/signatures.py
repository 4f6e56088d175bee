"""The signature of one function for another that passes all of its arguments on."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def takes_arguments_of(
    original: Callable[_Arguments, object],
) -> Callable[[Callable[..., _Result]], Callable[_Arguments, _Result]]:
    """Gives the decorated function the signature of another, which `help` shows, and checks it."""
    signature = inspect.signature(original)
    return lambda function: with_signature(function, signature)


def with_signature(function, signature) -> Any:
    """The function with a signature, which `help` shows; other arguments raise a TypeError."""

    @functools.wraps(function)
    def checked(*args, **kwargs):
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{function.__name__}() {error}") from None
        return function(*args, **kwargs)

    checked.__dict__["__signature__"] = signature
    return checked
