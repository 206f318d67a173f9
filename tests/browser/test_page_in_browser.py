"""Pages in a real Chromium: errors, sorting, pictures, keyboard, contrast, width, requests."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from planner.report.page.report import web_page
from tests.browser.chromium import chromium, requests, view
from tests.made_outlook import made_outlook
from tests.made_sweep import AXES, HOSTILE, MadeSweep, hostile_plan, hostile_sweep, made_rows
from tests.scenarios import shipped_plan

pytestmark = pytest.mark.browser

CHECKS = (Path(__file__).parent / "page_checks.js").read_text("utf-8")

NAMES = ("plan", "hostile-plan", "outlook", "sweep", "hostile-sweep")


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    plan = shipped_plan("llama3-70b-h100x1024")
    written = {
        "plan": web_page(plan),
        "hostile-plan": web_page(hostile_plan(plan)),
        "outlook": web_page(made_outlook(plan)),
        "sweep": web_page(MadeSweep(AXES, made_rows()), "made"),
        "hostile-sweep": web_page(hostile_sweep(), HOSTILE[1]),
    }
    folder, found = tmp_path_factory.mktemp("pages"), {}
    for name, page in written.items():
        found[name] = folder / f"{name}.html"
        found[name].write_text(page.html, "utf-8")
    return found


def load(driver: Any, page: Path, width: int = 1280, scheme: str = "light") -> None:
    driver.get_log("browser")
    requests(driver)
    view(driver, width, scheme)
    driver.get(page.as_uri())


@pytest.mark.parametrize("name", NAMES)
def test_no_error_and_no_request(driver: Any, pages: dict[str, Path], name: str) -> None:
    load(driver, pages[name])
    for button in driver.find_elements("css selector", "thead button"):
        driver.execute_script("arguments[0].click()", button)
    assert driver.get_log("browser") == []
    assert requests(driver) == []
    assert driver.execute_script("return window.hit") is None  # hostile text did not run
    assert driver.execute_script("return performance.getEntriesByType('resource').filter("
                                 "e => !e.name.startsWith('data:')).length") == 0  # fmt: skip


def test_the_log_does_show_errors_and_requests(driver: Any, tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text("<script>fetch('http://127.0.0.1:9/x'); throw new Error('no')</script>")
    load(driver, page)
    assert driver.get_log("browser") != []
    assert requests(driver) == ["http://127.0.0.1:9/x"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", [360, 1280])
def test_pictures_are_shown(driver: Any, pages: dict[str, Path], name: str, width: int) -> None:
    load(driver, pages[name], width)
    sizes = driver.execute_script(
        "return Array.from(document.images, i => [i.naturalWidth, i.naturalHeight,"
        " i.getBoundingClientRect().width, i.getBoundingClientRect().height, i.alt.length])"
    )
    assert len(sizes) >= 4
    assert all(min(size) > 5 for size in sizes), sizes


# ---------------------------------------------------------------- sorting


def column(driver: Any, number: int) -> list[str]:
    found: list[str] = driver.execute_script(
        "return Array.from(document.querySelector('.long tbody').rows,"
        f" r => r.cells[{number}].textContent)"
    )
    return found


def heads(driver: Any) -> list[Any]:
    return list(driver.find_elements("css selector", ".long thead th"))


def seconds(text: str) -> float:
    number, unit = text.replace(",", "").split()
    return float(number) * {"s": 1.0, "ms": 1e-3}[unit]


def test_tables_sort_by_click(driver: Any, pages: dict[str, Path]) -> None:
    load(driver, pages["sweep"])
    names = [head.text.split("\n")[0].strip(" ↕\u00a0") for head in heads(driver)]
    step = names.index("step")
    heads(driver)[step].find_element("tag name", "button").click()
    assert heads(driver)[step].get_attribute("aria-sort") == "ascending"
    shown = column(driver, step)
    values = [seconds(text) for text in shown if text != "–"]
    assert len(values) == 13 and values == sorted(values)
    assert shown[13:] == ["–", "–"]  # what has no figure stays last
    heads(driver)[step].find_element("tag name", "button").click()
    assert heads(driver)[step].get_attribute("aria-sort") == "descending"
    falling = [seconds(text) for text in column(driver, step)[:13]]
    assert falling == values[::-1]
    assert [head.get_attribute("aria-sort") for head in heads(driver)].count("none") == (
        len(names) - 1
    )


@pytest.mark.parametrize("key", ["\ue007", " "])  # enter, space
def test_tables_sort_by_keyboard(driver: Any, pages: dict[str, Path], key: str) -> None:
    load(driver, pages["sweep"])
    names = [head.text.split("\n")[0].strip(" ↕\u00a0") for head in heads(driver)]
    where = names.index("status")
    button = tab_to(driver, heads(driver)[where].find_element("tag name", "button"))
    button.send_keys(key)
    assert heads(driver)[where].get_attribute("aria-sort") == "ascending"
    assert column(driver, where) == sorted(column(driver, where))


def tab_to(driver: Any, element: Any) -> Any:
    """Press tab until the element has the focus."""
    driver.find_element("tag name", "body").click()
    for _ in range(200):
        driver.switch_to.active_element.send_keys("\ue004")
        if driver.switch_to.active_element == element:
            return element
    raise AssertionError("tab does not reach the element")


def test_units_and_names_sort_as_people_mean(driver: Any, tmp_path: Path) -> None:
    from planner.report.page.frame import Block, render
    from planner.report.page.markup import markup_of
    from planner.report.text.pieces import section, table

    times = ["2 s", "900 ms", "1,000 s", "30 us", "–", "-5 s"]
    names = ["tp10", "tp9", "Tp1", "tp2", "", "tp1 pp2"]
    part = section("T", table([("t", "r"), ("n", "l")], list(zip(times, names, strict=True))))
    page = tmp_path / "table.html"
    page.write_text(render("T", [], [Block(markup_of(part))]), "utf-8")
    load(driver, page)
    driver.find_elements("css selector", "thead button")[0].click()
    cells = "return Array.from(document.querySelector('tbody').rows, r => r.cells[%d].textContent)"
    assert driver.execute_script(cells % 0) == ["-5 s", "30 us", "900 ms", "2 s", "1,000 s", "–"]
    driver.find_elements("css selector", "thead button")[1].click()
    # the row without a name goes on the one above it, tp2, and stays with it
    assert driver.execute_script(cells % 1) == ["Tp1", "tp1 pp2", "tp2", "", "tp9", "tp10"]


# ---------------------------------------------------------------- reach, contrast, width


@pytest.mark.parametrize("name", ["plan", "sweep"])
@pytest.mark.parametrize("width", [360, 1280])
def test_all_that_can_be_used_is_reached_by_keyboard(
    driver: Any, pages: dict[str, Path], name: str, width: int
) -> None:
    load(driver, pages[name], width)
    wanted = driver.execute_script(
        "const all = Array.from(document.querySelectorAll('a[href], button, summary, .scroll'));"
        "return all.filter(e => e.checkVisibility() && (!e.classList.contains('scroll') ||"
        " e.scrollWidth > e.clientWidth)).length"
    )
    assert wanted > 10
    driver.find_element("tag name", "body").click()
    reached = driver.execute_script("window.seen = new Set(); return 0")
    for _ in range(wanted + 20):
        driver.switch_to.active_element.send_keys("\ue004")
        reached = driver.execute_script(
            "const e = document.activeElement; if (e !== document.body) window.seen.add(e);"
            " return Array.from(window.seen).filter(e => e.checkVisibility()).length"
        )
        if reached == wanted:
            break
    assert reached >= wanted


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_is_aa(driver: Any, pages: dict[str, Path], name: str, scheme: str) -> None:
    load(driver, pages[name], 1280, scheme)
    driver.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    found = driver.execute_script(CHECKS)
    assert found["number"] > 100
    assert found["poor"] == []


def test_poor_contrast_is_found(driver: Any, tmp_path: Path) -> None:
    page = tmp_path / "pale.html"
    page.write_text("<body style='background:#fff'><p style='color:#777'>pale</p><p>dark</p>")
    load(driver, page)
    found = driver.execute_script(CHECKS)
    assert found["number"] == 2
    assert [(text, round(ratio, 2)) for text, ratio in found["poor"]] == [("pale", 4.48)]


def test_the_schemes_do_differ(driver: Any, pages: dict[str, Path]) -> None:
    paper = []
    for scheme in ("light", "dark"):
        load(driver, pages["plan"], 1280, scheme)
        paper.append(
            driver.execute_script("return getComputedStyle(document.body).backgroundColor")
        )
    assert paper == ["rgb(255, 255, 255)", "rgb(23, 25, 28)"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", [360, 768, 1280])
def test_nothing_is_wider_than_the_window(
    driver: Any, pages: dict[str, Path], name: str, width: int
) -> None:
    load(driver, pages[name], width)
    driver.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    wide = driver.execute_script(
        "return Array.from(document.querySelectorAll('body *')).filter(e => !e.closest('.scroll *')"
        " && e.getBoundingClientRect().right > innerWidth + 0.5).map(e => e.outerHTML.slice(0, 80))"
    )
    assert wide == []
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("name", NAMES)
def test_print_hides_nothing_in_boxes(driver: Any, pages: dict[str, Path], name: str) -> None:
    load(driver, pages[name], 720)
    view(driver, 720, "dark", "print")
    boxes = driver.execute_script(
        "return Array.from(document.querySelectorAll('.scroll'),"
        " e => getComputedStyle(e).overflowX + getComputedStyle(e).maxHeight)"
    )
    assert set(boxes) == {"visiblenone"}
    paper = driver.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert paper == "rgb(255, 255, 255)"
    view(driver, 1280)


def test_print_shows_the_points_that_are_open(driver: Any, pages: dict[str, Path]) -> None:
    load(driver, pages["sweep"])
    view(driver, 720, medium="print")
    shown = (
        "return Array.from(document.querySelectorAll('h2, details'),"
        " e => e.checkVisibility() ? e.id || e.textContent : '').filter(Boolean)"
    )
    assert driver.execute_script(shown) == ["All points"]
    driver.execute_script("document.getElementById('point-4').open = true")
    assert driver.execute_script(shown) == ["All points", "Each point's plan", "point-4"]
    view(driver, 1280)


def test_a_link_opens_its_point(driver: Any, pages: dict[str, Path]) -> None:
    load(driver, pages["sweep"])
    driver.find_element("css selector", "a[href='#point-4']").click()
    opened = "return Array.from(document.querySelectorAll('details[open]'), d => d.id)"
    # the page is told of the new place after the click
    soon = time.monotonic() + 10
    while not driver.execute_script(opened) and time.monotonic() < soon:
        time.sleep(0.05)
    assert driver.execute_script(opened) == ["point-4"]
    assert driver.switch_to.active_element.tag_name == "summary"


def test_hostile_names_are_seen_as_they_are(driver: Any, pages: dict[str, Path]) -> None:
    load(driver, pages["hostile-plan"])
    heading = driver.find_element("tag name", "h1").text
    assert heading.startswith("<script>window.hit=1</script> on 1,024 ×")
    warnings = driver.find_element("xpath", "//section[h2='Warnings']").text
    assert HOSTILE[1] in warnings
