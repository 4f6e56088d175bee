"""Embedding of image collections that do not fit in the memory of one machine."""
