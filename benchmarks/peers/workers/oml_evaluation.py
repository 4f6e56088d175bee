"""CMC@K, which is Recall@K, by open-metric-learning."""

import torch

from benchmarks.peers.workers import torchvision_import  # noqa: F401, before open-metric-learning
from benchmarks.peers.workers.torch_losses import arrays_of, versions


def prepare(settings, folder):
    from oml.functional.knn import batched_knn
    from oml.metrics.embeddings import calc_retrieval_metrics_rr
    from oml.retrieval import RetrievalResults

    torch.set_num_threads(settings["threads"])
    arrays, ks = arrays_of(settings, folder), tuple(settings["k"])
    every = torch.arange(len(arrays["rows"]))

    def work():  # as RetrievalResults.from_embeddings, without a data set of images
        found = batched_knn(arrays["rows"], every, every, top_n=max(ks), labels_gt=arrays["labels"])
        scores = calc_retrieval_metrics_rr(
            RetrievalResults(*found), cmc_top_k=ks, precision_top_k=(), map_top_k=(), verbose=False
        )
        return {f"recall@{k}": score for k, score in scores["cmc"].items()}

    work.versions = versions("open-metric-learning")
    return work
