"""A run of a race by PyTorch and pytorch-metric-learning, until the budget is spent."""

import numpy as np
import torch
from pytorch_metric_learning.samplers import MPerClassSampler
from torch import nn
from torch.utils.data import BatchSampler

from benchmarks.peers.workers.budget import Budget
from benchmarks.peers.workers.pml_losses import built, miner_of, value_of
from benchmarks.peers.workers.race_images import DRAWS, images_of, recalls
from benchmarks.peers.workers.sampled import epoch_after_epoch
from benchmarks.peers.workers.torch_augmentation import augmented
from benchmarks.peers.workers.torch_losses import versions
from benchmarks.peers.workers.torch_networks import Embedder

EPSILON = 1e-7  # of Adam, as tfdml's
LAYOUT = torch.channels_last  # the faster for these networks
AT_ONCE = 256  # images to embed


def prepare(settings, folder):
    torch.set_num_threads(settings["threads"])
    images = images_of(settings, folder)

    def work():
        budget = Budget(**settings["budget"])
        torch.manual_seed(settings["seed"])
        np.random.seed(settings["seed"])  # noqa: NPY002, the sampler draws from it
        network = Embedder(settings["network"], folder / settings["weights"], settings["unit"])
        network.to(memory_format=LAYOUT)
        if settings["pretrained"]:
            freeze_batch_norm(network)
        steps = train(network, images, settings, budget)
        seconds = budget.elapsed()
        rows = embedded(network, images["test_images"])
        scores = recalls(rows, images["test_labels"], settings["ks"])
        return {**scores, "steps": steps, "seconds": seconds}

    work.versions = versions("torchvision", "pytorch-metric-learning")
    return work


def train(network, images, settings, budget):
    """Trains a network; returns the number of steps."""
    labels = torch.from_numpy(images["train_labels"])
    loss = built(settings, **sizes_of(settings, network, labels))
    value = value_of(loss, miner_of(settings))
    optimizer = optimizer_of(network, loss, settings)
    pixels, step = torch.from_numpy(images["train_images"]), 0
    batches = batches_of(images["train_labels"], settings)
    while budget.used(step) < 1:
        for group in optimizer.param_groups:
            group["lr"] = group["whole"] * budget.rate(step)
        chosen = next(batches)
        draws = torch.rand(len(chosen), DRAWS)
        inputs = augmented(pixels[chosen], settings["pixels"], settings["augmentation"], draws)
        rows = network(inputs.contiguous(memory_format=LAYOUT))
        optimizer.zero_grad()
        value(rows, labels[chosen]).backward()
        optimizer.step()
        step += 1
    return step


def batches_of(labels, settings):
    """Endless lists of indices."""
    images = settings["images_per_class"]
    batch = settings["classes_per_batch"] * images
    sampler = MPerClassSampler(labels, images, batch_size=batch)
    return epoch_after_epoch(BatchSampler(sampler, batch, drop_last=True))


def sizes_of(settings, network, labels):
    if not settings["proxies"]:
        return {}
    width = network.embedding.out_features
    return {"num_classes": int(labels.max()) + 1, "embedding_size": width}


def optimizer_of(network, loss, settings):
    """Adam, faster for the embedding and proxies."""
    rate = settings["rate"]
    head = rate * settings["head_multiplier"]
    rates = (network.features, rate), (network.embedding, head)
    groups = [
        {"params": [each for each in module.parameters() if each.requires_grad], "whole": whole}
        for module, whole in (*rates, (loss, head * settings["proxy_factor"]))
    ]
    return torch.optim.Adam([group for group in groups if group["params"]], rate, eps=EPSILON)


def freeze_batch_norm(network):
    """Keeps the statistics, scales and offsets."""
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.eval().requires_grad_(False)


@torch.no_grad()
def embedded(network, images):
    network.eval()
    rows = []
    for start in range(0, len(images), AT_ONCE):
        inputs = torch.from_numpy(images[start : start + AT_ONCE]).permute(0, 3, 1, 2).float()
        rows.append(network(inputs.contiguous(memory_format=LAYOUT)).numpy())
    return np.concatenate(rows)
