"""What PyTorch starts a race with, as `tfdml_start.py`."""

import torch

from benchmarks.peers.workers.pml_race import embedded
from benchmarks.peers.workers.race_images import draws_of, images_of
from benchmarks.peers.workers.torch_augmentation import augmented
from benchmarks.peers.workers.torch_losses import versions
from benchmarks.peers.workers.torch_networks import Embedder


def prepare(settings, folder):
    torch.set_num_threads(settings["threads"])
    images, draws = images_of(settings, folder), torch.from_numpy(draws_of(settings)).float()
    network = Embedder(settings["network"], folder / settings["weights"])

    def work():
        pixels = torch.from_numpy(images["train_images"][: len(draws)])
        made = augmented(pixels, settings["pixels"], settings["augmentation"], draws)
        return {
            "embeddings": embedded(network, images["test_images"][: len(draws)]),
            "augmented": made.permute(0, 2, 3, 1),
        }

    work.versions = versions("torchvision", "pytorch-metric-learning")
    return work
