"""Keras layers for metric learning."""

from tfdml.layers.class_proxies import ClassProxies
from tfdml.layers.density_targets import DensityTargets
from tfdml.layers.draws import ClassSampler, Draws, Dropout
from tfdml.layers.embedding_memory import EmbeddingMemory
from tfdml.layers.fused_batch_normalization import FusedBatchNormalization
from tfdml.layers.generalized_mean import GeneralizedMean
from tfdml.layers.grouped_conv2d import GroupedConv2D
from tfdml.layers.local_response_normalization import LocalResponseNormalization
from tfdml.layers.mirror_average import MirrorAverage
from tfdml.layers.pddm import PDDM
from tfdml.layers.unit_length import UnitLength

__all__ = [
    "PDDM",
    "ClassProxies",
    "ClassSampler",
    "DensityTargets",
    "Draws",
    "Dropout",
    "EmbeddingMemory",
    "FusedBatchNormalization",
    "GeneralizedMean",
    "GroupedConv2D",
    "LocalResponseNormalization",
    "MirrorAverage",
    "UnitLength",
]
