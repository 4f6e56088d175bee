import archives
import pytest

from pipelines import load
from pipelines.datasets import imagenet

SYNSETS = [f"n0000000{i}" for i in range(1, 7)]


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """Six synsets of two images, of which four train."""
    monkeypatch.setattr(imagenet, "SYNSETS", {"imagenet2010": (6, 4), "imagenet10k": (6, 3)})
    archives.write_synsets(tmp_path / "photos", SYNSETS)
    (tmp_path / "photos" / "n00000001" / "notes.txt").write_text("no image")
    (tmp_path / "photos" / "devkit").mkdir()
    return tmp_path / "photos"


def test_the_listed_synsets_train(photos, recwarn):
    (photos / "train_synsets.txt").write_text("n00000006\nn00000002\n\nn00000001\nn00000004\n")
    dataset = load("imagenet2010", photos)
    assert dataset.train.names == ["n00000001", "n00000002", "n00000004", "n00000006"]
    assert dataset.test.names == ["n00000003", "n00000005"]
    assert dataset.test.images.tolist() == [
        str(photos / f"n0000000{i}" / f"n0000000{i}_{n}.JPEG") for i in (3, 5) for n in (10, 2)
    ]
    assert dataset.name == "imagenet2010"
    with pytest.raises(
        ValueError, match=r"'imagenet10k' differs .*train: 4 classes where 3 are publ"
    ):
        load("imagenet10k", photos)
    assert not recwarn.list


def test_rejects_a_list_of_others_or_of_another_length(photos):
    path = photos / "train_synsets.txt"
    path.write_text("n00000001\nn99999999\n")
    with pytest.raises(ValueError, match=r"existing folders\. .*unknown=1, first=\['n99999999'\]"):
        load("imagenet2010", photos)
    path.write_text("n00000001\nn00000002\n")
    message = "train: 2 classes where 4 are published; test: 4 classes"
    with pytest.raises(ValueError, match=message):
        load("imagenet2010", photos)


def test_names_folders_without_images(photos):
    (photos / "train_synsets.txt").write_text("\n".join(SYNSETS[:4]))
    for image in (photos / "n00000005").iterdir():
        image.unlink()
    with pytest.raises(ValueError, match="1 folders without images: n00000005"):
        load("imagenet2010", photos)
    with (
        pytest.warns(UserWarning, match="left out 1 folders without images: n00000005"),
        pytest.warns(UserWarning, match="not comparable"),
    ):
        assert load("imagenet2010", photos, skip_invalid=True).test.names == ["n00000006"]
    (photos / "train_synsets.txt").write_text("\n".join(SYNSETS[:5]))  # one of them is empty
    with pytest.warns(UserWarning, match="left out 1 folders without images: n00000005"):
        assert load("imagenet2010", photos, skip_invalid=True).train.names == SYNSETS[:4]
