import pathlib

import archives
import pytest

from pipelines import load


@pytest.fixture
def table(tmp_path):
    """Writes images.csv from its columns and rows, and the images."""

    def write(columns, *rows):
        for row in rows:
            archives.write_image(tmp_path / row.split(",")[0])
        (tmp_path / "images.csv").write_text("\n".join([columns, *rows]) + "\n")
        return tmp_path / "images.csv"

    return write


NINE = [f"photos/{i}.png,{label}" for i, label in enumerate("cabcababa")]


def test_the_first_half_of_the_classes_trains(table):
    path = table("path,label", *NINE)
    (path.parent / "._images.csv").write_text("a hidden file, of macOS")
    for data_dir in (path, path.parent):
        dataset = load("csv", data_dir)
        assert dataset.train.names == ["a"]
        assert dataset.test.names == ["b", "c"]
        names = [pathlib.Path(image).name for image in dataset.train.images]
        assert names == ["1.png", "4.png", "6.png", "8.png"]
        assert dataset.gallery is None
        assert dataset.train.super_labels is None


def test_whole_numbers_are_sorted_as_numbers_and_others_are_names(table):
    several = load("csv", table("path,labels,split", "a.png,10;9,train", "b.png,10,test"))
    assert several.train.class_names == {0: "9", 1: "10"}
    rows = [f"{label}_{image}.png" for label in (2**40 + 1, 10, 9, -3) for image in "ab"]
    dataset = load("csv", table("path,label", *(f"{row},{row.split('_')[0]}" for row in rows)))
    assert dataset.train.labels.tolist() == [9, 9, -3, -3]
    assert dataset.test.labels.tolist() == [2**40 + 1, 2**40 + 1, 10, 10]
    path = table("path,label", *map("{0}.png,{0}".format, ["9", "900 S", "10.0"]))
    names = load("csv", path, training=False)
    assert names.both().class_names == {0: "10.0", 1: "9", 2: "900 S"}


def test_the_split_may_be_given(table):
    rows = ["a.png,x,train,u", "b.png,x,train,u", "c.png,y,query,v", "d.png,y,gallery,v"]
    dataset = load("csv", table("path, label, split, super_label", *rows, "e.png,z,test,u"))
    assert dataset.train.names == ["x"]
    assert [pathlib.Path(i).name for i in dataset.test.images] == ["c.png", "e.png"]
    assert dataset.gallery.names == ["y"]
    assert dataset.train.super_labels.tolist() == [0, 0]
    assert dataset.test.super_labels.tolist() == [1, 0]


def test_an_image_is_taken_once_however_its_path_is_written(table, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    path = table("path,label", *(f"photos/{name}.png,{name in 'ab'}" for name in "abcd"))
    (tmp_path / "link").symlink_to("photos")
    spellings = ["photos/a.png", "link/a.png", "~/photos/a.png"]
    path.write_text(path.read_text() + "".join(f"{spelling},x\n" for spelling in spellings))
    with pytest.raises(ValueError, match=r"3 images that are .* before: .*\(as .*/a\.png"):
        load("csv", path)
    with pytest.warns(UserWarning, match="left out 3 images"):
        assert load("csv", path, skip_invalid=True).both().labels.tolist() == [0, 0, 1, 1]


def test_a_gallery_of_which_no_image_is_left_is_an_error(table, tmp_path):
    rows = ["a.png,x,train", "b.png,x,train", "c.png,y,query", "d.png,y,query", "e.png,y,gallery"]
    path = table("path,label,split", *rows)
    (tmp_path / "e.png").unlink()
    with (
        pytest.warns(UserWarning, match="1 of 5 images that are missing"),
        pytest.raises(ValueError, match=r"and those of its gallery\. Received: gallery=0"),
    ):
        load("csv", path, skip_invalid=True)


BOXED = ["a.png,x,0,0,20,16", "b.png,x,1,2,3,4", "c.png,y,5,6,7,8", "d.png,y,5,6,20,8"]


def test_boxes_are_taken_when_asked_for(table):
    path = table("path,label,x1,y1,x2,y2", *BOXED)
    assert load("csv", path).train.boxes is None
    dataset = load("csv", path, boxes="annotated")
    assert dataset.train.boxes.tolist() == [[0, 0, 20, 16], [1, 2, 3, 4]]
    assert dataset.test.boxes.tolist() == [[5, 6, 7, 8], [5, 6, 20, 8]]
    path.write_text(path.read_text().replace("20,8", "21,8"))
    with pytest.raises(ValueError, match=r"d\.png: a box must be inside .*\[5, 6, 21, 8\]"):
        load("csv", path, boxes="annotated")
    with pytest.raises(ValueError, match=r"images\.csv must have the columns x1,y1,x2,y2"):
        load("csv", table("path,label", *NINE), boxes="annotated")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"images\.csv must begin with a line that names its columns.*line=''"),
        ("path\na.png\n", "Received: line='path'"),
        ("path,label,x1,y1\n", "Received: line='path,label,x1,y1'"),
        ("path,labels\n", "or path,labels,split, for several labels separated by ';'"),
        ("path,label,labels,split\n", "Received: line='path,label,labels,split'"),
        ("path,label,label\n", "Received: line='path,label,label'"),
        ("path,label\n", r"images\.csv must list images\. Received: images=0"),
        ("path,label\na.png,1\nb.png\n", r"line 3 must have path,label\. Received: line='b\.png'"),
        ("path,label\na.png,1\nb.png,NaN\n", r"line 3 must have a label\. .*'b\.png,NaN'"),
        ("path,labels,split\na.png,1; nan,test\n", r"line 2 must have a label"),
        ("path,label,split\na.png,1,tst\n", r"line 2: `split` must be one of train, val, "),
        ("path,label,x1,y1,x2,y2\na.png,1,0,0,0,1\n", r"line 2: a box must .*'0,0,0,1'"),
        ('path,label\n"a.png,1\n', r"must be a CSV file in UTF-8"),
        (
            "path,label\na.png,1\nb.png,2\n",
            r"2 of 2 images that are missing, .*/a\.png.* relative to /",
        ),
    ],
)
def test_rejects_a_file_that_is_not_as_it_must_be(tmp_path, text, message):
    (tmp_path / "images.csv").write_text(text)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        load("csv", tmp_path)


def test_rejects_to_test_on_nothing(table):
    path = table("path,label,split", "a.png,1,train", "b.png,1,train")
    with pytest.raises(ValueError, match=r"'csv' must have training and test images.*: test=0"):
        load("csv", path)


def test_says_which_file_is_wanted(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"must have one CSV file.*Found: none"):
        load("csv", tmp_path)
    for name in ("a.csv", "b.CSV"):
        (tmp_path / name).write_text("path,label\n")
    with pytest.raises(ValueError, match=r"give the file itself\. Found: a\.csv, b\.CSV"):
        load("csv", tmp_path)


SEVERAL = ["a.png,cat; dog,train", "b.png,dog,train", "c.png,,train", "d.png,cow;cat,test"]


def test_several_labels_of_an_image_are_rows_of_0_and_1(table):
    dataset = load("csv", table("path,labels,split", *SEVERAL))
    assert dataset.train.labels.tolist() == [[1, 0, 1], [0, 0, 1], [0, 0, 0]]
    assert dataset.test.labels.tolist() == [[1, 1, 0]]
    assert dataset.train.names == ["cat", "dog"]
    assert dataset.test.names == ["cat", "cow"]
    assert dataset.train.num_classes == 2
    renumbered = dataset.train.renumbered()
    assert renumbered.labels.tolist() == [[1, 1], [0, 1], [0, 0]]
    assert renumbered.class_names == {0: "cat", 1: "dog"}
    assert dataset.both().labels.shape == (4, 3)


def test_train_py_rejects_several_labels_before_training(table):
    from tfdml.runs.recipe import Recipe
    from tfdml.runs.run_images import load_images

    path = table("path,labels,split", *SEVERAL)
    with pytest.raises(ValueError, match=r"tfdml-train must have one class id.*EmbeddingModel.fit"):
        load_images(Recipe(dataset="csv", data_dir=str(path), loss="supcon"))


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_other_separators_and_further_columns(separator, table):
    path = table("path,label,camera", *(f"{row},{i % 2 or ''}" for i, row in enumerate(NINE)))
    path.write_text(path.read_text().replace(",", separator))
    with pytest.warns(UserWarning, match=r"ignored the columns 'camera' of .*images\.csv"):
        assert load("csv", path).train.names == ["a"]


def test_an_image_may_have_several_boxes(table):
    rows = [*BOXED, "a.png,x,4,4,9,9", "c.png,z,1,1,2,2"]
    path = table("path,label,x1,y1,x2,y2", *rows)
    dataset = load("csv", path, boxes="annotated")
    assert dataset.train.boxes.tolist() == [[0, 0, 20, 16], [1, 2, 3, 4], [4, 4, 9, 9]]
    assert dataset.test.names == ["y", "z"]
    exclude = path.parent / "exclude.csv"
    exclude.write_text("path\nc.png\n")
    with pytest.warns(UserWarning, match="1 classes of test"):
        left = load("csv", path, boxes="annotated", exclude=exclude)
    assert left.test.boxes.tolist() == [[5, 6, 20, 8]]
    path.write_text(path.read_text() + "a.png,x,4,4,9,9\n")
    with pytest.raises(ValueError, match="1 images that are files listed before"):
        load("csv", path, boxes="annotated")


FLAGGED = ["a.png,x,train,,", "b.png,x,train,,", "c.png,y,validation,True,False"]


def test_queries_and_gallery_may_be_flagged(table):
    columns = "path,label,split,is_query,is_gallery"
    dataset = load("csv", table(columns, *FLAGGED, "d.png,y,validation,0,1"))
    assert [pathlib.Path(i).name for i in dataset.test.images] == ["c.png"]
    assert [pathlib.Path(i).name for i in dataset.gallery.images] == ["d.png"]
    both = ["c.png,y,validation,1,1", "d.png,y,validation,1,1"]
    dataset = load("csv", table(columns, *FLAGGED[:2], *both))
    assert (len(dataset.test.labels), dataset.gallery) == (2, None)
    with pytest.raises(ValueError, match="must be all that are tested"):
        load("csv", table(columns, *FLAGGED[:2], both[0], "d.png,y,validation,0,1"))
    with pytest.raises(ValueError, match="line 5 must be a query or in the gallery"):
        load("csv", table(columns, *FLAGGED, "d.png,y,validation,0,0"))
