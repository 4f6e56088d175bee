"""What a request asks for, and what a server says of a model, by either protocol."""

from typing import NamedTuple


class Model(NamedTuple):
    """A model, and which version of it: the newest without `version` and `label`.

    Args:
        name: The name that the server gives it.
        version: Number of a version.
        label: Name that the server's configuration gives a version, such as `canary`.
    """

    name: str
    version: int | None = None
    label: str | None = None


class VersionStatus(NamedTuple):
    """The state of one version.

    Args:
        version: Its number.
        state: START, LOADING, AVAILABLE, UNLOADING or END.
        error: Why it could not be loaded; empty if it could.
    """

    version: int
    state: str
    error: str


class Tensor(NamedTuple):
    """The type and shape of an input or an output.

    Args:
        dtype: A name of NumPy's, or `string`.
        shape: Sides, None where any number will do; None as a whole if the model does not say.
    """

    dtype: str
    shape: tuple | None


class Signature(NamedTuple):
    """What a function of the model takes and gives.

    Args:
        inputs: {name: `Tensor`}.
        outputs: {name: `Tensor`}.
    """

    inputs: dict
    outputs: dict


class Metadata(NamedTuple):
    """What a server tells of the version that answers.

    Args:
        version: Its number.
        signatures: {name: `Signature`}.
    """

    version: int
    signatures: dict


def tensor_of(dtype, sides):
    """A `Tensor` of TensorFlow's words for it.

    Args:
        dtype: Such as `DT_FLOAT`.
        sides: Integers, -1 for any; None if unknown.

    Example:
        >>> tensor_of("DT_FLOAT", [-1, 128])
        Tensor(dtype='float32', shape=(None, 128))
    """
    dtype = dtype.removeprefix("DT_").lower()
    dtype = {"float": "float32", "double": "float64"}.get(dtype, dtype)
    shape = None if sides is None else tuple(None if side < 0 else side for side in sides)
    return Tensor(dtype, shape)
