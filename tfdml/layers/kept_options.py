"""Configs of losses and layers, whose options are attributes of the same names."""

import inspect

import keras


class KeepsOptions(keras.layers.Layer):
    """Base class of layers whose constructor keeps each option as an attribute of its name."""

    def get_config(self):
        options = [*inspect.signature(type(self)).parameters]
        own = [name for name in options if name not in ("name", "kwargs")]
        return {**super().get_config(), **{name: serialized(getattr(self, name)) for name in own}}


def serialized(value):
    return keras.saving.serialize_keras_object(value) if hasattr(value, "get_config") else value
