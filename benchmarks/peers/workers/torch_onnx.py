"""Writes a network of Keras on PyTorch as an ONNX file by PyTorch's exporter; see `runtimes.py`.

KERAS_BACKEND=torch python torch_onnx.py BACKBONE DIM SIDE LEVELS WEIGHTS FILE
"""

import sys

import torch

from tfdml.models import build_embedder


class Network(torch.nn.Module):
    def __init__(self, embedder):
        super().__init__()
        self.embedder = embedder

    def forward(self, images):
        return self.embedder(images, training=False)


def main():
    backbone, dim, side, levels, weights, file = sys.argv[1:]
    shape = (int(side), int(side), 3)
    options = {"input_shape": shape, "weights": None, "levels": int(levels)}
    embedder = build_embedder(backbone, int(dim), **options)
    embedder.load_weights(weights)
    images, free = torch.zeros((2, *shape)), {"images": {0: torch.export.Dim("batch")}}
    names = {"input_names": ["images"], "output_names": ["embedding"]}
    with torch.no_grad():
        torch.onnx.export(Network(embedder), (images,), file, dynamic_shapes=free, **names)


if __name__ == "__main__":
    main()
