import importlib

import numpy as np
import pytest
from PIL import Image

import pipelines
from pipelines.boxes import cut_to_images, read_boxes

HEADER = "path,x1,y1,x2,y2\n"


@pytest.fixture
def photos(tmp_path):
    """Two classes of two images, 20 wide and 16 high."""
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for image in ("1.png", "2.png"):
            Image.new("RGB", (20, 16)).save(tmp_path / "photos" / name / image)
    return tmp_path / "photos"


@pytest.fixture
def file(tmp_path):
    return tmp_path / "boxes.csv"


def load(photos, boxes):
    return pipelines.load("folder", data_dir=photos, boxes=boxes)


def test_each_image_gets_its_box(photos, file):
    file.write_text(
        f"{HEADER}dog/2.png,2,3,20,16\ncat/1.png,0,0,1,1\n./cat/2.png, 4,5, 6,7\n"
        "dog/1.png,1,2,3,4\n\nfox/1.png,1,2,3,4\n"
    )
    dataset = load(photos, file)
    assert dataset.train.boxes.tolist() == [[0, 0, 1, 1], [4, 5, 6, 7]]
    assert dataset.test.boxes.tolist() == [[1, 2, 3, 4], [2, 3, 20, 16]]
    batch = next(iter(pipelines.evaluation_batches(dataset.both(), (5, 6, 3))))
    assert batch.shape == (4, 5, 6, 3)


def test_an_image_has_one_box_however_its_path_is_written(photos, file):
    (photos.parent / "cats").symlink_to(photos / "cat")
    boxes = ["cat/1.png,0,0,1,1", "cat/2.png,0,0,1,1", "dog/1.png,0,0,1,1", "dog/2.png,0,0,1,1"]
    file.write_text(HEADER + "\n".join([*boxes, "../cats/1.png,0,0,1,2"]))
    with pytest.raises(
        ValueError, match=r"one box for an image\. Received: twice=\.\./cats/1\.png"
    ):
        load(photos, file)


def test_names_the_image_whose_box_is_outside(photos, file):
    boxes = {"cat/1.png": "0,0,20,16", "cat/2.png": "0,0,20,17", "dog/1.png": "0,0,21,16"}
    file.write_text(HEADER + "".join(f"{path},{box}\n" for path, box in boxes.items()))
    with pytest.raises(ValueError, match=r"must have a box for every image. .*first=dog/2\.png"):
        load(photos, file)
    file.write_text(file.read_text() + "dog/2.png,1,1,2,2\n")
    message = r"photos/cat/2\.png: a box must be inside .*box=\[0, 0, 20, 17\], width=20, height=16"
    with pytest.raises(ValueError, match=message):
        load(photos, file)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "boxes.csv must name boxes. Received: boxes=0"),
        ("a.png,1,2,3,4\n", "boxes.csv must begin with the line path,x1,y1,x2,y2"),
        (HEADER, "boxes.csv must name boxes. Received: boxes=0"),
        (HEADER + "a.png,1,2,3\n", "line 2: a box must be four integers .*: '1,2,3'"),
        (HEADER + "a.png,1,2,3.5,4\n", "line 2: a box must be four integers"),
        (HEADER + "a.png,-1,2,3,4\n", "line 2: a box must be four integers"),
        (HEADER + "a.png,3,2,3,4\n", "line 2: a box must be .* x1 < x2, .*: '3,2,3,4'"),
        (HEADER + "a.png,1,2,3,4\n\na.png,1,2,3,4\n", "line 4: a.png has a box already"),
    ],
)
def test_rejects_files_with_their_name_and_line(text, message, file):
    file.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_boxes(file)


@pytest.mark.parametrize("name", ["digits", "omniglot", "tfds:mnist"])
def test_boxes_are_for_images_in_files(name, file, monkeypatch):
    monkeypatch.setattr(importlib, "import_module", lambda _: pytest.fail("reads the images"))
    file.write_text(HEADER + "a.png,1,2,3,4\n")
    with pytest.raises(ValueError, match=r"`boxes` are for images in files. Received: dataset="):
        pipelines.load(name, boxes=file)


def test_boxes_of_annotations_are_cut_to_their_images(photos):
    paths = [photos / "cat" / "1.png"] * 4
    boxes = [[1.5, 2.0, 3.2, 4.0], [-3, -1, 400, 300], [19.5, 15.9, 21, 17], [0, 0, 20, 16]]
    cut = cut_to_images(paths, boxes)
    assert cut.dtype == np.int64
    assert cut.tolist() == [[1, 2, 4, 4], [0, 0, 20, 16], [19, 15, 20, 16], [0, 0, 20, 16]]


@pytest.mark.parametrize("box", [[20, 0, 25, 5], [-4, 0, 0, 5], [3, 4, 2, 8], [0, 16, 5, 20]])
def test_a_box_elsewhere_is_rejected_with_the_name(photos, box):
    edges = r"(\.0)?, ".join(map(str, box))
    message = rf"1\.png: a box must be inside its image\. Received: box=\[{edges}"
    with pytest.raises(ValueError, match=message):
        cut_to_images([photos / "cat" / "1.png"], [box])


def test_boxes_may_come_from_a_spreadsheet_but_must_be_text(tmp_path):
    path = tmp_path / "boxes.csv"
    path.write_bytes("path,x1,y1,x2,y2\na.png,0,1,2,3\n".encode("utf-8-sig"))
    assert read_boxes(path) == {"a.png": (0, 1, 2, 3)}
    path.write_bytes(b"\x89PNG")
    with pytest.raises(ValueError, match=r"boxes\.csv must be a CSV file in UTF-8"):
        read_boxes(path)


def test_a_file_of_boxes_that_does_not_exist_is_named_before_images_are_read():
    with pytest.raises(FileNotFoundError, match="`annotated` or an existing CSV file"):
        pipelines.load("folder", "nowhere", boxes="x.csv")
