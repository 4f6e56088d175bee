"""An objective of pytorch-metric-learning, as `torch_losses.py` measures it."""

import torch
from pytorch_metric_learning import distances, losses, miners

from benchmarks.peers.workers.torch_losses import arrays_of, gradient_step, set_proxies, versions


def prepare(settings, folder):
    torch.set_num_threads(settings["threads"])
    arrays = arrays_of(settings, folder)
    work = gradient_step(*objective_of(settings, arrays), arrays)
    work.versions = versions("pytorch-metric-learning")
    return work


def objective_of(settings, arrays):
    """A loss with the proxies or the memory of the arrays, and the function to its value."""
    loss = built(settings, **sizes_of(settings, arrays)).to(arrays["rows"].device)
    if "proxies" in arrays:
        set_proxies(loss, arrays["proxies"])
    if "memory_rows" in arrays:  # full
        loss.embedding_memory, loss.label_memory = arrays["memory_rows"], arrays["memory_labels"]
        loss.has_been_filled = True
        # tfdml adds the loss within the batch.
        return loss, lambda rows, labels: loss(rows, labels) + loss.loss(rows, labels)
    return loss, value_of(loss, miner_of(settings))


def sizes_of(settings, arrays):
    """The options of an objective that follow from the inputs."""
    if "proxies" in arrays:
        classes, _, dim = arrays["proxies"].shape
        return {"num_classes": classes, "embedding_size": dim}
    return {"embedding_size": arrays["rows"].shape[1]} if "memory_rows" in arrays else {}


def built(settings, **sizes):
    options = dict(settings["options"])
    for option, module in (("loss", losses), ("distance", distances)):
        if option in options:
            own = options[option]
            options[option] = getattr(module, own["name"])(**own["options"])
    return getattr(losses, settings["name"])(**options, **sizes)


def miner_of(settings):
    if settings["miner"] is None:
        return None
    name, options = settings["miner"]
    return getattr(miners, name)(**options)


def value_of(loss, miner):
    if miner is None:
        return loss
    return lambda rows, labels: loss(rows, labels, miner(rows, labels))
