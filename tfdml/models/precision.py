"""The precision in which a network computes; its weights are always float32."""

import contextlib

import keras

_MIXED = ("mixed_bfloat16", "mixed_float16")


@contextlib.contextmanager
def built_with(precision):
    """Layers built within compute in this precision, unless they have a `dtype` of their own."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(precision)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def in_float32(model):
    """A copy of a built model that computes in float32; the model itself if it does already."""
    saved = keras.saving.serialize_keras_object(model)
    config = keras.tree.map_structure(lambda leaf: "float32" if leaf in _MIXED else leaf, saved)
    if config == saved:
        return model
    copy = keras.saving.deserialize_keras_object(config)
    copy.set_weights(model.get_weights())
    return copy
