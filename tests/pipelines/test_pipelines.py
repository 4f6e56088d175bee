import pytest

import pipelines
from pipelines.datasets import place_of


def test_an_unknown_dataset_names_the_nearest_and_all():
    message = (
        r"Unknown dataset 'glyps'\. Did you mean 'glyphs'\? "
        rf"Available: {', '.join(sorted(pipelines.names()))}\."
    )
    with pytest.raises(ValueError, match=message):
        pipelines.load("glyps")


def test_names_are_sorted_and_end_with_those_of_others():
    *own, tfds, huggingface = pipelines.names()
    assert own == sorted(own)
    assert [tfds, huggingface] == ["tfds:NAME", "hf:PATH"]
    assert pipelines.entry_of("hf:user/birds") == "hf:PATH"
    assert pipelines.entry_of("tfds:mnist") == "tfds:NAME"
    assert pipelines.entry_of("digits") == "digits"
    assert pipelines.entry_of("digit") not in pipelines.names()


@pytest.mark.parametrize(
    ("name", "data_dir", "place"),
    [
        ("csv", "one", "one/a.CSV"),
        ("csv", "one/a.CSV", "one/a.CSV"),
        ("csv", "two", "two"),
        ("csv", "none", "none"),
        ("folder", "one", "one"),
        ("cub200", "birds", "birds/CUB_200_2011"),
        ("cub200", "birds/CUB_200_2011", "birds/CUB_200_2011"),
        ("tfds:mnist", "one", "one"),
    ],
)
def test_the_place_of_images_is_what_is_read(name, data_dir, place, tmp_path):
    for folder in ("one", "two", "birds/CUB_200_2011"):
        (tmp_path / folder).mkdir(parents=True)
    for table in ("one/a.CSV", "two/a.csv", "two/b.csv"):
        (tmp_path / table).touch()
    assert place_of(name, str(tmp_path / data_dir)) == tmp_path / place
