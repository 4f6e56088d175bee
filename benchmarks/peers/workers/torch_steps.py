"""A training step by PyTorch and the loss of pytorch-metric-learning."""

import numpy as np
import torch
from pytorch_metric_learning.losses import MultiSimilarityLoss

from benchmarks.peers.workers.torch_losses import versions
from benchmarks.peers.workers.torch_networks import Embedder

RATE, EPSILON = 1e-3, 1e-7  # as tfdml's


def prepare(settings, folder):
    torch.set_num_threads(settings["threads"])
    layout = torch.channels_last if settings["channels_last"] else torch.contiguous_format
    network = Embedder(settings["network"], folder / settings["weights"]).to(memory_format=layout)
    with np.load(folder / settings["inputs"]) as arrays:
        images, labels = torch.from_numpy(arrays["images"]), torch.from_numpy(arrays["labels"])
    images = images.permute(0, 3, 1, 2).float().contiguous(memory_format=layout)
    loss, losses = MultiSimilarityLoss(), []
    optimizer = torch.optim.Adam(network.parameters(), RATE, eps=EPSILON)
    bfloat16 = settings["precision"] == "bfloat16"

    def work():
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bfloat16):
            rows = network(images)
        value = loss(rows, labels)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        losses.append(float(value.detach()))
        return {"loss": losses[0]}

    work.versions = versions("torchvision", "pytorch-metric-learning")
    return work
