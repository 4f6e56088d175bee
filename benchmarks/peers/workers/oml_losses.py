"""An objective of open-metric-learning, as `torch_losses.py` measures it."""

import torch

from benchmarks.peers.workers import torchvision_import  # noqa: F401, before open-metric-learning
from benchmarks.peers.workers.torch_losses import arrays_of, gradient_step, set_proxies, versions


def prepare(settings, folder):
    torch.set_num_threads(settings["threads"])
    arrays, sizes = arrays_of(settings, folder), {}
    if "proxies" in arrays:
        classes, _, dim = arrays["proxies"].shape
        sizes = {"num_classes": classes, "in_features": dim}
    loss = built(settings, **sizes)
    if "proxies" in arrays:
        set_proxies(loss, arrays["proxies"])
    work = gradient_step(loss, loss, arrays)
    work.versions = versions("open-metric-learning")
    return work


def built(settings, **sizes):
    from oml import losses, miners

    options = settings["options"] | sizes
    if settings["miner"] is not None:
        name, miner_options = settings["miner"]
        options["miner"] = getattr(miners, name)(**miner_options)
    return getattr(losses, settings["name"])(**options)
