"""A real Chromium, opened on pages that reports wrote."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SWITCHES = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A driver of Chromium; its logs have what the page said and what it asked the network for."""
    binaries = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in binaries:
        if os.environ.get("KVBENCH_BROWSER"):
            pytest.fail("KVBENCH_BROWSER is set, and there is no chromium or no chromedriver")
        pytest.skip("needs Debian's packages chromium and chromium-driver")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = binaries[0]
    for switch in (*SWITCHES, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(binaries[1]))
    yield driver
    driver.quit()


@pytest.fixture
def downloads(browser: Any, tmp_path: Path) -> Path:
    """The folder that the browser saves files in."""
    folder = tmp_path / "downloads"
    folder.mkdir()
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)})
    return folder
