import keras
from keras import ops

from tfdml import pairwise
from tfdml.checks import check_integer, check_not_negative
from tfdml.layers.kept_options import KeepsOptions


@keras.saving.register_keras_serializable("tfdml")
class ClassProxies(KeepsOptions):
    """Trainable rows that stand for classes: one proxy per class, or several centers.

    Proxies have any length; cosines are of their directions.

    Args:
        num_classes: Number of classes, C, with ids 0 to `num_classes - 1`.
        centers: Centers of each class, K; >= 1.
        initializer: Keras initializer of the proxies. An Adam step of size η turns a proxy w by
            about η √dim / |w|, so the initial length is also a learning rate.
        learning_rate_multiplier: Factor of the learning rate for the proxies, >= 0; `train.py`
            applies it, otherwise pass it to the optimizer's `multipliers`. None for that of other
            new layers.
        dtype: As for every Keras layer, but float32 by default under any policy.

    Weight decay would only change the angle of a step: `EmbeddingModel.compile` excludes proxies.

    Call:
        rows: (n, dim) floats, of unit length for cosines. Narrower rows are compared with the
            first numbers of each proxy.
        Returns (n, C) floats, or (n, C, K) for several centers.
    """

    decays = False  # its weights, under the weight decay of an optimizer
    suggested_multiplier = None  # where `learning_rate_multiplier` is None

    def __init__(
        self,
        num_classes,
        centers=1,
        initializer="random_normal",
        learning_rate_multiplier=None,
        name="class_proxies",
        **kwargs,
    ):
        kwargs.setdefault("dtype", "float32")  # float16 merges the cosines of close rows
        super().__init__(name=name, autocast=False, **kwargs)
        counts = check_integer(1, num_classes=num_classes, centers=centers)
        self.num_classes, self.centers = counts
        if learning_rate_multiplier is not None:
            check_not_negative(learning_rate_multiplier=learning_rate_multiplier)
        self.initializer = keras.initializers.get(initializer)
        self.learning_rate_multiplier = learning_rate_multiplier

    def build(self, input_shape):
        centers = () if self.centers == 1 else (self.centers,)
        self.proxies = self.add_weight(
            shape=(self.num_classes, *centers, input_shape[-1]),
            initializer=self.initializer,
            name="proxies",
        )
        self.built = True

    def call(self, rows):
        return self.cosines(rows)

    def cosines(self, rows, classes=None):
        """As a call, for some of the classes, (n,) integers, or all."""
        directions = self.directions(rows.dtype, rows.shape[-1], classes)
        cosines = rows @ ops.transpose(ops.reshape(directions, (-1, directions.shape[-1])))
        return ops.reshape(cosines, (-1, *directions.shape[:-1]))

    def cosines_of_centers(self, rows, classes=None):
        """A list of the (n, C) floats of each center, without the array of all."""
        directions = self.directions(rows.dtype, rows.shape[-1], classes)
        if self.centers == 1:
            return [rows @ ops.transpose(directions)]
        return [rows @ ops.transpose(each) for each in ops.unstack(directions, axis=1)]

    def directions(self, dtype, dim=None, classes=None):
        """The first `dim` numbers of the proxies of `classes`, scaled to unit length."""
        proxies = self.proxies if classes is None else ops.take(self.proxies, classes, axis=0)
        return pairwise.normalize(ops.cast(proxies, dtype)[..., :dim])
