"""What gRPC and REST share: answers about models, errors and retries."""

import contextlib
import random
from time import monotonic, sleep
from typing import NamedTuple

from tfdml.checks import check_type

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0  # seconds
_LONGEST_MESSAGE = 2000  # characters


class ServingError(RuntimeError):
    """A request failed.

    Args:
        code: Name of the gRPC status code, such as `UNAVAILABLE`, `NOT_FOUND`, `DEADLINE_EXCEEDED`
            or `INVALID_ARGUMENT`, for REST too.
        message: Reason of the failure.
    """

    def __init__(self, code, message):
        # TensorFlow appends the place in the graph on separate lines.
        self.code = code
        self.message = " ".join(message.partition("\n\t [[")[0].split())[:_LONGEST_MESSAGE]
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


class Service:
    """Requests to a server; a subclass sends them: `predict`, `status`, `metadata` and `close`."""

    def __init__(self, timeout, retries):
        self._timeout, self._retries = timeout, retries

    def _ask(self, send, read, expected):
        """What `read` makes of the bytes that `send(until)` returns, which end by `until`."""
        content = self._repeated(send, monotonic() + self._timeout)
        with well_formed(expected, content[:100]):
            return read(content)

    def _repeated(self, send, until):
        """Repeats `send` after UNAVAILABLE; begins no pause that ends after `until`.

        The pauses are random, so that many clients of one server do not return at once.
        """
        for attempt in range(self._retries):
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2**attempt) * random.uniform(0.5, 1.0)
            try:
                return send(until)
            except ServingError as error:
                if error.code != "UNAVAILABLE" or monotonic() + pause >= until:
                    raise
            sleep(pause)
        return send(until)


@contextlib.contextmanager
def well_formed(expected, received):
    """Turns any error of reading an answer into a `ServingError`."""
    try:
        yield
    except ServingError:
        raise
    except Exception as error:  # what malformed answers raise has no common class
        raise malformed(f"{expected} ({repr(error)[:100]})", received) from error


def malformed(expected, received):
    """The `ServingError` of a malformed answer."""
    start = repr(received)[:200]
    return ServingError("INTERNAL", f"the answer is not {expected}. Received: {start}")


def versions_in(answer):
    """List of `VersionStatus`, newest version first, of the JSON of TF Serving."""
    found = []
    for each in answer["model_version_status"]:
        error = each.get("status", {}).get("error_message", "")
        check_type(isinstance(each["state"], str) and isinstance(error, str), "texts", each=each)
        found.append(VersionStatus(int(each["version"]), each["state"], error))
    return sorted(found, reverse=True)


def metadata_in(answer):
    """The `Metadata` of the JSON of TF Serving."""

    def signature(info):
        kinds = (info.get(kind, {}) for kind in Signature._fields)
        return Signature(*({name: _tensor(each) for name, each in kind.items()} for kind in kinds))

    signatures = answer["metadata"]["signature_def"]["signature_def"]
    found = {name: signature(info) for name, info in signatures.items()}
    return Metadata(int(answer["model_spec"]["version"]), found)


def _tensor(info):
    """A `Tensor` from its description in JSON."""
    dtype = info.get("dtype", "DT_INVALID").removeprefix("DT_").lower()
    dtype = {"float": "float32", "double": "float64"}.get(dtype) or dtype
    shape = info.get("tensor_shape", {})
    sides = [int(side.get("size", 0)) for side in shape.get("dim", ())]
    known = tuple(None if side < 0 else side for side in sides)
    return Tensor(dtype, None if shape.get("unknown_rank") else known)
