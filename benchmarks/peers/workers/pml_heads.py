"""A head on features, with the sampler and the loss of pytorch-metric-learning."""

import torch
from pytorch_metric_learning.samplers import MPerClassSampler

from benchmarks.peers.workers.pml_losses import built, miner_of, value_of
from benchmarks.peers.workers.torch_heads import prepared


class Mined(torch.nn.Module):
    """A loss of the pairs or triplets of a miner."""

    def __init__(self, loss, miner):
        super().__init__()
        self.loss, self.value = loss, value_of(loss, miner)

    def forward(self, rows, labels):
        return self.value(rows, labels)


def prepare(settings, folder):
    def loss_of(classes):
        proxies = settings["name"] in ("ArcFaceLoss", "ProxyAnchorLoss")
        sizes = {"num_classes": classes, "embedding_size": settings["embedding_dim"]}
        return Mined(built(settings, **(sizes if proxies else {})), miner_of(settings))

    return prepared(settings, folder, "pytorch-metric-learning", loss_of, sampler_of)


def sampler_of(labels, classes, images, steps):
    batch = classes * images
    rows = MPerClassSampler(labels, images, batch, steps * batch)
    return torch.utils.data.BatchSampler(rows, batch, drop_last=True)
