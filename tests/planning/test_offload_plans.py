"""Offloading planned and evaluated: searched where named, refused where it cannot be, reported."""

from __future__ import annotations

import pytest

from planner import api
from planner.errors import IllegalLayoutError
from planner.planning.plan import Plan
from planner.report.text.pieces import plain_text
from planner.report.text.plan import plan_report

NAME = "llama3-8b-h100x8"
LAYOUT = "mbs=1,recompute=full"


def evaluated(text: str, **overrides: str) -> Plan:
    return api.evaluate(api.load_scenario(NAME, overrides), f"{LAYOUT},{text}")


def test_what_is_offloaded_is_freed_pinned_and_paid_for() -> None:
    stays, away = evaluated("offload=none"), evaluated("offload=optimizer")
    assert stays.memory is not None and away.memory is not None
    freed = stays.memory.peak_bytes - away.memory.peak_bytes
    assert freed == pytest.approx(stays.memory.terms["optimizer"])
    assert stays.memory.host_bytes is None
    assert away.memory.host_bytes == pytest.approx(freed * 16 / 12)
    assert away.time is not None and stays.time is not None
    assert away.time["optimizer"] > 10 * stays.time["optimizer"]
    assert Plan.from_document(away.to_document()).memory == away.memory


def test_the_report_says_what_is_on_the_host() -> None:
    text = plain_text(plan_report(evaluated("offload=optimizer")), 120)
    assert "optimizer on host" in text and "of 225.0 GB of pinned host memory" in text
    assert "on host" not in plain_text(plan_report(evaluated("offload=none")), 120)


def test_searched_only_where_named() -> None:
    """70B on one node fits with its optimizer states on the host alone."""
    job = {"model": "llama3-70b", "training.sequence_length": "2048", "software": "deepspeed"}
    assert api.plan(api.load_scenario(NAME, job), top_k=1).status == "infeasible"
    both = api.load_scenario(NAME, job | {"search.offload": "[none, optimizer]"})
    found = api.plan(both, top_k=1)
    assert found.status == "optimal" and found.layout is not None
    assert found.layout.offload == "optimizer"


@pytest.mark.parametrize(
    ("software", "text", "rule"),
    [
        ("torchtitan", "zero_stage=3,offload=optimizer", "offload"),
        ("deepspeed", "offload=activations", "offload"),
        ("deepspeed", "zero_stage=0,offload=optimizer", "optimizer-offload-needs-zero"),
        ("nemo", "recompute=none,pp=2,offload=activations", "activation-offload-excludes-pipeline"),
        ("nemo", "offload=activations", "activation-offload-excludes-recompute"),
    ],
)
def test_what_software_cannot_is_refused_by_name(software: str, text: str, rule: str) -> None:
    job = api.load_scenario(NAME, {"software": software})
    keys = dict(part.split("=") for part in f"{LAYOUT},{text}".split(","))
    with pytest.raises(IllegalLayoutError) as caught:
        api.evaluate(job, ",".join(f"{key}={value}" for key, value in keys.items()))
    assert caught.value.rule == rule


def test_a_part_without_host_figures_is_refused() -> None:
    job = api.load_scenario(NAME, {"topology": "mi300x"})
    with pytest.raises(IllegalLayoutError, match="offload-needs-host"):
        api.evaluate(job, "mbs=1,offload=optimizer")
