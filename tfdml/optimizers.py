"""Keras optimizers with learning-rate multipliers for groups of variables and L2 decay.

>>> from tfdml import optimizers
>>> optimizer = optimizers.Adam(1e-4, multipliers={"embedding/": 10.0})
"""

import re

import keras
from keras import ops

from tfdml.checks import check, check_not_negative
from tfdml.pairwise import tf  # None on JAX and PyTorch: gradients of all rows, no replicas


class _PerVariable(keras.optimizers.Optimizer):
    """Mixin that scales the learning rate of each variable and adds L2 decay of kernels.

    Unlike `keras.optimizers.MultiOptimizer` it keeps its state in `tf.train.Checkpoint` and
    clips by the norm over all variables.
    """

    def __init__(
        self,
        *args,
        multipliers=None,
        bias_multiplier=1.0,
        layer_multipliers=(),
        l2=0.0,
        head_steps=0,
        **kwargs,
    ):
        super().__init__(*args, **kwargs)
        self.multipliers = dict(multipliers or {})
        factors = {f"multipliers[{pattern!r}]": by for pattern, by in self.multipliers.items()}
        options = {"bias_multiplier": bias_multiplier, "l2": l2, "head_steps": head_steps}
        factors |= {f"layer_multipliers[{i}]": by for i, by in enumerate(layer_multipliers)}
        check_not_negative(**factors, **options)
        self.layer_multipliers = list(layer_multipliers)
        self.bias_multiplier, self.l2, self.head_steps = bias_multiplier, l2, head_steps
        self._multiplier_of = []  # in the order of the variables
        self._is_new = []  # whether a pattern of `multipliers` matches, in the same order

    def build(self, variables):
        paths = [variable.path for variable in variables]
        expectation = "every pattern of `multipliers` must match a variable's path"
        for pattern in self.multipliers:
            matches = any(re.search(pattern, path) for path in paths)
            check(matches, expectation, pattern=pattern, paths=paths)
        for path in paths:
            multiplier = self.multiplier_at(path)
            self._is_new.append(bool(self._matching(path)))
            is_bias = re.search(r"(^|[/_])bias$", path)
            self._multiplier_of.append(multiplier * (self.bias_multiplier if is_bias else 1.0))
        count = len(self.layer_multipliers)
        expectation = "`layer_multipliers` must be of the variables, or of the first of them"
        check(count <= len(paths), expectation, multipliers=count, variables=len(paths))
        for place, factor in enumerate(self.layer_multipliers):
            self._multiplier_of[place] *= factor
        super().build(variables)

    def multiplier_at(self, path):
        """The multiplier whose pattern matches the path of a variable, or 1."""
        matching = self._matching(path)
        expectation = "at most one pattern of `multipliers` may match a variable's path"
        check(len(matching) <= 1, expectation, path=path, patterns=matching)
        return self.multipliers[matching[0]] if matching else 1.0

    def _matching(self, path):
        return [pattern for pattern in self.multipliers if re.search(pattern, path)]

    def _clip_gradients(self, grads):
        # Keras' clipping would make a gradient of some rows one of all rows.
        if not (self.clipnorm or self.clipvalue or self.global_clipnorm):
            return grads
        grads, replicas = _sums_of_replicas(grads)
        values = [grad.values if _is_of_rows(grad) else grad for grad in grads]
        clipped = [value / replicas for value in super()._clip_gradients(values)]  # added up later
        return [
            type(grad)(value, grad.indices, grad.dense_shape) if _is_of_rows(grad) else value
            for grad, value in zip(grads, clipped, strict=True)
        ]

    def update_step(self, gradient, variable, learning_rate):
        index = self._get_variable_index(variable)
        multiplier = self._multiplier_of[index]
        if self.head_steps and not self._is_new[index]:
            rate = ops.convert_to_tensor(learning_rate)
            learning_rate = ops.where(self.iterations < self.head_steps, 0.0, rate)
        if self.l2 and len(variable.shape) >= 2 and self._use_weight_decay(variable):
            gradient = gradient + ops.cast(self.l2 * variable, gradient.dtype)
        learning_rate = learning_rate * multiplier
        if _is_of_rows(gradient) and not getattr(self, "amsgrad", False):
            self._update_rows(gradient, variable, index, learning_rate)
        else:
            super().update_step(gradient, variable, learning_rate)

    def _update_rows(self, gradient, variable, index, learning_rate):
        """The update of the rows that have a gradient, and of their moments, alone."""
        rows, values = _merged(gradient)

        def resource(slot):  # of Keras, or already TensorFlow's
            return slot if isinstance(slot, tf.Variable) else slot.value

        def current(slot):
            return tf.gather(resource(slot), rows)

        for slot, value in self.updated_rows(current, variable, index, values, learning_rate):
            tf.raw_ops.ResourceScatterUpdate(
                resource=resource(slot).handle, indices=rows, updates=tf.cast(value, slot.dtype)
            )

    def get_config(self):
        names = ("multipliers", "bias_multiplier", "layer_multipliers", "l2", "head_steps")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


def _is_of_rows(gradient):
    """Whether a gradient is of some rows, as TensorFlow gives for gathered ones."""
    return tf is not None and hasattr(gradient, "indices")


def _sums_of_replicas(grads):
    """The gradients of the whole batch, each row of some once, and the number of its replicas."""
    if tf is None:
        return grads, 1
    context, sums, replicas = tf.distribute.get_replica_context(), list(grads), 1
    if context is not None and context.num_replicas_in_sync > 1:
        sums, replicas = context.all_reduce("sum", grads), context.num_replicas_in_sync
    for place, grad in enumerate(sums):
        if _is_of_rows(grad):
            rows, values = _merged(grad)
            sums[place] = type(grad)(values, rows, grad.dense_shape)
    return sums, replicas


def _merged(gradient):
    """The rows of a gradient of some rows, each once, and their values."""
    rows, places = tf.unique(gradient.indices)
    return rows, tf.math.unsorted_segment_sum(gradient.values, places, tf.size(rows))


@keras.saving.register_keras_serializable("tfdml")
class SGD(_PerVariable, keras.optimizers.SGD):
    """`keras.optimizers.SGD` with learning rates per variable, `l2` and `head_steps`.

    Differs: without `l2`, a gradient of some rows of a variable, as of `keras.layers.Embedding`,
    moves these rows alone and leaves the momentum of others; Keras moves all rows.

    Args:
        multipliers: {regular expression on `variable.path`: factor >= 0 of the learning rate}. At
            most one may match a variable; the factor of all others is 1.
        bias_multiplier: Further factor >= 0 for variables named `bias`, or `score_bias` and so on;
            2 in Caffe's models.
        layer_multipliers: Further factors >= 0 of the variables, in their order, such as
            `tfdml.models.layer_multipliers` makes for the first of them; 1 for the others.
        l2: Adds `l2 * kernel` to the gradient of each variable of two dimensions or more, before
            momentum, as Caffe's `weight_decay`; not for biases and gains, nor for those given to
            `exclude_from_weight_decay`, as `EmbeddingModel.compile` gives proxies of classes.
            Keras' own `weight_decay` shrinks variables separately from the gradient.
        head_steps: Number of first steps whose gradients only update variables matched by
            `multipliers`, such as new layers on top of a pretrained network. Keras'
            `weight_decay` knows neither these steps nor the multipliers: use `l2`.
        *args, **kwargs: Arguments of `keras.optimizers.SGD`.

    Raises:
        ValueError: When built, if a pattern matches no variable or two match one.
    """

    def updated_rows(self, current, variable, index, gradient, learning_rate):
        """The variables of an update with the new values of their rows."""
        step = -learning_rate * gradient
        if not self.momentum:
            return [(variable, current(variable) + step)]
        m = self.momentums[index]
        new_m = self.momentum * current(m) + step
        step = self.momentum * new_m + step if self.nesterov else new_m
        return (m, new_m), (variable, current(variable) + step)


@keras.saving.register_keras_serializable("tfdml")
class Adam(_PerVariable, keras.optimizers.Adam):
    """`keras.optimizers.Adam` with the further arguments and errors of `tfdml.optimizers.SGD`."""

    def updated_rows(self, current, variable, index, gradient, learning_rate):
        """The variables of an update with the new values of their rows."""
        m, v = self._momentums[index], self._velocities[index]
        step = ops.cast(self.iterations + 1, gradient.dtype)
        new_m = current(m) + (1 - self.beta_1) * (gradient - current(m))
        new_v = current(v) + (1 - self.beta_2) * (ops.square(gradient) - current(v))
        rate = learning_rate * ops.sqrt(1 - self.beta_2**step) / (1 - self.beta_1**step)
        moved = current(variable) - rate * new_m / (ops.sqrt(new_v) + self.epsilon)
        return (m, new_m), (v, new_v), (variable, moved)
