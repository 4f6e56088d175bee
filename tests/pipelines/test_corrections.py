import dataclasses

import numpy as np
import pytest
from small_runs import write_images

import pipelines
from pipelines.corrections import corrected


@pytest.fixture
def photos(tmp_path):
    """Folder of four classes of three images; `a` and `b` are to train on."""
    return write_images(tmp_path, dict.fromkeys("abcd", 3))


def load(photos, **files):
    """The dataset, with files of the given lines."""
    for name, lines in files.items():
        (photos / f"{name}.csv").write_text("\n".join(lines), "utf-8")
        files[name] = photos / f"{name}.csv"
    return pipelines.load("folder", photos, **files)


def content(split):
    """{class name: names of its images}."""
    found = {name: [] for name in split.names}
    for path, label in zip(split.images, split.labels.tolist(), strict=True):
        found[split.class_names[label]].append("/".join(path.split("/")[-2:]))
    return found


AUDIT = [
    "path,finding,score,suggestion,other",
    "a/0.png,duplicate,0.9,exclude,a/1.png",
    "b/1.png,label,0.99,relabel a,a/2.png",
    "b/2.png,label,0.98,relabel c,c/1.png",
    "c/1.png,outlier,0.7,look,",
]


def test_one_table_has_both(photos):
    dataset = load(photos, exclude=AUDIT, relabel=AUDIT)
    assert content(dataset.train) == {"a": ["a/1.png", "a/2.png", "b/1.png"]}
    assert sorted(content(dataset.test)["c"]) == ["b/2.png", "c/0.png", "c/1.png", "c/2.png"]
    assert content(dataset.test)["d"] == ["d/0.png", "d/1.png", "d/2.png"]


def test_a_training_class_with_one_image_goes_too(photos):
    with pytest.warns(UserWarning, match="left out 1 training classes with a single image"):
        dataset = load(photos, exclude=["path", "b/0.png", "b/2.png", "c/0.png", "c/1.png"])
    assert content(dataset.train) == {"a": ["a/0.png", "a/1.png", "a/2.png"]}
    assert content(dataset.test)["c"] == ["c/2.png"]


def test_super_classes_stay_also_where_only_training_images_have_them(photos):
    (photos / "exclude.csv").write_text("path\na/0.png", "utf-8")
    (photos / "relabel.csv").write_text("path,label\nc/0.png,b", "utf-8")
    dataset = load(photos)
    train = dataclasses.replace(dataset.train, super_labels=[7, 7, 7, 8, 8, 8])
    files = [photos / "exclude.csv", photos / "relabel.csv"]
    changed = corrected(dataclasses.replace(dataset, train=train), photos, *files)
    assert changed.train.super_labels.tolist() == [7, 7, 8, 8, 8, 8]
    assert changed.test.super_labels is None


def test_a_table_of_labels(photos):
    dataset = load(photos, relabel=["path,label", "d/0.png,c"])
    assert content(dataset.test)["c"] == ["c/0.png", "c/1.png", "c/2.png", "d/0.png"]
    assert np.array_equal(dataset.train.labels, load(photos).train.labels)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"exclude": ["image", "a/0.png"]}, r"exclude.csv must have a column path"),
        ({"relabel": ["path", "a/0.png"]}, r"the columns path and label"),
        ({"relabel": ["path,label", "a/0.png,z"]}, r"line 2: a new label must be a class.*'z'"),
        ({"exclude": ["path", "z/0.png"]}, r"not in the dataset, none is.*z/0.png"),
        ({"exclude": ["path,suggestion", "a/0.png"]}, r"line 2 must have 2 cells"),
        (
            {"exclude": ["path", *(f"{name}/{i}.png" for name in "cd" for i in range(3))]},
            r"leave no images of test",
        ),
    ],
)
def test_tables_that_do_not_fit(photos, files, message):
    with pytest.raises(ValueError, match=message):
        load(photos, **files)


def test_some_images_that_are_not_there(photos):
    with pytest.warns(UserWarning, match=r"1 images of .*exclude.csv are not in the dataset.*z/0"):
        dataset = load(photos, exclude=["path", "z/0.png", "a/0.png"])
    assert content(dataset.train)["a"] == ["a/1.png", "a/2.png"]


def test_what_changes_nothing_or_empties_a_class(photos):
    with pytest.warns(UserWarning, match=r"relabel.csv changes nothing: no line is for `relabel`"):
        load(photos, relabel=["path,suggestion", "a/0.png,exclude"])
    with pytest.warns(UserWarning, match="1 classes of test have no images any more"):
        load(photos, relabel=["path,label", *(f"c/{i}.png,a" for i in range(3))])


def test_a_file_that_is_not_there_and_images_in_memory(photos):
    with pytest.raises(FileNotFoundError, match="`exclude` must be an existing CSV file"):
        pipelines.load("folder", photos, exclude=photos / "none.csv")
    (photos / "some.csv").write_text("path\na/0.png", "utf-8")
    with pytest.raises(ValueError, match="corrections are for images in files"):
        pipelines.load("digits", exclude=photos / "some.csv")
