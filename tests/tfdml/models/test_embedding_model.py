import re
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from small_models import LABELS, build

from tfdml import EmbeddingModel, losses, models, optimizers


def test_a_step_equals_one_by_hand(images):
    model, twin = (build(optimizer=keras.optimizers.SGD(0.1)) for _ in range(2))
    with tf.GradientTape() as tape:
        loss = losses.get("triplet")(LABELS, twin.embedder(images, training=True))
    gradients = tape.gradient(loss, twin.trainable_variables)
    twin.optimizer.apply(gradients, twin.trainable_variables)
    logs = model.train_on_batch(images, LABELS, return_dict=True)
    np.testing.assert_allclose(logs["loss"], loss, rtol=1e-6)
    for ours, theirs in zip(model.trainable_variables, twin.trainable_variables, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_the_first_step_is_traced_once(images):
    traced = []

    class Counted(EmbeddingModel):
        def train_step(self, data):
            traced.append(data)
            return super().train_step(data)

    model = Counted(build().embedder)
    model.compile(optimizers.Adam(1e-3), losses.get("triplet"))
    model.fit(images, LABELS, batch_size=8, verbose=0)
    assert len(traced) == 1


def test_arrays_are_shuffled_unless_asked_otherwise(images):
    seen = []

    class Watched(EmbeddingModel):
        def train_step(self, data):
            seen.append(data[1].numpy())
            return super().train_step(data)

    for shuffle in (None, False):
        keras.utils.set_random_seed(0)
        model = Watched(build().embedder)
        model.compile("sgd", losses.get("triplet"), run_eagerly=True)
        model.fit(images, LABELS, batch_size=16, verbose=0, shuffle=shuffle)
    np.testing.assert_array_equal(seen[1], LABELS)
    assert (seen[0] != LABELS).any()
    np.testing.assert_array_equal(np.sort(seen[0]), LABELS)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_batches_without_a_positive_pair_are_warned_of_once(jit_compile, images):
    model = build(jit_compile=jit_compile)
    batches = tf.data.Dataset.from_tensor_slices((images, LABELS)).batch(4)
    lonely = tf.data.Dataset.from_tensor_slices((images[::4], LABELS[::4])).batch(4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # also of `shuffle`, which a dataset does for itself
        model.fit(batches, verbose=0)
    for data in (lonely.concatenate(batches), batches.concatenate(lonely)):
        with pytest.warns(UserWarning, match="no two images of one class") as found:
            model.fit(data.map(lambda x, y: (x, tf.cast(y, tf.uint8))), epochs=2, verbose=0)
        assert sum("no two images" in str(warning.message) for warning in found) == 1
    with pytest.warns(UserWarning, match="no two images of one class"):
        model.fit(images[::4], LABELS[::4], verbose=0)


def test_proxies_need_no_positive_pair(images):
    base = {"name": "norm_softmax", "num_classes": 4}
    for each in (losses.get(base), losses.get("matryoshka", base=base, dims=[4])):
        model = build(loss=each)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model.fit(images[::4], LABELS[::4], verbose=0)


def test_evaluate_reports_the_loss_and_trains_nothing(images):
    model = build()
    before = [np.array(v) for v in model.embedder.variables]
    reported = model.evaluate(images, LABELS, batch_size=16, verbose=0)
    expected = losses.get("triplet")(LABELS, model.embed(images))
    np.testing.assert_allclose(reported, expected, rtol=1e-5)
    for old, new in zip(before, model.embedder.variables, strict=True):
        np.testing.assert_array_equal(old, new)


def test_the_loss_of_an_epoch_is_the_mean_of_its_batches(images):
    model = build(optimizer=keras.optimizers.SGD(0.0))
    model.embedder.trainable = False
    halves = [
        losses.get("triplet")(LABELS[rows], model.embed(images[rows]))
        for rows in (slice(0, 8), slice(8, 16))
    ]
    reported = model.evaluate(images, LABELS, batch_size=8, verbose=0)
    np.testing.assert_allclose(reported, np.mean(halves), rtol=1e-5)


def test_class_ids_above_two_to_the_24_stay_apart(images):
    model = build()
    merged_as_floats = 2**24 + np.arange(16) % 2 + 2**26 * (np.arange(16) // 8)
    reported = model.evaluate(images, merged_as_floats, batch_size=16, verbose=0)
    expected = losses.get("triplet")(merged_as_floats, model.embed(images))
    np.testing.assert_allclose(reported, expected, rtol=1e-5)


@pytest.mark.parametrize("loss", [pytest.param("triplet", marks=pytest.mark.slow), "pddm"])
def test_metrics_are_of_labels_and_embeddings(loss, images, tmp_path):
    metric = keras.metrics.SparseCategoricalCrossentropy(from_logits=True, name="entropy")
    model = build(loss=losses.get(loss), metrics=[metric])

    def expected():
        entropies = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        return entropies(LABELS, model.embed(images))

    reported = model.evaluate(images, LABELS, batch_size=16, verbose=0, return_dict=True)
    assert set(reported) == {"loss", "entropy"}
    np.testing.assert_allclose(reported["entropy"], expected(), rtol=1e-5)
    validated = {"validation_data": (images, LABELS), "validation_batch_size": 16, "verbose": 0}
    history = model.fit(images, LABELS, batch_size=8, epochs=2, **validated).history
    assert set(history) == {"loss", "entropy", "val_loss", "val_entropy"}
    assert history["entropy"][0] != history["val_entropy"][0] != history["val_entropy"][1]
    np.testing.assert_allclose(history["val_entropy"][1], expected(), rtol=1e-5)
    model.save(tmp_path / "model.keras")
    restored = keras.models.load_model(tmp_path / "model.keras")
    reported = restored.evaluate(images, LABELS, batch_size=16, verbose=0, return_dict=True)
    np.testing.assert_allclose(reported["entropy"], expected(), rtol=1e-5)


def test_embeds_arrays_and_datasets_alike(images):
    model = build()
    batches = tf.data.Dataset.from_tensor_slices((images, LABELS)).batch(5)
    expected = model.embedder(images).numpy()
    np.testing.assert_allclose(model.embed(images, batch_size=7), expected, atol=1e-6)
    np.testing.assert_allclose(model.embed(batches), expected, atol=1e-6)
    images_only = batches.map(lambda images, labels: images)
    np.testing.assert_allclose(model.embed(images_only), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("inputs", "error", "message"),
    [
        (["a.png", "b.png"], TypeError, r"`inputs` must be images; .*pipelines\.Split\(paths"),
        (np.zeros((0, 28, 28, 1)), ValueError, "one image or more. Received: images=0"),
    ],
)
def test_rejects_what_it_cannot_embed(inputs, error, message):
    with pytest.raises(error, match=message):
        build().embed(inputs)


def test_warns_of_images_in_the_unit_range(images):
    embedder = models.build_embedder("small_cnn", 8, input_shape=images.shape[1:])
    model, divided = EmbeddingModel(embedder), (images / 255).astype("float32")
    model.compile("sgd", losses.get("triplet"))
    with pytest.warns(UserWarning, match=r"images are in \[0, 1\] .* multiply them by 255"):
        model.embed(divided)
    with pytest.warns(UserWarning, match="take .0, 255.: multiply them by 255"):
        model.fit(divided, LABELS, verbose=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build().embed(divided)  # another's network may be made for such images
        model.embed(images.astype("uint8"))
        model.embed(np.zeros_like(images))


def test_similarity_is_the_cosine_of_rows():
    cosines = build().similarity([[1.0, 0.0], [3.0, 4.0]], [[0.0, 2.0], [6.0, 8.0]])
    np.testing.assert_allclose(cosines, [0.0, 1.0], atol=1e-6)


@pytest.mark.parametrize("loss", ["triplet", "pddm"])
@pytest.mark.parametrize("shapes", [((3, 8), (1, 8)), ((3, 8), (3, 4)), ((8,), (8,))])
def test_similarity_rejects_shapes_that_do_not_match(loss, shapes):
    a, b = map(np.ones, shapes)
    message = f"Received: a.shape={a.shape}, b.shape={b.shape}"
    with pytest.raises(ValueError, match=re.escape(message)):
        build(loss=losses.get(loss)).similarity(a, b)


@pytest.mark.parametrize(
    ("embedder", "error", "message"),
    [
        (
            "small_cnn",
            TypeError,
            "keras.Model.*Received: embedder='small_cnn'",
        ),
        (keras.layers.Dense(2), TypeError, "keras.Model.*Received: embedder=<Dense"),
        (
            keras.Sequential([keras.layers.Dense(2)]),
            ValueError,
            "model of a known input shape. Received: embedder=<Sequential .*built=False>",
        ),
        (keras.Model(), ValueError, "model of a known input shape. Received: embedder=<Model"),
    ],
)
def test_rejects_what_is_no_built_model(embedder, error, message):
    with pytest.raises(error, match=message):
        EmbeddingModel(embedder)


def test_rejects_weights_of_its_one_loss():
    with pytest.raises(ValueError, match=r"`loss_weights` must be None.*loss_weights=0.1"):
        build(loss_weights=0.1)


def test_weighted_metrics_take_the_weights(images):
    entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    metric = keras.metrics.SparseCategoricalCrossentropy(from_logits=True, name="entropy")
    model = build()
    model.compile(loss=entropy, weighted_metrics=[metric])
    weights = np.arange(16.0)
    reported = model.evaluate(images, LABELS, sample_weight=weights, verbose=0, return_dict=True)
    expected = entropy(LABELS, model.embed(images), sample_weight=weights) * 16 / weights.sum()
    np.testing.assert_allclose(reported["entropy"], expected, rtol=1e-5)


def test_exports_its_embedder(images, tmp_path):
    model = build()
    model.export(tmp_path / "exported", verbose=False)
    version = tf.saved_model.load(tmp_path / "exported")
    served = version.serve(images.astype("float32"))
    np.testing.assert_allclose(served, model.embed(images), atol=1e-5)


def test_embeddings_of_16_bits_become_float32():
    layers = [keras.Input((6,)), keras.layers.Dense(4, dtype="bfloat16")]
    model = EmbeddingModel(keras.Sequential(layers))
    assert model.embed(np.ones((3, 6), "float32")).dtype == "float32"


@pytest.mark.parametrize("loss", ["triplet", "pddm"])
def test_rejects_to_fit_without_labels(loss, images):
    message = r"labels.*Received: labels=None"
    with pytest.raises(ValueError, match=message):
        build(loss=losses.get(loss)).fit(images, verbose=0)
    with pytest.raises(ValueError, match=message):
        build(loss=losses.get(loss)).evaluate(tf.data.Dataset.from_tensors(images), verbose=0)


def test_asks_for_compile_before_fit(images):
    with pytest.raises(ValueError, match=r"call `compile\(\)`"):
        EmbeddingModel(build().embedder).fit(images, LABELS)


NAMES = np.array(["cat", "dog", "owl", "yak"])[LABELS % 4]


@pytest.mark.parametrize("names", [NAMES, list(NAMES), NAMES.astype(object)])
def test_names_as_labels_are_rejected_with_how_to_convert_them(names, images):
    message = r"np\.unique\(labels, return_inverse=True\)\[1\]\. Received: dtype="
    for given in ((images, names), (images, LABELS, {"validation_data": (images, names)})):
        *arrays, options = given if isinstance(given[-1], dict) else (*given, {})
        with pytest.raises(TypeError, match=message):
            build().fit(*arrays, verbose=0, **options)


def test_names_in_a_dataset_are_rejected_in_a_plain_model_too(images):
    batches = tf.data.Dataset.from_tensor_slices((images, NAMES)).batch(8)
    model = keras.Sequential([build().embedder])
    model.compile("sgd", losses.get("triplet"))
    with pytest.raises(TypeError, match=r"np\.unique\(labels.*Received: dtype=string"):
        model.fit(batches, shuffle=False, verbose=0)


def test_labels_beyond_the_classes_of_the_loss_are_rejected_before_training(images):
    model = build(loss=losses.get("cosface", num_classes=3))
    with pytest.raises(ValueError, match=r"from 0 to 2, .*Received: labels=0 to 3"):
        model.fit(images, LABELS, verbose=0)
    with pytest.raises(ValueError, match=r"from 0 to 2, .*Received: labels=0 to 3"):
        model.fit(images, LABELS % 3, validation_data=(images, LABELS), verbose=0)


def test_a_list_of_labels_trains_as_an_array_does(images):
    trained = []
    for labels in (LABELS, LABELS.tolist()):
        keras.utils.set_random_seed(0)
        trained.append(build().fit(images, labels, shuffle=False, verbose=0).history["loss"])
    assert trained[0] == trained[1]


def test_labels_of_a_loss_of_keras_may_be_floats(images):
    model = EmbeddingModel(build().embedder)
    model.compile("sgd", "mse")
    model.fit(images, np.zeros((len(images), 8)), verbose=0)
