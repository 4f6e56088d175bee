"""Batches of indices by pytorch-metric-learning."""

import numpy as np
from pytorch_metric_learning.samplers import MPerClassSampler
from torch.utils.data import BatchSampler

from benchmarks.peers.workers.sampled import epoch_after_epoch, taken


def prepare(settings, folder):
    with np.load(folder / settings["inputs"]) as arrays:
        labels = arrays["labels"]
    images = settings["images_per_class"]
    batch = settings["classes_per_batch"] * images

    def batches():
        sampler = MPerClassSampler(labels, images, batch_size=batch)
        return epoch_after_epoch(BatchSampler(sampler, batch, drop_last=True))

    return taken(batches, settings["batches"])
