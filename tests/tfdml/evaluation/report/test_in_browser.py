"""The page in a headless Chromium; skipped where there is none."""

import collections
import contextlib
import io
import json
import re

import in_chromium
import numpy as np
import pytest
from PIL import Image

pytestmark = pytest.mark.slow


@pytest.fixture
def browser(chromium):
    """What a page is opened in; afterwards it must have reported no error."""
    for kind in ("browser", "performance"):
        chromium.get_log(kind)
    report = Report(chromium)
    yield report
    assert chromium.get_log("browser") == []
    report.reset()


class Report(in_chromium.Browser):
    def open(self, path, route=""):
        super().open(path.as_uri() + route)

    def queries(self):
        """Row numbers of the queries shown."""
        links = self.all(".query .asked .card")
        return [int(link.get_attribute("href").rpartition("-")[2]) for link in links]

    def wait_for(self, queries):
        with contextlib.suppress(Exception):  # the comparison says more
            self.wait(lambda: self.queries() == queries)
        assert self.queries() == queries


VALUES = np.random.default_rng(0).permutation(60) / 60


@pytest.fixture
def page(report):
    return report(
        per_query={"recall@1": np.round(VALUES), "map@r": VALUES},
        class_names={2**60 + i: f"class {'abcd'[i]}" for i in range(4)},
    )


def test_opens_from_disk_without_a_request(browser, page):
    browser.open(page)
    browser.execute("scrollTo(0, 1e6)")
    events = [
        json.loads(entry["message"])["message"] for entry in browser.driver.get_log("performance")
    ]
    urls = {
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    }
    assert page.as_uri() in urls
    assert {url.partition(":")[0] for url in urls} <= {"file", "blob", "about"}


def test_draws_the_pictures(browser, page, colour_of):
    browser.open(page, "#image-40")
    cards = browser.all(".query .card")
    assert len(cards) == 11
    for card in cards:
        box = card.find_element("css selector", ".picture")
        assert box.size["width"] > 50
        assert abs(box.size["width"] / box.size["height"] - 1.5) < 0.1
        picture = Image.open(io.BytesIO(box.screenshot_as_png)).convert("RGB")
        row = int(card.get_attribute("href").rpartition("-")[2])
        for share in (0.2, 0.5, 0.8):
            place = [int(share * length) for length in picture.size]
            np.testing.assert_allclose(picture.getpixel(place), colour_of(row), atol=12)


def test_tabs_order_the_queries(browser, page):
    ascending = np.argsort(VALUES).tolist()
    browser.open(page)
    assert browser.queries() == ascending[:8]
    browser.click("[value=best] + span")
    browser.wait_for(ascending[::-1][:8])
    browser.click("#more-queries")
    assert browser.queries() == ascending[::-1][:16]
    browser.click("[value=random] + span")
    browser.wait(lambda: browser.one("[name=order]:checked").get_attribute("value") == "random")
    once = browser.queries()
    assert once not in (ascending[:8], ascending[::-1][:8])
    browser.click("[value=random] + span")
    browser.wait(lambda: browser.queries() != once)
    browser.driver.back()
    browser.wait_for(ascending[::-1][:8])


def test_keys_and_another_measure_order_the_queries(browser, page):
    from selenium.webdriver.common.keys import Keys

    browser.open(page)
    browser.one("[value=worst]").send_keys(Keys.ARROW_RIGHT)
    browser.wait_for(np.argsort(-VALUES).tolist()[:8])
    browser.one("[value=best]").send_keys(Keys.ARROW_LEFT)
    browser.one("#measure").send_keys("recall@1")
    first = browser.execute("return [...distances]")[::10]
    expected = sorted(range(60), key=lambda row: (np.round(VALUES)[row], first[row], row))
    browser.wait_for(expected[:8])


def test_filters_the_queries_by_class(browser, page):
    browser.open(page)
    ids = np.array(browser.execute("return [...ids]"))
    browser.one("#wanted").send_keys("Class B")
    expected = [row for row in np.argsort(VALUES).tolist() if ids[row] == 1]
    browser.wait_for(expected[:8])
    assert browser.texts("#gallery-status") == [
        f"{len(expected)} queries of 1 class, the worst first."
    ]
    browser.one("#wanted").clear()
    browser.one("#wanted").send_keys("no such class")
    browser.wait_for([])


def test_a_picture_becomes_the_query(browser, page):
    browser.open(page)
    card = browser.one(".query .found .card")
    row = int(card.get_attribute("href").rpartition("-")[2])
    browser.click(".query .found .card")
    browser.wait_for([row])
    assert re.search(r"recall@1 \d\.\d{3} · map@r \d", browser.texts(".asked")[0])
    browser.driver.back()
    browser.driver.forward()
    browser.wait_for([row])
    browser.one("#measure").send_keys("recall@1")
    browser.wait(lambda: len(browser.queries()) == 8)


def test_marks_hits_and_misses(browser, page):
    browser.open(page, "#image-7")
    ids, neighbours, distances = (
        browser.execute(f"return [...{name}]") for name in ("ids", "neighbours", "distances")
    )
    cards = browser.all(".found .card")
    assert len(cards) == 10
    kinds = set()
    for card, row, distance in zip(cards, neighbours[70:80], distances[70:80], strict=True):
        kind, mark = ("hit", "✓") if ids[row] == ids[7] else ("miss", "✗")
        kinds.add(kind)
        assert card.get_attribute("class") == f"card {kind}"
        lines = card.text.splitlines()
        assert lines[0] == f"{mark} {distance:#.3g}"
        assert lines[1:] == ([] if kind == "hit" else [f"class {'abcd'[ids[row]]}"])
        assert card.accessible_name.startswith(kind.capitalize())
    assert kinds == {"hit", "miss"}


def test_confused_classes_show_their_queries(browser, page):
    browser.open(page)
    ids, neighbours = (np.array(browser.execute(f"return [...{n}]")) for n in ("ids", "neighbours"))
    pairs = np.stack([ids, ids[neighbours[::10]]], axis=1)
    counts = collections.Counter((a, b) for a, b in pairs.tolist() if a != b)
    expected = sorted(([*pair, count] for pair, count in counts.items()), key=lambda c: (-c[2], c))
    assert browser.execute("return confusions()") == expected
    names = [f"class {'abcd'[a]} → class {'abcd'[b]}" for a, b, _ in expected]
    assert browser.texts("#pairs > li > a") == names
    assert browser.texts("#pairs .count")[0].startswith(f"{expected[0][2]} of ")
    browser.click("#pairs > li > a")
    browser.wait_for(np.flatnonzero((pairs == expected[0][:2]).all(axis=1)).tolist()[:8])


def test_sorts_and_filters_the_table(browser, page):
    browser.open(page)
    assert browser.texts("#table tbody th") == [f"class {name}" for name in "abcd"]
    assert browser.texts("#table thead th") == ["class", "images", "recall@1", "map@r"]
    ids = np.array(browser.execute("return [...ids]"))
    means = [VALUES[ids == i].mean() for i in range(4)]
    column = "#table thead th:nth-child(4)"
    for sign, word in ((1, "ascending"), (-1, "descending")):
        browser.click(f"{column} button")
        expected = sorted(range(4), key=lambda i, sign=sign: sign * means[i])
        assert browser.texts("#table tbody th") == [f"class {'abcd'[i]}" for i in expected]
        assert browser.texts("#table td:nth-child(4)") == [f"{means[i]:.4f}" for i in expected]
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
    size = canvas.size["width"]
    places = browser.execute("return [...new Uint16Array(bytes(data.map.places).buffer)]")
    x, y = (int((0.04 + 0.92 * place / 65535 - 0.5) * size) for place in places[:2])
    assert not browser.one("#spot").is_displayed()
    pointer = ActionChains(browser.driver)
    pointer.move_to_element_with_offset(canvas, x, y).perform()
    browser.wait(lambda: browser.one("#spot").is_displayed())
    row = int(browser.one("#spot a").get_attribute("href").rpartition("-")[2])
    pointer.click().perform()
    browser.wait_for([row])


def test_the_map_zooms_and_moves(browser, page):
    from selenium.webdriver.common.keys import Keys

    def painted():
        return browser.execute("return byId('plane').toDataURL()")

    browser.open(page)
    browser.wait(lambda: browser.one("#plane").get_attribute("width") != "300")
    whole = browser.wait(painted)
    browser.click("#zoom-in")
    near = painted()
    browser.one("#plane").send_keys(Keys.ARROW_RIGHT)
    assert len({whole, near, painted()}) == 3
    browser.click("#zoom-reset")
    assert painted() == whole
    browser.as_phone()
    browser.execute("byId('plane').scrollIntoView({ block: 'center' })")
    before = painted()
    box = browser.execute("return byId('plane').getBoundingClientRect().toJSON()")
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    for kind, *gaps in ("touchStart", 30), ("touchMove", 40), ("touchMove", 90), ("touchEnd",):
        sides = [(number, x + sign * gap) for gap in gaps for number, sign in enumerate((-1, 1))]
        touches = [{"x": side, "y": y, "id": number} for number, side in sides]
        event = {"type": kind, "touchPoints": touches}
        browser.driver.execute_cdp_cmd("Input.dispatchTouchEvent", event)
    browser.wait(lambda: painted() != before)
    assert "zoomed" in browser.one("#plane").get_attribute("class")


@pytest.mark.parametrize("name", ["class", 40 * "LongName", 40 * "Long name "])
def test_a_phone_need_not_scroll_sideways(name, browser, report):
    path = report(
        title=name,
        scores={name: 0.5, "recall@1": 0.5},
        intervals={name: (0.4, 0.6)},
        facts={name: name},
        class_names={2**60 + i: f"{name} {i}" for i in range(4)},
    )
    browser.open(path)
    browser.as_phone()
    assert browser.execute("return innerWidth") == 390
    assert browser.execute("return document.scrollingElement.scrollWidth") == 390


def test_names_are_text(browser, report, hostile):
    path = report(
        title=hostile[0],
        facts={hostile[1]: hostile[2]},
        per_query={hostile[1]: VALUES},
        class_names={2**60 + i: name for i, name in enumerate(hostile)},
    )
    browser.open(path)
    assert browser.texts("h1") == [hostile[0]]
    assert set(hostile) < set(browser.texts("#table tbody th"))
    assert not browser.all("main img")
    browser.one("#wanted").send_keys(hostile[1])
    browser.wait(lambda: browser.texts(".query h3")[0] == hostile[1])


def test_is_dark_where_the_system_is(browser, page):
    def colours():
        style = "return getComputedStyle(arguments[0])[arguments[1]]"
        parts = (
            ("body", "backgroundColor"),
            (".chart .curve path", "stroke"),
            (".chart text", "fill"),
        )
        found = [browser.execute(style, browser.one(of), name) for of, name in parts]
        return [sum(map(int, re.findall(r"\d+", colour)[:3])) / 3 for colour in found]

    browser.open(page)
    light = colours()
    browser.in_the_dark()
    dark = colours()
    assert light[0] > 200 > 150 > max(light[1:])
    assert dark[0] < 60 < 150 < min(dark[1:])


@pytest.mark.parametrize("images", [2, 3, 6])
def test_shows_few_images(images, browser, report):
    browser.open(report(images=images, per_query={"recall@1": np.ones(images)}))
    assert browser.one("#map").is_displayed() == (images >= 5)
    assert len(browser.all("#table tbody tr")) == len(browser.execute("return names"))
    browser.open(report(images=images), "#image-0")
    browser.wait_for([0])
    assert len(browser.all(".found .card")) == images - 1
    browser.open(report(images=images), "#image-99")
    assert "in order" not in browser.texts("#gallery-status")[0]
