"""Reports opened in a real browser: drawn, quiet, offline, touched, saved, accessible, on a phone and on paper."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kvbench
from kvbench.report.assemble import assemble
from kvbench.report.figure import bars, lines
from kvbench.report.page import Headline, Section, TableView, write_page
from kvbench.report.sources import read_material

pytest.importorskip("selenium")
pytest.importorskip("altair")
axe_core = pytest.importorskip("axe_core_python.base")

PHONE, DESKTOP = 390, 1280
SAMPLE = Path(__file__).parents[2] / "traces" / "chat.arrow"
TIMED: dict[str, Any] = {"compute": "fixed,prefill_ms_per_token=0.1,decode_ms=20", "block_bytes": "2MiB", "workers": 2}
HOSTILE = "</script><script>window.taken = true</script><img src=x onerror='window.taken = true'>"
SCHEMES = ("light", "dark")

Open = Callable[..., Any]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report that has every kind of chart."""
    folder = tmp_path_factory.mktemp("report")
    files = [folder / name for name in ("run.parquet", "timeline.parquet", "curve.parquet", "sweep.parquet")]
    tiers = [{"name": "gpu", "capacity": 300}, {"name": "cpu", "capacity": 1000, "device": "cpu-pcie5"}]
    result = kvbench.replay(SAMPLE, tiers=tiers, output=str(files[0]), timeline=str(files[1]), **TIMED)
    files.append(folder / "run.json")
    files[-1].write_text(json.dumps(result.to_dict()))
    kvbench.curve(SAMPLE, output=str(files[2]), block_bytes="2MiB")
    vary = {"capacity": [300, 1000], "router": ["random", "dynamo-kv"], "seed": [0, 1]}
    kvbench.sweep(SAMPLE, vary=vary, output=str(files[3]), **TIMED)
    made = assemble(read_material(files))
    path = folder / "report.html"
    write_page(path, made.title, made.sections, manifest=made.manifest, force=False, lead=made.lead)
    return path


@pytest.fixture
def open_page(browser: Any) -> Iterator[Open]:
    """``open_page(path, width=…, scheme=…)``: the browser with the page drawn in it, and its logs emptied before."""

    def opened(path: Path, width: int = DESKTOP, scheme: str = "light") -> Any:
        media = {"media": "screen", "features": [{"name": "prefers-color-scheme", "value": scheme}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width == PHONE}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        for log in ("browser", "performance"):
            browser.get_log(log)
        browser.get(path.as_uri())
        wait_for(lambda: not browser.find_elements("css selector", "[data-figure]:not([data-drawn])"))
        return browser

    yield opened
    browser.get("about:blank")


def wait_for(holds: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def embedded(browser: Any) -> dict[str, dict[str, Any]]:
    """The data of all figures, as the page holds them."""
    text = browser.execute_script("return document.getElementById('figures').textContent")
    found: dict[str, dict[str, Any]] = json.loads(text)
    return found


def test_every_chart_is_drawn_without_an_error_and_without_the_network(report: Path, open_page: Open) -> None:
    browser = open_page(report)
    assert browser.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert [url for url in asked if not url.startswith("data:")] == [report.as_uri()]

    wanted = {"hit-rate", "bounds", "misses", "tiers", "workers", "links", "hits-along", "latency", "ttft-parts"}
    wanted |= {"occupancy", "traffic", "busy", "in-flight", "link-use", "matrix", "pareto", "load"}
    assert wanted <= set(embedded(browser))
    for place in browser.find_elements("css selector", "[data-figure]"):
        marks = place.find_elements("css selector", "svg .role-mark path[d]:not([d=''])")
        assert marks, place.get_attribute("data-figure")
        assert len(place.get_attribute("aria-label")) > 10


@pytest.mark.parametrize(("width", "scheme"), [(PHONE, "light"), (DESKTOP, "dark")])
def test_the_page_is_accessible_and_no_wider_than_its_window(
    report: Path, open_page: Open, width: int, scheme: str
) -> None:
    """axe finds nothing, with the data of a chart and the settings shown, too."""
    browser = open_page(report, width, scheme)
    browser.execute_script("for (const d of [...document.querySelectorAll('details')].slice(-1)) d.open = true")
    browser.execute_script("document.querySelector('details[data-rows=misses]').open = true")
    wait_for(lambda: browser.find_elements("css selector", "details[data-rows=misses] tbody tr"))
    assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
    browser.execute_script(axe_core.AXE_SCRIPT)
    found = browser.execute_async_script(
        "axe.run({exclude: [['.chart svg > *']]}).then(arguments[arguments.length - 1])"
    )
    assert {rule["id"] for rule in found["passes"]} >= {"color-contrast", "button-name"}
    assert [(rule["id"], [node["html"][:120] for node in rule["nodes"]]) for rule in found["violations"]] == []


def test_charts_follow_the_scheme_of_the_reader_and_the_button(report: Path, open_page: Open) -> None:
    def colours(browser: Any) -> tuple[str, str]:
        script = """const bar = document.querySelector('[data-figure=misses] .mark-rect path');
            return [getComputedStyle(document.body).backgroundColor, getComputedStyle(bar).fill]"""
        ground, bar = browser.execute_script(script)
        return ground, bar

    light, dark = (colours(open_page(report, scheme=scheme)) for scheme in SCHEMES)
    assert light[0] != dark[0]
    assert light[1] != dark[1]
    browser = open_page(report, scheme="dark")
    button = browser.find_element("id", "scheme")
    assert button.text == "Light colours"
    button.click()
    assert (colours(browser), button.text) == (light, "Dark colours")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    button_is_shown = "return document.getElementById('scheme').checkVisibility()"
    assert (colours(browser), browser.execute_script(button_is_shown)) == (light, False)


@pytest.mark.parametrize(
    ("figure", "mark"), [("misses", ".role-mark.mark-rect path"), ("hit-rate", ".role-mark.mark-symbol path")]
)
def test_the_pointer_on_a_mark_shows_its_numbers(report: Path, open_page: Open, figure: str, mark: str) -> None:
    from selenium.webdriver import ActionChains

    browser = open_page(report)
    shown = browser.find_elements("css selector", f"[data-figure={figure}] {mark}")[-1]
    browser.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", shown)
    assert not browser.find_elements("css selector", "#vg-tooltip-element.visible")
    ActionChains(browser).move_to_element(shown).perform()
    wait_for(lambda: browser.find_elements("css selector", "#vg-tooltip-element.visible"))
    values = browser.find_elements("css selector", "#vg-tooltip-element .value")
    assert len(values) >= 2
    assert any(character.isdigit() for value in values for character in value.text)


def test_the_data_of_a_chart_are_saved_as_they_are_drawn(report: Path, open_page: Open, downloads: Path) -> None:
    browser = open_page(report)
    for name in ("pareto", "misses"):
        browser.execute_script("document.querySelector(`details[data-rows=${arguments[0]}]`).open = true", name)
        button = browser.find_element("css selector", f"button[data-download={name}]")
        browser.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", button)
        button.click()
        path = downloads / f"{name}.csv"
        wait_for(path.exists)
        head, *rows = csv.reader(path.read_text().splitlines())
        data = embedded(browser)[name]
        assert head == data["columns"]
        assert len(rows) == len(data["rows"]) > 1
        for row, drawn in zip(rows, data["rows"], strict=True):
            for text, value in zip(row, drawn, strict=True):
                assert (float(text) == value) if isinstance(value, float) else text == _as_text(value)


def _as_text(value: Any) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def test_names_that_are_scripts_stay_text(open_page: Open, tmp_path: Path) -> None:
    rows = [{"name": HOSTILE, "of": f"{at} {HOSTILE}", "value": at} for at in (1, 2)]
    about = {"x_title": HOSTILE, "y_title": HOSTILE, "series": "of", "note": HOSTILE}
    figures = [
        bars("bars", HOSTILE, rows, x="name", y="value", **about),
        lines("lines", HOSTILE, rows, x="value", y="value", **about),
    ]
    table = TableView(HOSTILE, [HOSTILE], [[HOSTILE]])
    section = Section(HOSTILE, [HOSTILE], [table], figures, [Headline(HOSTILE, HOSTILE, HOSTILE)])
    path = tmp_path / "page.html"
    write_page(path, HOSTILE, [section, section], manifest={"kvbench": HOSTILE}, force=False, lead=HOSTILE)
    browser = open_page(path)
    browser.execute_script("for (const d of document.querySelectorAll('details')) d.open = true")
    wait_for(lambda: browser.find_elements("css selector", "details tbody tr"))
    assert browser.get_log("browser") == []
    assert browser.execute_script("return [window.taken, document.title]") == [None, HOSTILE]
    assert not browser.find_elements("css selector", "body img")
