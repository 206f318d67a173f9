"""A headless Chromium that logs what it does: console, and every request it would send."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

WANTED = "PLANNER_BROWSER"
"""Environment variable: where it is set, a missing browser fails instead of skipping."""

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


def require(found: object, what: str) -> None:
    """Skip the test where something is missing, or fail where the browser is wanted."""
    if not found:
        missing = f"{what} is missing: apt-get install chromium chromium-driver; .[test-browser]"
        pytest.fail(missing) if os.environ.get(WANTED) else pytest.skip(missing)


@contextmanager
def chromium(profile: Path) -> Iterator[Any]:
    """A driver of a fresh Chromium whose profile is in the folder."""
    try:
        from selenium import webdriver
    except ImportError:
        require(False, "selenium")
        raise
    browser, service = shutil.which("chromium"), shutil.which("chromedriver")
    require(browser, "chromium")
    require(service, "chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = str(browser)
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(service))
    try:
        yield driver
    finally:
        driver.quit()


def view(driver: Any, width: int, scheme: str = "light", medium: str = "") -> None:
    """Lay pages out for a width in CSS pixels, a colour scheme and a medium."""
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": medium, "features": features})


def requests(driver: Any) -> list[str]:
    """Addresses asked for since the last call, beside the page's own and data in it."""
    found = []
    for entry in driver.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            address = message["params"]["request"]["url"]
            if not address.startswith(("file:", "data:")):
                found.append(address)
    return found
