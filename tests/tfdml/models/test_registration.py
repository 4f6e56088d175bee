import importlib

import keras

from tfdml import losses
from tfdml.models import registration


def test_every_registered_class_is_listed():
    listed = {
        name: getattr(importlib.import_module(f"tfdml.{part}"), name)
        for part, names in registration.CLASSES.items()
        for name in names
    }
    registered = keras.saving.get_custom_objects()
    own = {key.removeprefix("tfdml>"): registered[key] for key in registered if key[:6] == "tfdml>"}
    assert own == listed


def test_what_is_deferred_is_built_from_its_config():
    deferred = registration.Deferred("losses", "TripletLoss")
    loss = deferred.from_config(losses.TripletLoss(margin=0.5).get_config())
    assert isinstance(loss, losses.TripletLoss)
    assert loss.margin == 0.5
