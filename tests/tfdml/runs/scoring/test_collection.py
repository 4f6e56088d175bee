import json

import numpy as np
import pytest
from mean_colours import CLASSES, data_of, embedding_of, scores

from tfdml.evaluation import (
    retrieval_scores,
)
from tfdml.programs import evaluate


def collection_of(photos, version, folder, names=CLASSES[4:]):
    """The photos of classes, embedded; the first image of each is missing."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tfdml.serving.exported import fingerprint

    pixels, labels = data_of(photos, names)
    rows = embedding_of(pixels).numpy()
    paths = [str(path) for name in names for path in sorted((photos / name).iterdir())]
    kept = [i for i in range(len(rows)) if i % 4]
    listed = pa.table(
        {"path": [paths[i] for i in kept], "label": [CLASSES[labels[i]] for i in kept]}
    )
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows[kept].reshape(-1)), rows.shape[1])
    shard = {"id": np.arange(len(kept)), "path": listed["path"], "embedding": vectors}
    shard |= {"label": listed["label"], "error": pa.nulls(len(kept), pa.string())}
    (folder / "shards").mkdir(parents=True)
    pq.write_table(listed, folder / "list.parquet")
    pq.write_table(pa.table(shard), folder / "shards" / "00000.parquet")
    manifest = {"format": 1, "model": fingerprint(version), "dim": rows.shape[1], "list": "a"}
    manifest |= {"images": len(kept), "shard_size": 100, "shards": 1}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return rows, labels, kept


def noted(initialize, opened):
    """An initializer that also notes the class of what it initializes."""

    def initialize_and_note(self, *arguments, **options):
        opened.append(type(self))
        initialize(self, *arguments, **options)

    return initialize_and_note


def test_images_search_in_a_collection(photos, version, tmp_path, capsys, monkeypatch):
    from tfdml.scale.collection import Collection
    from tfdml.scale.index import StoredIndex
    from tfdml.scale.indexing import build

    rows, labels, kept = collection_of(photos, version, tmp_path / "large")
    arguments = ["--gallery", tmp_path / "large", "--k", "[1, 5]"]
    content = scores(version, *arguments, name="evaluation_in_large")
    # An image that is in the gallery does not find itself there: as among all, without the others.
    groups = np.arange(len(rows))
    expected = retrieval_scores(
        rows,
        labels,
        (1, 5),
        gallery_embeddings=rows[kept],
        gallery_labels=labels[kept],
        groups=groups,
        gallery_groups=groups[kept],
    )
    assert content["scores"] == pytest.approx(expected, abs=1e-6)
    assert content["images"] == {"queries": 20, "gallery": 15}
    assert f"in the gallery {tmp_path / 'large'}" in capsys.readouterr().out
    build(Collection(tmp_path / "large"), "Flat")
    arguments += ["--index", "stored"]
    opened = []
    for kind in (Collection, StoredIndex):
        monkeypatch.setattr(kind, "__init__", noted(kind.__init__, opened))
    content = scores(version, *arguments, name="evaluation_in_large_stored")
    assert opened == [Collection, StoredIndex]
    for name in ("recall@1", "recall@5", "map@r"):
        assert content["scores"][name] == pytest.approx(expected[name], abs=1e-6)
    assert set(content["through_index"]["lost"].values()) == {0.0}
    assert "The index and an exact search, on 20 queries" in capsys.readouterr().out


def test_scores_in_a_collection_are_not_compared_with_those_among_all(
    photos, version, tmp_path, capsys
):
    collection_of(photos, version, tmp_path / "large")
    scores(version, "--nmi=false", name="evaluation")
    scores(version, "--gallery", tmp_path / "large", name="evaluation_in_large")
    with pytest.raises(SystemExit, match="2"):
        evaluate.main(["compare", "runs/colours", "runs/colours/evaluation_in_large.json"])
    assert "must be scored on the same images: gallery differs" in capsys.readouterr().err


def test_an_image_behind_a_link_does_not_find_itself_in_a_collection(photos, version, tmp_path):
    (tmp_path / "linked").symlink_to(photos)
    collection_of(tmp_path / "linked", version, tmp_path / "large")
    arguments = ["--gallery", tmp_path / "large", "--k", "[1]"]
    absolute, relative = (
        scores(version, "--data_dir", folder, *arguments, name="evaluation_in_large")
        for folder in (tmp_path / "linked", "linked")
    )
    assert relative["scores"] == absolute["scores"]


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
def test_rejects_what_a_collection_cannot_do(photos, version, tmp_path, capsys, arguments, message):
    collection_of(photos, version, tmp_path / "large")
    with pytest.raises(SystemExit):
        evaluate.main([str(version), "--gallery", str(tmp_path / "large"), *arguments])
    assert message in capsys.readouterr().err


def test_rejects_a_collection_of_other_classes_or_another_model(photos, version, tmp_path, capsys):
    collection_of(photos, version, tmp_path / "other", names=CLASSES[:4])
    with pytest.raises(SystemExit):
        evaluate.main([str(version), "--gallery", str(tmp_path / "other")])
    assert "some of the classes must be labels of" in capsys.readouterr().err
    manifest = tmp_path / "other" / "manifest.json"
    content = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**content, "model": "0" * 64}))
    with pytest.raises(SystemExit):
        evaluate.main([str(version), "--gallery", str(tmp_path / "other")])
    assert "must have been made by this version of this model" in capsys.readouterr().err
