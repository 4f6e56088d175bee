"""Static charts of a report, as SVG."""

import html
import math

import numpy as np

_WIDTH, _HEIGHT = 480, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 20, 18, 40
_TICKS = 6  # approximate number of ticks on an axis
_COUNTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)


def recall_chart(curve, marked, intervals):
    """Recall against the number of neighbours, on a logarithmic axis.

    Args:
        curve: {K: recall} of the line.
        marked: {K: recall} of the dots.
        intervals: {K: (low, high)} of the error bars.
    """
    values = [*curve.values(), *marked.values(), *(low for low, _ in intervals.values())]
    lowest = max(0.0, math.floor(10 * min(values)) / 10)
    most = max([*curve, *marked])
    last = math.log(most) or 1.0
    axes = _Axes((0, last), (min(lowest, 0.9), 1.0))
    ticks = [count for count in (*_COUNTS, most) if count <= most]
    if len(ticks) > 1 and most < 1.3 * ticks[-2]:
        ticks = [*ticks[:-2], most]
    parts = [
        axes.horizontal_ticks({math.log(count): f"{count:,}" for count in dict.fromkeys(ticks)}),
        axes.vertical_ticks(),
        axes.titles("K, number of neighbours", "Recall@K"),
        axes.line([(math.log(count), curve[count]) for count in sorted(curve)], "curve"),
    ]
    for count, (low, high) in intervals.items():
        x = math.log(count)
        parts.append(axes.line([(x, low), (x, high)], "whisker"))
    for count, value in marked.items():
        x, y = axes.place(math.log(count), value)
        title = f"<title>Recall@{count}: {value:.4f}</title>"
        parts.append(f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="4">{title}</circle>')
    values = ", ".join(f"Recall@{count} {value:.3f}" for count, value in marked.items())
    return _drawing(f"Recall at K: {values}", parts)


def histogram_chart(histograms):
    """Shares of positive and negative pairs by distance, with their means."""
    edges = histograms.edges.tolist()
    most = max(histograms.positive.max(), histograms.negative.max())
    axes = _Axes((edges[0], edges[-1]), (0, float(most) * 1.25))
    titles = axes.titles("Euclidean distance", "share of the pairs")
    parts = [axes.horizontal_ticks(), axes.vertical_ticks(), titles]
    for kind, shares in (("negative", histograms.negative), ("positive", histograms.positive)):
        heights = [0.0, *np.repeat(shares, 2), 0.0]
        outline = np.stack([np.repeat(edges, 2), heights], axis=1).tolist()
        parts.append(axes.line(outline, f"bars {kind}"))
    means = {"negative": histograms.negative_mean, "positive": histograms.positive_mean}
    nearer = "positive" if means["positive"] <= means["negative"] else "negative"
    for kind, mean in means.items():
        parts.append(axes.line([(mean, 0.0), (mean, axes.y[1])], f"mean {kind}"))
        x, y = axes.place(mean, axes.y[1])
        side, anchor = (-5, "end") if kind == nearer else (5, "start")
        if not _LEFT + 140 < x < _WIDTH - 140:  # no room on that side
            side, anchor = (5, "start") if x <= _LEFT + 140 else (-5, "end")
        y += 14 if kind == "positive" else 30
        place = f'x="{x + side:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
        parts.append(f'<text class="label {kind}" {place}>{kind}, mean {mean:#.3g}</text>')
    texts = ", ".join(f"mean of {kind} pairs {mean:#.3g}" for kind, mean in means.items())
    return _drawing(f"Distances of pairs: {texts}", parts)


def score_bar(value, interval):
    """A score from 0 to 1 as a bar, with its interval if there is one."""
    parts = [
        '<rect class="track" width="100" height="6" y="3"/>',
        f'<rect class="bar" width="{100 * value:.2f}" height="6" y="3"/>',
    ]
    if interval is not None:
        low, high = (f"{100 * min(max(end, 0.0), 1.0):.2f}" for end in interval)
        parts.append(f'<path class="whisker" d="M{low} 6H{high}M{low} 2v8M{high} 2v8"/>')
    size = 'viewBox="0 0 100 12" preserveAspectRatio="none"'
    return f'<svg class="score" {size} aria-hidden="true">{"".join(parts)}</svg>'


class _Axes:
    """Axes of a chart, each with limits (low, high)."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def place(self, x, y):
        return (
            _LEFT + _share(x, *self.x) * (_WIDTH - _LEFT - _RIGHT),
            _HEIGHT - _BOTTOM - _share(y, *self.y) * (_HEIGHT - _TOP - _BOTTOM),
        )

    def line(self, points, kind):
        places = (self.place(*point) for point in points)
        return f'<path class="{kind}" d="M{"L".join(f"{x:.1f} {y:.1f}" for x, y in places)}"/>'

    def horizontal_ticks(self, texts=None):
        parts = []
        for value, text in (_round_numbers(*self.x) if texts is None else texts).items():
            x, y = self.place(value, self.y[0])
            parts.append(f'<path class="tick" d="M{x:.1f} {y:.1f}v4"/>')
            parts.append(f'<text x="{x:.1f}" y="{y + 17:.1f}" text-anchor="middle">{text}</text>')
        return "".join(parts)

    def vertical_ticks(self):
        parts = []
        for value, text in _round_numbers(*self.y).items():
            x, y = self.place(self.x[0], value)
            parts.append(f'<path class="grid" d="M{x:.1f} {y:.1f}H{_WIDTH - _RIGHT}"/>')
            parts.append(f'<text x="{x - 7:.1f}" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
        return "".join(parts)

    def titles(self, horizontal, vertical):
        below = f'class="title" x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 5}" text-anchor="end"'
        above = f'class="title" x="{_LEFT}" y="{_TOP - 5}"'
        return f"<text {below}>{horizontal}</text><text {above}>{vertical}</text>"


def _share(value, low, high):
    return (value - low) / (high - low) if high > low else 0.5


def _round_numbers(low, high):
    """{number: its text} between two numbers, in steps of 1, 2 or 5 times a power of ten."""
    if not high > low:
        return {low: f"{low:.3g}"}
    least = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(least))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return {i * step: f"{i * step:.6g}" for i in range(first, last + 1)}


def _drawing(label, parts):
    head = f'class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img"'
    return f'<svg {head} aria-label="{html.escape(label)}">{"".join(parts)}</svg>'
