"""recipes/frozen_features.py trains losses on features that stay as they are."""

import importlib

from small_runs import SMALL_RECIPE


def test_losses_train_on_frozen_features(folder, rerun, tmp_path):
    (folder / "pddm.yaml").write_text(f"loss: pddm\n{SMALL_RECIPE}")
    flags = ["--seeds", "0", "--", "--validation_share", "0.4", "--classes_per_batch", "3"]
    flags += ["--learning_rate", "0.1", "--steps", "20"]
    frozen = importlib.import_module("frozen_features")
    assert rerun(str(folder), *flags, program=frozen).code == 0
    written = (tmp_path / "runs" / "small_digits" / "frozen.md").read_text()
    head, _, *rows = [line.split(" | ") for line in written.splitlines()]
    assert head == ["| recipe", "ranked by", "0", "20 |"]
    assert [row[:2] for row in rows] == [
        ["| lifted", "distance"],
        ["| pddm", "distance"],
        ["| pddm", "score"],
    ]
    assert all(row[2] != row[3].removesuffix(" |") for row in rows), rows  # it trained
    for unfit, sentence in [
        (["--sampler", "mixed"], "leave out `sampler`, which it does not follow"),
        (["--dataset", "folder"], "data_dir"),
        (["--loss", "cosface"], "not start from the training images. Received: recipe='lifted'"),
        (["--loss", "hdc"], "the loss must have one level"),
    ]:
        result = rerun(str(folder), *flags, *unfit, program=frozen)
        assert (result.code, sentence in result.sentence) == (2, True)
