"""The precision in which a network computes; its weights are always float32."""

import contextlib

import keras


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
    config = _with_policy(saved, "float32")
    if config == saved:
        return model
    copy = keras.saving.deserialize_keras_object(config)
    copy.set_weights(model.get_weights())
    return copy


def _with_policy(config, name):
    """A serialized object in which every mixed policy is that of a name."""
    if isinstance(config, dict):
        if config.get("class_name") == "DTypePolicy" and "mixed" in config["config"]["name"]:
            return {**config, "config": {**config["config"], "name": name}}
        return {key: _with_policy(value, name) for key, value in config.items()}
    if isinstance(config, (list, tuple)):
        return type(config)(_with_policy(value, name) for value in config)
    return config
