import keras
from keras import ops

from tfdml.checks import check_finite, check_integer, check_not_negative
from tfdml.layers.kept_options import KeepsOptions


@keras.saving.register_keras_serializable("tfdml")
class DensityTargets(KeepsOptions):
    """Trainable target densities: one number per class.

    Args:
        num_classes: Number of classes, with ids 0 to `num_classes - 1`.
        start: Initial value of every target.
        learning_rate_multiplier: Factor of the learning rate for the targets, >= 0. `train.py`
            applies it; otherwise pass it to the optimizer's `multipliers`.
        dtype: As for every Keras layer, but float32 by default under any policy.

    Weight decay would pull targets to 0: `EmbeddingModel.compile` excludes them. In a custom loop
    call `optimizer.exclude_from_weight_decay(layer.trainable_variables)` once the layer is built.

    Call:
        labels: (batch,) integers.
        Returns (batch,) floats, the target of the class of each row; NaN for an id that is not one
        of the classes.

    Source:
        Li, Yao, Chao, Chen, Mei. Density adaptivity in deep metric learning. 2019, eq. 6.
    """

    decays = False  # its weights, under the weight decay of an optimizer

    def __init__(
        self, num_classes, start=0.5, learning_rate_multiplier=1.0, name="density_targets", **kwargs
    ):
        kwargs.setdefault("dtype", "float32")  # targets differ by less than float16 resolves
        super().__init__(name=name, **kwargs)
        multiplier = check_not_negative(learning_rate_multiplier=learning_rate_multiplier)
        [self.num_classes] = check_integer(1, num_classes=num_classes)
        [self.start] = check_finite(start=start)
        [self.learning_rate_multiplier] = multiplier

    def build(self, input_shape=None):
        start = keras.initializers.Constant(self.start)
        self.targets = self.add_weight((self.num_classes,), start, name="targets")
        self.built = True

    def call(self, labels):
        known = (labels >= 0) & (labels < self.num_classes)
        targets = ops.take(self.targets, ops.where(known, labels, 0))
        return ops.where(known, targets, float("nan"))
