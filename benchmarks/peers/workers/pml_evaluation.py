"""Scores of retrieval by pytorch-metric-learning, which searches by faiss."""

import faiss
import torch
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

from benchmarks.peers.workers.torch_losses import arrays_of, versions

NAMES = {  # of its metrics -> of tfdml's
    "precision_at_1": "recall@1",
    "mean_average_precision_at_r": "map@r",
    "r_precision": "r_precision",
    "mean_average_precision": "map",
    "mean_reciprocal_rank": "mrr",
}


def prepare(settings, folder):
    torch.set_num_threads(settings["threads"])
    faiss.omp_set_num_threads(settings["threads"])
    arrays = arrays_of(settings, folder)
    calculator = AccuracyCalculator(include=tuple(settings["include"]), k=settings["neighbours"])

    def work():
        scores = calculator.get_accuracy(arrays["rows"], arrays["labels"])
        return {NAMES[name]: score for name, score in scores.items()}

    work.versions = versions("pytorch-metric-learning", "faiss-cpu")
    return work
