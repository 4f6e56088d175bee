import numpy as np
import pytest
from google.protobuf import text_format
from PIL import Image
from tensorboard.plugins.projector import ProjectorConfig

from tfdml.evaluation import write_projector
from tfdml.evaluation.report import projector

GREY = np.zeros((2, 2, 1), np.uint8)


def written(folder):
    """The configuration, the rows, the lines of the metadata and the sprite, if any."""
    config = text_format.Parse((folder / "projector_config.pbtxt").read_text(), ProjectorConfig())
    (embedding,) = config.embeddings
    rows = np.loadtxt(folder / embedding.tensor_path, np.float32, delimiter="\t", ndmin=2)
    assert rows.shape == tuple(embedding.tensor_shape)
    metadata = (folder / embedding.metadata_path).read_text().split("\n")
    if not embedding.HasField("sprite"):
        return embedding, rows, metadata, None
    sprite = np.asarray(Image.open(folder / embedding.sprite.image_path))
    return list(embedding.sprite.single_image_dim), rows, metadata, sprite


def test_keeps_rows_to_the_last_digit(tmp_path, rng):
    rows = (rng.normal(size=(40, 5)) * 10.0 ** rng.integers(-6, 5, (40, 5))).astype("float32")
    rows[0, :4] = 0.0, -0.0, np.finfo("float32").tiny, 3.4e38
    labels = np.append(rng.integers(0, 5, 38) + 2**40, [-1, 2**62])
    config = write_projector(tmp_path / "new" / "folder", rows, labels)
    assert config == tmp_path / "new" / "folder" / "projector_config.pbtxt"
    _, found, metadata, sprite = written(config.parent)
    np.testing.assert_array_equal(found, rows)
    assert metadata == [*map(str, labels), ""]
    assert sprite is None


def test_names_stay_in_their_field(tmp_path):
    names = {7: "tab\there", 8: "two\nlines\r\n and\u2028a half ", 2**50: "Škoda 100%", 9: ""}
    data, images = (np.eye(5), np.array([7, 8, 2**50, 9, 11])), ["1.png", "$x$", "a  b", "c/d", ""]
    write_projector(tmp_path, *data, class_names=names, image_names=images)
    ids = ["7", "8", str(2**50), "9", "11"]
    classes = ["tab here", "two lines and a half", "Škoda 100%", "", "11"]
    rows = ["label\tclass_name\timage"]
    rows += map("\t".join, zip(ids, classes, ["1.png", "$x$", "a b", "c/d", ""], strict=True))
    assert written(tmp_path)[2] == [*rows, ""]
    write_projector(tmp_path, *data, image_names=images)
    assert written(tmp_path)[2][:2] == ["label\timage", "7\t1.png"]


@pytest.mark.parametrize(
    ("count", "most", "options", "side"),
    [(1, 8192, {"side": 6}, 6), (10, 8192, {"side": 6}, 6), (4, 128, {}, 64), (5, 128, {}, 42)],
)
def test_pictures_stand_line_by_line(count, most, options, side, tmp_path, monkeypatch):
    """Of one colour each, in a square of at most so many pixels; the last places are empty."""
    monkeypatch.setattr(projector, "_SPRITE_SIDE", most)

    def picture_of(row):
        return np.full((12, 12, 3), (20 * row + 20, row, 255), np.uint8)

    write_projector(tmp_path, np.eye(count), np.arange(count), picture_of=picture_of, **options)
    dimensions, _, _, sprite = written(tmp_path)
    assert dimensions == [side, side]
    columns = int(np.ceil(count**0.5))
    assert sprite.shape == (side * columns, side * columns, 3)
    for place in range(columns**2):
        line, column = divmod(place, columns)
        colour = [20 * place + 20, place, 255] if place < count else [0, 0, 0]
        cell = sprite[side * line : side * (line + 1), side * column : side * (column + 1)]
        np.testing.assert_array_equal(cell, np.broadcast_to(colour, (side, side, 3)))


def test_replaces_what_it_wrote(tmp_path):
    write_projector(tmp_path, np.eye(4), np.arange(4), picture_of=lambda row: GREY)
    write_projector(tmp_path, np.eye(3), np.arange(3))
    files = {path.name for path in tmp_path.iterdir()}
    assert files == {"metadata.tsv", "projector_config.pbtxt", "tensors.tsv"}
    assert written(tmp_path)[1].shape == (3, 3)

    def lost(row):
        raise OSError("picture lost")

    with pytest.raises(OSError, match="picture lost"):
        write_projector(tmp_path, np.eye(2), np.arange(2), picture_of=lost)
    assert not (tmp_path / "projector_config.pbtxt").exists()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"class_names": ["a"]}, TypeError, r"`class_names` must be a dict.*class_names='list'"),
        ({"image_names": ["a"]}, ValueError, r"`image_names` .* Received: image_names=1, rows=3"),
        ({"picture_of": GREY}, TypeError, "`picture_of` must be a callable or None"),
        ({"picture_of": lambda row: GREY / 255}, TypeError, "uint8. Received: dtype=.*row=0"),
        ({"picture_of": lambda row: GREY[0, 0]}, ValueError, r"1 or 3\). Received: shape=\(1,\)"),
        ({"picture_of": lambda row: GREY[:0]}, ValueError, r"shape=\(0, 2, 1\), row=0"),
        ({"side": 0}, ValueError, "`side` must be an integer >= 1 and < 8193. Received: side=0"),
        ({"embeddings": 1e300 * np.eye(3)}, ValueError, r"as float32. Received: largest=1e\+300"),
    ],
)
def test_rejects_bad_options(options, error, message, tmp_path):
    with pytest.raises(error, match=message):
        write_projector(tmp_path, **{"embeddings": np.eye(3), "labels": np.arange(3), **options})
    assert not (tmp_path / "projector_config.pbtxt").exists()
