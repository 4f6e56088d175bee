from PIL import Image

from tfdml.evaluation.report import plot_training

SCORES = {"untrained": {"recall@1": 0.25}, "trained": {"recall@1": 0.75}}


def test_draws_the_training(tmp_path):
    log, picture = tmp_path / "epochs.csv", tmp_path / "training.png"
    log.write_text("epoch,loss\n0,2.5\n1,1.5\n")
    plot_training(log, SCORES, picture)
    assert Image.open(picture).size == (1000, 400)
    before = picture.read_bytes()
    log.write_text("epoch,loss\n0,2.5\n1,9.5\n")
    plot_training(log, SCORES, picture)
    assert picture.read_bytes() != before
