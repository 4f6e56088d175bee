"""A head on features, with a loss of sentence-transformers."""

import torch

from benchmarks.peers.workers import torchvision_import  # noqa: F401, before sentence-transformers
from benchmarks.peers.workers.pml_heads import sampler_of
from benchmarks.peers.workers.torch_heads import prepared


class Embeddings(torch.nn.Module):
    """The model that its losses expect, of rows that are there."""

    def forward(self, features):
        return {"sentence_embedding": features["rows"]}


class OfRows(torch.nn.Module):
    """A loss of rows and labels."""

    def __init__(self, loss):
        super().__init__()
        self.loss = loss

    def forward(self, rows, labels):
        return self.loss([{"rows": rows}], labels)


def prepare(settings, folder):
    from sentence_transformers import losses

    def loss_of(classes):
        return OfRows(getattr(losses, settings["name"])(Embeddings(), **settings["options"]))

    return prepared(settings, folder, "sentence-transformers", loss_of, sampler_of)
