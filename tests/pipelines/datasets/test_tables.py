"""Images inside tables of the kinds that people have, written here by their own libraries."""

import importlib.util
import io
import json
import tarfile

import numpy as np
import pytest
from PIL import Image

import pipelines
from pipelines import load


def encoded(value, kind="PNG"):
    buffer = io.BytesIO()
    Image.new("RGB", (6, 5), (value, 0, 0)).save(buffer, kind)
    return buffer.getvalue()


def reds(split):
    found = []
    for path in split.images:
        with Image.open(path) as image:
            found.append(image.getpixel((0, 0))[0])
    return found


@pytest.mark.parametrize("nested", [True, False])
def test_parquet_with_bytes_of_images(nested, tmp_path):
    pq, pa = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    for part, labels in (("train", [3, 3, 5, 5]), ("test", [9, 9, 10])):
        images = [encoded(10 * label, "TIFF" if nested else "PNG") for label in labels]
        if nested:
            images = [{"bytes": image, "path": None} for image in images]
        digests = [b"md5"] * len(labels)
        columns = {"id": [0] * len(labels), "digest": digests, "image": images, "label": labels}
        table = pa.table(columns)
        pq.write_table(table, tmp_path / f"{part}-00000-of-00001.parquet")
    dataset = load("parquet", tmp_path)
    assert reds(dataset.train) == [30, 30, 50, 50]
    assert reds(dataset.test) == [90, 90, 100]
    assert dataset.test.names == ["9", "10"]
    pq.write_table(table.drop(["label"]), tmp_path / "test.parquet")
    with pytest.raises(
        ValueError, match=r"encoded images, and `label`.*columns=\['id', 'digest', 'image'\]"
    ):
        load("parquet", tmp_path)
    empty = pa.array([*images[:2], None], table["image"].type)
    pq.write_table(table.set_column(2, "image", empty), tmp_path / "test.parquet")
    with pytest.raises(ValueError, match=r"must have an image in each row. Received: label=10"):
        load("parquet", tmp_path)
    (tmp_path / "none").mkdir()
    with pytest.raises(FileNotFoundError, match=r"must be a file that ends in .parquet or .arrow"):
        load("parquet", tmp_path / "none")
    cut = (tmp_path / "test.parquet").read_bytes()[:-20]
    (tmp_path / "valuable.parquet").write_bytes(cut)  # which names no part
    with pytest.raises(ValueError, match=r"valuable.parquet is cut off or no table"):
        load("parquet", tmp_path / "valuable.parquet")


def write_shard(path, samples):
    with tarfile.open(path, "w") as tar:
        for name, content in samples.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))


def test_shards_of_webdataset(tmp_path):
    first = {f"{i}.jpg": encoded(10, "JPEG") for i in range(3)}
    first |= {f"{i}.cls": b"owl" for i in range(2)}
    first["2.json"] = json.dumps({"label": "yak"}).encode()
    first |= {"a/3.png": encoded(20), "a/3.cls": b"yak"}
    write_shard(tmp_path / "train-0.tar", first)
    write_shard(tmp_path / "val-0.tar", {"4.png": encoded(90), "4.cls": b"emu"})
    dataset = load("webdataset", tmp_path)
    assert (dataset.train.names, dataset.test.names) == (["owl", "yak"], ["emu"])
    assert reds(dataset.test) == [90]
    with pytest.warns(UserWarning, match="the first half of them trains"):
        assert load("webdataset", tmp_path / "train-0.tar").train.names == ["owl"]
    write_shard(tmp_path / "val-1.tar", {"5.png": encoded(90)})
    with pytest.raises(ValueError, match=r"5\.png must have a label in 5\.cls or 5\.json"):
        load("webdataset", tmp_path)


def features(**kinds):
    """What Hugging Face writes of the columns of a table beside its schema."""
    return {b"huggingface": json.dumps({"info": {"features": kinds}}).encode()}


@pytest.mark.parametrize("suffix", ["arrow", "parquet"])
def test_data_sets_of_hugging_face(suffix, tmp_path):
    pq, pa = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    (tmp_path / "picture.png").write_bytes(encoded(70))
    picture = {"bytes": None, "path": str(tmp_path / "picture.png")}
    stated = features(picture={"_type": "Image"}, kind={"names": [*"dce"], "_type": "ClassLabel"})
    for part, kinds in {"train": [1, 1], "test": [2, 0]}.items():
        pictures = [{"bytes": encoded(10 * kind), "path": None} for kind in kinds[1:]]
        columns = {"picture": [picture, *pictures, picture], "kind": [*kinds, -1]}  # no label
        table = pa.table(columns).replace_schema_metadata(stated)
        file = tmp_path / "stored" / part / f"data-00000-of-00001.{suffix}"
        file.parent.mkdir(parents=True)
        if suffix == "arrow":
            with pa.ipc.new_stream(file, table.schema) as stream:
                stream.write_table(table)
        else:
            pq.write_table(table, file)
    dataset = load(f"hf:{tmp_path / 'stored'}")
    assert (dataset.train.names, dataset.test.names) == (["c"], ["d", "e"])
    assert (reds(dataset.train), reds(dataset.test)) == ([70, 10], [70, 0])


def test_pictures_that_pillow_alone_reads_are_trained_and_scored(tmp_path):
    suffixes = ["tif", "avif", "tif", "avif"]
    if importlib.util.find_spec("pillow_heif"):
        importlib.import_module("pillow_heif").register_heif_opener()
        suffixes[2] = "heic"
    for place, (name, suffix) in enumerate(zip("abcd", suffixes, strict=True)):
        (tmp_path / name).mkdir()
        for number in range(2):
            picture = Image.new("RGB", (64, 64), (60 * place, 10, 10))
            picture.save(tmp_path / name / f"{number}.{suffix}")
    Image.new("RGB", (64, 64), "red").save(tmp_path / "a" / "2.png")
    dataset = load("folder", tmp_path, skip_invalid=True)
    assert len(dataset.both().labels) == 9
    images, _ = next(iter(pipelines.balanced_batches(dataset.train, 2, 3, image_size=(8, 8, 3))))
    assert images.shape == (6, 8, 8, 3)
    boxes = tmp_path / "boxes.csv"
    lines = [f"{path},1,2,3,4" for path in dataset.both().images]
    boxes.write_text("\n".join(["path,x1,y1,x2,y2", *lines]))
    boxed = load("folder", tmp_path, boxes=boxes).test
    images = next(iter(pipelines.evaluation_batches(boxed, (2, 2, 3))))
    np.testing.assert_allclose(images[:, 0, 0, 0], [120, 120, 180, 180], atol=4)
    (tmp_path / "c" / f"0.{suffixes[2]}").write_bytes(b"damaged")
    with pytest.warns(UserWarning, match=r"1 images that cannot be read: .*c/0\..*pillow-heif"):
        load("folder", tmp_path, skip_invalid=True)
