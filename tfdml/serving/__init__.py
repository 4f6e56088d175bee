"""SavedModels for TF Serving."""

from tfdml.serving.export import export

__all__ = ["export"]
