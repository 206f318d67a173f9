"""Memory in the report: the fullest stage, and a pipeline's stages side by side."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.cells import cell_len

from planner import api
from planner.planning.plan import MemoryReport
from planner.report.text.pieces import plain_text
from planner.report.text.plan.memory import stages
from tests.report.fabricated import MEMORY, TERMS


def lines(memory: MemoryReport, width: int = 80) -> list[str]:
    found = stages(memory)
    return [] if found is None else plain_text(found, width).splitlines()


def with_activations(*sizes: float) -> MemoryReport:
    """Stages that differ in activations (GB) alone; the first one has fewest layers."""
    rest = sum(TERMS.values()) - TERMS["activations"]
    by_stage = tuple(
        {"stage": i, "layers": 7 + (i > 0), "peak_bytes": rest + size * 1e9}
        | TERMS
        | {"activations": size * 1e9}
        for i, size in enumerate(sizes)
    )
    worst = sizes.index(max(sizes))
    return replace(MEMORY, by_stage=by_stage, worst_stage=worst)


def test_columns_are_the_terms_that_differ() -> None:
    shown = lines(with_activations(43, 41))
    assert shown[1] == "Memory of every stage, GB"
    assert shown[2].split() == ["stage", "layers", "acts", "peak"]
    assert shown[3].split() == ["0", "7", "43.0", "68.9"]
    assert shown[4].split() == ["1", "8", "41.0", "66.9"]
    equal = " ".join(part.strip() for part in shown[5:])
    assert equal == (
        "equal on all: parameters 6.4, gradients 12.8, optimizer 0.3, logits 1.3, buffers 0.3, "
        "runtime 1.6, allocator 3.2"
    )


def test_equal_stages_share_a_row() -> None:
    shown = lines(with_activations(43, 41, 41.01, 40.99, 43))
    assert [line.split("  ")[1].strip() for line in shown[3:6]] == ["0", "1 to 3", "4"]


def test_a_long_pipeline_shows_its_ends_and_the_fullest() -> None:
    sizes = [float(i) for i in range(20)]
    sizes[9] = 50.0
    shown = lines(with_activations(*sizes))
    names = [line.split()[0] for line in shown[3:12]]
    assert names == ["0", "1", "2", "…", "9", "…", "17", "18", "19"]


def test_nothing_without_a_pipeline_or_the_terms() -> None:
    assert lines(with_activations(43)) == []
    sums = tuple({"stage": i, "peak_bytes": 1e9} for i in range(4))
    assert lines(replace(MEMORY, by_stage=sums)) == []


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("layout", ["tp=8,pp=16,vp=2,mbs=1", "tp=8,pp=8,vp=1,mbs=1"])
def test_an_evaluated_pipeline_fits_the_terminal(layout: str, width: int) -> None:
    plan = api.evaluate(api.load_scenario("llama3-405b-h100x16384"), layout)
    assert plan.memory is not None
    shown = lines(plan.memory, width)
    assert all(cell_len(line) <= width and line.count("…") <= 1 for line in shown)
    rows = [line.split() for line in shown if line[:4].strip().isdigit()]
    by_stage = plan.memory.by_stage
    assert rows[0][-1] == f"{by_stage[0]['peak_bytes'] / 1e9:,.1f}"
    assert rows[-1][-1] == f"{by_stage[-1]['peak_bytes'] / 1e9:,.1f}"
    for stage in by_stage:
        terms = sum(stage[name] for name in plan.memory.terms)
        assert terms == pytest.approx(stage["peak_bytes"])
