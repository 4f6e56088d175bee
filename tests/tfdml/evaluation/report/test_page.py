import base64
import collections
import hashlib
import html.parser
import io
import json
import pathlib
import re

import numpy as np
import pytest
from PIL import Image

from tfdml.evaluation import nearest_neighbours, recall_at_k
from tfdml.evaluation.report import charts, page
from tfdml.evaluation.report.page import write_report


class Page(html.parser.HTMLParser):
    """The tags of a page, each with its attributes, and the text of each kind of tag."""

    def __init__(self, path):
        super().__init__()
        self.tags, self.texts, self.open = [], {}, []
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "input", "link", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        for tag in self.open[-1:]:
            self.texts.setdefault(tag, []).append(data)

    @property
    def data(self):
        return json.loads(self.texts["script"][0])

    def array(self, name, dtype):
        return np.frombuffer(base64.b64decode(self.data[name]), dtype)


def test_holds_what_it_was_given(report):
    facts, intervals = {"model": "an embedder", "seed": 7}, {"recall@1": (0.25, 0.75)}
    path = report(facts=facts, intervals=intervals, class_names={2**60: "first"})
    assert (path.name, path.parent.name) == ("index.html", "report")
    page = Page(path)
    assert page.open == []
    assert page.texts["title"][0] == page.texts["h1"][0] == "A report"
    assert page.texts["p"][0] == "60 images of 4 classes."
    assert {"recall@1", "recall@4", "nmi"} <= set(page.texts["th"])
    assert {"0.8750", "0.5000", "0.2500 to 0.7500"} <= set(page.texts["td"])
    assert page.texts["dt"] == ["model", "seed"]
    assert page.texts["dd"] == ["an embedder", "7"]
    assert page.data["classes"] == ["first", *(str(2**60 + i) for i in (1, 2, 3))]
    assert page.data["order"] == "map@r"
    assert any("Distances of all 4" in caption for caption in page.texts["figcaption"])


def test_holds_neighbours_values_and_means(report, rng):
    labels = np.repeat([7, 5, 2**62], 4)
    x = rng.normal(size=(12, 3))
    values = {"recall@1": np.eye(12)[0], "mrr": rng.uniform(size=12)}
    path = write_report(
        x,
        labels,
        report().parent,
        title="",
        scores={},
        per_query=values,
        picture_of=lambda row: np.zeros((9, 9), np.uint8),
    )
    page = Page(path)
    ids = np.array([1] * 4 + [0] * 4 + [2] * 4)
    assert page.array("ids", "<u4").tolist() == ids.tolist()
    neighbours = page.array("neighbours", "<u4").reshape(12, 10)
    assert (neighbours == nearest_neighbours(x, 10)).all()
    distances = np.linalg.norm(x[neighbours] - x[:, None], axis=2)
    np.testing.assert_allclose(page.array("distances", "<f4").reshape(12, 10), distances, 1e-6)
    for name, expected in values.items():
        of_page, means = (
            np.frombuffer(base64.b64decode(page.data[kind][name]), "<f4")
            for kind in ("values", "means")
        )
        np.testing.assert_allclose(of_page, expected, 1e-6)
        np.testing.assert_allclose(means, [expected[ids == i].mean() for i in range(3)], 1e-6)
    wrong = ids[neighbours[:, 0]] != ids
    assert sum(count for _, _, count in page.data["confusions"]) == np.count_nonzero(wrong)
    assert page.array("sizes", "<u4").tolist() == [4, 4, 4]


def test_draws_the_curve_of_its_own_neighbours_or_of_the_scores(report, monkeypatch):
    drawn = []
    monkeypatch.setattr(charts, "recall_chart", lambda *given: drawn.append(given) or "")
    report(intervals={"recall@4": (0.8, 0.9)})
    curve, marked, intervals = drawn.pop()
    rng = np.random.default_rng(0)
    labels = np.sort(rng.integers(0, 4, 60))
    x = rng.normal(size=(60, 5)) + labels[:, None]
    assert curve == recall_at_k(x, labels, k=range(1, 60))
    assert marked == {1: curve[1], 4: 0.875}
    assert intervals == {4: (0.8, 0.9)}
    report(neighbours=(np.arange(60)[:, None] + 1) % 60)
    curve, marked, _ = drawn.pop()
    assert curve == marked
    report(
        neighbours=(np.arange(60)[:, None] + 1) % 60,
        scores={"recall@1": 0.5, "recall@x": 0.5, "recall@9": np.nan},
    )
    assert not drawn


def test_takes_the_neighbours_of_the_caller(report):
    neighbours = (np.arange(60)[:, None] + [1, 7, 2]) % 60
    page = Page(report(neighbours=neighbours))
    assert page.array("neighbours", "<u4").reshape(60, 3).tolist() == neighbours.tolist()


def test_holds_the_pictures(report, colour_of):
    sheets = Page(report()).data["sheets"]
    picture = Image.open(io.BytesIO(base64.b64decode(sheets["images"][0]))).convert("RGB")
    for row in (0, 33, 59):
        line, column = divmod(row, sheets["columns"])
        place = (int((column + 0.5) * sheets["width"]), int((line + 0.5) * sheets["height"]))
        np.testing.assert_allclose(picture.getpixel(place), colour_of(row), atol=12)


def test_loads_and_runs_nothing_but_its_own_parts(report, hostile):
    page = Page(report(title=hostile[1]))
    for _, attributes in page.tags:
        assert not attributes.keys() & {"src", "srcset", "style", "onload", "onclick", "onerror"}
        assert re.match(r"^#|^$", attributes.get("href") or "")
    policy = next(a["content"] for _, a in page.tags if a.get("http-equiv"))
    assert policy.startswith("default-src 'none'; img-src blob:; style-src 'sha256-")
    for kind, text in (("style", page.texts["style"][0]), ("script", page.texts["script"][1])):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert not re.search(r"https?:", "".join(page.texts["style"] + page.texts["script"][1:]))


def test_escapes_all_names(report, hostile):
    first, second, third = hostile
    path = report(
        title=first,
        facts={second: third, third: first},
        scores={first: 0.5, second: 2.0, third: -1.0},
        per_query={first: np.zeros(60), second: np.ones(60)},
        class_names={2**60 + i: name for i, name in enumerate(hostile)},
    )
    page = Page(path)
    assert [tag for tag, _ in page.tags].count("script") == 2
    assert "img" not in {tag for tag, _ in page.tags}
    assert page.texts["h1"] == [first]
    assert page.texts["dt"] == [second, third]
    assert page.texts["dd"] == [third, first]
    assert page.texts["th"] == list(hostile)
    assert page.data["classes"][:3] == list(hostile)
    assert list(page.data["values"]) == [first, second]


def test_copes_with_names_beyond_ascii(report):
    names = {
        2**60: "日本語 ñ 🚗",
        2**60 + 1: "not utf-8 \udcff",
        2**60 + 2: "",
        2**60 + 3: "\u2028",
    }
    page = Page(report(class_names=names, title="ключ 🔑 \udcff", facts={"ø": "é"}))
    assert page.data["classes"] == list(names.values())
    assert page.texts["h1"][0].startswith("ключ 🔑")
    assert page.texts["dt"] == ["ø"]


@pytest.mark.parametrize(
    ("labels", "summary", "expected"),
    [
        ([5], "1 image of 1 class; 1 without another image of the same class", "no pairs of both"),
        ([5, 5], "2 images of 1 class.", "no pairs of both"),
        ([5, 6, 7], "3 images of 3 classes; 3 without another", "no pairs of both"),
        (
            [5, 5, 6],
            "3 images of 2 classes; 1 without another",
            "Distances of all 1 positive pairs",
        ),
    ],
)
def test_copes_with_few_images(labels, summary, expected, tmp_path):
    path = write_report(
        np.eye(len(labels)),
        np.array(labels),
        tmp_path,
        title="Few",
        scores={"recall@1": 0.5},
        per_query={"recall@1": np.ones(len(labels))},
        picture_of=lambda row: np.zeros((3, 2, 1), np.uint8),
    )
    page = Page(path)
    assert page.texts["p"][0].startswith(summary)
    assert expected in path.read_text()
    assert page.data["map"] is None
    assert len(page.data["sheets"]["images"]) == 1


def test_fits_the_megabytes(report):
    def noise(row):
        return np.random.default_rng(row).integers(0, 256, (200, 200, 3)).astype(np.uint8)

    sizes = [
        report(picture_of=noise, megabytes=megabytes).stat().st_size / 1e6
        for megabytes in (0.2, 0.5)
    ]
    assert 0.1 < sizes[0] <= 0.2 < sizes[1] <= 0.5


def test_is_the_same_for_the_same_seed(report):
    first, again, other = (report(folder=str(i), seed=seed) for i, seed in enumerate((3, 3, 4)))
    assert first.read_bytes() == again.read_bytes()
    assert first.read_bytes() != other.read_bytes()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"per_query": {}}, ValueError, "`per_query` must hold the values of one score or more"),
        ({"per_query": {"x": np.ones(59)}}, ValueError, r"`per_query\['x'\]` must have one value"),
        ({"per_query": {"x": np.full(60, 1.5)}}, ValueError, r"in \[0, 1\]. Received: first_out"),
        ({"per_query": {"x": np.full(60, np.nan)}}, ValueError, r"in \[0, 1\]. Received: first"),
        ({"scores": {"x": "0.5"}}, TypeError, r"`scores\['x'\]` must be a number. Received"),
        (
            {"intervals": {"y": (0, 1)}},
            ValueError,
            "`intervals` must be of scores. Received",
        ),
        ({"intervals": {"nmi": (1, 0)}}, ValueError, r"`intervals\['nmi'\]` must be \(low, high\)"),
        ({"picture_of": 3}, TypeError, "`picture_of` must be a callable. Received: picture_of=3"),
        ({"megabytes": 0}, ValueError, "`megabytes` must be > 0. Received: megabytes=0"),
        ({"seed": -1}, ValueError, "`seed` must be an integer >= 0"),
        ({"neighbours": np.ones((60, 2))}, TypeError, "`neighbours` must be integers"),
        ({"neighbours": np.ones(60, int)}, ValueError, r"`neighbours` must have shape \(n, K\)"),
        ({"neighbours": np.ones((59, 2), int)}, ValueError, r"must have shape \(n, K\). Received"),
        ({"neighbours": np.full((60, 2), 60)}, ValueError, "`neighbours` must be row numbers"),
        ({"neighbours": np.full((60, 2), 9)}, ValueError, "must not hold the row itself. Received"),
    ],
)
def test_rejects_bad_input(options, error, message, report, tmp_path):
    with pytest.raises(error, match=message):
        report(**options)
    assert not (tmp_path / "report").exists()


def test_counts_the_classes_taken_for_others(rng):
    ids, nearest = rng.integers(0, 4, 200), rng.integers(0, 4, 200)
    pairs = collections.Counter(
        (a, b) for a, b in zip(ids.tolist(), nearest.tolist(), strict=True) if a != b
    )
    expected = sorted(([a, b, n] for (a, b), n in pairs.items()), key=lambda c: (-c[2], c[0], c[1]))
    assert len(expected) == 12
    assert page.confusions(ids, nearest) == expected


def test_keeps_the_commonest_and_none_where_there_are_none(monkeypatch):
    monkeypatch.setattr(page, "_MOST_CONFUSIONS", 1)
    assert page.confusions(np.array([0, 1, 1, 2]), np.array([1, 0, 0, 2])) == [[1, 0, 2]]
    assert page.confusions(np.array([0, 1]), np.array([0, 1])) == []


def test_its_files_are_in_the_package():
    root = pathlib.Path(__file__).parents[4]
    settings = (root / "pyproject.toml").read_text()
    packed = re.search(r'"tfdml.evaluation.report" = \[(.*)\]', settings)[1]
    folder = root / "tfdml" / "evaluation" / "report"
    files = {path.name for pattern in json.loads(f"[{packed}]") for path in folder.glob(pattern)}
    assert files == {"template.html", "report.css", "report.js"}
