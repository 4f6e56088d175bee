"""Scores for people to look at."""

import csv
import pathlib


def scores_table(scores):
    """Text table of the scores before and after training, one column per score.

    Args:
        scores: `{"untrained": {name: score}, "trained": {name: score}}`.

    Example:
        >>> print(scores_table({"untrained": {"recall@1": 0.25}, "trained": {"recall@1": 0.75}}))
                   recall@1
        untrained    0.2500
        trained      0.7500
    """
    names = list(scores["trained"])
    rows = [" " * 9 + "".join(f"{name:>10}" for name in names)]
    for stage in ("untrained", "trained"):
        values = "".join(f"{scores[stage][name]:10.4f}" for name in names)
        rows.append(f"{stage:9}{values}")
    return "\n".join(rows)


def plot_training(log, scores, path):
    """Draws the loss over the training and the scores before and after it.

    Args:
        log: Path of the CSV that `keras.callbacks.CSVLogger` wrote, with a column `loss`.
        scores: As for `scores_table`.
        path: Path of the picture, such as `training.png`.
    """
    from matplotlib.figure import Figure

    with pathlib.Path(log).open(newline="") as file:
        epochs = list(csv.DictReader(file))
    figure = Figure(figsize=(10, 4), layout="constrained")
    loss_axes, score_axes = figure.subplots(1, 2)
    loss_axes.plot(
        [int(row["epoch"]) + 1 for row in epochs], [float(row["loss"]) for row in epochs]
    )
    loss_axes.set(title="Training loss", xlabel="epoch (checkpoint interval)", ylabel="loss")
    for stage, style in (("untrained", "o--"), ("trained", "o-")):
        names = list(scores[stage])
        score_axes.plot(names, [scores[stage][name] for name in names], style, label=stage)
    score_axes.set(title="Unseen classes", ylim=(0, 1))
    score_axes.legend(loc="lower right")
    figure.savefig(path)
