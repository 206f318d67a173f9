"""What `print` and notebooks show: the report of every value that the calls return."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from planner import api
from planner.planning.plan import Plan
from planner.problem.scenario import Scenario, scenario_to_document
from planner.report.display import RENDERINGS, html
from planner.report.text.comparison import comparison_report
from planner.report.text.pieces import plain_text
from planner.report.text.plan import plan_report, short_report
from planner.sweep import Sweep
from tests.report.fabricated import infeasible_plan

LAYOUT = "tp=2,mbs=1"


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return api.load_scenario("llama3-8b-h100x8")


@pytest.fixture(scope="module")
def plan(scenario: Scenario) -> Plan:
    return api.evaluate(scenario, LAYOUT)


class Seen(HTMLParser):
    """Elements and text of a page; every element is closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.names.append(tag)
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def shown(value: Any) -> Seen:
    seen = Seen(value._repr_html_())
    assert not seen.open and set(seen.names) <= {"pre", "span", "code"}
    return seen


def test_a_plan_is_its_report(plan: Plan) -> None:
    lines = [line.rstrip() for line in shown(plan).text.strip().splitlines()]
    assert lines == plain_text(plan_report(plan)).strip().splitlines()


def test_other_values(scenario: Scenario, plan: Plan) -> None:
    other = api.evaluate(scenario, "tp=4,mbs=1")
    assert "Time of a step" in shown(api.compare(plan, other)).text
    assert "tp" in shown(api.explain(scenario, LAYOUT)).text
    assert "ridge" in shown(api.roofline(api.load_subject("dgx-h100"))).text
    assert "MFU" in shown(api.diagnose(scenario, "mfu=0.3", LAYOUT)).text
    assert "megatron" in shown(api.check(SCRIPT, scenario)).text.casefold()


SCRIPT = "--tensor-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 128 --bf16"


def test_names_are_escaped(scenario: Scenario) -> None:
    document = scenario_to_document(scenario)
    document["model"]["name"] = "<script>alert(1)</script><img src=x onerror=alert(1)>&amp;"
    hostile = api.evaluate(api.scenario_of(Plan(document, "", "unknown")), LAYOUT)
    seen = shown(hostile)
    assert "<script>alert(1)</script>" in seen.text and "script" not in seen.names


def test_every_value_with_a_report_has_one() -> None:
    for name, rendering in RENDERINGS.items():
        cls = getattr(api, name)
        assert callable(cls._repr_html_) and cls.__str__ is not object.__str__, name
        module = import_module(f"planner.report.text.{rendering.module}")
        for function in filter(None, (rendering.function, rendering.short_function)):
            assert callable(getattr(module, function)), name


# --- print ----------------------------------------------------------------------------------------


def test_print_shows_the_short_report_of_a_plan(scenario: Scenario) -> None:
    best = api.plan(scenario)
    lines = str(best).splitlines()
    assert lines == plain_text(short_report(best)).splitlines()
    full = plain_text(plan_report(best)).splitlines()
    head = full.index("Where each group lives (members per tier, inner to outer)")
    assert lines[:head] == full[:head]
    names = [line.split()[0] for line in lines[3:head] if line and line[0] != " "]
    assert names == ["Layout", "Step", "MFU", "Memory", "Proof"]
    end = full.index("Time of a step (a rank of the slowest stage)")
    assert lines[head:] == full[head : end - 1]  # a blank line between sections
    assert len(lines) <= 20 and max(map(len, lines)) <= 100


def test_print_of_a_plan_without_a_layout_says_so() -> None:
    nothing = infeasible_plan()
    assert str(nothing).splitlines()[-1] == "No layout fits."


def test_print_shows_the_report_of_other_values(scenario: Scenario, plan: Plan) -> None:
    other = api.evaluate(scenario, "tp=4,mbs=1")
    comparison = api.compare(plan, other)
    assert str(comparison) == plain_text(comparison_report(comparison)).rstrip("\n")
    assert "What the step waits for" in str(api.explain(scenario, LAYOUT))
    assert "Is something slow?" in str(api.diagnose(scenario, "mfu=0.3", LAYOUT))
    assert str(api.check(SCRIPT, scenario)).startswith("It ")
    assert str(api.why_not(scenario, "tp=3")).startswith("Why not tp=3: illegal")
    assert str(Sweep("s", Path("s"), ["a"], [], 4)) == "4 points: none finished"


def test_a_repr_still_has_the_fields(plan: Plan) -> None:
    assert repr(plan).startswith("Plan(inputs=")


def test_nothing_is_loaded_before_something_is_printed() -> None:
    """Importing the calls renders nothing; printing loads the report and its library."""
    script = (
        "import sys\n"
        "from planner.report.display import show_as_reports\n"
        "class Plan: pass\n"
        "show_as_reports(Plan)\n"
        "loaded = [name for name in sys.modules if name.split('.')[0] in ('rich', 'matplotlib')\n"
        "          or name.startswith('planner.report.text')]\n"
        "sys.exit(', '.join(loaded) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_pages_load_nothing(plan: Plan) -> None:
    assert not re.search(r"https?://|<link|<style|src=", html(plan_report(plan)))
