"""Decoding of images: `tfdml.decoding`, which serving shares."""

from tfdml.decoding import decode

__all__ = ["decode"]
