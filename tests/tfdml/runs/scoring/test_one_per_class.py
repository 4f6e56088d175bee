import pytest
from mean_colours import CLASSES, data_of, embedding_of, scores

from tfdml.evaluation import (
    one_per_class_scores,
)


def test_one_image_of_each_class_is_the_gallery(photos, version, capsys):
    images, labels = data_of(photos, CLASSES[4:])
    rows = embedding_of(images).numpy()
    arguments = ["--task", "one_per_class", "--draws", 4, "--seed", 3]
    content = scores(version, *arguments, name="evaluation_one_per_class_draws_4_seed_3")
    expected = one_per_class_scores(rows, labels, draws=4, seed=3)
    assert {
        name: (value, content["deviations"][name]) for name, value in content["scores"].items()
    } == {name: pytest.approx(values, abs=1e-9) for name, values in expected.items()}
    assert "among one image of each class, 4 draws" in capsys.readouterr().out
