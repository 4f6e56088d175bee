"""A report to look at: one HTML file, with its pictures in it, that opens from disk."""

from tfdml.evaluation.page.writing import write_report

__all__ = ["write_report"]
