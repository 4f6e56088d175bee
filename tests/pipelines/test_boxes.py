import importlib

import numpy as np
import pytest
from archives import write_image

import pipelines
from pipelines.boxes import cut_to_images

HEADER = "path,x1,y1,x2,y2\n"
WHOLE = HEADER + "cat/1.png,0,0,20,16\ncat/2.png,0,0,1,1\ndog/1.png,0,0,1,1\ndog/2.png,0,0,1,1"


@pytest.fixture
def photos(tmp_path):
    """Two classes of two images, 20 wide and 16 high."""
    for image in ("cat/1.png", "cat/2.png", "dog/1.png", "dog/2.png"):
        write_image(tmp_path / "photos" / image)
    return tmp_path / "photos"


@pytest.fixture
def file(tmp_path):
    return tmp_path / "boxes.csv"


def load(photos, boxes):
    return pipelines.load("folder", data_dir=photos, boxes=boxes)


def test_each_image_gets_its_box(photos, file):
    file.write_text(  # as of a spreadsheet, with the mark of UTF-8
        f"{HEADER}dog/2.png,2,3,20,16\ncat/1.png,0,0,1,1\n./cat/2.png, 4,5, 6,7\n"
        "dog/1.png,1,2,3,4\n\nfox/1.png,1,2,3,4\n",
        encoding="utf-8-sig",
    )
    dataset = load(photos, file)
    assert dataset.train.boxes.tolist() == [[0, 0, 1, 1], [4, 5, 6, 7]]
    assert dataset.test.boxes.tolist() == [[1, 2, 3, 4], [2, 3, 20, 16]]
    batch = next(iter(pipelines.evaluation_batches(dataset.both(), (5, 6, 3))))
    assert batch.shape == (4, 5, 6, 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a.png,1,2,3,4\n", "boxes.csv must begin with the line path,x1,y1,x2,y2"),
        (HEADER + "cat/1.png,1,2,3,4", "must have a box for every image. .*first=cat/2.png"),
        (HEADER + "a.png,1,2,3\n", "line 2: a box must be four integers .*='1,2,3'"),
        (HEADER + "a.png,1,2,3.5,4\n", "line 2: a box must be four integers"),
        (HEADER + "\na.png,3,2,3,4\n", "line 3: a box must be .* x1 < x2, .*='3,2,3,4'"),
        (HEADER + "cat/1.png,0,0,1,1\n../cats/1.png,0,0,1,2", "image. .*twice=../cats/1.png"),
        ("\x89PNG", "boxes.csv must be a CSV file in UTF-8"),
        (WHOLE.replace("20,16", "20,17"), "1.png: a box .*box=.0, 0, 20, 17., width=20, height=16"),
    ],
)
def test_rejects_files_with_their_name_and_line(text, message, photos, file):
    (photos.parent / "cats").symlink_to(photos / "cat")
    file.write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match=message):
        load(photos, file)


def test_boxes_are_for_images_in_files(file, monkeypatch):
    monkeypatch.setattr(importlib, "import_module", lambda _: pytest.fail("reads the images"))
    file.write_text(HEADER + "a.png,1,2,3,4\n")
    with pytest.raises(ValueError, match=r"`boxes` are for images in files. Received: dataset="):
        pipelines.load("tfds:mnist", boxes=file)


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


def test_a_file_of_boxes_that_does_not_exist_is_named_before_images_are_read():
    with pytest.raises(FileNotFoundError, match="`annotated` or an existing CSV file"):
        pipelines.load("folder", "nowhere", boxes="x.csv")
