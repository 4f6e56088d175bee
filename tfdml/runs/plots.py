"""Plots of a training."""

import csv

from matplotlib.figure import Figure

from tfdml.files import read_text

_EPOCH = "epoch (checkpoint interval)"
_TARGETS = ("target_mean", "target_lowest", "target_highest")


def plot_training(log, scores, path):
    """Plots the loss during training and the scores before and after it.

    Args:
        log: Path of the CSV that `keras.callbacks.CSVLogger` wrote, with a column `loss`; columns
            of the targets of density, if any, get their own plot.
        scores: As for `scores_table`.
        path: Path of the image, such as `training.png`.
    """
    epochs = list(csv.DictReader(read_text(log).splitlines()))
    watched = bool(epochs) and "target_mean" in epochs[0]
    figure = Figure(figsize=(15 if watched else 10, 4), layout="constrained")
    loss_axes, score_axes, *target_axes = figure.subplots(1, 3 if watched else 2)
    numbers = [int(row["epoch"]) + 1 for row in epochs]
    loss_axes.plot(numbers, [float(row["loss"]) for row in epochs], marker=".")
    loss_axes.set(title="Training loss", xlabel=_EPOCH, ylabel="loss")
    for axes in target_axes:
        mean, low, high = ([float(row[name]) for row in epochs] for name in _TARGETS)
        axes.plot(numbers, mean, label="mean")
        axes.fill_between(numbers, low, high, alpha=0.3, label="lowest to highest")
        axes.set(title="Targets of density", xlabel=_EPOCH, ylabel="squared distance")
        axes.legend()
    for stage, style in (("untrained", "o--"), ("trained", "o-")):
        names = [name for name in scores[stage] if name.startswith("recall@")]
        score_axes.plot(names, [scores[stage][name] for name in names], style, label=stage)
    score_axes.set(title="Unseen classes", ylim=(0, 1))
    score_axes.legend(loc="lower right")
    figure.savefig(path)
