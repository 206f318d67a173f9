"""Pictures of a plan: bars of time and memory, and who sits where."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import api
from planner.layouts.rank_orders import atom_coordinates
from planner.planning.plan import Plan
from planner.report.page.pictures import plan_pictures
from planner.report.plots.drawing import page_of, save
from planner.report.plots.placement import panels, plot_placement, split_order
from planner.report.plots.time_memory import plot_memory, plot_time
from tests.report.test_sweep_plots import outside, overlapping, texts
from tests.scenarios import shipped_plan

SCENARIOS = ("llama3-8b-h100x8", "llama3-70b-h100x1024", "llama3-405b-h100x16384")


@pytest.fixture(scope="module")
def plans() -> dict[str, Plan]:
    return {name: shipped_plan(name) for name in SCENARIOS}


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("plot", [plot_time, plot_memory, plot_placement])
def test_texts_stay_on_the_page_and_off_each_other(plans: Any, scenario: str, plot: Any) -> None:
    ax = plot(plans[scenario])
    assert overlapping(ax) == []
    assert outside(ax) == []


def test_bars_of_time_sum_to_the_step(plans: Any) -> None:
    plan = plans["llama3-70b-h100x1024"]
    ax = plot_time(plan)
    assert sum(bar.get_width() for bar in ax.patches) == pytest.approx(plan.step_seconds)
    assert ax.get_title(loc="left").startswith("86 % of a step of 7.327 s is compute")


def test_bars_of_memory_stack_to_the_peak(plans: Any) -> None:
    plan = plans["llama3-405b-h100x16384"]
    ax = plot_memory(plan)
    tops: dict[float, float] = {}
    for bar in ax.patches:
        tops[bar.get_x()] = max(tops.get(bar.get_x(), 0), bar.get_y() + bar.get_height())
    peaks = [stage["peak_bytes"] / 1e9 for stage in plan.memory.by_stage]
    assert [tops[x] for x in sorted(tops)] == pytest.approx(peaks)
    assert f"Stage {plan.memory.worst_stage} holds" in ax.get_title(loc="left")


def test_a_plan_file_without_terms_by_stage_has_the_fullest(plans: Any) -> None:
    plan = plans["llama3-70b-h100x1024"]
    stages = tuple(
        {"stage": s["stage"], "layers": 1, "peak_bytes": s["peak_bytes"]}
        for s in plan.memory.by_stage
    )
    ax = plot_memory(replace(plan, memory=replace(plan.memory, by_stage=stages)))
    top = max(bar.get_y() + bar.get_height() for bar in ax.patches)
    assert top == pytest.approx(plan.memory.peak_bytes / 1e9)


# ---------------------------------------------------------------- placement


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_boxes_say_what_the_rank_table_says(plans: Any, scenario: str) -> None:
    """Every child of every panel holds the members of each factor that its row and column name."""
    plan = plans[scenario]
    coordinates = atom_coordinates(plan.rank_order)
    for panel in panels(plan):
        children = set()
        for row in range(panel.num_rows):
            for column in range(panel.num_columns):
                child = panel.child(row, column)
                children.add(child)
                first = child * panel.child_ranks
                for factors, position in ((panel.columns, column), (panel.rows, row)):
                    rest = position
                    for factor in factors:
                        member = coordinates[factor.atom][first]
                        assert member // factor.members_each % factor.size == rest % factor.size
                        rest //= factor.size
        assert children == set(range(panel.num_rows * panel.num_columns))
    assert prod(p.num_rows * p.num_columns for p in panels(plan)) == 1 * prod(plan.fill.values())


def test_title_says_where_groups_live(plans: Any) -> None:
    ax = plot_placement(plans["llama3-70b-h100x1024"])
    assert ax.get_title(loc="left") == (
        "1,024 ranks: tp within nvlink; pp within leaf; dp within spine"
    )
    assert {"0–255", "768–1,023", "0–7", "240–247", "7"} <= set(texts(ax))


def test_groups_that_do_not_nest_are_told_box_by_box(plans: Any) -> None:
    plan = replace(
        plans["llama3-8b-h100x8"], fill={"nvlink": 8, "leaf": 12, "spine": 1},
        rank_order=(("tp", 6), ("dp_shard", 8), ("pp", 2)),
    )  # fmt: skip
    leaf, nvlink = panels(plan)
    # ranks 8 to 15 are the last four of dp 1 and the first four of dp 2
    assert leaf.texts[:2] == ("dp 0–1, pp 0", "dp 1–2, pp 0")
    assert nvlink.texts[:7:6] == ("tp 0, dp 0, pp 0", "tp 0, dp 1, pp 0")
    assert overlapping(plot_placement(plan)) == []


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.data())
def test_factors_multiply_to_the_tiers_and_to_the_order(degrees: list[int], data: Any) -> None:
    atoms = ("tp", "cp", "dp_shard", "pp")
    order = list(zip(atoms, degrees, strict=False))
    total, sizes = prod(degrees), []
    while total > 1:
        size = data.draw(st.sampled_from([d for d in range(2, total + 1) if total % d == 0]))
        sizes.append(size)
        total //= size
    tiers = split_order(order, sizes)
    if tiers is None:
        return
    assert [prod(factor.size for factor in factors) for factors in tiers] == sizes
    for atom, degree in order:
        own = [factor for factors in tiers for factor in factors if factor.atom == atom]
        assert prod(factor.size for factor in own) == degree
        assert [factor.members_each for factor in own] == [
            prod(factor.size for factor in own[:i]) for i in range(len(own))
        ]


def test_experts_are_named(tmp_path: Any) -> None:
    scenario = api.load_scenario("deepseek-v3-gb300x256")
    plan = api.evaluate(scenario, "tp=1,pp=2,ep=32,mbs=2,recompute=mla_up_proj")
    ax = plot_placement(plan)
    assert "ep" in ax.get_title(loc="left").split("within nvlink")[0]
    save(page_of(ax), tmp_path / "p.pdf")
    assert (tmp_path / "p.pdf").read_bytes().startswith(b"%PDF")


def test_which_pictures_a_plan_has(plans: Any) -> None:
    names = [picture.name for picture in plan_pictures(plans["llama3-8b-h100x8"])]
    assert names == ["placement", "time", "memory"]
    assert plan_pictures(replace(plans["llama3-8b-h100x8"], layout=None)) == []
