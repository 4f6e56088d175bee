"""A head on features by PyTorch, with the loss and the sampler of a library."""

import numpy as np
import torch
from torch.nn.functional import normalize

from benchmarks.peers.workers.torch_losses import versions

EPSILON = 1e-7  # as tfdml's
BLOCK = 512  # rows compared with all others at once


def prepared(settings, folder, package, loss_of, sampler_of):
    """The work.

    Args:
        settings: As `parts/heads.py` gives them.
        folder: Folder of the features.
        package: Of the loss, whose version is kept.
        loss_of: Function of a number of classes to a module of rows of unit length and labels.
        sampler_of: Function of labels, classes and rows of each in a batch, and a number of steps,
            to an iterable of (batch,) indices.
    """
    torch.set_num_threads(settings["threads"])
    width = settings["embedding_dim"]
    sizes = settings["classes_per_batch"], settings["images_per_class"], settings["steps"]

    def work():
        torch.manual_seed(0)
        with np.load(folder / settings["inputs"]) as arrays:
            rows, labels = arrays["embeddings"], arrays["labels"]
        classes, labels = np.unique(labels, return_inverse=True)
        trained = labels < len(classes) // 2
        rows, labels = torch.from_numpy(rows), torch.from_numpy(labels)
        seen, seen_labels = rows[trained], labels[trained]
        head, loss = torch.nn.Linear(rows.shape[1], width), loss_of(len(classes) // 2)
        start(head, seen)
        learned = [*head.parameters(), *loss.parameters()]
        optimizer = torch.optim.Adam(learned, settings["rate"], eps=EPSILON)
        for some in sampler_of(seen_labels, *sizes):
            optimizer.zero_grad()
            loss(normalize(head(seen[some])), seen_labels[some]).backward()
            optimizer.step()
        with torch.no_grad():
            return {"recall": recall(normalize(head(rows[~trained])), labels[~trained])}

    work.versions = versions(package)
    return work


def start(head, rows):
    """Makes the outputs of a linear layer the principal components of the rows."""
    mean = rows.mean(dim=0)
    _, components = torch.linalg.eigh(torch.cov(rows.T))
    kernel = components.flip(1)[:, : head.out_features].T
    head.weight.data, head.bias.data = kernel.contiguous(), -kernel @ mean


def recall(rows, labels):
    hits = 0
    for first in range(0, len(rows), BLOCK):
        some = slice(first, first + BLOCK)
        similarities = rows[some] @ rows.T
        own = torch.arange(len(similarities))
        similarities[own, first + own] = -2
        hits += int((labels[similarities.argmax(dim=1)] == labels[some]).sum())
    return hits / len(rows)
