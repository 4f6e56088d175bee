"""Exact rankings: of relevant rows, of nearest rows and of class means."""
