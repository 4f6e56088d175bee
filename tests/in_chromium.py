"""What tests need to look at a page in a headless Chromium."""

import shutil

import pytest

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
DRIVER = shutil.which("chromedriver") or ""
PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}


def start():
    """A driver of a browser that is to be quit; skips the test where there is none."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium")
    if not (CHROMIUM and DRIVER):
        pytest.skip("needs chromium and chromedriver")
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "window-size=1280,900"):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(options, Service(DRIVER))


class Browser:
    """A driver with short names for what tests do with a page."""

    def __init__(self, driver):
        self.driver = driver
        self.execute = driver.execute_script

    def open(self, url):
        self.driver.get("about:blank")
        self.driver.get(url)

    def all(self, selector):
        return self.driver.find_elements("css selector", selector)

    def one(self, selector):
        return self.driver.find_element("css selector", selector)

    def texts(self, selector):
        return self.execute(
            "return [...document.querySelectorAll(arguments[0])].map((e) => e.innerText)", selector
        )

    def click(self, selector):
        element = self.one(selector)
        self.execute("arguments[0].scrollIntoView({ block: 'center' })", element)
        element.click()

    def wait(self, condition):
        from selenium.webdriver.support.ui import WebDriverWait

        return WebDriverWait(self.driver, 5).until(lambda _: condition())

    def as_phone(self):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)

    def in_the_dark(self):
        feature = {"name": "prefers-color-scheme", "value": "dark"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    def reset(self):
        self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
        self.driver.get("about:blank")
