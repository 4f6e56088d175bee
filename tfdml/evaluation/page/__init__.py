"""HTML report: a single file with all pictures, which opens from disk."""

from tfdml.evaluation.page.writing import write_report

__all__ = ["write_report"]
