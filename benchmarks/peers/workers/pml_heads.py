"""A head on features by PyTorch, with the sampler and the loss of pytorch-metric-learning."""

import numpy as np
import torch
from pytorch_metric_learning import losses
from pytorch_metric_learning.samplers import MPerClassSampler
from torch.nn.functional import normalize

from benchmarks.peers.workers.torch_losses import versions

EPSILON = 1e-7  # as tfdml's
BLOCK = 512  # rows compared with all others at once


def prepare(settings, folder):
    torch.set_num_threads(settings["threads"])
    width, objective = settings["embedding_dim"], settings["objective"]
    batch = settings["classes_per_batch"] * settings["images_per_class"]

    def loss_of(classes):
        plain = {
            "multi_similarity": losses.MultiSimilarityLoss,
            "contrastive": losses.ContrastiveLoss,
            "triplet": losses.TripletMarginLoss,
        }
        proxies = {"arcface": losses.ArcFaceLoss, "proxy_anchor": losses.ProxyAnchorLoss}
        return plain[objective]() if objective in plain else proxies[objective](classes, width)

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
        count = settings["steps"] * batch
        sampler = MPerClassSampler(seen_labels, settings["images_per_class"], batch, count)
        loader = torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(seen, seen_labels), batch, sampler=sampler
        )
        for some, ids in loader:
            optimizer.zero_grad()
            loss(head(some), ids).backward()
            optimizer.step()
        with torch.no_grad():
            return {"recall": recall(normalize(head(rows[~trained])), labels[~trained])}

    work.versions = versions("pytorch-metric-learning")
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
