import base64
import hashlib
import html.parser
import json
import re

import numpy as np
import pytest

from tfdml.evaluation import rank, recall_at_k
from tfdml.evaluation.report import page
from tfdml.evaluation.report.page import planar_map, write_report

RING = (np.arange(60)[:, None] + [1, 7, 2]) % 60  # other rows


class Page(html.parser.HTMLParser):
    """The tags of a page, each with its attributes, and the text of each kind of tag."""

    def __init__(self, path):
        super().__init__()
        self.tags, self.texts, self.open = [], {}, []
        self.feed(path.read_text("utf-8"))
        self.data = json.loads(self.texts["script"][0])

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "input", "link", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        for tag in self.open[-1:]:
            self.texts.setdefault(tag, []).append(data)

    def array(self, dtype, *names):
        data = self.data
        for name in names:
            data = data[name]
        return np.frombuffer(base64.b64decode(data), dtype)


@pytest.fixture(autouse=True)
def _no_map(monkeypatch):
    """Saves the seconds of a map, which tests of its own draw."""
    monkeypatch.setattr(page, "planar_map", lambda rows, _: (np.arange(0), np.zeros((0, 2))))


@pytest.fixture
def drawn(monkeypatch):
    """What the charts are drawn of."""
    drawn = []
    for name in ("recall_chart", "histogram_chart"):
        monkeypatch.setattr(page, name, lambda *given: drawn.append(given) or "")
    return drawn


def test_holds_what_it_was_given(report):
    intervals, values = {"recall@1": (0.25, 0.75)}, {"mrr": np.linspace(0, 1, 60)}
    options = {"class_names": {2**60: "first"}, "image_names": [f"{i}.png" for i in range(60)]}
    options |= {"untrained": {"nmi": 0.125}, "without_copies": {"nmi": 0.0625}}
    path = report(intervals=intervals, per_query=values, **options)
    assert (path.name, path.parent.name) == ("index.html", "report")
    page = Page(path)
    assert page.open == []
    assert page.texts["p"][0] == "60 images of 4 classes."
    assert {"0.8750", "0.2500 to 0.7500", "untrained 0.1250, without copies 0.0625"} <= set(
        page.texts["td"]
    )
    assert page.data["classes"] == ["first", *(str(2**60 + i) for i in (1, 2, 3))]
    assert page.data["images"] == options["image_names"]
    np.testing.assert_allclose(page.array("<f4", "values", "mrr"), values["mrr"], 1e-6)


def test_reads_all_from_one_ranking(report, rows, drawn):
    x, labels = rows
    path = report(intervals={"recall@4": (0.8, 0.9)})
    (curve, marked, intervals), (histogram,) = drawn
    assert curve == recall_at_k(*rows, k=range(1, 60))
    assert (marked, intervals) == ({1: 0.75, 4: 0.875}, {4: (0.8, 0.9)})
    content = Page(path)
    assert content.array("<u4", "ids").tolist() == (labels - 2**60).tolist()
    distances = np.linalg.norm(x[:, None] - x, axis=2)
    np.fill_diagonal(distances, np.inf)
    nearest = content.array("<u4", "neighbours").reshape(60, 10)
    assert (nearest == distances.argsort(axis=1)[:, :10]).all()
    expected = np.take_along_axis(distances, nearest.astype(int), axis=1).ravel()
    np.testing.assert_allclose(content.array("<f4", "distances"), expected, 1e-6)
    positive = np.triu(labels[:, None] == labels, 1).sum()
    assert histogram.positive.sum() == positive
    caption = f"Distances of all {positive} positive pairs, of one class, and {1770 - positive:,} "
    assert any(text.startswith(caption) for text in content.texts["figcaption"])


def test_shows_the_neighbours_of_the_caller_without_a_curve(report, rows, drawn):
    content = Page(report(neighbours=RING))
    assert content.array("<u4", "neighbours").tolist() == RING.ravel().tolist()
    distances = np.linalg.norm(rows[0][RING] - rows[0][:, None], axis=2).ravel()
    np.testing.assert_allclose(content.array("<f4", "distances"), distances, 1e-6)
    curve, marked, _ = drawn[0]
    assert curve == marked == {1: 0.75, 4: 0.875}
    report(neighbours=RING, scores={"recall@1": 0.5, "recall@x": 0.5, "recall@9": np.nan})
    assert len(drawn) == 3  # no curve of one score


def test_loads_and_runs_nothing_but_its_own_parts(report, hostile):
    page = Page(report(title=hostile[1]))
    for _, attributes in page.tags:
        assert not attributes.keys() & {"src", "srcset", "style", "onload", "onclick", "onerror"}
        assert re.match(r"^#|^$", attributes.get("href") or attributes.get("xlink:href") or "")
    policy = next(a["content"] for _, a in page.tags if a.get("http-equiv"))
    assert policy.startswith("default-src 'none'; img-src blob:; style-src 'sha256-")
    for kind, text in (("style", page.texts["style"][0]), ("script", page.texts["script"][1])):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert len(page.texts["style"]) == 1
    assert not re.search(r"https?:", "".join(page.texts["style"] + page.texts["script"][1:]))
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))


NAMES_BEYOND_ASCII = "日本語 ñ 🚗", "not utf-8 \udcff", "\u2028"


@pytest.mark.parametrize("names", [None, NAMES_BEYOND_ASCII])
def test_escapes_all_names(names, report, hostile, drawn):
    first, second, third = names or hostile
    path = report(
        title=first,
        facts={second: third, third: 7},
        scores={first: 0.5, second: 2.0, third: -1.0},
        per_query={first: np.zeros(60), second: np.ones(60)},
        class_names=dict(enumerate((first, second, third), start=2**60)),
    )
    page = Page(path)
    shown = {
        "title": [first],
        "h1": [first],
        "dt": [second, third],
        "dd": [third, "7"],
        "th": [first, second, third],
    }
    for tag, texts in shown.items():
        assert page.texts[tag] == [text.replace("\udcff", "\ufffd") for text in texts]
    assert [tag for tag, _ in page.tags].count("script") == 2
    assert "img" not in {tag for tag, _ in page.tags}
    assert page.data["classes"][:3] == [first, second, third]
    assert list(page.data["values"]) == [first, second]


FEW = {
    (5,): ("1 image of 1 class; 1 without another image of the same class", "no pairs of both"),
    (5, 5): ("2 images of 1 class.", "no pairs of both"),
    (5, 6, 7): ("3 images of 3 classes; 3 without another", "no pairs of both"),
    (5, 5, 6): ("3 images of 2 classes; 1 without", "Distances of all 1 positive pairs"),
}


@pytest.mark.parametrize("labels", FEW)
def test_copes_with_few_images(labels, tmp_path):
    options = {"scores": {"recall@1": 0.5}, "per_query": {"recall@1": np.ones(len(labels))}}
    options["picture_of"] = lambda row: np.zeros((3, 2, 1), np.uint8)
    data = np.eye(len(labels)), np.array(labels)
    options["ranking"] = rank(*data, histogram=True)
    path = write_report(*data, tmp_path, title="Few", **options)
    page = Page(path)
    assert page.texts["p"][0].startswith(FEW[labels][0])
    assert FEW[labels][1] in path.read_text()
    assert len(page.data["sheets"]["images"]) == 1


def test_fits_the_bytes(report, monkeypatch):
    def noise(row):
        return np.random.default_rng(row).integers(0, 256, (200, 200, 3)).astype(np.uint8)

    sizes = []
    for most in (2e5, 5e5):
        monkeypatch.setattr(page, "_MOST_BYTES", most)
        sizes.append(report(12, picture_of=noise).stat().st_size)
    assert 1e5 < sizes[0] <= 2e5 < sizes[1] <= 5e5


def test_is_the_same_for_the_same_seed(report):
    first, again, other = (report(12, folder=str(i), seed=i // 2).read_bytes() for i in range(3))
    assert first == again != other


def test_the_map_keeps_classes_together(rng):
    labels = np.repeat(np.arange(4), 25)
    rows, places = planar_map(5 * np.eye(4)[labels] + 0.1 * rng.normal(size=(100, 4)))
    assert rows.tolist() == list(range(100))
    gaps = np.linalg.norm(places[:, None] - places, axis=2) + 9 * np.eye(100)
    assert (labels[gaps.argmin(axis=1)] == labels).all()


def test_the_map_draws_a_sample_by_the_seed(rng, monkeypatch):
    monkeypatch.setattr(page, "_MOST_ROWS", 20)
    x = rng.normal(size=(60, 3))
    (rows, places), (again, same), (other, _) = (planar_map(x, seed=seed) for seed in (1, 1, 2))
    assert rows.tolist() == sorted(set(rows.tolist())) == again.tolist()
    assert len(rows) == len(places) == 20
    assert (same == places).all()
    assert (other != rows).any()


@pytest.mark.parametrize(
    "x", [np.arange(9.0)[:, None], np.repeat(np.eye(2), 5, axis=0), 1e300 * np.eye(6)]
)
def test_the_map_fills_the_plane_without_hiding_a_row(x):
    _, places = planar_map(x)
    assert len(np.unique(places, axis=0)) == len(x)
    assert -1e-12 < places.min() <= places.max() < 1 + 1e-12
    assert np.isclose(np.ptp(places, axis=0).max(), 1)


@pytest.mark.parametrize("x", [np.eye(4), np.ones((9, 3)), np.zeros((9, 3))])
def test_no_map_of_few_or_equal_rows(x):
    assert [len(found) for found in planar_map(x)] == [0, 0]
