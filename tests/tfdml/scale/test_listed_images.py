import decimal
import os
import shutil
import tarfile
import warnings

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tfdml.scale.listed_images import list_images
from tfdml.scale.storage import fetch

IN_PHOTOS = ["0.png", "a/1.png", "a/2 [x].png", "a/bad.png", "b/1.png", "b/2.jpg", "b/deep/3.png"]
LABELS = [None, "a", "a", "a", "b", "b", "b"]


def rows_of(listing):
    table = pa.Table.from_batches(listing.batches())
    assert len(table) == listing.images
    return table["path"].to_pylist(), table["label"].to_pylist()


def parquet(file, **columns):
    pq.write_table(pa.table(columns), file)
    return str(file)


@pytest.mark.parametrize(
    ("images", "names", "labels"),
    [
        ("photos", IN_PHOTOS, LABELS),
        ("../{0}/photos", IN_PHOTOS, LABELS),
        ("photos/b/deep", ["b/deep/3.png"], [None]),
        ("photos/b/*", ["b/1.png", "b/2.jpg"], [None] * 2),
        ("{1}/photos/**/*.png", [name for name in IN_PHOTOS if name != "b/2.jpg"], [None] * 6),
    ],
)
def test_lists_folders_and_patterns(images, names, labels, photos, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    listing = list_images(images.format(tmp_path.name, tmp_path))
    assert rows_of(listing) == ([str(photos / name) for name in names], labels)


def test_a_folder_may_be_named_like_a_pattern(photos):
    other = shutil.copytree(photos, photos.parent / "[old] *")
    assert rows_of(list_images(str(other)))[0] == [str(other / name) for name in IN_PHOTOS]


@pytest.mark.parametrize(
    ("name", "message"),
    [(b"notes.txt", "files that do not end in"), (b"\xff.png", r"paths .*udcff")],
)
def test_files_that_are_left_out_are_counted(name, message, photos):
    (photos / os.fsdecode(name)).write_text("")
    with pytest.warns(UserWarning, match=f"ignored 1 {message}"):
        assert list_images(str(photos)).images == len(IN_PHOTOS)


def test_folders_that_cannot_be_listed_are_named(photos, monkeypatch):
    scandir = os.scandir

    def denied(path):
        if str(path).endswith("deep"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", denied)
    with pytest.warns(UserWarning, match=r"ignored 1 folders such as: .*Permission denied.*deep"):
        assert list_images(str(photos)).images == len(IN_PHOTOS) - 1


def test_links_to_folders_are_not_followed(photos):
    os.symlink(photos, photos / "a" / "all")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list_images(str(photos)).images == len(IN_PHOTOS)
        assert list_images(f"{photos}/a/*").images > 0


def test_a_folder_of_another_file_system(photos):
    memory = fsspec.filesystem("memory")
    memory.put(str(photos), "/listed", recursive=True)
    paths, labels = rows_of(list_images("memory://listed"))
    assert paths == [f"memory:///listed/{name}" for name in IN_PHOTOS]
    assert labels == LABELS
    assert len(rows_of(list_images("memory://listed/*/*.png"))[0]) == 4
    memory.rm("/listed", recursive=True)


@pytest.fixture(scope="module")
def packed(write_photos, tmp_path_factory):
    """A folder with the photos, a list of two of them, one without paths, and archives of all."""
    folder = tmp_path_factory.mktemp("packed")
    photos = write_photos(folder / "photos")
    parquet(photos / "list.parquet", path=["./a/1.png", "a/../b/2.jpg"], label=[7.0, None])
    parquet(photos / "wrong.parquet", name=["a"])
    for name, kind in (("zip", "zip"), ("dotted", "tar"), ("packed", "gztar")):
        shutil.make_archive(str(folder / name), kind, photos)  # tar names its members ./a/1.png
    with tarfile.open(folder / "plain.tar", "w") as archive:
        for path in sorted(photos.iterdir()):
            archive.add(path, path.name)
    return folder


@pytest.mark.parametrize("name", ["zip.zip", "dotted.tar", "packed.tar.gz", "plain.tar"])
@pytest.mark.filterwarnings("ignore:ignored 2 files")
def test_an_archive_is_listed_by_whole_urls(name, packed, monkeypatch):
    kind, photos = f"{name.split('.')[1]}://", packed / "photos"
    monkeypatch.chdir(packed)
    for archive in (f"file://{packed}/{name}", str(packed / name), name):
        paths, labels = rows_of(list_images(f"{kind}::{archive}"))
        assert labels == LABELS
        assert all(path.endswith(f"::file://{packed}/{name}") for path in paths)
        assert [fetch(path) for path in paths] == [fetch(str(photos / n)) for n in IN_PHOTOS]
    for inner in ("b/deep", "b/deep/*", "./b/deep"):
        [path], _ = rows_of(list_images(f"{kind}{inner}::{name}"))
        assert fetch(path) == (photos / "b/deep/3.png").read_bytes()
    paths, labels = rows_of(list_images(f"{kind}list.parquet::{name}"))
    assert [*map(fetch, paths)] == [fetch(f"{photos}/{n}") for n in ("a/1.png", "b/2.jpg")]
    assert labels == ["7", None]


def test_a_cache_of_files_is_kept_in_the_urls(packed):
    photos, archive = packed / "photos", f"::file://{packed}/zip.zip"
    for url, inner in (
        (f"simplecache::file://{photos}/a", f"simplecache::file://{photos}/a/1.png"),
        (f"filecache::zip://a{archive}", f"filecache::zip://a/1.png{archive}"),
    ):
        paths, _ = rows_of(list_images(url))
        assert paths[0] == inner
        assert fetch(paths[0]) == (photos / "a/1.png").read_bytes()


@pytest.mark.parametrize("given", ["a::b", "a::b/*/*", "a::b/list.parquet"])
def test_a_folder_may_be_named_like_a_chain(given, photos, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.rename(photos, "a::b")
    parquet(tmp_path / "a::b/list.parquet", path=["a/1.png"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        paths, _ = rows_of(list_images(given))
    assert f"{tmp_path}/a::b/a/1.png" in paths
    assert fetch(f"{tmp_path}/a::b/a/1.png") == (tmp_path / "a::b/a/1.png").read_bytes()


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ("zip://none::zip.zip", "or a .parquet file. Received: zip://none::zip.zip"),
        ("zip://::none.zip", "No such file or directory: '.*none.zip'"),
        ("zip://::plain.tar", "zip://::plain.tar cannot be read .File is not a zip file"),
        ("tar://::zip.zip", "tar://::zip.zip cannot be read"),
        ("zip://wrong.parquet::zip.zip", "zip://wrong.parquet::zip.zip must have a column `path`"),
    ],
)
def test_the_url_of_an_archive_is_named(images, message, packed, monkeypatch):
    monkeypatch.chdir(packed)
    with pytest.raises((OSError, ValueError), match=message):
        list_images(images)


@pytest.mark.parametrize(
    "path_type", [pa.string(), pa.large_string(), pa.dictionary("int8", "str")]
)
def test_a_parquet_file(path_type, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    paths = {"/photos/a.png": "/photos/a.png", "b/c.png": f"{tmp_path}/b/c.png"}
    paths |= {"~/a.png": f"{tmp_path}/home/a.png", "s3://~/d": "s3://~/d"}
    columns = {"label": [3, None, 2**40, 1], "path": pa.array([*paths]).cast(path_type)}
    columns["other"] = [0] * 4
    listed, labels = rows_of(list_images(parquet(tmp_path / "list.parquet", **columns)))
    assert listed == [*paths.values()]
    assert labels == ["3", None, "1099511627776", "1"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"name": ["a"]}, r"must have a column `path`\. Received: columns=.'name'."),
        ({"path": ["a", None]}, "each row of .* must have a `path`"),
        ({"path": ["a", ""]}, "each row of .* must have a `path`"),
        ({"path": pa.array([], pa.string())}, "`images` must have images"),
        ({"path": [["a"]]}, r"list\.parquet cannot be read .*list.* to utf8"),
    ],
)
def test_a_parquet_file_without_paths_is_rejected(columns, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        list_images(parquet(tmp_path / "list.parquet", **columns))


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (pa.array([4006381333931.0, -0.0, None]), ["4006381333931", "0", None]),
        (pa.array([7, float("nan"), 2**24 - 1], pa.float32()), ["7", None, "16777215"]),
        (pa.array([7.0, 7.0, None]).dictionary_encode(), ["7", "7", None]),
        (pa.array([7, 2**60, None], pa.decimal128(25, 2)), ["7", str(2**60), None]),
        (pa.array([7, 2**63, None], pa.uint64()), ["7", str(2**63), None]),
        (pa.array(["7.0", "nan", None], pa.large_string()), ["7.0", "nan", None]),
    ],
)
def test_labels_that_are_whole_numbers_stay_whole(labels, expected, tmp_path):
    file = parquet(tmp_path / "list.parquet", path=["a", "b", "c"], label=labels)
    assert rows_of(list_images(file))[1] == expected


@pytest.mark.parametrize(
    ("label", "message"),
    [
        (7.5, r"list\.parquet cannot be read .*7\.5"),
        (float("inf"), "numbers that a float holds exactly"),
        (2.0**53, r"numbers that a float holds exactly\. Received: largest=9007199254740992\.0"),
        (decimal.Decimal("7.5"), r"list\.parquet cannot be read"),
        (" ", "must be null where there is none"),
    ],
)
def test_labels_that_are_none_are_named(label, message, tmp_path):
    columns = {"path": ["a"] * 3, "label": [None, None, label]}
    with pytest.raises(ValueError, match=message):
        list_images(parquet(tmp_path / "list.parquet", **columns))


@pytest.mark.parametrize(
    "images", ["none", "none/*.png", "a", "none.parquet", "damaged.parquet", "memory://none"]
)
def test_no_images_are_rejected(images, tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    (tmp_path / "damaged.parquet").write_bytes(b"not Parquet")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        (ValueError, FileNotFoundError), match=r"must|No such file|cannot be read"
    ) as rejected:
        list_images(images)
    assert images in str(rejected.value)


def test_the_digest_is_of_paths_and_labels_in_order(tmp_path):
    lists = [
        {"path": ["/a", "/b"]},
        {"path": ["/b", "/a"]},
        {"path": ["/a", "/b"], "label": ["x", None]},
        {"path": ["/a", "/b"], "label": [None, "x"]},
        {"path": ["/a"]},
    ]
    files = [parquet(tmp_path / f"{i}.parquet", **columns) for i, columns in enumerate(lists)]
    assert len({list_images(file).digest for file in files}) == len(lists)
    same = parquet(tmp_path / "same.parquet", path=["/a", "/b"], label=pa.nulls(2))
    assert list_images(same).digest == list_images(files[0]).digest
