"""The page in a headless Chromium; skipped where there is none."""

import collections
import contextlib
import re

import in_chromium
import numpy as np
import pytest

pytestmark = pytest.mark.slow
VALUES = np.random.default_rng(0).permutation(60) / 60
ASCENDING = np.argsort(VALUES).tolist()
NAMES = [f"class {letter}" for letter in "abcd"]


class Report(in_chromium.Browser):
    def open(self, path, route=""):
        super().open(path.as_uri() + route)

    def array(self, name):
        return np.array(self.execute(f"return [...{name}]"))

    def row_of(self, selector):
        return int(self.one(selector).get_attribute("href").rpartition("-")[2])

    def queries(self):
        """Row numbers of the queries shown."""
        links = self.all(".query .asked .card")
        return [int(link.get_attribute("href").rpartition("-")[2]) for link in links]

    def wait_for(self, queries):
        with contextlib.suppress(Exception):  # the comparison says more
            self.wait(lambda: self.queries() == queries)
        assert self.queries() == queries


@pytest.fixture
def browser(chromium):
    """What a page is opened in; afterwards it must have reported no error."""
    for kind in ("browser", "performance"):
        chromium.get_log(kind)
    report = Report(chromium)
    yield report
    assert chromium.get_log("browser") == []
    report.reset()


@pytest.fixture
def page(report):
    values = {"recall@1": np.round(VALUES), "map@r": VALUES}
    return report(per_query=values, class_names=dict(enumerate(NAMES, start=2**60)))


def test_tabs_order_the_queries(browser, page):
    browser.open(page)
    assert browser.queries() == ASCENDING[:8]
    browser.click("[value=best] + span")
    browser.wait_for(ASCENDING[::-1][:8])
    browser.click("#more-queries")
    assert browser.queries() == ASCENDING[::-1][:16]
    browser.click("[value=random] + span")
    browser.wait(lambda: browser.one("[name=order]:checked").get_attribute("value") == "random")
    once = browser.queries()
    assert once not in (ASCENDING[:8], ASCENDING[::-1][:8])
    browser.click("[value=random] + span")
    browser.wait(lambda: browser.queries() != once)
    browser.driver.back()
    browser.wait_for(ASCENDING[::-1][:8])


def test_measures_and_classes_choose_the_queries(browser, page):
    browser.open(page)
    browser.one("#measure").send_keys("recall@1")
    order = np.lexsort((browser.array("distances")[::10], np.round(VALUES)))
    browser.wait_for(order.tolist()[:8])
    browser.one("#wanted").send_keys("Class B")
    expected = order[browser.array("ids")[order] == 1].tolist()
    browser.wait_for(expected[:8])
    status = f"{len(expected)} queries of 1 class, the worst first."
    assert browser.texts("#gallery-status") == [status]
    browser.one("#wanted").send_keys("no such class")
    browser.wait_for([])


def test_a_picture_becomes_the_query(browser, page):
    browser.open(page)
    row = browser.row_of(".query .found .card")
    browser.click(".query .found .card")
    browser.wait_for([row])
    assert re.search(r"recall@1 \d\.\d{3} · map@r \d", browser.texts(".asked")[0])
    browser.driver.back()
    browser.driver.forward()
    browser.wait_for([row])


def test_marks_hits_and_misses(browser, page):
    browser.open(page, "#image-7")
    ids, neighbours, distances = map(browser.array, ("ids", "neighbours", "distances"))
    kinds = set()
    found = zip(browser.all(".found .card"), neighbours[70:80], distances[70:80], strict=True)
    for card, row, distance in found:
        kind, mark = ("hit", "✓") if ids[row] == ids[7] else ("miss", "✗")
        kinds.add(kind)
        assert card.get_attribute("class") == f"card {kind}"
        name = [] if kind == "hit" else [NAMES[ids[row]]]
        assert card.text.splitlines() == [f"{mark} {distance:#.3g}", *name]
        assert card.accessible_name.startswith(kind.capitalize())
    assert kinds == {"hit", "miss"}


def test_confused_classes_show_their_queries(browser, page):
    browser.open(page)
    ids, nearest = browser.array("ids"), browser.array("neighbours")[::10]
    pairs = np.stack([ids, ids[nearest]], axis=1)
    counts = collections.Counter((a, b) for a, b in pairs.tolist() if a != b)
    expected = sorted(([*pair, count] for pair, count in counts.items()), key=lambda c: (-c[2], c))
    assert browser.execute("return confusions()") == expected
    links = [f"{NAMES[a]} → {NAMES[b]}" for a, b, _ in expected]
    assert browser.texts("#pairs > li > a") == links
    assert browser.texts("#pairs .count")[0].startswith(f"{expected[0][2]} of ")
    browser.click("#pairs > li > a")
    browser.wait_for(np.flatnonzero((pairs == expected[0][:2]).all(axis=1)).tolist()[:8])


def test_sorts_and_filters_the_table(browser, page):
    browser.open(page)
    assert browser.texts("#table tbody th") == NAMES
    assert browser.texts("#table thead th") == ["class", "images", "recall@1", "map@r"]
    means = np.array([VALUES[browser.array("ids") == i].mean() for i in range(4)])
    column = "#table thead th:nth-child(4)"
    for sign, word in ((1, "ascending"), (-1, "descending")):
        browser.click(f"{column} button")
        order = np.argsort(sign * means)
        assert browser.texts("#table tbody th") == [NAMES[i] for i in order]
        assert browser.texts("#table td:nth-child(4)") == [f"{means[i]:.4f}" for i in order]
        assert browser.one(column).get_attribute("aria-sort") == word
    assert len(browser.all("#table [aria-sort]")) == 1
    browser.one("#table-filter").send_keys("S C")
    assert browser.texts("#table tbody th") == ["class c"]
    browser.click("#table tbody a")
    browser.wait(lambda: "of 1 class" in browser.texts("#gallery-status")[0])
    assert browser.one("#wanted").get_attribute("value") == "class c"


def test_the_map_shows_what_is_pointed_at(browser, page):
    from selenium.webdriver.common.action_chains import ActionChains

    browser.open(page)
    canvas = browser.one("#plane")
    browser.execute("arguments[0].scrollIntoView({ block: 'center' })", canvas)
    places = browser.array("new Uint16Array(bytes(data.map.places).buffer)")[:2] / 65535
    assert not browser.one("#spot").is_displayed()
    pointer, side = ActionChains(browser.driver), canvas.size["width"]
    x, y = ((0.04 + 0.92 * places - 0.5) * side).astype(int).tolist()
    pointer.move_to_element_with_offset(canvas, x, y).perform()
    browser.wait(lambda: browser.one("#spot").is_displayed())
    row = browser.row_of("#spot a")
    pointer.click().perform()
    browser.wait_for([row])


@pytest.mark.parametrize("name", ["class", 40 * "LongName", 40 * "Long name "])
def test_a_phone_need_not_scroll_sideways(name, browser, report):
    options = {"title": name, "facts": {name: name}, "intervals": {name: (0.4, 0.6)}}
    options["class_names"] = {2**60 + i: f"{name} {i}" for i in range(4)}
    browser.open(report(scores={name: 0.5, "recall@1": 0.5}, **options))
    browser.as_phone()
    assert browser.execute("return innerWidth") == 390
    assert browser.execute("return document.scrollingElement.scrollWidth") == 390


def test_names_are_text(browser, report, hostile):
    options = {"title": hostile[0], "facts": {hostile[1]: hostile[2]}}
    options["class_names"] = dict(enumerate(hostile, start=2**60))
    browser.open(report(per_query={hostile[1]: VALUES}, **options))
    assert browser.texts("h1") == [hostile[0]]
    assert set(hostile) < set(browser.texts("#table tbody th"))
    assert not browser.all("main img")
    browser.one("#wanted").send_keys(hostile[1])
    browser.wait(lambda: browser.texts(".query h3")[0] == hostile[1])
