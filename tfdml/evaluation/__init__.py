"""Scores of embeddings: NumPy arrays in, Python floats out; TensorFlow is not needed."""

from tfdml.evaluation.clustering import nmi
from tfdml.evaluation.retrieval import recall_at_k

__all__ = ["nmi", "recall_at_k"]
