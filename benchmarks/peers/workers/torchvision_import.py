"""Imports torchvision, also if its operators are compiled for CUDA and PyTorch is not.

Its networks need none of them, but its import names two, which must exist.
"""

import pathlib
import sys
import sysconfig

import torch


def has_operators():
    """Whether the compiled operators of torchvision load."""
    folder = pathlib.Path(sysconfig.get_path("purelib")) / "torchvision"
    try:
        for library in folder.glob("_C*.so"):
            torch.ops.load_library(library)
    except OSError:
        return False
    return True


if "torchvision" not in sys.modules and not has_operators():
    _LIBRARY = torch.library.Library("torchvision", "DEF")
    for _name in ("nms", "qnms"):
        _LIBRARY.define(f"{_name}(Tensor boxes, Tensor scores, float iou_threshold) -> Tensor")

import torchvision  # noqa: E402, F401
