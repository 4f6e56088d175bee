"""Model, status and metadata types shared by gRPC and REST."""

from typing import NamedTuple


class Model(NamedTuple):
    """A model and its version: the newest without `version` and `label`.

    Args:
        name: Name of the model on the server.
        version: Number of a version.
        label: Label of a version in the server's configuration, such as `canary`.
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
        dtype: Name of a NumPy dtype, or `string`.
        shape: Sides, None for any length; None as a whole if unknown.
    """

    dtype: str
    shape: tuple | None


class Signature(NamedTuple):
    """Inputs and outputs of a function of the model.

    Args:
        inputs: {name: `Tensor`}.
        outputs: {name: `Tensor`}.
    """

    inputs: dict
    outputs: dict


class Metadata(NamedTuple):
    """Number and signatures of the version that answers.

    Args:
        version: Its number.
        signatures: {name: `Signature`}.
    """

    version: int
    signatures: dict


def tensor_of(dtype, sides):
    """A `Tensor` from TensorFlow's dtype name and shape.

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
