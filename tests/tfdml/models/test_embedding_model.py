import re
import subprocess
import sys
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfdml import EmbeddingModel, losses, optimizers
from tfdml.layers import UnitLength
from tfdml.models import build_embedder

LABELS = np.repeat(np.arange(4), 4)
LEARNED = ("pddm", "lmdm", "pddm_triplet")

# A mean over active pairs may rise while easy pairs leave it.
OPTIONS = {name: {"average_over": "pairs"} for name in ("hdc", "hard_contrastive")}
OPTIONS |= {name: {"similarity": {"dropout": 0.0}} for name in LEARNED}
OPTIONS["density"] = {"initial_density": [0.1, 0.2, 0.3, 0.4]}
OPTIONS |= {
    name: {"num_classes": 4}
    for name, (module, _, _) in losses.LOSSES.items()
    if module in ("arcface", "cosface", "norm_softmax", "proxy_anchor", "proxy_nca", "soft_triple")
}
OPTIONS["sampled_classes"] = {"base": {"name": "arcface", "num_classes": 40}, "rate": 0.9}
OPTIONS["memory"] = {"base": "contrastive", "size": 32}
OPTIONS["matryoshka"] = {"base": "npair", "dims": (8, 4)}
OPTIONS["regularized"] = {"base": "triplet", "regularizer": "gor"}
WITHOUT_LAYERS = [
    name for name in sorted(losses.LOSSES) if not losses.get(name, **OPTIONS.get(name, {})).layers
]


@pytest.fixture
def images(rng):
    return rng.uniform(0, 255, (16, 8, 8, 1)).astype("float32")


def build(**compile_options):
    keras.utils.set_random_seed(0)
    options = {"optimizer": optimizers.Adam(1e-3), "loss": losses.get("triplet"), **compile_options}
    layers = keras.layers.Rescaling(1 / 255), keras.layers.Flatten()
    rows = keras.layers.Dense(8 * options["loss"].levels), UnitLength()
    model = EmbeddingModel(keras.Sequential([keras.Input((8, 8, 1)), *layers, *rows]))
    model.compile(**options)
    return model


def by_default(names, those):
    """`names` as parameters of a test, slow those that are not among `those`."""
    return [pytest.param(name, marks=() if name in those else pytest.mark.slow) for name in names]


# One that learns nothing and one that learns a similarity; the contract descends the others.
@pytest.mark.parametrize(
    ("loss", "jit_compile"),
    [
        *(
            pytest.param(*case.values, False, marks=case.marks)
            for case in by_default(losses.LOSSES, {"triplet", "pddm"})
        ),
        ("lifted", True),
    ],
)
def test_fit_lowers_every_loss(loss, jit_compile, images):
    model = build(loss=losses.get(loss, **OPTIONS.get(loss, {})), jit_compile=jit_compile)
    history = model.fit(images, LABELS, batch_size=16, epochs=30, verbose=0).history["loss"]
    assert np.mean(history[-5:]) < np.mean(history[:5])


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
    loss = losses.get("norm_softmax", num_classes=4)
    for each in (loss, losses.get("matryoshka", base=loss, dims=[4])):
        model = build(loss=each)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model.fit(images[::4], LABELS[::4], verbose=0)


def test_l2_decay_spares_proxies(images):
    after = []
    for l2 in (0.0, 0.5):
        keras.utils.set_random_seed(0)
        loss = losses.get("proxy_anchor", num_classes=4)
        model = EmbeddingModel(build().embedder)
        model.compile(optimizers.SGD(0.01, l2=l2), loss)
        model.train_on_batch(images, LABELS)
        after.append([np.array(v) for v in model.trainable_variables])
    (*_, kernel, _, proxies), (*_, decayed, _, spared) = after
    assert proxies.shape[0] == 4
    np.testing.assert_array_equal(proxies, spared)
    assert np.abs(kernel - decayed).max() > 1e-4


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


def test_a_saved_model_goes_on_as_if_it_had_not_stopped(images, tmp_path):
    model = build()
    model.fit(images, LABELS, batch_size=16, epochs=3, shuffle=False, verbose=0)
    model.save(tmp_path / "model.keras")
    restored = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(restored.embed(images), model.embed(images))
    assert type(restored.loss) is losses.TripletLoss
    assert int(restored.optimizer.iterations) == 3
    for either in (model, restored):
        either.fit(images, LABELS, batch_size=16, epochs=3, shuffle=False, verbose=0)
    np.testing.assert_allclose(restored.embed(images), model.embed(images), atol=1e-6)


@pytest.mark.parametrize("loss", by_default(WITHOUT_LAYERS, {"recall_at_k", "regularized"}))
def test_losses_work_in_a_plain_keras_model(loss, images, tmp_path):
    layers = keras.layers.Rescaling(1 / 255), keras.layers.Flatten(), keras.layers.Dense(9)
    model = keras.Sequential([keras.Input((8, 8, 1)), *layers])
    model.compile(optimizer="adam", loss=losses.get(loss, **OPTIONS.get(loss, {})))
    history = model.fit(images, LABELS, batch_size=16, epochs=30, verbose=0).history["loss"]
    assert np.mean(history[-5:]) < np.mean(history[:5])
    model.save(tmp_path / "model.keras")
    assert keras.models.load_model(tmp_path / "model.keras").loss.name == loss


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


def test_a_frozen_or_mixed_model_comes_back_so(tmp_path):
    embedder = build_embedder("small_cnn", 8, input_shape=(8, 8, 1))
    model = EmbeddingModel(embedder, name="mine", dtype="mixed_bfloat16")
    head_first = optimizers.SGD(0.1, multipliers={"^embedding/": 10.0})
    model.compile(optimizer=head_first, loss=losses.get("triplet"))
    model.trainable = False
    model.save(tmp_path / "model.keras")
    restored = keras.models.load_model(tmp_path / "model.keras")
    assert restored.name == "mine"
    assert restored.dtype_policy.name == "mixed_bfloat16"
    assert not restored.trainable
    assert not restored.trainable_variables


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


@pytest.mark.parametrize("loss", ["triplet", "pddm"])
def test_rejects_to_fit_without_labels(loss, images):
    message = r"labels.*Received: labels=None"
    with pytest.raises(ValueError, match=message):
        build(loss=losses.get(loss)).fit(images, verbose=0)
    with pytest.raises(ValueError, match=message):
        build(loss=losses.get(loss)).evaluate(tf.data.Dataset.from_tensors(images), verbose=0)


def test_embeds_arrays_and_datasets_alike(images):
    model = build()
    batches = tf.data.Dataset.from_tensor_slices((images, LABELS)).batch(5)
    expected = model.embedder(images).numpy()
    np.testing.assert_allclose(model.embed(images, batch_size=7), expected, atol=1e-6)
    np.testing.assert_allclose(model.embed(batches), expected, atol=1e-6)
    images_only = batches.map(lambda images, labels: images)
    np.testing.assert_allclose(model.embed(images_only), expected, atol=1e-6)


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


REPLICAS = """
import sys
import numpy as np, tensorflow as tf, keras
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
from tfdml import EmbeddingModel, losses

def train(strategy, loss, options):
    loss = losses.get(loss, **options)
    with strategy.scope():
        keras.utils.set_random_seed(0)
        inputs = keras.Input((6,))
        embedder = keras.Model(inputs, keras.layers.Dense(4)(inputs))
        model = EmbeddingModel(embedder)
        model.compile(optimizer=keras.optimizers.SGD(0.1), loss=loss)
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(48, 6)).astype("float32"), rng.permutation(np.arange(48) % 4)
    batches = tf.data.Dataset.from_tensor_slices((rows, labels)).batch(16, drop_remainder=True)
    logs = model.fit(batches, verbose=0).history
    return logs["loss"][0], *map(np.array, model.weights)

single, double = tf.distribute.get_strategy(), tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
loss = sys.argv[1]
INITIALIZER = {"class_name": "RandomNormal", "config": {"seed": 3}}
PROXIES = {"num_classes": 4, "initializer": INITIALIZER, "scale": 8.0}
options = {
    "lifted": {},
    "density": {"base": "triplet", "initial_density": [0.1, 0.2, 0.3, 0.4]},
    "pddm": {"similarity": {"units": 4, "seed": 0, "dropout": 0.0}},
    "memory": {"base": "contrastive", "size": 40, "start_step": 1},
    "arcface": PROXIES,
    "proxy_anchor": PROXIES,
    "sampled_classes": {"base": {"name": "cosface", **PROXIES, "num_classes": 40}, "rate": 0.5},
    "recall_at_k": {"mix": 4, "rank_temperature": 0.1},
}[loss]
one, two = (train(strategy, loss, options) for strategy in (single, double))
for of_one, of_two in zip(one, two, strict=True):
    np.testing.assert_allclose(of_two, of_one, rtol=1e-6, atol=1e-6)
print(len(one), "equal")
"""


# Of density the program also trains the targets; of pddm the eight weights of a similarity. It
# compares what a cross-batch memory holds, too.
@pytest.mark.parametrize(
    ("loss", "variables"),
    [
        ("density", 3),
        pytest.param("lifted", 2, marks=pytest.mark.slow),
        pytest.param("pddm", 10, marks=pytest.mark.slow),
        ("memory", 6),
        ("sampled_classes", 3),
        pytest.param("arcface", 3, marks=pytest.mark.slow),
        pytest.param("proxy_anchor", 3, marks=pytest.mark.slow),
        pytest.param("recall_at_k", 2, marks=pytest.mark.slow),
    ],
)
def test_two_replicas_make_the_update_of_one(loss, variables):
    run = subprocess.run([sys.executable, "-c", REPLICAS, loss], capture_output=True, text=True)
    assert run.stdout.strip() == f"{1 + variables} equal", run.stderr[-2000:]


def test_trains_saves_and_restores_what_the_loss_learns(images, tmp_path):
    options = {"similarity": {"units": 4, "seed": 0}, "num_quadruplets": "per_class"}
    model = build(loss=losses.get("pddm"))
    model.compile(optimizer=optimizers.Adam(1e-2), loss=losses.get("pddm", **options))
    assert model.loss_layers == [model.loss.layer]
    before = [np.array(v) for v in model.loss_layers[0].trainable_variables]
    assert len(before) == 8
    model.fit(images, LABELS, batch_size=16, epochs=2, verbose=0)
    for old, new in zip(before, model.loss_layers[0].trainable_variables, strict=True):
        if not new.path.endswith("score_bias"):  # which cancels in a difference of scores
            assert np.abs(old - np.array(new)).max() > 0
    rows = model.embed(images)
    scores = model.similarity(rows[:8], rows[8:])
    np.testing.assert_allclose(scores, model.loss.layer(rows[:8], rows[8:]), rtol=1e-5)
    model.save(tmp_path / "model.keras")
    restored = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(restored.similarity(rows[:8], rows[8:]), scores)
    assert restored.loss_layers[0].get_config() == model.loss_layers[0].get_config()
    for twin in (model, restored):  # dropout and all
        twin.fit(images, LABELS, batch_size=16, shuffle=False, verbose=0)
    np.testing.assert_allclose(restored.embed(images), model.embed(images), atol=1e-6)


def one_layer():
    dense = keras.layers.Dense(4, kernel_initializer=keras.initializers.GlorotUniform(seed=0))
    return EmbeddingModel(keras.Sequential([keras.Input((6,)), dense]))


@pytest.mark.parametrize(
    ("policy", "by_name"),
    [
        ("float32", True),
        ("mixed_float16", False),
        pytest.param("float32", False, marks=pytest.mark.slow),
        pytest.param("mixed_float16", True, marks=pytest.mark.slow),
    ],
)
def test_targets_of_density_are_never_decayed(policy, by_name, rng, tmp_path):
    rows, path = rng.normal(size=(16, 6)).astype("float32"), tmp_path / "model.keras"
    keras.config.set_dtype_policy(policy)
    try:
        model = one_layer()
        optimizer = keras.optimizers.AdamW(1e-2, weight_decay=1.0)
        bias = {"var_names": ["bias"]} if by_name else {"var_list": [model.embedder.variables[1]]}
        optimizer.exclude_from_weight_decay(**bias)
        model.compile(optimizer=optimizer, loss=losses.get("density", initial_density=[0.3] * 8))
        for _ in range(2):
            model.train_on_batch(rows, LABELS)
            targets = np.array(model.loss.layer.targets)
            np.testing.assert_array_equal(targets[4:], 0.5)  # no row in the batch is of these
            assert (targets[:4] > 0.5).all()
            model.save(path)
            model = keras.models.load_model(path)
    finally:
        keras.config.set_dtype_policy("float32")
    assert [optimizer._use_weight_decay(v) for v in optimizer._trainable_variables] == [
        True,
        False,
        False,
    ]


def test_rejects_an_optimizer_that_passes_over_a_multiplier_of_the_loss():
    def compiled(optimizer, multiplier):
        model = one_layer()
        loss = losses.get("density", initial_density=[0.3] * 4, alpha_multiplier=multiplier)
        model.compile(optimizer=optimizer, loss=loss)
        return model

    multipliers = {"^density_targets/": 5.0}
    for optimizer in (
        "adam",
        optimizers.Adam(),
        optimizers.Adam(multipliers={"dense": 3.0}),
        optimizers.Adam(multipliers={"^density_targets/": 2.0}),
        keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD()),
    ):
        with pytest.raises(ValueError, match="'density_targets' of the loss requires 3 times"):
            compiled(optimizer, 3)
    rows = np.arange(96, dtype="float32").reshape(16, 6)
    moved = []
    for multiplier in (1, 5):
        model = compiled(optimizers.SGD(0.01, multipliers=multipliers), multiplier)
        model.train_on_batch(rows, LABELS)
        moved.append(np.array(model.loss.layer.targets) - 0.5)
    assert (moved[0] > 0).all()
    np.testing.assert_allclose(*moved)  # what the optimizer has counts
    compiled(keras.optimizers.LossScaleOptimizer(optimizers.SGD(multipliers=multipliers)), 5)


def test_trains_saves_and_restores_the_layers_of_a_loss_in_a_loss(images, tmp_path):
    base = {"name": "pddm", "similarity": {"units": 4, "seed": 0}}
    loss = losses.get("density", base=base, initial_density=[0.1, 0.2, 0.3, 0.4] * 4)
    plain = keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Flatten()])
    plain.compile(loss=loss)
    with pytest.raises(ValueError, match=r"DensityAdaptiveLoss has a layer.* tfdml.EmbeddingModel"):
        plain.fit(images[:4], np.array([0, 0, 1, 1]), verbose=0)
    model = build(loss=loss)
    assert model.loss_layers == [loss.base.layer, loss.layer]
    before = [np.array(layer.trainable_variables[0]) for layer in model.loss_layers]
    model.fit(images, LABELS, batch_size=16, epochs=2, verbose=0)
    for old, layer in zip(before, model.loss_layers, strict=True):
        assert np.abs(old - np.array(layer.trainable_variables[0])).max() > 0
    model.save(tmp_path / "model.keras")
    restored = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(restored.loss.layer.targets, loss.layer.targets)
    assert restored.loss.regularizer.get_config() == loss.regularizer.get_config()
    rows = model.embed(images)
    np.testing.assert_array_equal(
        restored.similarity(rows[:8], rows[8:]), model.similarity(rows[:8], rows[8:])
    )


def test_evaluates_what_the_loss_learns_without_dropout(images):
    model = build(loss=losses.get("pddm"))
    expected = model.loss(LABELS, model.embed(images))
    reported = model.evaluate(images, LABELS, batch_size=16, verbose=0)
    np.testing.assert_allclose(reported, expected, rtol=1e-5)


@pytest.mark.slow
def test_learns_a_similarity_that_ranks_the_classes(rng):
    centres = rng.normal(size=(8, 6))
    labels = np.repeat(np.arange(8), 8)
    images = (centres[labels] + 0.8 * rng.normal(size=(64, 6))).astype("float32")
    embedder = keras.Sequential([keras.Input((6,)), keras.layers.Dense(6)])
    model = EmbeddingModel(embedder)
    similarity = {"units": 32, "dropout": 0.0, "seed": 0}
    loss = losses.get("pddm", num_quadruplets="per_positive_pair", similarity=similarity)
    model.compile(optimizer=optimizers.Adam(1e-2), loss=loss)

    def separation():
        rows = keras.ops.normalize(model.embed(images))
        scores = np.asarray(model.loss.similarity_layer.matrix(rows))
        same = (labels[:, None] == labels[None]) & ~np.eye(64, dtype=bool)
        different = labels[:, None] != labels[None]
        return np.mean(scores[same][:, None] > np.quantile(scores[different], 0.9))

    before = separation()
    model.fit(images, labels, batch_size=64, epochs=100, verbose=0)
    assert before < 0.5 < 0.7 < separation()


def test_a_loss_may_be_given_by_name_or_config():
    embedder = build_embedder("small_cnn", 4, input_shape=(8, 8, 1))
    model = EmbeddingModel(embedder)
    for given in ("triplet", keras.losses.serialize(losses.get("triplet", margin=0.3))):
        model.compile("adam", loss=given)
        assert isinstance(model.loss, losses.TripletLoss)
    assert model.loss.margin == 0.3
    model.compile("adam", loss="mse")
    with pytest.raises(ValueError, match=r"Unknown loss 'tripet'. Did you mean 'triplet'"):
        model.compile("adam", loss="tripet")


def test_a_loss_that_is_prepared_after_compile_is_rejected(rng):
    embedder = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3)])
    x, labels = rng.normal(size=(8, 5)).astype("float32"), np.repeat(np.arange(4), 2)
    model, loss = EmbeddingModel(embedder), losses.get("arcface")
    model.compile("adam", loss)
    loss.prepare(labels)
    with pytest.raises(ValueError, match="after `compile`: call its `prepare` before"):
        model.fit(x, labels, verbose=0)
    model.compile("adam", loss)
    model.fit(x, labels, verbose=0)
    assert [layer.name for layer in model.loss_layers] == [loss.layer.name]
