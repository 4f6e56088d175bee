import contextlib
import operator
import types
import warnings
from typing import Any

import keras
import numpy as np
from keras import ops

from tfdml import losses, pairwise
from tfdml.checks import Bare, check, check_integer, check_shapes, check_type
from tfdml.layers.gathering import num_replicas, share_of_replica
from tfdml.losses import MetricLoss
from tfdml.models import loss_layers
from tfdml.models.embedder import head_of, warn_of_unit_range
from tfdml.models.pair_warnings import WarnWithoutPairs, counted_batches, lacks_pairs

Base: Any = keras.Model  # with the steps of JAX and PyTorch
if keras.backend.backend() == "tensorflow":
    from tfdml.models.tape_model import TapeModel as Base


@keras.saving.register_keras_serializable("tfdml")
class EmbeddingModel(Base):
    """Trains an embedder with a metric loss, on every backend of Keras.

    Under a `tf.distribute` strategy the loss gets the embeddings and labels of all replicas, so
    that N replicas make the same update as one on the whole batch; on JAX so do devices of
    `keras.distribution`. Layers of the loss are trained, saved and restored with the model, as
    `model.loss_layers`. A loss with new layers gets the weights that the model trained before, or
    that it was loaded with.

    Args:
        embedder: A built `keras.Model` from images, or other inputs, to (batch, dim) embeddings,
            such as `build_embedder` returns.
        micro_batch: Images at a time in a training step, for large batches: the batch is embedded
            in pieces, the loss is that of the whole batch, and its gradients flow back in pieces,
            in the memory of one piece. Equal to a step at once up to rounding, except that batch
            normalisation that is trained uses the statistics of a piece. None for all at once.
            On the TensorFlow backend alone.
        **kwargs: Arguments of `keras.Model`.

    Raises:
        TypeError: If `embedder` is not a `keras.Model`.
        ValueError: If `embedder` has no defined input shape, not one output, or with `micro_batch`
            an `activity_regularizer`.

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

    def __init__(self, embedder, micro_batch=None, **kwargs):
        kind = "`embedder` must be a keras.Model, such as tfdml.models.build_embedder returns"
        check_type(isinstance(embedder, keras.Model), kind, embedder=embedder)
        known = "`embedder` must be a Functional or Sequential model of a known input shape"
        check(getattr(embedder, "inputs", None), known, embedder=embedder)
        one = (
            "`embedder` must have one output, the embeddings; of several, or a dict, make a model "
            "of one by keras.Model(embedder.inputs, embedder.get_layer(NAME).output)"
        )
        output_shape = embedder.compute_output_shape(embedder.input_shape)
        is_one = isinstance(output_shape, tuple) and not isinstance(output_shape[0], tuple)
        check(is_one, one, output_shape=output_shape)
        if micro_batch is not None:
            check_integer(1, micro_batch=micro_batch)
            layers = [each.name for each in embedder._flatten_layers() if each.activity_regularizer]
            none = "with `micro_batch` no layer may have an `activity_regularizer`, whose loss is"
            check(not layers, f"{none} of the activations of one piece", layers=layers)
        super().__init__(**kwargs)
        self.embedder = embedder
        self.micro_batch = None if micro_batch is None else int(micro_batch)
        self.mean_loss = keras.metrics.Mean(name="loss")
        self.loss_layers = []  # never reassigned: Keras would keep tracking the old list
        self._loaded = None  # weights of loss layers: None of no file, {} if the layers have them
        self.built = True  # without `build`, after which `compile` could not add a layer
        # In a namespace, so that Keras neither tracks nor saves them: `counted_batches`, and what
        # `predict_function` was traced with.
        self._met = types.SimpleNamespace(
            training=counted_batches(), evaluation=counted_batches(), parts_of_embedder=[]
        )

    def call(self, inputs, training=None):
        return self.embedder(inputs, training=training)

    def compile(self, optimizer="rmsprop", loss=None, **kwargs):
        """As `keras.Model.compile`; adds the trainable `layers` of the loss to the model.

        `loss` is a loss, its config, its name in `tfdml.losses` or Keras, or a dict of a name in
        `tfdml.losses` and options.

        Layers with `decays = False` are excluded from the weight decay of the optimizer.

        Raises:
            ValueError: If a layer of the loss has a `learning_rate_multiplier` that the optimizer
                does not apply, is that of another model, or has other shapes than the weights that
                the model has for it; if `loss_weights` are given for a metric loss; or for a
                `micro_batch` with XLA or on another backend than TensorFlow.
        """
        loss = _as_loss(loss)
        if isinstance(loss, MetricLoss):
            weights = kwargs.get("loss_weights")
            one = "`loss_weights` must be None: there is one loss; scale the regularizers instead"
            check(weights is None, one, loss_weights=weights)
        if self.micro_batch is not None:
            received, backend = {"micro_batch": self.micro_batch}, keras.backend.backend()
            one = "`micro_batch` must be None on JAX and PyTorch: only TensorFlow's step has pieces"
            check(backend == "tensorflow", one, **received, backend=backend)
            one = "`jit_compile` must not be true with `micro_batch`: XLA cannot compile pieces"
            check(kwargs.get("jit_compile") is not True, one, jit_compile=True, **received)
            kwargs["jit_compile"] = False
        layers = list(getattr(loss, "layers", ()))
        loss_layers.build_loss_layers(layers, self, self._trained_weights())
        super().compile(optimizer=optimizer, loss=loss, **kwargs)
        self.loss_layers.clear()
        self.loss_layers.extend(layers)
        if layers:
            self._loaded = None
        # Under float16 Keras wraps the optimizer.
        optimizer = getattr(self.optimizer, "inner_optimizer", self.optimizer)
        for layer in self.loss_layers:
            _check_multiplied(optimizer, layer)
            if not getattr(layer, "decays", True):
                _spare_from_decay(optimizer, layer.trainable_variables)

    def _trained_weights(self):
        """The weights of loss layers that this model trained or read from a file."""
        updates = int(self.optimizer.iterations) if self.compiled and self.optimizer else 0
        if not self._loaded and (self._loaded is not None or updates):
            return loss_layers.weights_of(self.loss_layers)
        return self._loaded or {}

    def load_own_variables(self, store):
        weights = loss_layers.weights_in_file(store, self.loss_layers)
        if weights:
            self._loaded = {} if self.loss_layers else weights

    def compile_from_config(self, config):
        # Keras does not use its saved configuration with an overridden `compile`.
        options = keras.saving.deserialize_keras_object(config)
        if isinstance(options.get("loss"), MetricLoss):
            options["loss_weights"] = None  # earlier versions ignored them
        self.compile(**options)
        if self.trainable_variables:  # none if it was saved frozen
            try:
                self.optimizer.build(self.trainable_variables)
            except ValueError as error:
                if self.embedder.trainable_variables:
                    raise
                warnings.warn(f"the state of the optimizer is not restored: {error}", stacklevel=2)

    def fit(
        self, x=None, y=None, *args, callbacks=None, validation_data=None, shuffle=None, **kwargs
    ):
        """As `keras.Model.fit`; warns once of batches without two images of one class, or of two.

        Not for losses over proxies of classes, which need none. The warning states how many of the
        batches lack positives or negatives, after ten batches or an epoch; of the validation, after
        the first. `loss` is the mean over batches that have either both, or a loss other than 0,
        and 0 before the first of these; see `evaluate` for `val_loss`.

        It also warns of an array of images in [0, 1] for an embedder of `build_embedder`, which
        takes [0, 255].

        Args:
            shuffle: Whether to shuffle arrays, or the order of the batches of a
                `keras.utils.PyDataset`, before each epoch; None means True. Other datasets must
                shuffle themselves.

        Raises:
            TypeError: If the labels of a metric loss are not integers.
            ValueError: If labels are not below the `num_classes` of the loss.
        """
        if isinstance(self.loss, MetricLoss):  # before Keras fails at a dtype or a list
            y = _checked_labels(y, self.loss)
            if isinstance(validation_data, (list, tuple)) and len(validation_data) > 1:
                images, labels, *weights = validation_data
                validation_data = (images, _checked_labels(labels, self.loss), *weights)
        if isinstance(x, np.ndarray):
            warn_of_unit_range(self.embedder, x)
        if shuffle is None:  # Keras warns of True for datasets that it cannot shuffle
            shuffle = y is not None or getattr(x, "num_batches", None) is not None
        kwargs |= {"callbacks": _with_warning(callbacks), "validation_data": validation_data}
        return super().fit(x, y, *args, shuffle=shuffle, **kwargs)

    def evaluate(self, x=None, y=None, *args, callbacks=None, return_dict=False, **kwargs):
        """As `keras.Model.evaluate`; warns of batches without positives or negatives, as `fit`.

        The loss is the mean over batches that have both, or a loss other than 0; NaN if none does.
        Images in the order of their classes must be shuffled before.
        """
        kwargs |= {"callbacks": _with_warning(callbacks), "return_dict": True}
        logs = super().evaluate(x, y, *args, **kwargs)
        if ops.equal(self.mean_loss.count, 0):
            logs["loss"] = float("nan")
        return logs if return_dict else self._flatten_metrics_in_order(logs)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        """As `keras.Model.compute_loss`, but passes `training` to the loss and measures it."""
        check(
            y is not None,
            "`EmbeddingModel` requires labels: two arrays, or a dataset of (images, labels)",
            labels=y,
        )
        rows = ops.shape(y_pred)[0]
        if not isinstance(self.loss, MetricLoss):
            loss = super().compute_loss(x, y, y_pred, sample_weight, training)
        else:
            adopted = {id(layer) for layer in self.loss_layers}
            check(
                adopted.issuperset(map(id, self.loss.layers)),
                "the loss got a layer after `compile`: call its `prepare` before, or compile again",
                layers=[layer.name for layer in self.loss.layers],
            )
            weighted = {} if sample_weight is None else {"sample_weight": sample_weight}
            self._compile_loss.built = True  # or Keras builds the model at every `train_on_batch`
            penalty = share_of_replica(sum(self.losses))
            loss = self.loss(y, y_pred, training=training, **weighted) + penalty
            if self.loss.traits.compares_rows:
                lacking = lacks_pairs(y)
                met = self._met.training if training else self._met.evaluation
                met.assign(met + ops.pad(ops.cast(lacking, "int32"), [(1, 0)], constant_values=1))
                rows = ops.where(ops.any(lacking) & ops.equal(loss, penalty), 0, rows)
        self.mean_loss.update_state(loss * num_replicas(), sample_weight=rows)
        return loss

    @property
    def metrics(self):
        return [self.mean_loss, *(m for m in super().metrics if m.name != self.mean_loss.name)]

    @property
    def metrics_variables(self):
        return [*super().metrics_variables, self._met.training, self._met.evaluation]

    def embed(self, inputs, batch_size=256, verbose=0):
        """Embeddings of all images, in order, by the embedder as it is.

        Args:
            inputs: (n, height, width, channels) array in [0, 255], or what else the embedder takes,
                such as texts, or a list or dict of arrays; or a `tf.data.Dataset` of batches of
                them or of `(images, labels)`.
            batch_size: Images at a time, for arrays.
            verbose: 1 shows a progress bar.

        Returns:
            (n, dim) NumPy float32.

        Raises:
            TypeError: If `inputs` are paths.
            ValueError: If an array has no images.
        """
        batch = {}
        if hasattr(inputs, "shape") or isinstance(inputs, (list, tuple, dict)):
            inputs, batch = _as_taken(self.embedder, inputs), {"batch_size": batch_size}
        if isinstance(inputs, np.ndarray):
            warn_of_unit_range(self.embedder, inputs)
        self.make_predict_function()
        embeddings = self.embedder.predict(inputs, verbose=verbose, **batch)
        return embeddings.astype("float32", copy=False)

    def make_predict_function(self, force=False):
        """As in Keras, and anew if layers or variables of the embedder have changed since."""
        parts = [*self.embedder._flatten_layers(), *self.embedder.variables]
        before = self._met.parts_of_embedder
        same = len(parts) == len(before) and all(map(operator.is_, parts, before))
        if force or not same or self.predict_function is None:
            self._met.parts_of_embedder = parts
            self.embedder.predict_function = self.predict_function = None
        return super().make_predict_function()

    def export(self, filepath, *args, **kwargs):
        """As `keras.Model.export`, of the embedder.

        `tfdml.serving.export_model` exports it with signatures that read encoded images.
        """
        return self.embedder.export(filepath, *args, **kwargs)

    def similarity(self, a, b):
        """Similarity of each row of `a` (n, dim) and the same row of `b` (n, dim): (n,) floats.

        The `similarity` that the loss learned, or else the cosine.

        Raises:
            ValueError: If the shapes of `a` and `b` are not (n, dim), the same for both.
        """
        a, b = (ops.convert_to_tensor(rows, "float32") for rows in (a, b))
        valid = len(a.shape) == 2 and a.shape == b.shape
        check_shapes(valid, "`a` and `b` must have the same shape (n, dim)", a=a, b=b)
        if isinstance(self.loss, MetricLoss) and self.loss.traits.learns_similarity:
            return ops.convert_to_numpy(self.loss.similarity(a, b))
        return ops.convert_to_numpy(ops.sum(pairwise.normalize(a) * pairwise.normalize(b), axis=1))

    def save(self, filepath, *args, **kwargs):
        """As `keras.Model.save`, to a `.keras` file."""
        kind = "`filepath` must end in .keras: Keras cannot load this class from HDF5"
        check(not str(filepath).endswith((".h5", ".hdf5")), kind, filepath=str(filepath))
        super().save(filepath, *args, **kwargs)

    def get_config(self):
        embedder = keras.saving.serialize_keras_object(self.embedder)
        return {**super().get_config(), "embedder": embedder, "micro_batch": self.micro_batch}

    @classmethod
    def from_config(cls, config):
        embedder = keras.saving.deserialize_keras_object(config["embedder"])
        return cls(**{**config, "embedder": embedder})


def model_of_head(model):
    """The `EmbeddingModel` of the head of a compiled one, with its weights, loss and optimizer."""
    head = EmbeddingModel(head_of(model.embedder))
    # Without that of the class, which takes no loss of another model.
    super(EmbeddingModel, head).compile(optimizer=model.optimizer, loss=model.loss)
    head.loss_layers.extend(model.loss_layers)
    return head


def _as_loss(identifier):
    is_one = not isinstance(identifier, (list, tuple, dict))
    is_one |= isinstance(identifier, dict) and not {"name", "class_name"}.isdisjoint(identifier)
    expectation = (
        "`loss` must be one loss, its name, or a dict with its `name` among the options: an "
        "EmbeddingModel has one output"
    )
    check(is_one, expectation, loss=identifier)
    if isinstance(identifier, str) and identifier not in losses.LOSSES:
        with contextlib.suppress(ValueError):
            return keras.losses.get(identifier)
    return losses.get(identifier) if isinstance(identifier, (str, dict)) else identifier


def _checked_labels(labels, loss):
    """The labels of a call of `fit`; those of a list as an array."""
    if labels is None or ops.is_tensor(labels):
        return labels
    loss.check_labels(np.asarray(labels))
    return np.asarray(labels) if isinstance(labels, (list, tuple)) else labels


def _with_warning(callbacks):
    """The callbacks of a call of `fit` or `evaluate`, and `WarnWithoutPairs`."""
    if isinstance(callbacks, keras.callbacks.CallbackList):
        return callbacks
    return [*keras.tree.flatten(callbacks or []), WarnWithoutPairs()]


def _as_taken(embedder, inputs):
    """Inputs of `embed` as Keras takes them: an array instead of a list, a tensor of texts."""
    if isinstance(inputs, dict):
        return {name: _as_taken(embedder, rows) for name, rows in inputs.items()}
    one_each = isinstance(inputs, (list, tuple)) and len(inputs) == len(embedder.inputs)
    if one_each and np.ndim(inputs[0]) == len(embedder.inputs[0].shape):
        return [_as_taken(embedder, rows) for rows in inputs]
    if not isinstance(inputs, (list, tuple, np.ndarray)):
        return inputs
    rows = np.asarray(inputs)
    is_text = rows.dtype.kind in "USO"
    expectation = (
        "`inputs` must be images; read those of paths by pipelines.evaluation_batches("
        "pipelines.Split(paths, labels), image_size)"
    )
    takes_texts = any(taken.dtype == "string" for taken in embedder.inputs)
    check_type(takes_texts or not is_text, expectation, dtype=Bare(rows.dtype))
    check(len(rows) > 0, "there must be one image or more", images=0)
    return ops.convert_to_tensor(rows) if is_text else rows


def _check_multiplied(optimizer, layer):
    """Raises a ValueError if the optimizer ignores the learning-rate multiplier of a layer."""
    wanted = getattr(layer, "learning_rate_multiplier", None)
    if wanted in (None, 1.0):
        return
    multiplier_at = getattr(optimizer, "multiplier_at", lambda path: 1.0)
    for variable in layer.trainable_variables:
        given = multiplier_at(variable.path)
        check(
            given == wanted,
            f"{layer.name!r} of the loss requires {wanted:g} times the learning rate: build the "
            f"optimizer with multipliers={{'^{layer.name}/': {wanted:g}}}, which "
            "tfdml.optimizers.Adam supports",
            given=given,
        )


def _spare_from_decay(optimizer, variables):
    """Excludes variables from Keras' `weight_decay`, in addition to those already excluded."""
    if optimizer.built or not variables:
        return
    # Keras' method forgets the exclusions of earlier calls.
    excluded = getattr(optimizer, "_exclude_from_weight_decay", set())
    pattern = getattr(optimizer, "_exclude_from_weight_decay_pattern", None)
    optimizer.exclude_from_weight_decay(variables, [pattern.pattern] if pattern else None)
    optimizer._exclude_from_weight_decay |= excluded
