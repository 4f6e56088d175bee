import json
import pathlib
import re
import shutil
import sys

import fsspec
import numpy as np
import programs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from full_disk import files_of_at_most
from stored_collections import finished

from tfdml import scale
from tfdml.files import locked
from tfdml.scale import Collection
from tfdml.scale import __main__ as command
from tfdml.serving.exported import fingerprint

pytestmark = pytest.mark.usefixtures("loaded_once")


def run(*arguments, cwd="."):
    return programs.run(command.main, *arguments, cwd=cwd)


@pytest.fixture
def embed(version, photos, tmp_path):
    """Runs the command with these options instead of those of `photos`, `version` and `out`."""

    def embedding(**options):
        given = {"model": version, "images": photos, "out": "out", "shard_size": 3, **options}
        flags = [text for name, value in given.items() for text in (f"--{name}", value)]
        return run("embed", *flags, cwd=tmp_path)

    return embedding


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def table_of(out):
    return pa.concat_tables([pq.read_table(path) for path in sorted(out.glob("shards/*"))])


def times(out):
    return {path.name: path.stat().st_mtime_ns for path in out.rglob("*.*") if path.name != ".lock"}


def test_a_folder(embed, out, served, photos, version):
    result = embed()
    assert result.code == 0, result.err
    assert result.out.splitlines() == [
        "Embedded 6 images with embedder/1: out",
        "Could not read 1 images: see `error` in the shards",
        "Next: python -m tfdml.scale index out --factory Flat",
    ]
    names = {path.name for path in out.iterdir()}
    assert names == {".lock", "list.parquet", "manifest.json", "shards"}
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["model"] == fingerprint(version)
    assert (manifest["dim"], manifest["images"], manifest["shards"]) == (8, 7, 3)
    table = table_of(out)
    assert table.schema.field("embedding").type == pa.list_(pa.field("element", pa.float32()))
    assert [len(pq.read_table(path)) for path in sorted(out.glob("shards/*"))] == [3, 3, 1]
    assert table["id"].to_pylist() == list(range(7))
    assert table.select(["path", "label"]) == pq.read_table(out / "list.parquet")
    bad = table["path"].to_pylist().index(str(photos / "a" / "bad.png"))
    assert table["error"].to_pylist()[bad] == "it is not a JPEG, PNG, GIF, BMP or WebP"
    assert table["embedding"].null_count == 1
    kept = table.filter(table["error"].is_null())
    contents = [pathlib.Path(path).read_bytes() for path in kept["path"].to_pylist()]
    expected = served.embed(contents, version=1)
    np.testing.assert_allclose(kept["embedding"].to_pylist(), expected, atol=1e-5)


def test_a_second_run_does_what_is_missing(embed, out):
    embed()
    before, table = times(out), table_of(out)
    (out / "shards" / "00001.parquet").rename(out / "shards" / "00001.parquet.ab.unfinished")
    assert embed().code == 0
    assert table_of(out) == table
    after = times(out)
    assert {name for name in after if after[name] != before.get(name)} == {
        "00001.parquet",
        "manifest.json",  # which has its checksum
    }
    assert embed().out.startswith("Embedded 6 images")
    assert times(out) == after
    with locked(out, "taken"):
        assert "another process is writing to out" in embed().sentence
    shard = out / "shards" / "00001.parquet"
    shard.write_bytes(shard.read_bytes()[:100])
    result = embed()
    assert result.code == 1
    assert "out/shards/00001.parquet is damaged (" in result.err
    assert result.err.endswith("): delete it; run the same command to continue\n")
    shard.unlink()
    assert embed().code == 0
    assert table_of(out) == table


def test_continues_from_the_list_it_wrote(embed, out, photos):
    embed()
    (out / "shards" / "00002.parquet").unlink()
    (photos / "c.png").write_bytes(b"")  # of no interest to the list
    assert "of another list. Choose" in embed().sentence
    assert embed(images=out / "list.parquet").code == 0
    assert len(table_of(out)) == 7


def test_a_collection_without_a_readable_image_fails(embed, out, tmp_path):
    pq.write_table(pa.table({"path": ["missing.png"]}), tmp_path / "few.parquet")
    for _ in range(2):
        result = embed(images="few.parquet")
        assert result.code == 1
        assert "no image of few.parquet could be read" in result.err
        assert "Next" not in result.out
    assert table_of(out)["error"].to_pylist() == ["there is no such file"]


def test_other_file_systems(embed, photos, out):
    memory = fsspec.filesystem("memory")
    memory.put(str(photos), "/given", recursive=True)
    result = embed(images="memory://given", out="memory://made")
    assert result.code == 0, result.err
    assert "Next: copy it to a disk" in result.out
    embed()
    with memory.open("/made/shards/00000.parquet") as file:
        rows = pq.read_table(file)["embedding"].to_pylist()
    assert rows == pq.read_table(out / "shards")["embedding"][:3].to_pylist()
    assert embed(images="memory://given", out="memory://made").out == result.out
    for name in ("/given", "/made"):
        memory.rm(name, recursive=True)


@pytest.mark.usefixtures("photos")
def test_a_network_that_fails_is_a_sentence(embed, monkeypatch):
    def fails(*_, **__):
        raise LookupError("no credentials")

    memory = type(fsspec.filesystem("memory"))
    monkeypatch.setattr(memory, "isdir", fails)
    assert "no credentials" in embed(images="memory://given").sentence
    monkeypatch.setattr(memory, "open", fails)
    result = embed(out="memory://failing")
    assert "no credentials" in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"images": "nowhere"}, "Received: nowhere"),
        ({"images": "nope://nowhere"}, "nope"),
        ({"images": "."}, "`images` must have images"),
        ({"model": "nowhere"}, "no SavedModel at nowhere"),
        ({"address": "auto"}, "give --engine ray"),
        ({"out": "photos"}, "photos must be a new or empty folder"),
        ({"out": "photos/0.png/out"}, "Not a directory"),
    ],
)
def test_bad_input_is_rejected_before_work(options, sentence, embed, out, photos, tmp_path):
    if options.get("images") == ".":
        (tmp_path / "photos").rename(tmp_path / ".photos")
    before = sorted(tmp_path.rglob("*"))
    assert sentence in embed(**options).sentence
    assert sorted(tmp_path.rglob("*")) == before


def test_says_what_to_install(embed, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray.data", None)
    monkeypatch.delitem(sys.modules, "tfdml.scale.ray_engine", raising=False)
    assert "needs ray: pip install -e '.[scale,ray]'" in embed(engine="ray").sentence
    monkeypatch.setitem(sys.modules, "fsspec", None)
    monkeypatch.delitem(sys.modules, "tfdml.scale.writing")
    monkeypatch.delitem(sys.modules, "tfdml.scale.storage")
    with pytest.raises(ImportError, match=r"needs fsspec: pip install -e '.\[scale\]'"):
        scale.__getattr__("CollectionWriter")


def test_a_full_disk(embed, out, photos):
    embed()
    table = table_of(out)
    shutil.rmtree(out / "shards")
    with files_of_at_most(1000):
        result = embed()
    assert result.code == 1
    assert "File too large: " in result.err
    assert "00000.parquet'; run the same command to continue" in result.err
    assert result.err.count("\n") == 1
    assert not list(out.glob("shards/*"))
    assert embed().code == 0
    assert table_of(out) == table


def test_a_collection_is_added_to_updated_and_reduced(embed, out, photos, version, tmp_path):
    assert embed().code == 0

    source = ["--model", version, "--images", photos]
    shutil.copy(photos / "a/1.png", photos / "b/copy.png")
    added = run("add", out, *source)
    assert added.out.splitlines() == [
        f"1 images added, 0 embedded again, 0 removed: {out}",
        "Could not read 0",
        f"{photos / 'b/copy.png'} is a copy of {photos / 'a/1.png'}",
    ]
    (photos / "0.png").unlink()
    updated = run("update", out, *source)
    assert updated.out.splitlines()[0] == f"0 images added, 1 embedded again, 1 removed: {out}"
    assert updated.out.splitlines()[1] == "Could not read 1"
    assert run("remove", out, "--where", "label = 'b'").out == f"4 images removed: {out}\n"
    assert "was changed since; use `python -m tfdml.scale update`" in embed().sentence
    assert "`where` must be given" in run("remove", out).sentence
    assert "`model` and `images` must be given" in run("add", out).sentence
    rows = Collection(out).present().to_pylist()
    assert {pathlib.Path(row["path"]).name for row in rows} == {"1.png", "2 [x].png", "bad.png"}


def test_indexes_and_reports(clustered):
    result = run("index", clustered.folder, "--factory", "IVF8,SQ8", "--report", "true")
    assert result.code == 0, result.err
    assert re.search(r"Index: 597 images, [\d.]+ bytes each: ", result.out)
    lines = result.out.splitlines()
    assert lines[-3].split()[0] == "nprobe=1"
    assert lines[-2].endswith("(stored)")
    assert float(lines[-1].split()[1]) <= float(lines[-3].split()[1])
    again = run("index", clustered.folder, "--factory", "IVF8,SQ8")
    assert again.out.startswith("The index was there: 597 images")


def test_says_what_it_does():
    assert run("--help").out == run().out
    assert "embed   writes the embeddings" in run().out
    assert "--report" in run("index", "--help").out
    assert "IVF4096,SQ8" in run("index", "--help").out
    assert "Unknown command 'indx'. Did you mean 'index'" in run("indx").sentence


def test_rejects_a_second_job_and_what_is_no_collection(clustered, tmp_path):
    with locked(clustered.folder, "taken"):
        sentence = run("index", clustered.folder, "--factory", "SQ8").sentence
    assert f"another job works on {clustered.folder}" in sentence
    assert "there is no" in run("index", tmp_path, "--factory", "SQ8").sentence


def test_checks_all_files_and_names_the_damaged(clustered):
    assert run("check", clustered.folder).out.endswith(
        "11 files of an earlier version have no checksum\n"
    )
    finished(clustered)
    assert run("index", clustered.folder, "--factory", "IVF8,SQ8").code == 0
    assert run("check", clustered.folder).out.startswith("All 13 files with a checksum are whole")
    (clustered.folder / "shards/00002.parquet").unlink()
    path = clustered.folder / "index" / "index.ivfdata"
    path.write_bytes(path.read_bytes()[:-1])
    result = run("check", clustered.folder)
    assert result.code == 1
    assert "00002.parquet" in result.out
    assert "index.ivfdata is damaged (it has " in result.out
    assert "2 of 13 files are missing or damaged" in result.err
