"""A head on features, with the sampler and the loss of open-metric-learning."""

import itertools

from benchmarks.peers.workers import torchvision_import  # noqa: F401, before open-metric-learning
from benchmarks.peers.workers.oml_losses import built
from benchmarks.peers.workers.sampled import epoch_after_epoch
from benchmarks.peers.workers.torch_heads import prepared


def prepare(settings, folder):
    from oml.samplers import BalanceSampler

    def loss_of(classes):
        proxies = settings["name"] == "ArcFaceLoss"
        sizes = {"num_classes": classes, "in_features": settings["embedding_dim"]}
        return built(settings, **(sizes if proxies else {}))

    def sampler_of(labels, classes, images, steps):
        batches = epoch_after_epoch(BalanceSampler(labels.numpy(), classes, images))
        return itertools.islice(batches, steps)

    return prepared(settings, folder, "open-metric-learning", loss_of, sampler_of)
