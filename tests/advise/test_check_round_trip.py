"""Export, then check: the same layout and score, for every target that says them."""

from __future__ import annotations

from dataclasses import replace

import pytest

import planner
from planner.errors import ExportError
from planner.frameworks.target import target
from planner.layouts.keys import CP_KINDS, OVERLAPS
from planner.layouts.layout import Layout
from planner.planning.export import export_plan
from planner.problem.scenario import scenario_from_document
from tests.parsers.plans import random_plans

MEGATRON = (
    ("llama3-8b", 16, 32, "bf16"), ("mixtral-8x7b", 32, 64, "bf16"), ("llama3-70b", 32, 64, "fp8"),
    ("deepseek-v3", 64, 256, "fp8-blockwise"), ("gpt3-175b", 48, 96, "bf16"),
    ("qwen3-30b-a3b", 24, 96, "mxfp8"), ("bloom-176b", 28, 28, "fp16"),
    ("llama4-scout", 32, 64, "bf16"), ("llama3-405b", 64, 64, "nvfp4"),
    ("deepseek-v2", 32, 128, "fp8"),
)  # fmt: skip
TITAN = (
    ("llama3-8b", 32, 64, "bf16"), ("deepseek-v3", 64, 128, "bf16"),
    ("qwen3-30b-a3b", 24, 96, "bf16"), ("llama3-70b", 48, 96, "bf16"),
    ("llama3-405b", 64, 64, "fp8-rowwise"), ("llama3-8b", 16, 64, "mxfp8"),
)  # fmt: skip
DENSE = (
    ("llama3-8b", 32, 64, "bf16"), ("gpt3-175b", 48, 96, "fp16"), ("llama3-70b", 64, 64, "bf16"),
)  # fmt: skip

CASES = {
    # target → jobs, software, file, whether overlaps vary, what the program itself decides
    "megatron": (MEGATRON, "megatron-core", "megatron-args.sh", True, ()),
    "torchtitan": (TITAN, "torchtitan", "torchtitan-args.sh", False, ()),
    "torchtitan-toml": (TITAN, "torchtitan", "torchtitan.toml", False, ()),
    "deepspeed": (DENSE, "deepspeed", "ds_config.json", True, ("recompute",)),
    "accelerate": (DENSE, "torchtitan", "accelerate.yaml", False, ("mbs",)),
    "slurm": (MEGATRON[:2], "megatron-core", "job.sbatch", False, ()),
    "torchrun": (MEGATRON[:2], "megatron-core", "launch.sh", False, ()),
}
COUNT = {
    "torchtitan": 60, "torchtitan-toml": 40, "deepspeed": 40, "accelerate": 40, "slurm": 10,
    "torchrun": 10,
}  # fmt: skip


def meant(layout: Layout) -> Layout:
    """A layout without choices that mean nothing in it."""
    travels = {
        "tp": layout.tp > 1, "dp": max(layout.dp * layout.cp, layout.edp) > 1, "pp": layout.vp > 1,
        "ep": layout.ep > 1,
    }  # fmt: skip
    on = [axis for axis in OVERLAPS if travels[axis] and axis in layout.overlap.split("+")]
    return replace(
        layout, overlap="+".join(on) or "none",
        cp_kind=layout.cp_kind if layout.cp > 1 else "ring",
        dispatcher=layout.dispatcher if layout.ep > 1 else "alltoall",
    )  # fmt: skip


def scored(plan, order, axes):
    """The plan's layout evaluated where the target's order puts it."""
    scenario = scenario_from_document(plan.inputs)
    software = scenario.software.replace(
        orders={order: axes},
        sequence_parallel="optional",
        zero_stages=(0, 1, 2, 3),
        cp_kinds=tuple(dict.fromkeys([*scenario.software.cp_kinds, *CP_KINDS])),
    )
    scenario = scenario.replace(
        software=software, search=scenario.search.replace(orders="framework")
    )
    return planner.evaluate(scenario, plan.layout).step_seconds


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_export_then_check_is_the_same_layout_and_score(name, no_search):
    choices, software, file, vary, left = CASES[name]
    count, found, refused = COUNT.get(name, 100), 0, 0
    table = name if name not in ("slurm", "torchrun") else "megatron"
    for drawn in random_plans(choices, software, 2000, 11, vary, table):
        if found == count:
            break
        layout = drawn.layout
        if software == "torchtitan" and layout.cp > 1:
            layout = replace(layout, cp_kind="all_gather")
        if software == "deepspeed" or name == "accelerate":
            layout = replace(layout, sp=False)
        if layout.ep == 1:  # no target has a word for exchanges that do not happen
            kept = [axis for axis in layout.overlap.split("+") if axis != "ep"]
            layout = replace(layout, overlap="+".join(kept) or "none")
        if table == "megatron" and layout.vp == 1 and "pp" not in layout.overlap:
            # nor has Megatron one for sends of a plain pipeline that do not overlap
            travels = [*layout.overlap.removeprefix("none").split("+"), "pp"]
            kept = [axis for axis in OVERLAPS if axis in travels]
            layout = replace(layout, overlap="+".join(kept))
        drawn = replace(drawn, layout=layout)
        try:
            text = export_plan(drawn, name)[file]
        except ExportError:
            refused += 1
            continue
        scenario = scenario_from_document(drawn.inputs)
        said = name == "deepspeed" and layout.recompute != "none"
        more = {} if said else {key: drawn.layout.to_document()[key] for key in left}
        checked = planner.check(text, scenario, name, layout=more)
        assert checked.rules == () and checked.contradictions == (), (layout, checked.rules)
        assert checked.target == table and checked.unread == ()
        assert meant(checked.layout) == meant(layout)
        order = checked.plan.rank_order_name
        step = scored(drawn, order, target(table).orders[order])
        assert checked.plan.step_seconds == pytest.approx(step, rel=1e-12)
        found += 1
    assert found == count and refused < 1900


def test_a_plan_s_own_score_comes_back():
    """oth-07: what is loaded from the emitted file scores as the plan did."""
    scenario = planner.load_scenario(
        "llama3-8b-h100x8", {"search.orders": "framework", "num_accelerators": "8"}
    )
    best = planner.plan(scenario)
    text = planner.export_plan(best, "megatron")["megatron-args.sh"]
    checked = planner.check(text, scenario)
    assert checked.plan.step_seconds == pytest.approx(best.step_seconds, rel=1e-12)
    assert checked.plan.memory.peak_bytes == best.memory.peak_bytes
    assert checked.gain_seconds == pytest.approx(0, abs=best.step_seconds * 0.006)
