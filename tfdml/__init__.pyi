from . import callbacks as callbacks
from . import client as client
from . import evaluation as evaluation
from . import layers as layers
from . import losses as losses
from . import models as models
from . import optimizers as optimizers
from . import serving as serving
from .models import EmbeddingModel as EmbeddingModel
from .models.registration import register as register

__version__: str
