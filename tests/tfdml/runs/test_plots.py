import pytest
from PIL import Image

from tfdml.runs.plots import plot_training

SCORES = {"untrained": {"recall@1": 0.25}, "trained": {"recall@1": 0.75}}
LOSSES = "epoch,loss\n0,2.5\n1,{}\n"
TARGETS = (
    "epoch,loss,target_highest,target_lowest,target_mean\n0,2.5,0.6,0.5,0.55\n1,{},0.9,0.4,0.7\n"
)


@pytest.mark.parametrize(
    ("epochs", "width"), [(LOSSES, 1000), (TARGETS, 1500)], ids=["loss", "targets"]
)
def test_draws_the_training_and_the_targets_of_density(epochs, width, tmp_path):
    log, pictures = tmp_path / "epochs.csv", []
    for loss in (1.5, 9.5):
        log.write_text(epochs.format(loss))
        plot_training(log, SCORES, tmp_path / "training.png")
        assert Image.open(tmp_path / "training.png").size == (width, 400)
        pictures.append((tmp_path / "training.png").read_bytes())
    assert pictures[0] != pictures[1]
