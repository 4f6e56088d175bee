import pathlib
import re
import shutil
from unittest import mock

import numpy as np
import pytest
from mean_colours import CLASSES, data_of, embedding_of, rejection, scores
from stored_collections import rewrite, write_collection

import pipelines
from pipelines.shards import write_cache
from tfdml import scale
from tfdml.evaluation import retrieval_scores
from tfdml.scale import Collection, StoredIndex
from tfdml.scale.indexing import build
from tfdml.serving.exported import fingerprint


def collection_of(photos, version, folder, names=CLASSES[4:], spelled=str, unreadable=0):
    """The photos of classes, embedded; the first image of each is missing, of others the rows."""
    pixels, labels = data_of(photos, names)
    rows = embedding_of(pixels).numpy()
    paths = [spelled(path) for name in names for path in sorted((photos / name).iterdir())]
    kept = [i for i in range(len(rows)) if i % 4]
    write_collection(
        folder,
        rows[kept],
        [CLASSES[label] for label in labels[kept]],
        shard_size=100,
        unreadable=range(unreadable),
        model=fingerprint(version),
        paths=[paths[i] for i in kept],
    )
    return rows, labels, kept


def test_images_search_in_a_collection(photos, version, tmp_path, capsys, monkeypatch):
    rows, labels, kept = collection_of(photos, version, tmp_path / "large")
    arguments = ["--gallery", tmp_path / "large", "--k", "[1, 5]"]
    content = scores(version, *arguments, name="evaluation_in_large")
    # An image that is in the gallery does not find itself there: as among all, without the others.
    gallery = {"gallery_embeddings": rows[kept], "gallery_labels": labels[kept]}
    groups = {"groups": np.arange(len(rows)), "gallery_groups": np.array(kept)}
    expected = retrieval_scores(rows, labels, (1, 5), **gallery, **groups)
    assert content["scores"] == pytest.approx(expected, abs=1e-6)
    assert content["images"] == {"queries": 20, "gallery": 15}
    assert f"in the gallery {tmp_path / 'large'}" in capsys.readouterr().out
    build(Collection(tmp_path / "large"), "Flat")
    arguments += ["--index", "stored"]
    opened = {}
    for kind in (Collection, StoredIndex):
        opened[kind] = mock.Mock(wraps=kind)
        monkeypatch.setattr(scale, kind.__name__, opened[kind])
    content = scores(version, *arguments, name="evaluation_in_large_stored")
    assert [found.call_count for found in opened.values()] == [1, 1]
    for name in ("recall@1", "recall@5", "map@r"):
        assert content["scores"][name] == pytest.approx(expected[name], abs=1e-6)
    assert set(content["through_index"]["lost"].values()) == {0.0}
    assert "The index and an exact search, on 20 queries" in capsys.readouterr().out


def test_scores_in_a_collection_are_not_compared_with_those_among_all(photos, version, tmp_path):
    collection_of(photos, version, tmp_path / "large")
    scores(version, "--nmi=false", name="evaluation")
    scores(version, "--gallery", tmp_path / "large", name="evaluation_in_large")
    sentence = rejection("compare", "runs/colours", "runs/colours/evaluation_in_large.json")
    assert "must be scored on the same images: gallery differs" in sentence


def test_an_image_does_not_find_itself_however_its_path_is_written(
    photos, version, tmp_path, capsys
):
    collection_of(photos, version, tmp_path / "large")
    arguments = ["--k", "[1]", "--gallery"]
    expected = scores(version, *arguments, "large", name="evaluation_in_large")
    collection_of(photos, version, tmp_path / "other", spelled=pathlib.Path.as_uri)
    capsys.readouterr()
    found = scores(version, *arguments, "other", name="evaluation_in_other")
    assert found["scores"] == expected["scores"]
    assert "15 of the 20 images are in the gallery, by their files" in capsys.readouterr().out


def test_copies_in_a_collection_are_reported(photos, version, tmp_path, capsys):
    shutil.copytree(photos, "copies")
    collection_of(tmp_path / "copies", version, tmp_path / "large")
    copies = "15 images of the gallery large have the content of another file, such as"
    with pytest.warns(
        UserWarning, match=rf"{copies} \S+/copies/f1/1\.png and \S+/photos/f1/1\.png:"
    ):
        found = scores(version, "--gallery", "large", "--k", "[1]", name="evaluation_in_large")
    assert "0 of the 20 images are in the gallery" in capsys.readouterr().out
    assert found["scores"]["recall@1"] >= 0.75  # those that find their copies


def test_images_of_a_cache_do_not_find_their_files(photos, version, tmp_path, capsys):
    collection_of(photos, version, tmp_path / "large")
    write_cache(pipelines.load("folder", photos), "cache", size=16, quality=None)
    data = ["--dataset", "cache", "--data_dir", "cache", "--gallery", "large", "--k", "[1]"]
    name = "evaluation_in_large_cache_cache"
    scores(version, *data, name=name)
    assert "15 of the 20 images are in the gallery" in capsys.readouterr().out


def test_a_gallery_has_the_images_that_could_be_read(photos, version, tmp_path):
    collection_of(photos, version, tmp_path / "none", unreadable=15)
    sentence = r"of the 15 images of the gallery {} could not be read, such as .*/f1/1\.png: it is "
    found = rejection(version, "--gallery", "none")
    assert re.search(f"error: 15 {sentence.format('none')}", found)
    collection_of(photos, version, tmp_path / "one", unreadable=14)
    with pytest.warns(UserWarning, match=f"14 {sentence.format('one')}"):
        content = scores(version, "--gallery", "one", name="evaluation_in_one")
    assert content["images"] == {"queries": 20, "gallery": 1}
    assert {"recall@1", "recall@2"} & set(content["scores"]) == {"recall@1"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--crops", "5"], "leave out `crops`"),
        (["--rank_by", "similarity"], "leave out `rank_by`"),
        (["--index", "HNSW32"], "the `index` of a `gallery` is `stored` with it"),
        (["--index", "stored"], "there is no index at"),
        (["--false_match_rate", "0.1"], "`false_match_rate` does not go with a `gallery`"),
        (["--k", "16"], "`k` must not exceed the neighbours. Received: k=16, neighbours=15"),
    ],
)
def test_rejects_what_a_collection_cannot_do(photos, version, tmp_path, arguments, message):
    collection_of(photos, version, tmp_path / "large")
    assert message in rejection(version, "--gallery", "large", *arguments)


def test_rejects_a_collection_of_other_classes_or_another_model(photos, version, tmp_path):
    collection_of(photos, version, tmp_path / "other", names=CLASSES[:4])
    assert "some of the classes must be labels of" in rejection(version, "--gallery", "other")
    rewrite(tmp_path / "other" / "manifest.json", model="0" * 64)
    sentence = rejection(version, "--gallery", "other")
    assert "must have been made by this version of this model" in sentence
