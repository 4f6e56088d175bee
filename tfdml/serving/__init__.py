"""SavedModels for TF Serving."""

__all__ = ["export_model"]


def __getattr__(name):
    # Loaded on first use: `python -m tfdml.serving.export --help` must not wait for TensorFlow.
    if name != "export_model":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tfdml.serving.saved_model import export_model

    return export_model


def __dir__():
    return sorted(__all__)
