"""Static charts of a report: SVG by matplotlib, in the colours of the page."""

import html
import io
import pathlib
import re
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

_BINS = 60
_STYLE = pathlib.Path(__file__).with_name("report.css").read_text("utf-8")
# Drawn in the light colours of the page, which are then replaced by their names in its style.
_COLOURS = dict(re.findall(r"--(\w+): (#\w{6});", _STYLE.partition("@media")[0]))
_FAINT = ("axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
_SETTINGS: dict[Any, Any] = {
    **dict.fromkeys(_FAINT, _COLOURS["faint"]),
    **dict.fromkeys(("figure.facecolor", "axes.facecolor"), "none"),
    **dict.fromkeys(("axes.spines.right", "axes.spines.top", "legend.frameon"), False),
    "figure.constrained_layout.use": True,
    "figure.figsize": (6.4, 3.8),
    "font.size": 13,
    "legend.labelcolor": "linecolor",
    "svg.fonttype": "none",
}


@rc_context({**_SETTINGS, "svg.hashsalt": "recall"})
def recall_chart(curve, marked, intervals):
    """Recalls {K: recall} as a line and as dots, with intervals {K: (low, high)}, on a log axis."""
    figure, colour = Figure(), _COLOURS["link"]
    axes = figure.subplots()
    axes.semilogx(list(curve), list(curve.values()), color=colour, gid="curve")
    axes.plot(list(marked), list(marked.values()), "o", color=colour, clip_on=False, gid="dots")
    for count, ends in intervals.items():
        axes.plot([count, count], ends, color=colour, gid="interval")
    axes.set(xlabel="K, number of neighbours", ylabel="Recall@K", ylim=(None, 1.0))
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.minorticks_off()
    values = ", ".join(f"Recall@{count} {value:.3f}" for count, value in marked.items())
    return _drawing(figure, f"Recall at K: {values}")


@rc_context({**_SETTINGS, "svg.hashsalt": "distances"})
def histogram_chart(histogram):
    """Shares of positive and negative pairs by distance in 60 bins, with their means."""
    figure, means = Figure(), []
    axes = figure.subplots()
    for kind, colour in (("negative", _COLOURS["miss"]), ("positive", _COLOURS["hit"])):
        counts, mean = getattr(histogram, kind), getattr(histogram, f"{kind}_mean")
        means.append(f"{kind}, mean {mean:#.3g}")
        bins = np.histogram(histogram.high, _BINS, weights=counts / counts.sum())
        look = {"facecolor": (colour, 0.25), "edgecolor": colour, "linewidth": 1}
        axes.stairs(*bins, fill=True, gid=kind, **look)
        axes.axvline(mean, color=colour, linestyle="--", label=means[-1], gid=f"mean-{kind}")
    axes.set(xlabel="Euclidean distance", ylabel="share of the pairs")
    figure.legend(loc="outside upper left", ncols=2)
    return _drawing(figure, f"Distances of pairs: {'; '.join(means)}")


def _drawing(figure, label):
    """The SVG of a figure as a part of a page whose policy forbids styles of elements."""
    file, parts = io.StringIO(), ("Creator", "Date", "Format", "Type")
    figure.savefig(file, format="svg", metadata=dict.fromkeys(parts))
    drawing = file.getvalue().partition("<svg ")[2]
    drawing = re.sub(r"<style.*?</style>", "", drawing).replace("<g id=", "<g class=")
    drawing = re.sub(r'style="(.*?)"', _attributes, drawing)
    for name, colour in _COLOURS.items():
        drawing = drawing.replace(colour, f"var(--{name})")
    return f'<svg class="chart" role="img" aria-label="{html.escape(label)}" {drawing}'


def _attributes(style):
    pairs = (declaration.split(": ") for declaration in style[1].split("; "))
    return " ".join(f'{name}="{value}"' for name, value in pairs if not name.startswith("font"))
