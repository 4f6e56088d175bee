from . import exporting as exporting
from .compared_runs import compare as compare
from .scored_export import export_scored as export_scored
from .scored_export import exported_rows as exported_rows
from .scored_export import model_to_export as model_to_export
from .scored_export import score_rounded as score_rounded
