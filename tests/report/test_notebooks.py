"""What notebooks show: the report of every value that the calls return, escaped, complete."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest

from planner import api
from planner.planning.plan import Plan
from planner.problem.scenario import Scenario, scenario_to_document
from planner.report.notebooks import REPORTS, html
from planner.report.text.pieces import plain_text
from planner.report.text.plan import plan_report

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
    for name in REPORTS:
        assert callable(getattr(api, name)._repr_html_), name


def test_pages_load_nothing(plan: Plan) -> None:
    assert not re.search(r"https?://|<link|<style|src=", html(plan_report(plan)))
