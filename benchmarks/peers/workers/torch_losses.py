"""An objective of PyTorch: its value, its gradients and their time."""

import importlib.metadata

import numpy as np
import torch

WARM = 8  # rows of the call that is not measured


def versions(*packages):
    return {package: importlib.metadata.version(package) for package in ("torch", *packages)}


def arrays_of(settings, folder):
    """{name: tensor} of the inputs, floats in the type of the settings."""
    dtype = getattr(torch, settings["dtype"])
    with np.load(folder / settings["inputs"]) as arrays:
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    return {name: t.to(dtype) if t.is_floating_point() else t for name, t in tensors.items()}


def set_proxies(loss, proxies):
    """Gives the only parameter of a loss the proxies, (classes, centers, dim)."""
    [parameter] = loss.parameters()
    rows = proxies.reshape(-1, proxies.shape[-1])
    parameter.data = rows.clone() if parameter.shape == rows.shape else rows.T.clone()


def gradient_step(loss, value_of, arrays):
    """The work: the value of a loss, and its gradients by rows and proxies.

    Args:
        loss: `torch.nn.Module`.
        value_of: Function of rows and labels to its value.
        arrays: {"rows": (batch, dim), "labels": (batch,)}.
    """
    rows = arrays["rows"].requires_grad_()
    learned = [rows, *loss.parameters()]

    def forget_gradients():
        for each in learned:
            each.grad = None

    def work():
        forget_gradients()
        value = value_of(rows, arrays["labels"])
        value.backward()
        return {"value": value.detach(), "gradient": rows.grad}

    # What PyTorch sets up once is no memory of the batch.
    value_of(rows[:WARM], arrays["labels"][:WARM]).backward()
    forget_gradients()
    return work
