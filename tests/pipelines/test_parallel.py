import os

import numpy as np
import pytest

from pipelines import (
    HardNeighbours,
    Split,
    balanced_batches,
    evaluation_batches,
    group_batches,
    pair_batches,
    shuffled_batches,
    whole_class_batches,
)


@pytest.mark.parametrize(
    "build",
    [
        lambda split: balanced_batches(split, 3, 2),
        lambda split: group_batches(split, 4, 8),
        lambda split: shuffled_batches(split, 8),
        lambda split: pair_batches(split, 8),
        lambda split: pair_batches(split, 8, hard_neighbours=HardNeighbours(split.labels, 8, 2)),
        lambda split: whole_class_batches(split, 8),
        evaluation_batches,
    ],
)
def test_batches_take_all_cores_without_autotuning(build):
    labels = np.repeat(np.arange(10), 4)
    split = Split(np.zeros((40, 4, 4, 3), np.uint8), labels, super_labels=labels // 5)
    options = build(split).options()
    assert options.autotune.enabled is False
    assert options.autotune.initial_parallelism == os.cpu_count()
