"""What gRPC and REST share: answers about models, errors, retries and concurrent requests."""

import contextlib
import random
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 10.0


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


class Model(NamedTuple):
    """A model and its version: the newest without `version` and `label`."""

    name: str  # on the server
    version: int | None = None
    label: str | None = None  # of a version in the server's configuration, such as `canary`


class VersionStatus(NamedTuple):
    """The state of one version."""

    version: int
    state: str  # START, LOADING, AVAILABLE, UNLOADING or END
    error: str  # why it could not be loaded; empty if it could


class Tensor(NamedTuple):
    """The type and shape of an input or an output."""

    dtype: str  # name of a NumPy dtype, or `string`
    shape: tuple | None  # sides, None for any length; None as a whole if unknown


class Signature(NamedTuple):
    """Inputs and outputs of a function of the model: {name: `Tensor`}."""

    inputs: dict
    outputs: dict


class Metadata(NamedTuple):
    """Number and signatures of the version that answers: {name: `Signature`}."""

    version: int
    signatures: dict


@contextlib.contextmanager
def well_formed():
    """Turns errors of parsing an answer into a `ServingError`."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        message = f"the answer is not one of TF Serving ({error!r})"
        raise ServingError("INTERNAL", message) from error


@well_formed()
def versions_in(answer):
    """List of `VersionStatus`, newest version first, of the JSON of TF Serving."""
    found = []
    for each in answer["model_version_status"]:
        error = each.get("status", {}).get("error_message", "")
        found.append(VersionStatus(int(each["version"]), each["state"], error))
    return sorted(found, reverse=True)


@well_formed()
def metadata_in(answer):
    """The `Metadata` of the JSON of TF Serving."""
    signatures = answer["metadata"]["signature_def"]["signature_def"]
    found = {name: _signature(each) for name, each in signatures.items()}
    return Metadata(int(answer["model_spec"]["version"]), found)


def _signature(info):
    """A `Signature` from its description in JSON."""
    kinds = (info.get(kind, {}) for kind in Signature._fields)
    return Signature(*({name: _tensor(each) for name, each in kind.items()} for kind in kinds))


def _tensor(info):
    """A `Tensor` from its description in JSON.

    >>> _tensor({"dtype": "DT_FLOAT", "tensor_shape": {"dim": [{"size": "-1"}, {"size": "128"}]}})
    Tensor(dtype='float32', shape=(None, 128))
    """
    dtype = info.get("dtype", "DT_INVALID").removeprefix("DT_").lower()
    dtype = {"float": "float32", "double": "float64"}.get(dtype) or dtype
    shape = info.get("tensor_shape", {})
    sides = [int(side.get("size", 0)) for side in shape.get("dim", ())]
    known = tuple(None if side < 0 else side for side in sides)
    return Tensor(dtype, None if shape.get("unknown_rank") else known)


def in_order(function, items, in_flight):
    """Calls a function on every item concurrently; yields the results in order.

    Args:
        function: Called in threads.
        items: Iterable; read at most `in_flight` items ahead of the results.
        in_flight: Most calls at once.

    Yields:
        The results. The error of a call is raised at its position.
    """
    with ThreadPoolExecutor(in_flight) as pool:
        waiting = deque()
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) == in_flight:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


class Retries:
    """Repeats a call that failed with UNAVAILABLE, after pauses that double.

    Each pause is 0.2 s × 2^i, at most 10 s, times a random number in [0.5, 1), so that many clients
    of one server do not return at the same moment. No other failure is repeated: a rejected request
    would be rejected again, and one that timed out may still be running.

    Args:
        most: Repetitions after the first attempt; 0 for none.
        pause: Called with the seconds to wait.

    Raises:
        ServingError: The error of the last attempt.
    """

    def __init__(self, most, pause=time.sleep):
        self._most, self._pause = most, pause

    def __call__(self, function, *args):
        for attempt in range(self._most):
            try:
                return function(*args)
            except ServingError as error:
                if error.code != "UNAVAILABLE":
                    raise
            longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2**attempt)
            self._pause(longest * random.uniform(0.5, 1.0))
        return function(*args)
