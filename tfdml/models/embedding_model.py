import keras
import tensorflow as tf

from tfdml import pairwise


@keras.saving.register_keras_serializable("tfdml")
class EmbeddingModel(keras.Model):
    """Trains an embedder with a metric loss by `tf.GradientTape`.

    Under a `tf.distribute` strategy the loss sees the embeddings and labels of all replicas, so
    that N replicas make the same update as one on the whole batch. What the loss learns, its
    `layer`, is trained, saved and restored with the model, as `model.loss_layer`.

    Args:
        embedder: A built `keras.Model` from images to (batch, dim) embeddings, such as
            `build_embedder` gives.

    Example:
        >>> import tfdml
        >>> embedder = tfdml.models.build_embedder("small_cnn", 8, input_shape=(28, 28, 1))
        >>> model = tfdml.EmbeddingModel(embedder)
        >>> model.compile(optimizer="adam", loss=tfdml.losses.TripletLoss(margin=0.2))
        >>> images = np.random.default_rng(0).uniform(0, 255, (8, 28, 28, 1))
        >>> history = model.fit(images, np.array([0, 0, 1, 1, 2, 2, 3, 3]), verbose=0)
        >>> model.embed(images).shape
        (8, 8)
    """

    def __init__(self, embedder, **kwargs):
        super().__init__(**kwargs)
        self.embedder = embedder
        self.mean_loss = keras.metrics.Mean(name="loss")
        self._loss_layers = []  # a list, as an attribute given anew keeps its old layer tracked
        self.built = True  # not by `build`, which forbids `compile` to adopt a layer

    def call(self, inputs, training=None):
        return self.embedder(inputs, training=training)

    def compile(self, optimizer="rmsprop", loss=None, **kwargs):
        """As `keras.Model.compile`; adopts the `layer` of a loss that has one."""
        super().compile(optimizer=optimizer, loss=loss, **kwargs)
        self._loss_layers.clear()
        layer = getattr(loss, "layer", None)
        if layer is not None:
            self._loss_layers.append(layer)
            if not layer.built:
                layer.build(self.embedder.output_shape)

    @property
    def loss_layer(self):
        """The layer of the loss, trained with the model; None if it learns nothing."""
        return self._loss_layers[0] if self._loss_layers else None

    def compile_from_config(self, config):
        # Keras does not trust an overridden `compile` to take its own configuration.
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    def train_step(self, data):
        images, labels, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            loss = self._loss_of_batch(images, labels, sample_weight, training=True)
            scaled = self.optimizer.scale_loss(loss)
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(scaled, variables), variables)
        return self.get_metrics_result()

    def test_step(self, data):
        images, labels, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        self._loss_of_batch(images, labels, sample_weight, training=False)
        return self.get_metrics_result()

    def _loss_of_batch(self, images, labels, sample_weight, training):
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        embeddings, labels = _of_all_replicas(self(images, training=training), labels)
        if self.loss_layer is None:
            loss = self.compute_loss(
                x=images, y=labels, y_pred=embeddings, sample_weight=sample_weight
            )
        else:  # Keras does not tell a loss whether it trains
            weights = () if sample_weight is None else (sample_weight,)
            loss = self.loss(labels, embeddings, *weights, training=training)
            loss += sum(self.losses) / replicas
        self.mean_loss.update_state(loss * replicas, sample_weight=tf.shape(embeddings)[0])
        return loss

    @property
    def metrics(self):
        return [self.mean_loss, *(m for m in super().metrics if m.name != self.mean_loss.name)]

    def embed(self, inputs, batch_size=256, verbose=0):
        """Embeddings of all images, in order.

        Args:
            inputs: (n, height, width, channels) array in [0, 255], or a `tf.data.Dataset` of
                batches of images or of `(images, labels)`.
            batch_size: Images at a time, for an array.
            verbose: 1 shows a progress bar.

        Returns:
            (n, dim) NumPy float32.
        """
        if isinstance(inputs, tf.data.Dataset):
            return self.embedder.predict(inputs, verbose=verbose)
        return self.embedder.predict(inputs, batch_size=batch_size, verbose=verbose)

    def similarity(self, a, b):
        """Similarity of each row of `a` (n, dim) and the same row of `b` (n, dim): (n,) floats.

        The score that the loss learned, by its `similarity`, or else the cosine.
        """
        if self.loss_layer is not None:
            rows = (tf.convert_to_tensor(rows, tf.float32) for rows in (a, b))
            return self.loss.similarity(*rows).numpy()
        a, b = (pairwise.normalize(tf.convert_to_tensor(rows, tf.float32)) for rows in (a, b))
        return tf.reduce_sum(a * b, axis=1).numpy()

    def get_config(self):
        return {"name": self.name, "embedder": keras.saving.serialize_keras_object(self.embedder)}

    @classmethod
    def from_config(cls, config):
        embedder = keras.saving.deserialize_keras_object(config["embedder"])
        return cls(embedder, name=config["name"])


def _of_all_replicas(*tensors):
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return tensors
    return tuple(context.all_gather(tensor, axis=0) for tensor in tensors)
