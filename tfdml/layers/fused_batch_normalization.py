import keras

from tfdml.pairwise import tf


@keras.saving.register_keras_serializable("tfdml")
class FusedBatchNormalization(keras.layers.BatchNormalization):
    """`keras.layers.BatchNormalization` that TensorFlow computes by a single operation.

    Keras composes it and its gradients of a dozen operations, each of which reads or writes all
    maps, in 32 bits. The single ones serve maps with the channels last: training in up to 32 bits,
    and inference, or training of a frozen layer, in 16 bits. All else, and other backends, are left
    to Keras. Results equal those of Keras up to rounding.

    Args:
        *args, **kwargs: Arguments of `keras.layers.BatchNormalization`.

    Call:
        As in Keras.

    Example:
        >>> layer = FusedBatchNormalization(epsilon=0.0)
        >>> print(np.asarray(layer(np.array([[[[1.0], [3.0]]]]), training=True)))
        [[[[-1.]
           [ 1.]]]]
    """

    def call(self, inputs, training=None, mask=None):
        uses_batch = bool(training and self.trainable)
        fuses = self._can_fuse(inputs) and (uses_batch or self.compute_dtype != "float32")
        if mask is not None or not fuses:
            return super().call(inputs, training=training, mask=mask)
        outputs, mean, variance, *_ = tf.raw_ops.FusedBatchNormV3(
            x=inputs,
            scale=self.gamma if self.scale else tf.ones(inputs.shape[-1]),
            offset=self.beta if self.center else tf.zeros(inputs.shape[-1]),
            mean=[] if uses_batch else self.moving_mean,
            variance=[] if uses_batch else self.moving_variance,
            epsilon=self.epsilon,
            is_training=uses_batch,
        )
        if uses_batch:
            count = tf.cast(tf.size(inputs) // tf.size(mean), mean.dtype)
            variance *= (count - 1.0) / count  # TensorFlow's is unbiased, Keras' not
            for average, value in ((self.moving_mean, mean), (self.moving_variance, variance)):
                average.assign(self.momentum * average + (1.0 - self.momentum) * value)
        return outputs

    def _can_fuse(self, inputs):
        return (
            tf is not None
            and len(inputs.shape) == 4
            and self.axis in (-1, 3)
            and not self.synchronized
            and not getattr(self, "renorm", False)  # of Keras 3.15
            and self.compute_dtype in ("float16", "bfloat16", "float32")
            and self.variable_dtype == "float32"
        )
