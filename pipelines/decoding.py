"""Pixels of encoded images, as `tfdml.decoding`, which serving shares, has them."""

from tfdml.decoding import decode

__all__ = ["decode"]
