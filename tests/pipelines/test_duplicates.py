import numpy as np
import pytest
from PIL import Image, ImageOps

import pipelines
from pipelines import check
from pipelines.duplicates import find_duplicates


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Smooth random pictures of two classes; then copies and odd ones."""
    folder, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    pictures = []
    for number in range(12):
        small = Image.fromarray(rng.integers(0, 256, (9, 9, 3)).astype(np.uint8))
        pictures.append(small.resize((96, 80), Image.Resampling.BICUBIC))
        path = folder / f"c{number % 4}" / f"{number:02}.png"
        path.parent.mkdir(exist_ok=True)
        pictures[-1].save(path)
    (folder / "c0" / "same.png").write_bytes((folder / "c0" / "00.png").read_bytes())
    pictures[1].resize((60, 50)).save(folder / "c1" / "smaller.jpg", quality=60)
    ImageOps.mirror(pictures[2]).save(folder / "c2" / "turned.jpg")
    Image.new("RGB", (64, 64), "red").save(folder / "c3" / "red.png")
    Image.new("RGB", (64, 64), "blue").save(folder / "c3" / "red2.png")
    pictures[3].resize((20, 20)).crop((0, 0, 20, 12)).save(folder / "c3" / "tiny.png")
    return folder


def test_finds_what_was_planted(photos):
    paths = sorted(map(str, photos.glob("*/*")))
    found = find_duplicates(paths)
    names = [path.rsplit("/", 1)[1] for path in paths]
    named = {
        (names[row], kind): names[other] if isinstance(other, int) else other
        for row, kind, _, other in found
    }
    assert named == {
        ("same.png", "identical"): "00.png",
        ("smaller.jpg", "near"): "01.png",
        ("turned.jpg", "near"): "02.png",
        ("red.png", "odd"): "one colour",
        ("red2.png", "odd"): "one colour",
        ("tiny.png", "odd"): "20 x 12 pixels",
    }
    assert all(0.9 <= score <= 1 for _, _, score, _ in found)


def test_the_images_of_a_class_that_are_one_picture(photos, tmp_path, capsys):
    dataset = pipelines.load("folder", photos)
    split, table = dataset.both(), tmp_path / "twice.csv"
    names = [path.rsplit("/", 1)[1] for path in split.images]
    first = np.array(names)[pipelines.pictures_of(split)]
    found = {name: other for name, other in zip(names, first, strict=True) if name != other}
    assert found == {"same.png": "00.png", "smaller.jpg": "01.png", "turned.jpg": "02.png"}
    check.main(["--dataset", "folder", "--data_dir", str(photos), "--duplicates", str(table)])
    assert f"Found twice or odd: 1 identical, 2 near, 3 odd. {table}" in capsys.readouterr().out
    lines = table.read_text("utf-8").splitlines()
    assert lines[0] == "path,finding,score,suggestion,other"
    assert lines[1] == "c0/same.png,identical,1.0000,exclude,c0/00.png"
    assert len(lines) == 7
    of_table = pipelines.pictures_of(split, table, photos)
    assert of_table.tolist() == pipelines.pictures_of(split).tolist()
    apart = pipelines.Split(split.images, np.arange(len(names)))
    assert pipelines.pictures_of(apart).tolist() == [*range(len(names))]
    with pytest.raises(ValueError, match=r"among files. Received: split=<Split: 1,797 images"):
        pipelines.pictures_of(pipelines.load("digits").both())
