from .nearest import Gallery as Gallery
from .nearest import class_means as class_means
from .options import ExportOptions as ExportOptions
from .saved_model import export_model as export_model
from .signatures import ServedModel as ServedModel
