"""The page in a headless Chromium; skipped where there is none."""

import base64
import contextlib
import re
import threading

import in_chromium
import numpy as np
import pytest

from tfdml.search.collection_search import CollectionSearch
from tfdml.search.folder_search import FolderSearch

pytestmark = pytest.mark.slow
DROP = """
    const [kind, target, name, type, content] = arguments;
    const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt());
    const data = new DataTransfer();
    if (name) data.items.add(new File([bytes], name, { type }));
    else data.setData("text/plain", "no file");
    const element = target ? document.querySelector(target) : document;
    const options = { bubbles: true, cancelable: true };
    element.dispatchEvent(
      kind === "paste"
        ? new ClipboardEvent("paste", { ...options, clipboardData: data })
        : new DragEvent(kind, { ...options, dataTransfer: data }),
    );
"""

WIDTHS = "return [...document.querySelectorAll('.bar span')].map((e) => e.style.width)"


@pytest.fixture
def browser(chromium):
    """What the page is opened in; it must report no error but answers that are meant as such."""
    chromium.get_log("browser")
    page = Page(chromium)
    yield page
    meant = re.compile(r"the server responded with a status of 4\d\d")
    assert [
        entry for entry in chromium.get_log("browser") if not meant.search(entry["message"])
    ] == []


class Page(in_chromium.Browser):
    def names(self):
        return self.texts("#results .name")

    def wait_for(self, selector, text):
        self.wait(lambda: any(text in shown for shown in self.texts(selector)))

    def give(self, kind, content, target="#drop", name="a.png", mime_type="image/png"):
        encoded = base64.b64encode(content).decode()
        self.execute(DROP, kind, target, name, mime_type, encoded)

    def ask(self, content):
        self.give("drop", content)
        self.wait_for("h2", "The 3 nearest images")


@pytest.fixture
def opened(serving, browser):
    """Serves a search and opens its page at a place; returns the function of requests."""
    with contextlib.ExitStack() as stack:

        def open_page(search, place="", **options):
            ask = stack.enter_context(serving(search, **options))
            browser.open(f"http://127.0.0.1:{ask.port}/{place}")
            return ask

        yield open_page
        browser.reset()  # or pictures that are still to be loaded find no server


@pytest.fixture
def page(search, opened, browser):
    opened(search)
    browser.wait(lambda: len(browser.names()) == 5)
    return browser


def test_finds_by_a_chosen_file(page, tmp_path, encoded):
    picture = tmp_path / "asked for.png"
    picture.write_bytes(encoded((240, 30, 30)))
    page.one("#file").send_keys(str(picture))
    page.wait_for("h2", "The 3 nearest images")
    assert page.names() == ["bright.png", "dark.png", "dark.png"]
    assert page.texts("#results .folder") == ["red", "red", "green"]
    distance = np.linalg.norm([10, 20, 20])
    assert page.texts("#results .score")[0] == f"distance {distance:#.4g}"
    times = r"[\d.]+ ms \(embedding [\d.]+ ms, search [\d.]+ ms\)"
    assert re.match(times, page.texts("#status")[0])
    assert page.one("#query").is_displayed()
    assert page.texts("#query-name") == ["asked for.png"]
    shown = page.one("#query-picture").get_attribute("alt")
    assert shown == "The picture searched by: asked for.png"
    page.wait(lambda: page.execute("return byId('query-picture').naturalWidth") == 40)
    widths = page.execute(WIDTHS)
    assert (widths[0], widths[2]) == ("100%", "10%")
    assert "Bars reach from the last image shown to the best." in page.texts("#status")[0]


@pytest.mark.parametrize(("kind", "target"), [("drop", "#drop"), ("drop", "footer"), ("paste", "")])
def test_finds_by_what_is_dropped_or_pasted(kind, target, page, encoded):
    page.give(kind, encoded((10, 10, 240)), target)
    page.wait_for("h2", "The 3 nearest images")
    assert page.names()[0] == "blue.png"


def test_a_result_becomes_the_question_and_back_returns(page, encoded):
    page.ask(encoded((240, 30, 30)))
    page.click("#results li:nth-child(2) .card")
    page.wait(lambda: page.names() == ["bright.png", "dark.png", "blue.png"])
    assert page.texts("figcaption")[0].split() == ["red", "dark.png"]
    assert page.execute("return document.activeElement.id") == "results-title"
    page.driver.back()
    page.wait(lambda: page.names() == ["bright.png", "dark.png", "dark.png"])
    assert page.texts("#query-name") == ["a.png"]
    page.driver.back()
    page.wait_for("h2", "Or start from one of these")
    page.driver.forward()
    page.wait_for("h2", "The 3 nearest images")


def test_bars_are_the_cosine_where_there_is_one(model, search, opened, browser):
    model.radius = 255.0
    ask = opened(search, "#image-0", neighbours=9)
    browser.wait_for("h2", "The 4 nearest images")
    cosines = [image["cosine"] for image in ask("/api/similar/0")[1]["results"]]
    widths = browser.execute(WIDTHS)
    assert widths == [f"{round(100 * max(0, cosine))}%" for cosine in cosines]
    assert browser.texts(".score") == [f"cosine {cosine:.3f}" for cosine in cosines]
    assert len({*widths}) > 1


def test_shows_both_scores_of_a_learned_similarity_and_more_images(model, search, opened, browser):
    model.learned, search.rerank = True, 100
    ask = opened(search, "#image-0")
    browser.wait_for("h2", "The 3 nearest images")
    [best, *_] = ask("/api/similar/0")[1]["results"]
    expected = f"similarity {best['similarity']:#.4g} distance {best['distance']:#.4g}"
    assert browser.texts(".score")[0] == expected
    assert "the learned similarity of the 100 nearest" in browser.texts("#about")[0]
    assert "reranking" in browser.texts("#status")[0]
    browser.click("#more")
    browser.wait_for("h2", "The 4 nearest images")
    assert not browser.one("#more").is_displayed()


def test_errors_are_reported_in_words(page, encoded):
    def error():
        page.wait(lambda: page.one("#error").is_displayed())
        return page.texts("#error")[0]

    page.give("drop", b"text", name="a.txt", mime_type="text/plain")
    assert error() == "No image file was given."
    page.give("drop", bytes(150_000))
    page.wait_for("#error", "at most 0.1 MB. This one has 0.1 MB.")
    page.give("drop", b"<svg/>", mime_type="image/svg+xml")
    page.wait_for("#error", "must be a complete JPEG")
    assert page.texts("h2") == ["No answer"]
    assert page.names() == []
    page.ask(encoded((240, 30, 30)))
    assert not page.one("#error").is_displayed()
    page.give("paste", b"", name="")
    assert error() == "No image file was given."
    page.driver.get(page.driver.current_url.partition("#")[0] + "#image-99")
    page.wait_for("#error", "There is no image with this id.")
    page.execute("window.fetch = () => Promise.reject(new TypeError('no connection'))")
    page.driver.get(page.driver.current_url.partition("#")[0] + "#image-0")
    page.wait_for("#error", "The search does not answer. Is it still running?")


def test_refreshes_the_index(model, folder, page, encoded):
    (folder / "new.png").write_bytes(encoded((1, 2, 3)))
    (folder / "text.png").write_bytes(b"no picture")
    embed, go_on = model.embed, threading.Event()
    model.embed = lambda *given: go_on.wait(10) and embed(*given)
    page.click("#refresh")
    page.wait_for("#refreshed", "Refreshing: 0 of 2 new images")
    assert not page.one("#refresh").is_enabled()
    go_on.set()
    page.wait_for("#refreshed", "5 images before, 6 now.")
    page.wait(lambda: len(page.names()) == 6)
    assert page.one("#refresh").is_enabled()
    assert page.texts("summary") == ["1 file was ignored"]
    page.click("summary")
    assert page.texts("#left-out li") == ["text.png: it is no image"]


def test_an_empty_folder_says_what_to_do(model, tmp_path, index, opened, browser, encoded):
    (tmp_path / "empty").mkdir()
    opened(FolderSearch(model, tmp_path / "empty", index))
    browser.wait_for("h2", "The folder is empty")
    assert browser.texts("#status") == ["Put images into it and refresh the index."]
    browser.give("drop", encoded((1, 2, 3)))
    browser.wait_for("h2", "Nothing to find yet")


def test_works_with_the_keyboard(page):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    def press(*keys):
        ActionChains(page.driver).send_keys(*keys).perform()
        return page.driver.switch_to.active_element

    assert press(Keys.TAB, Keys.TAB).get_attribute("id") == "file"
    assert press(Keys.TAB).get_attribute("id") == "where"
    card = press(Keys.TAB, Keys.TAB)
    assert card.accessible_name == f"{card.get_attribute('title')}. Search by it"
    press(Keys.ENTER)
    page.wait_for("h2", "The 3 nearest images")
    name = press(Keys.TAB).accessible_name
    assert re.match(r"Number 1, distance [\d.]+: .*\.png\. Search by it", name)


@pytest.mark.parametrize("name", ["a.png", f"{60 * 'long'}.png", f"{40 * 'long_'}.png"])
def test_a_phone_need_not_scroll_sideways(name, folder, search, page, encoded):
    (folder / "red" / name).write_bytes(encoded((249, 10, 10)))
    search.refresh()
    page.as_phone()
    page.driver.refresh()
    page.wait(lambda: len(page.names()) == 6)
    page.give("drop", encoded((249, 10, 10)), name=name)
    page.wait_for("h2", "The 3 nearest images")
    assert page.execute("return innerWidth") == 390
    assert page.execute("return document.scrollingElement.scrollWidth") == 390
    widths = [card.size["width"] for card in page.all("#results li")]
    assert min(widths) > 150
    assert page.one("#refresh").size["height"] >= 44


def test_filters_adds_to_and_removes_from_a_collection(
    collection, model, opened, browser, encoded, tmp_path
):
    ask = opened(CollectionSearch(model, collection.folder, tmp_path / "uploads"), "#image-0")
    browser.wait_for("h2", "The 3 nearest images")
    browser.one("#where").send_keys("label = 'green'")
    browser.click("#filter button")
    browser.wait(lambda: browser.texts("#results .folder") == ["green", "green"])
    browser.one("#where").clear()
    browser.give("drop", encoded((9, 9, 99)))
    browser.wait_for("#change", "Add to the collection")
    browser.click("#change")
    browser.wait_for("#change", "Remove from the collection")
    assert ask("/api/status")[1]["images"] == 6
    browser.click("#change")
    browser.wait_for("h2", "Or start from one of these")
    assert ask("/api/status")[1]["images"] == 5


def test_names_are_text(folder, search, page, encoded):
    hostile = "<img src=x onerror='alert(1)'>&amp;.png"
    (folder / hostile).write_bytes(encoded((9, 9, 251)))
    search.refresh()
    page.give("drop", encoded((9, 9, 251)), name=hostile)
    page.wait_for("h2", "The 3 nearest images")
    assert page.names()[0] == page.texts("#query-name")[0] == hostile
    assert len(page.all("#results img")) == 3


def test_is_dark_where_the_system_is(page):
    def brightness():
        colour = page.execute("return getComputedStyle(document.body).backgroundColor")
        return sum(map(int, re.findall(r"\d+", colour)[:3])) / 3

    assert brightness() > 200
    page.in_the_dark()
    assert brightness() < 60
