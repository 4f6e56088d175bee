import re
import warnings

import keras
import numpy as np
import pytest
from small_models import LABELS, build, on_tensorflow, outputs

from tfdml import EmbeddingModel, losses, models

if keras.backend.backend() == "tensorflow":
    import tensorflow as tf

pytestmark = pytest.mark.usefixtures("without_xla")


@pytest.mark.parametrize("loss", ["triplet", "pddm"])  # the latter with dropout in training
def test_evaluate_reports_the_loss_and_trains_nothing(loss, images):
    model = build(loss=losses.get(loss))
    before = [np.array(v) for v in model.embedder.variables]
    merged_as_floats = 2**24 + np.arange(16) % 2 + 2**26 * (np.arange(16) // 8)
    for labels in (LABELS, merged_as_floats):
        reported = model.evaluate(images, labels, batch_size=16, verbose=0)
        expected = float(model.loss(labels, model.embed(images)))
        np.testing.assert_allclose(reported, expected, rtol=1e-5)
    for old, new in zip(before, model.embedder.variables, strict=True):
        np.testing.assert_array_equal(old, new)


def test_metrics_are_of_labels_and_embeddings(images, tmp_path):
    metric = keras.metrics.SparseCategoricalCrossentropy(from_logits=True, name="entropy")
    model = build(loss=losses.get("pddm"), metrics=[metric], run_eagerly=True)

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


@on_tensorflow
def test_embeds_arrays_and_datasets_alike(images):
    model = build()
    batches = tf.data.Dataset.from_tensor_slices((images, LABELS)).batch(5)
    expected = outputs(model.embedder, images)
    np.testing.assert_allclose(model.embed(images, batch_size=7), expected, atol=1e-6)
    np.testing.assert_allclose(model.embed(batches), expected, atol=1e-6)
    images_only = batches.map(lambda images, labels: images)
    np.testing.assert_allclose(model.embed(images_only), expected, atol=1e-6)


@pytest.mark.parametrize("compiles", [False, True])
def test_embeds_by_the_network_as_it_is(compiles, images):
    model = build(optimizer="sgd", loss=losses.get("contrastive"))
    dense = model.embedder.layers[2]
    model.embed(images)
    traced = model.embedder.predict_function
    model.embed(images)
    assert model.embedder.predict_function is traced
    dense.enable_lora(2)
    if compiles:
        model.compile("sgd", losses.get("contrastive"))
    dense.lora_kernel_b.assign(np.ones(dense.lora_kernel_b.shape))
    expected = outputs(model.embedder, images)
    np.testing.assert_allclose(model.embed(images), expected, atol=1e-5)
    np.testing.assert_allclose(model.predict_on_batch(images), expected, atol=1e-5)
    model.embedder.quantize("int8")
    quantized = outputs(model.embedder, images)
    assert np.abs(quantized - expected).max() > 1e-5
    np.testing.assert_allclose(model.embed(images), quantized, atol=1e-5)
    np.testing.assert_allclose(model.predict(images, verbose=0), quantized, atol=1e-5)


def test_embeds_what_the_embedder_takes(rng):
    a, b = rng.normal(size=(2, 5, 3)).astype("float32")
    inputs = keras.Input((3,), name="a"), keras.Input((3,), name="b")
    rows = keras.layers.Dense(2)(keras.layers.Subtract()(inputs))
    model = EmbeddingModel(keras.Model(inputs, rows))
    expected = outputs(model.embedder, [a, b])
    for given in ([a, b], (a, b), [a.tolist(), b.tolist()], {"a": a, "b": b}):
        np.testing.assert_allclose(model.embed(given), expected, atol=1e-6)
    one = EmbeddingModel(keras.Model(inputs[:1], keras.layers.Dense(2)(inputs[0])))
    for given in (a, list(a), [a], {"a": a}):
        np.testing.assert_allclose(one.embed(given), outputs(one.embedder, [a]), atol=1e-6)


def test_warns_of_images_in_the_unit_range(images):
    embedder = models.build_embedder("small_cnn", 8, input_shape=images.shape[1:])
    model, divided = EmbeddingModel(embedder), (images / 255).astype("float32")
    model.compile("sgd", losses.get("triplet"), run_eagerly=True)
    with pytest.warns(UserWarning, match=r"images are in \[0, 1\] .* multiply them by 255"):
        model.embed(divided)
    with pytest.warns(UserWarning, match="take .0, 255.: multiply them by 255"):
        model.fit(divided, LABELS, verbose=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        build().embed(divided)  # another's network may be made for such images
        model.embed(images.astype("uint8"))
        model.embed(np.zeros_like(images))


def test_similarity_is_the_cosine_of_rows():
    cosines = build().similarity([[1.0, 0.0], [3.0, 4.0]], [[0.0, 2.0], [6.0, 8.0]])
    np.testing.assert_allclose(cosines, [0.0, 1.0], atol=1e-6)


INPUTS = keras.Input((3,))
ROWS, CLASSES = keras.layers.Dense(2)(INPUTS), keras.layers.Dense(4)(INPUTS)
NO_LABELS = r"labels.*Received: labels=None"
REFUSED = {  # what a model is asked, the error, and what it says
    "a name": (lambda _: EmbeddingModel("small_cnn"), TypeError, "keras.Model.*='small_cnn'"),
    "a layer": (lambda _: EmbeddingModel(keras.layers.Dense(2)), TypeError, "Model.*=<Dense"),
    "without inputs": (
        lambda _: EmbeddingModel(keras.Sequential([keras.layers.Dense(2)])),
        *(ValueError, "model of a known input shape. Received: embedder=<Sequential .*built=False"),
    ),
    "paths": (
        lambda model: model.embed(["a.png", "b.png"]),
        *(TypeError, r"`inputs` must be images; .*pipelines\.Split\(paths"),
    ),
    "no images": (
        lambda model: model.embed(np.zeros((0, 28, 28, 1))),
        *(ValueError, "one image or more. Received: images=0"),
    ),
    "HDF5": (
        lambda model: model.save("model.hdf5"),
        *(ValueError, r"must end in \.keras.*filepath='model\.hdf5'"),
    ),
    "weights of losses": (
        lambda model: model.compile(loss="triplet", loss_weights=0.1),
        *(ValueError, r"`loss_weights` must be None.*loss_weights=0.1"),
    ),
    "fit without labels": (lambda model: model.fit(np.ones((4, 8, 8, 1))), ValueError, NO_LABELS),
    "evaluate without labels": (
        lambda model: model.evaluate(np.ones((4, 8, 8, 1))),
        *(ValueError, NO_LABELS),
    ),
    "fit before compile": (
        lambda model: EmbeddingModel(model.embedder).fit(np.ones((4, 8, 8, 1)), np.arange(4)),
        *(ValueError, r"call `compile\(\)`"),
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_rejects(what):
    ask, error, message = REFUSED[what]
    with pytest.raises(error, match=message):
        ask(build())


@pytest.mark.parametrize(
    "outputs", [[ROWS, CLASSES], {"rows": ROWS}, {"rows": ROWS, "classes": CLASSES}, [ROWS]]
)
def test_rejects_an_embedder_of_several_outputs_or_of_a_dict(outputs):
    with pytest.raises(ValueError, match=r"one output, .*get_layer\(NAME\).*output_shape="):
        EmbeddingModel(keras.Model(INPUTS, outputs))


@pytest.mark.parametrize("loss", [{"dense": losses.get("triplet"), "b": "mse"}, ["triplet"], {}])
def test_rejects_losses_of_several_outputs(loss):
    with pytest.raises(ValueError, match=r"`loss` must be one loss.*one output\. Received: loss="):
        build().compile(loss=loss)


@pytest.mark.parametrize("shapes", [((3, 8), (1, 8)), ((3, 8), (3, 4)), ((8,), (8,))])
def test_similarity_rejects_shapes_that_do_not_match(shapes):
    a, b = map(np.ones, shapes)
    message = f"Received: a.shape={a.shape}, b.shape={b.shape}"
    with pytest.raises(ValueError, match=re.escape(message)):
        build().similarity(a, b)


def test_weighted_metrics_take_the_weights(images):
    entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    metric = keras.metrics.SparseCategoricalCrossentropy(from_logits=True, name="entropy")
    model = build()
    model.compile(loss=entropy, weighted_metrics=[metric])
    weights = np.arange(16.0)
    reported = model.evaluate(images, LABELS, sample_weight=weights, verbose=0, return_dict=True)
    expected = entropy(LABELS, model.embed(images), sample_weight=weights) * 16 / weights.sum()
    np.testing.assert_allclose(reported["entropy"], expected, rtol=1e-5)


@on_tensorflow
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


NAMES = np.array(["cat", "dog", "owl", "yak"])[LABELS % 4]


@pytest.mark.parametrize("names", [NAMES, list(NAMES), NAMES.astype(object)])
def test_names_as_labels_are_rejected_with_how_to_convert_them(names, images):
    message = r"np\.unique\(labels, return_inverse=True\)\[1\]\. Received: dtype="
    for given in ((images, names), (images, LABELS, {"validation_data": (images, names)})):
        *arrays, options = given if isinstance(given[-1], dict) else (*given, {})
        with pytest.raises(TypeError, match=message):
            build().fit(*arrays, verbose=0, **options)


@on_tensorflow
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
        history = build(run_eagerly=True).fit(images, labels, shuffle=False, verbose=0).history
        trained.append(history["loss"])
    assert trained[0] == trained[1]


def test_labels_of_a_loss_of_keras_may_be_floats(images):
    model = EmbeddingModel(build().embedder)
    model.compile("sgd", "mse")
    model.fit(images, np.zeros((len(images), 8)), verbose=0)
