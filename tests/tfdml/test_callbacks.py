import io

import keras
import numpy as np
import pytest
import tensorflow as tf
from tqdm import tqdm

from tfdml import EmbeddingModel, callbacks, losses
from tfdml.evaluation import recall_at_k

LABELS = np.repeat(np.arange(4), 4)


def build(learning_rate=0.01, loss="lifted"):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((6,))
    model = EmbeddingModel(keras.Model(inputs, keras.layers.Dense(4, name="embedding")(inputs)))
    model.compile(keras.optimizers.SGD(learning_rate), loss, run_eagerly=True)
    return model


@pytest.fixture
def rows(rng):
    return rng.normal(size=(16, 6)).astype("float32")


def test_a_checkpoint_is_replaced_after_every_epoch_in_a_folder_that_it_makes(rows, tmp_path):
    model, path = build(), tmp_path / "new" / "folder" / ("x" * 249 + ".keras")  # the longest name
    model.fit(rows, LABELS, epochs=2, verbose=0, callbacks=[callbacks.Checkpoint(path)])
    assert [*path.parent.iterdir()] == [path]
    restored = keras.models.load_model(path)
    assert int(restored.optimizer.iterations) == 2
    np.testing.assert_array_equal(restored.embed(rows), model.embed(rows))


def test_a_checkpoint_may_be_of_a_whole_and_wait_for_the_end(rows, tmp_path, monkeypatch):
    model, whole, saved = build(), build(), []
    monkeypatch.setattr(whole, "save", lambda path: (saved.append(path), path.touch()))
    for seconds in (1e6, 0):
        checkpoint = callbacks.Checkpoint(tmp_path / "x.keras", whole, seconds)
        model.fit(rows, LABELS, epochs=3, verbose=0, callbacks=[checkpoint])
    assert len(saved) == 1 + 3


def test_a_checkpoint_rejects_other_formats():
    with pytest.raises(ValueError, match=r"`path`.*Received: path='c\.h5'"):
        callbacks.Checkpoint("c.h5")


def test_a_diverging_run_stops_with_step_and_cause(rows):
    message = r"loss nan at step 2.*diverged.*learning rate.*1e\+30"
    with pytest.raises(FloatingPointError, match=message):
        build(1e30).fit(rows, LABELS, epochs=9, verbose=0, callbacks=[callbacks.StopOnNaN()])


def test_a_class_beyond_those_of_the_loss_is_a_possible_cause(rows):
    model = build(0.01, losses.CosFaceLoss(num_classes=3))
    model.run_eagerly, model.jit_compile = False, True  # otherwise the loss raises
    batches = tf.data.Dataset.from_tensors((rows, LABELS + 2))  # of arrays `fit` checks the labels
    message = "never finite.*labels are from 0 to 2, as its num_classes says"
    with pytest.raises(FloatingPointError, match=message):
        model.fit(batches, verbose=0, callbacks=[callbacks.StopOnNaN()])


def test_nan_images_are_distinguished_from_diverging_weights(rows):
    rows[3, 2] = np.nan
    message = "loss nan at step 1.*never finite.*images"
    with pytest.raises(FloatingPointError, match=message):
        build().fit(rows, LABELS, verbose=0, callbacks=[callbacks.StopOnNaN()])


@pytest.mark.parametrize(
    ("labels", "k", "error"),
    [
        (LABELS.astype(float), 1, (TypeError, "`labels` must be integers")),
        (LABELS, (1, 16), (ValueError, "`k` must not exceed")),
    ],
)
def test_wrong_labels_and_numbers_are_rejected_before_training(labels, k, error, rows):
    with pytest.raises(error[0], match=error[1]):
        callbacks.RetrievalScores(rows, labels, k=k)


def test_any_model_of_one_output_is_watched(rows):
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(4)])
    model.compile("sgd", losses.get("lifted"), run_eagerly=True)
    images, given = tf.data.Dataset.from_tensor_slices(rows).batch(8), []
    watching = [
        callbacks.RetrievalScores(images, LABELS, k=1),
        callbacks.EmbeddingsOfEpoch(images, lambda step, found: given.append(found)),
    ]
    before = model.predict(rows, verbose=0)
    history = model.fit(rows, LABELS, verbose=0, callbacks=watching).history
    assert history["val_recall@1"] == [recall_at_k(model.predict(rows, verbose=0), LABELS)[1]]
    np.testing.assert_allclose(given, [before], atol=1e-6)


def test_a_model_of_several_outputs_is_rejected_as_training_begins(rows):
    class Two(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(4)

        def call(self, inputs):
            return self.dense(inputs), inputs

    model, steps = Two(), []
    model.compile("sgd", ["mse", "mse"], run_eagerly=True)
    count = keras.callbacks.LambdaCallback(on_train_batch_begin=lambda *_: steps.append(0))
    watching = [count, callbacks.RetrievalScores(rows, LABELS)]
    with pytest.raises(ValueError, match=r"one output, \(batch, dim\).*shape=\[?\("):
        model.fit(rows, (rows[:, :4], rows), verbose=0, callbacks=watching)
    assert not steps


def test_targets_of_density_are_logged(rows):
    model = build()
    loss = losses.get("density", num_classes=6, correlation=False)
    model.compile("adam", loss, run_eagerly=True)
    watch = callbacks.LossLogs()
    logs = model.fit(rows, LABELS, epochs=2, verbose=0, callbacks=[watch]).history
    targets = np.asarray(model.loss.layer.targets)
    assert logs["target_mean"][-1] == pytest.approx(targets.mean())
    assert logs["target_lowest"] == [0.5, 0.5]  # of the two classes without rows
    assert logs["target_highest"][-1] == pytest.approx(targets.max())
    assert logs["target_highest"][-1] > logs["target_highest"][0] > 0.5


@pytest.mark.parametrize("name", ["arcface", "density"])
def test_a_loss_without_classes_says_so_though_it_is_logged(rows, name):
    model = build()
    model.compile("adam", name)
    with pytest.raises(ValueError, match="num_classes"):
        model.fit(rows, LABELS, verbose=0, callbacks=[callbacks.LossLogs()])


def test_the_embeddings_at_the_start_of_every_epoch_are_given(rows):
    model, given = build(), []
    # Of several batches an update: the steps are those of batches.
    optimizer = keras.optimizers.SGD(0.01, gradient_accumulation_steps=2)
    model.compile(optimizer, "lifted", run_eagerly=True)
    before = model.embed(rows)
    images = tf.data.Dataset.from_tensor_slices(rows).batch(3)
    watch = callbacks.EmbeddingsOfEpoch(images, lambda *received: given.append(received))
    model.fit(rows, LABELS, batch_size=4, epochs=2, verbose=0, callbacks=[watch])
    (first, at_first), (second, at_second) = given
    assert (first, second) == (0, 4)
    np.testing.assert_allclose(at_first, before, atol=1e-6)
    assert np.abs(at_second - at_first).max() > 1e-4
    assert np.abs(at_second - model.embed(rows)).max() > 1e-4


def test_a_log_states_steps_and_the_mean_loss_of_the_epoch(rows, capsys):
    model, seen = build(), []
    for _ in range(2):  # the second training goes on
        lines = callbacks.ProgressBar(steps=20)
        options = {"batch_size": 8, "epochs": 5, "shuffle": False, "verbose": 0}
        seen += model.fit(rows, LABELS, callbacks=[lines], **options).history["loss"]
    printed = [line.split("   ") for line in capsys.readouterr().out.splitlines()]
    assert [step for step, *_ in printed] == [f"step {step} of 20" for step in range(2, 21, 2)]
    assert [loss for _, loss, _ in printed] == [f"loss {each:.4f}" for each in seen]


def test_one_bar_counts_all_steps_and_shows_the_loss_and_scores(rows, monkeypatch):
    shown = io.StringIO()

    def bar(what, *, total, unit, done):
        always = {"mininterval": 0, "miniters": 1, "file": shown}
        return tqdm(desc=what, total=total, unit=unit, initial=done, **always)

    monkeypatch.setattr(callbacks, "progress", bar)
    model = build()
    scores = callbacks.RetrievalScores(rows, LABELS)
    for epochs in (3, 2):  # the second training goes on
        watching = [scores, callbacks.ProgressBar(steps=10)]
        options = {"batch_size": 8, "shuffle": False, "verbose": 0}
        model.fit(rows, LABELS, epochs=epochs, callbacks=watching, **options)
    first, second = (part.split("\r") for part in shown.getvalue().split("\n")[:2])
    assert first[2].startswith("Training:  10%")
    assert " 6/10 " in first[-1]
    assert " 7/10 " in second[1] + second[2]
    assert "10/10" in second[-1]
    assert "loss=" in first[-1]
    assert "val_recall@1=" in first[-1]
