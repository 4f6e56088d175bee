from . import nearest as nearest
from .nearest import Gallery as Gallery
from .nearest import class_means as class_means
from .options import ExportOptions as ExportOptions
from .runtimes import load_network as load_network
from .served_model import ServedModel as ServedModel
from .served_model import export_model as export_model
