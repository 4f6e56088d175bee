"""The library faiss, an optional dependency, and its errors."""

import contextlib
import re
from typing import Any

_PLACE = r"^Error in .* at \S+:\d+: (Error: '.*' failed: )?"


def load_faiss() -> Any:
    """The faiss module; an ImportError says what to install."""
    try:
        import faiss
    except ImportError as error:
        needed = "faiss: pip install -e '.[search]', or only faiss-cpu"
        raise ImportError(f"approximate search requires {needed}") from error
    return faiss


@contextlib.contextmanager
def as_value_error(received):
    """Turns an error of faiss into a ValueError with the received {name: value}."""
    try:
        yield
    except RuntimeError as error:  # its message begins with a location in the source of faiss
        cause = re.sub(_PLACE, "", str(error), flags=re.DOTALL)
        values = ", ".join(f"{name}={value!r}" for name, value in received.items())
        raise ValueError(f"faiss rejects the index ({cause}). Received: {values}") from error
