import keras
import numpy as np
import pytest
import tensorflow as tf

from pipelines import Reader
from tfdml import losses
from tfdml.serving import ServedModel, export_model

SIZE = (16, 12, 3)  # of the images of `served`


@pytest.fixture(scope="module")
def learned_signatures(served):
    return tf.saved_model.load(str(served.folder / "2")).signatures


def rows_of(rng, *counts):
    return [rng.normal(size=(count, 8)).astype("float32") for count in counts]


def test_a_loss_that_learned_nothing_serves_the_cosine(served):
    embedder = served.models[1].embedder
    model = ServedModel(embedder, Reader(SIZE), losses.get("quadruplet"))
    assert set(model.signatures) == {
        *("serving_default", "embed_images", "read_images", "similarity")
    }


@pytest.mark.parametrize("counts", [(1, 3), (3, 1), (3, 2)])
def test_rows_without_a_partner_are_rejected(counts, learned_signatures, contents, rng):
    images = [tf.constant(contents[:count]) for count in counts]
    a, b = (tf.constant(rows) for rows in rows_of(rng, *counts))
    signatures = learned_signatures
    with pytest.raises(tf.errors.InvalidArgumentError, match="same number of rows"):
        signatures["similarity"](image_bytes_a=images[0], image_bytes_b=images[1])
    with pytest.raises(tf.errors.InvalidArgumentError, match="same number of rows"):
        signatures["score_pairs"](embeddings_a=a, embeddings_b=b)


def test_scores_pairs_and_all_pairs_of_embeddings(served, learned_signatures, rng):
    model, signatures = served.models[2], learned_signatures
    a, b = rows_of(rng, 90, 120)  # 10,800 pairs, more than the layer scores at once
    score = signatures["score_matrix"]
    scores = score(embeddings_a=tf.constant(a), embeddings_b=tf.constant(b))["similarity"]
    expected = model.similarity(np.repeat(a, 120, axis=0), np.tile(b, (90, 1)))
    np.testing.assert_allclose(scores, expected.reshape(90, 120), atol=1e-5)
    score = signatures["score_pairs"]
    scores = score(embeddings_a=tf.constant(a), embeddings_b=tf.constant(b[:90]))["similarity"]
    np.testing.assert_allclose(scores, model.similarity(a, b[:90]), atol=1e-5)


def test_never_overwrites_a_version(served):
    version, embedder = served.folder / "1", served.models[1].embedder
    before = (version / "saved_model.pb").read_bytes()
    with pytest.raises(FileExistsError, match="never overwritten"):
        export_model(embedder, version, Reader(SIZE))
    assert (version / "saved_model.pb").read_bytes() == before


def test_a_folder_that_is_no_version_is_warned_of(tmp_path):
    embedder = keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Flatten()])
    with pytest.warns(UserWarning, match="folders that are numbers, not .*model"):
        path = export_model(embedder, tmp_path / "model")
    assert (path / "saved_model.pb").is_file()


def test_a_failed_export_leaves_nothing(served, tmp_path, monkeypatch):
    def half_written(_, folder, *__):
        with open(f"{folder}/saved_model.pb", "wb") as file:
            file.write(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(tf.saved_model, "save", half_written)
    with pytest.raises(OSError, match="No space left"):
        export_model(served.models[1].embedder, tmp_path / "model" / "1", Reader(SIZE))
    assert not list(tmp_path.iterdir())


def test_carries_its_assets(complete):
    assert (complete / "assets.extra" / "recipe.yaml").read_text() == "loss: lifted\n"


def test_what_is_optional_is_served_after_loading(complete_signatures, served, contents):
    signatures = complete_signatures
    contents = tf.constant([contents[0], b"", contents[4]])
    found = signatures["serving_default"](image_bytes=contents)
    assert found["valid"].numpy().tolist() == [True, False, True]
    rows, images = found["embedding"], signatures["read_images"](image_bytes=contents)["images"]
    exact = served.models[1].embedder(images[::2])
    # Of unit rows, rounded to 8 bits.
    np.testing.assert_allclose(rows[::2], exact, atol=0.05)
    assert np.abs(rows[::2] - exact).max() > 1e-5
    assert np.isnan(rows[1]).all()
    assert np.isnan(images[1]).all()
    found = signatures["neighbours"](image_bytes=contents)
    assert found["ids"].shape == found["classes"].shape == found["distances"].shape == (3, 2)
    found = signatures["classify"](image_bytes=contents)
    assert found["classes"][0, 0].numpy() in (b"x", b"y", b"z")


def test_a_session_answers_as_the_functions_do(complete, contents):
    # What TF Serving runs, here with the fewest threads that it could have.
    contents = [contents[0], b"", contents[4]] * 9
    config = tf.compat.v1.ConfigProto(
        inter_op_parallelism_threads=1, intra_op_parallelism_threads=1, use_per_session_threads=True
    )
    with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
        meta_graph = tf.compat.v1.saved_model.load(session, ["serve"], str(complete))
        signature = meta_graph.signature_def["serving_default"]
        outputs = {name: tensor.name for name, tensor in signature.outputs.items()}
        found = session.run(outputs, {signature.inputs["image_bytes"].name: contents})
        functions = meta_graph.graph_def.library.function
        ops = {node.op for function in functions for node in function.node_def}
    assert "IgnoreErrorsDataset" in ops
    assert not {op for op in ops if "PyFunc" in op or "Generator" in op}
    assert found["valid"].tolist() == [True, False, True] * 9
    assert np.isfinite(found["embedding"]).all(axis=1).tolist() == [True, False, True] * 9


def test_rounded_weights_are_all_that_is_written(complete, served):
    def size(path):
        return sum(file.stat().st_size for file in (path / "variables").iterdir())

    assert size(complete) < 0.4 * size(served.folder / "1")
