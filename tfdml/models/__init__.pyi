from .backbones import BACKBONES as BACKBONES
from .embedder import backbone_of as backbone_of
from .embedder import build_embedder as build_embedder
from .embedder import first_dims as first_dims
from .embedder import first_levels as first_levels
from .embedder import number_of_levels as number_of_levels
from .embedder import with_projection as with_projection
from .embedding_model import EmbeddingModel as EmbeddingModel
