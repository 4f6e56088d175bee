import keras
from keras import ops

from tfdml.checks import check_finite, check_integer, check_not_negative, check_positive


@keras.saving.register_keras_serializable("tfdml")
class DensityTargets(keras.layers.Layer):
    """A trained number per class: how far apart the embeddings of the class shall lie.

    Args:
        num_classes: Classes; their ids are 0 to `num_classes - 1`.
        start: Value of every target at first.
        learning_rate_multiplier: Factor of the learning rate that these targets want, >= 0, where
            `train.py` sets the optimizer up; others pass it to the optimizer's `multipliers`.
        name: Name of the layer.
        dtype: As for every Keras layer, but float32 under any policy if not given.

    Weight decay would draw targets to 0: `EmbeddingModel.compile` spares them. By hand it is
    `optimizer.exclude_from_weight_decay(layer.trainable_variables)`, once the layer is built, by
    `layer.build()` or its first call.

    Call:
        labels: (batch,) integers.
        Returns (batch,) floats, the target of the class of each row; NaN for an id that is none of
        these classes.

    Raises:
        TypeError: If `num_classes` is no integer or another argument no number.
        ValueError: If an argument is out of range.

    Source:
        Li, Yao, Chao, Chen, Mei. Density adaptivity in deep metric learning. 2019, eq. 6.
    """

    def __init__(
        self, num_classes, start=0.5, learning_rate_multiplier=1.0, name="density_targets", **kwargs
    ):
        kwargs.setdefault("dtype", "float32")  # targets differ by less than float16 tells
        super().__init__(name=name, **kwargs)
        check_integer(num_classes=num_classes)
        check_positive(num_classes=num_classes)
        check_finite(start=start)
        check_not_negative(learning_rate_multiplier=learning_rate_multiplier)
        self.num_classes = int(num_classes)
        self.start = float(start)
        self.learning_rate_multiplier = float(learning_rate_multiplier)

    def build(self, input_shape=None):
        self.targets = self.add_weight(
            shape=(self.num_classes,),
            initializer=keras.initializers.Constant(self.start),
            name="targets",
        )
        self.built = True

    def call(self, labels):
        known = (labels >= 0) & (labels < self.num_classes)
        targets = ops.take(self.targets, ops.where(known, labels, 0))
        return ops.where(known, targets, float("nan"))

    def get_config(self):
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "start": self.start,
            "learning_rate_multiplier": self.learning_rate_multiplier,
        }
