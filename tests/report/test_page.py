"""Web pages: what they say, that they reach for nothing, that everything is escaped."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text

from planner import api
from planner.errors import PlannerError
from planner.planning.plan import Plan
from planner.report.page.markup import inline, markup_of
from planner.report.page.report import web_page
from planner.report.text.pieces import Bar, Phrases, facts, note, plain_text, section, table
from planner.report.text.plan import plan_report
from tests.made_sweep import (
    AXES,
    HOSTILE,
    MadeSweep,
    hostile_plan,
    hostile_sweep,
    made_row,
    made_rows,
)
from tests.report.fabricated import infeasible_plan
from tests.scenarios import shipped_plan

VOID = {"meta", "link", "img", "br", "rect", "input"}


class Reader(HTMLParser):
    """Elements, texts and attributes of a page; elements must close in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not set(self.open) & {"style", "script"}:
            self.text += data

    def words(self) -> str:
        return " ".join(self.text.split())


@pytest.fixture(scope="module")
def plan() -> Plan:
    return shipped_plan("llama3-70b-h100x1024")


@pytest.fixture(scope="module")
def pages(plan: Plan) -> dict[str, str]:
    return {
        "plan": web_page(plan).html,
        "hostile plan": web_page(hostile_plan(plan)).html,
        "no plan": web_page(infeasible_plan()).html,
        "sweep": web_page(MadeSweep(AXES, made_rows()), "made").html,
        "hostile sweep": web_page(hostile_sweep(), HOSTILE[0]).html,
        "empty sweep": web_page(MadeSweep(AXES, []), "empty").html,
    }


PAGES = ("plan", "hostile plan", "no plan", "sweep", "hostile sweep", "empty sweep")


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_pages_are_well_formed_and_reach_for_nothing(pages: dict[str, str], name: str) -> None:
    read = Reader(pages[name])
    for _tag, attributes in read.elements:
        for key in ("src", "href", "action", "data", "srcset"):
            value = attributes.get(key) or "data:"
            assert value.startswith(("data:", "#")), value
        assert not any(key.startswith("on") for key in attributes)
        assert "style" not in attributes  # the policy would refuse it
    ids = [attributes["id"] for _, attributes in read.elements if "id" in attributes]
    assert len(ids) == len(set(ids))


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_the_policy_allows_our_own_script_alone(pages: dict[str, str], name: str) -> None:
    read = Reader(pages[name])
    policy = next(a["content"] for t, a in read.elements if a.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert "unsafe" not in policy
    assert [tag for tag, _ in read.elements].count("script") == 1


@pytest.mark.parametrize("name", ["hostile plan", "hostile sweep"])
def test_hostile_names_are_text(pages: dict[str, str], name: str) -> None:
    read = Reader(pages[name])
    for tag, attributes in read.elements:
        if tag == "img":
            assert (attributes.get("src") or "").startswith("data:image/")
    assert HOSTILE[0] in read.words()
    assert "\u202e" not in pages[name] and "\u0007" not in pages[name]
    assert "{{7*7}}" in read.words() and "&amp;" in read.words()


def test_the_page_says_what_the_terminal_says(plan: Plan, pages: dict[str, str]) -> None:
    words = Reader(pages["plan"]).words()
    said = plain_text(plan_report(plan), 400)
    for line in said.splitlines():
        for cell in re.split(r"  +|[█▉▊▋▌▍▎▏░]+", line.strip()):
            assert " ".join(cell.split()) in words, cell


def test_the_page_names_the_attention_kernels_and_where_they_come_from(
    plan: Plan, pages: dict[str, str]
) -> None:
    words = Reader(pages["plan"]).words()
    assert plan.attention == "flash"
    assert "megatron-core, attention by flash" in words
    assert "attentionflash, flash-v2datasheetTransformer Engine" in words


def test_pictures_stand_under_what_they_show(pages: dict[str, str]) -> None:
    """Sections in order; the answer and warnings before all others."""
    read = re.findall(r"<h2>([^<]*)</h2>|aria-label=\"([a-z]+)\"><img", pages["hostile plan"])
    order = [title or f"[{picture}]" for title, picture in read]
    assert order[:8] == [
        "Warnings", "Where each group lives (members per tier, inner to outer)", "[placement]",
        "Time of a step (a rank of the slowest stage)", "[time]", "[timeline]",
        "Memory of stage 0 (of 0 to 1), the fullest (share of 85.5 GB)", "[memory]",
    ]  # fmt: skip
    page = pages["hostile plan"]
    assert page.index("Layout") < page.index("<h2>Warnings")


def test_inputs_have_their_sources(pages: dict[str, str]) -> None:
    words = Reader(pages["plan"]).words()
    assert "accelerator.hbm_bandwidth3.35 TB/sdatasheetNVIDIA H100 data sheet" in words
    assert "published_parameters70,553,706,496datasheet" in words


def test_a_page_without_a_plan_says_why(pages: dict[str, str]) -> None:
    words = Reader(pages["no plan"]).words()
    assert "No layout fits." in words


def test_every_point_is_in_the_table_and_below_it(pages: dict[str, str]) -> None:
    read = Reader(pages["sweep"])
    ids = [a["id"] for t, a in read.elements if t == "details"]
    links = [a["href"] for t, a in read.elements if t == "a"]
    assert ids == [f"point-{i}" for i in range(15)]
    assert links == [f"#point-{i}" for i in range(15)]
    words = read.words()
    assert "Highest MFU" in words and "compute gemm 184 s (70.0 %)" in words
    assert "no layout fits; tp8 exceeds by 3.1 GB" in words


@pytest.mark.slow
def test_a_thousand_points_are_less_than_five_megabytes() -> None:
    rows = [made_row(i, 8 * (i // 25 + 1), 1024 * (i % 25 + 1)) for i in range(1000)]
    page = web_page(MadeSweep(AXES, rows), "thousand").html
    assert len(page.encode()) < 5e6
    assert page.count("<details") == 1000


def test_same_input_same_page(plan: Plan, pages: dict[str, str]) -> None:
    assert web_page(plan).html == pages["plan"]


def test_pictures_say_their_finding_to_those_who_cannot_see_them(pages: dict[str, str]) -> None:
    images = [a for t, a in Reader(pages["plan"]).elements if t == "img"]
    assert [(a["alt"] or "").split(":")[0] for a in images] == [
        "1,024 ranks", "86 % of a step of 7.327 s is compute, 7 % exposed communication",
        "Interleaved 1F1B", "Stage 0 holds 78.7 of 85.5 GB",
    ]  # fmt: skip


@pytest.mark.parametrize("library", ["matplotlib.figure", "jinja2"])
def test_without_a_library(library: str, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, library, None)
    if library == "jinja2":
        with pytest.raises(PlannerError, match=r"pip install 'parallelism-planner\[report\]'"):
            web_page(plan)
        return
    page = web_page(plan)
    assert page.pictures == ()
    assert "No pictures: pictures need matplotlib" in Reader(page.html).words()


# ---------------------------------------------------------------- parts


def test_parts_of_a_report_as_html() -> None:
    bar = table([("a", "l"), ("b", "b")], [("x", Bar(0.25, "red")), ("y", Bar(1.0))])
    page = str(markup_of(section("T <1>", bar, note("a & b"), Phrases(["p", None, "q"]))))
    assert page.startswith("<section><h2>T &lt;1&gt;</h2>")
    assert '<rect class="bad" width="25" height="10"/>' in page
    assert '<p><span class="faint">a &amp; b</span></p>' in page
    assert "<p>p, q</p>" in page


def test_styles_inside_a_text() -> None:
    text = Text("7 s", "bold")
    text.append(" (80 %)", "not bold")
    assert str(inline(text)) == (
        '<span class="strong">7 s<span class="plain"> (80 %)</span></span>'
    )


def test_rows_that_go_on_sort_with_the_row_they_go_on() -> None:
    rows = [("b", "2"), ("", "1"), ("a", "3")]
    page = str(markup_of(section("T", table([("name", "l"), ("n", "r")], rows))))
    assert '<td class="l" data-key="b"></td>' in page
    assert "sortable" in page
    assert "sortable" not in str(markup_of(facts([("a", "b")])))


def test_a_row_of_sums_stays_below() -> None:
    rows = [("b", "2"), ("a", "3"), (note("all"), "5")]
    page = str(markup_of(section("T", table([("name", "l"), ("n", "r")], rows))))
    assert "<tfoot><tr><th" in page


def test_unknown_parts_are_refused() -> None:
    with pytest.raises(TypeError, match="no HTML for int"):
        markup_of(3)  # type: ignore[arg-type]


def test_notebooks_show_the_page(plan: Plan) -> None:
    shown = web_page(replace(plan, layout=None))._repr_html_()
    assert shown.startswith("<iframe") and "<script>" not in shown


def test_style_and_script_end_where_they_should() -> None:
    folder = Path(api.__file__).parent / "report" / "page"
    for name in ("page.css", "page.js"):
        text = (folder / name).read_text("utf-8")
        assert "</" not in text and "<!--" not in text and "://" not in text


def test_markup_takes_any(plan: Plan) -> None:
    values: Any = [made_row(0, 8, 4096, **{"layout.cp": None})]
    assert "Point 0" in web_page(MadeSweep(AXES, values), "x").html
