"""Every gain is the difference of two evaluations, made again here from the files."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest

from planner import api
from planner.advise.actions import LABELS, Action
from planner.advise.explain import Explanation, explain_plan
from planner.cost.context import CostContext
from planner.errors import IllegalLayoutError, InputError
from planner.layouts.grids import DENSE_GRID
from planner.planning.plan import Plan
from planner.problem.hardware import Accelerator
from planner.problem.scenario import Scenario
from planner.problem.topology import Topology
from planner.search.space.given import given_layout
from tests.oracles import plain_step
from tests.scenarios import (
    NO_LIMIT,
    PEAK,
    SHIPPED_4D,
    accelerator,
    fabric,
    overheads,
    scenario,
    shipped_plan,
    small_model,
    small_scenario,
    small_software,
    small_training,
    topology,
    training,
)
from tests.search.test_best_split import compositions

SHIPPED: Mapping[str, str | None] = {
    SHIPPED_4D[0]: None,
    "llama3-8b-h100x8": "tp=2,recompute=full,overlap=none",
    "gpt3-175b-a100x1024": None,
    "llama3-8b-torchtitan-h100x64": "dp_shard=64,zero_stage=3,recompute=full,mbs=1",
}
"""Scenarios, and the layouts to explain (None: the best)."""

REPLACED = ("rank-order", "wider-domain")


def plan_of(name: str) -> Plan:
    layout = SHIPPED[name]
    return shipped_plan(name) if layout is None else api.evaluate(api.load_scenario(name), layout)


@cache
def explained(name: str) -> Explanation:
    return explain_plan(api.load_scenario(name), plan_of(name))


def changed(name: str, action: Action) -> tuple[Scenario, dict[str, Any]]:
    """The scenario file with the action's keys set, and the layout with its keys."""
    problem = api.load_scenario(name, {key: str(value) for key, value in action.set.items()})
    plan = plan_of(name)
    assert plan.layout is not None
    derived = ("dp", "edp", "num_microbatches", "schedule", "stage_layers", "dispatcher", "sp")
    kept = {key: value for key, value in plan.layout.to_document().items() if key not in derived}
    return problem, kept | dict(action.layout)


def moves(plan: Plan, action: Action) -> bool:
    assert plan.layout is not None
    new = [action.layout.get(atom, getattr(plan.layout, atom)) for atom in DENSE_GRID.atoms]
    return action.id in REPLACED or new != [getattr(plan.layout, atom) for atom in DENSE_GRID.atoms]


@pytest.mark.slow
@pytest.mark.parametrize("name", SHIPPED)
def test_a_gain_is_what_evaluating_the_change_gives(name: str) -> None:
    made = [action for action in explained(name).actions if action.infeasible is None]
    assert len(made) >= 8
    for action in made:
        check_gain(name, action)


def check_gain(name: str, action: Action) -> None:
    plan = plan_of(name)
    problem, layout = changed(name, action)
    evaluated = api.evaluate(problem, layout)
    assert evaluated.step_seconds is not None and plan.step_seconds is not None
    step = evaluated.step_seconds
    if not moves(plan, action):  # the ranks stay where they are; the best place is one of its ties
        ctx = CostContext.of(problem)
        assert plan.placement is not None
        places = tuple(tuple(plan.placement[atom].values()) for atom in DENSE_GRID.atoms)
        step = plain_step(ctx, given_layout(ctx, layout), places)
        assert evaluated.step_seconds <= step * (1 + problem.search.tie_fraction) * (1 + 1e-9)
    gain = plan.step_seconds - step
    assert action.step_seconds == pytest.approx(step, rel=1e-9), action.id
    assert action.gain_seconds == pytest.approx(gain, abs=1e-9 * step), action.id
    assert action.gain_fraction == pytest.approx(gain / plan.step_seconds, abs=1e-9), action.id


@pytest.mark.parametrize("name", SHIPPED)
def test_what_cannot_be_made_cannot_be_evaluated_either(name: str) -> None:
    refused = [action for action in explained(name).actions if action.infeasible is not None]
    assert refused
    for action in refused:
        assert action.step_seconds is action.gain_seconds is action.gain_fraction is None
        if "search: allows" in str(action.infeasible):
            continue
        try:
            evaluated = api.evaluate(*changed(name, action))
        except (IllegalLayoutError, InputError) as error:
            assert error.message in str(action.infeasible), action.id
        else:
            assert evaluated.memory is not None and evaluated.memory.verdict != "fits", action.id
            assert f"{evaluated.memory.peak_bytes / 1e9:.1f}" in str(action.infeasible), action.id


@pytest.mark.parametrize("name", SHIPPED)
def test_actions_come_by_label_and_gain_with_what_cannot_be_last(name: str) -> None:
    actions = explained(name).actions
    assert len({action.id for action in actions}) == len(actions)
    order = list(LABELS)
    keys = [
        (order.index(a.label), a.gain_seconds is None, -(a.gain_seconds or 0.0)) for a in actions
    ]
    assert keys == sorted(keys)
    assert {action.label for action in actions} == set(LABELS)


@pytest.mark.parametrize("name", SHIPPED)
def test_faster_hardware_and_more_overlap_never_cost(name: str) -> None:
    for action in explained(name).actions:
        if action.id.startswith("tier:") or action.id in (
            "clocks", "waves", "launches", "stragglers", "step-overhead", "overlap-fully", "fusion",
        ):  # fmt: skip
            assert action.gain_seconds is not None and action.gain_seconds >= -1e-9


def test_a_part_without_a_precision_says_so() -> None:
    actions = {action.id: action for action in explained("gpt3-175b-a100x1024").actions}
    assert "no figures" in str(actions["precision:fp8"].infeasible)
    assert "a100" in str(actions["precision:fp8"].infeasible)


def test_what_a_layout_lacks_is_offered() -> None:
    actions = {action.id: action for action in explained("llama3-8b-h100x8").actions}
    assert actions["overlap"].layout == {"overlap": "tp+dp"}
    assert actions["recompute:none"].layout == {"recompute": "none"}
    gain = actions["recompute:none"].gain_seconds
    assert gain is not None and gain > 0
    best = {action.id for action in explained(SHIPPED_4D[0]).actions}
    assert not best & {"overlap", "recompute:none"}


def test_sharding_inside_a_node_is_offered_where_the_software_can() -> None:
    actions = {a.id: a for a in explained("llama3-8b-torchtitan-h100x64").actions}
    assert actions["shard-inside"].layout == {"dp_shard": 8, "dp_replicate": 8}


def test_search_restrictions_hold_for_actions_too() -> None:
    problem = api.load_scenario("llama3-8b-h100x8", {"search.mbs": "[1]", "search.tp": "[2]"})
    actions = {action.id: action for action in api.explain(problem, "tp=2").actions}
    assert actions["larger-microbatch"].infeasible == "the scenario's search: allows mbs 1"
    assert actions["less-tp"].infeasible == "the scenario's search: allows tp 2"


# --- by hand --------------------------------------------------------------------------------------


def by_id(problem: Scenario, layout: str) -> tuple[dict[str, Action], float]:
    found = api.explain(problem, layout)
    assert found.plan.step_seconds is not None
    return {action.id: action for action in found.actions}, found.plan.step_seconds


def test_twice_the_bandwidth_halves_what_nothing_hides() -> None:
    problem = scenario(topology=topology([fabric(bytes_per_second=1e6)], [4]))
    actions, step = by_id(problem, "tp=4")
    compute = scenario(topology=topology([fabric(bytes_per_second=NO_LIMIT)], [4]))
    working = api.evaluate(compute, "tp=4").step_seconds
    assert working is not None
    assert actions["tier:tier0"].gain_seconds == pytest.approx((step - working) / 2)
    assert actions["tier:hbm"].gain_seconds == pytest.approx(0.0)


def test_fp8_halves_the_main_matmuls_and_casts_for_nothing_here() -> None:
    problem = scenario(topology=topology([fabric(bytes_per_second=NO_LIMIT)], [1]))
    actions, _ = by_id(problem, "")
    time = api.evaluate(problem, "").time
    assert time is not None
    job = problem.training
    head = 6 * job.global_batch_size * job.sequence_length * 32 * 64 / PEAK
    gain = (time["compute_gemm"] - head) / 2
    assert actions["precision:fp8"].gain_seconds == pytest.approx(gain)


def test_twice_the_virtual_stages_halve_the_bubble() -> None:
    problem = scenario(topology=topology([fabric(bytes_per_second=NO_LIMIT)], [2]))
    actions, _ = by_id(problem, "pp=2,mbs=1")
    time = api.evaluate(problem, "pp=2,mbs=1").time
    assert time is not None
    assert actions["virtual-stages"].gain_seconds == pytest.approx(time["bubble"] / 2)


@pytest.mark.parametrize("vp", [1, 2])
def test_the_best_split_of_the_layers_is_that_of_enumeration(vp: int) -> None:
    def asked(splits: str) -> Scenario:
        return small_scenario(
            8, model=small_model(num_layers=6, vocab_size=128000),
            training=small_training(global_batch_size=8),
            software=small_software(stage_splits=splits),
        )  # fmt: skip

    job, layout = asked("any"), f"tp=1,pp=2,vp={vp},mbs=1,recompute=none"
    plan = api.evaluate(job, layout)
    assert plan.layout is not None
    steps = {
        split: api.evaluate(job, f"{layout},stage_layers={'+'.join(map(str, split))}").step_seconds
        for split in compositions(6, 2 * vp)
    }
    told = {action.id: action for action in explain_plan(job, plan).actions}["stage-layers"]
    which = "a better" if vp > 1 else "the best"  # chunks that differ
    assert told.text.startswith(f"{which} split of the layers over {'virtual ' * (vp > 1)}stages: ")
    best = min(step for step in steps.values() if step is not None)
    assert told.step_seconds == steps[tuple(told.layout["stage_layers"])]
    assert told.step_seconds == pytest.approx(best, rel=0.002 if vp > 1 else 1e-9)
    assert told.gain_seconds is not None and told.gain_seconds > 0.01 * (plan.step_seconds or 0)
    even = asked("even")
    ids = {action.id for action in explain_plan(even, api.evaluate(even, layout)).actions}
    assert "stage-layers" not in ids  # nor where the best split is there already
    settled = api.evaluate(job, {**plan.layout.to_document(), **told.layout})
    assert "stage-layers" not in {action.id for action in explain_plan(job, settled).actions}


def test_stragglers_and_host_are_worth_what_they_cost() -> None:
    problem = scenario(
        topology=topology(
            [fabric(bytes_per_second=NO_LIMIT)] * 2,
            [2, 4],
            overheads=overheads(straggler_fraction_per_doubling=0.1),
        ),
        num_accelerators=4,
    )
    actions, step = by_id(problem, "")
    assert actions["stragglers"].gain_seconds == pytest.approx(step - step / 1.1)


def test_attention_that_writes_its_scores_is_told_of_better_ones() -> None:
    part = accelerator(hbm_bytes_per_second=1e9)
    job = training(attention="naive")
    actions, step = by_id(scenario(topology=one(part), training=job), "")
    flash = api.evaluate(scenario(topology=one(part)), "").step_seconds
    assert flash is not None
    assert actions["attention:flash"].gain_seconds == pytest.approx(step - flash)
    part = accelerator(attention={"naive": part.attention["naive"]})
    actions, _ = by_id(scenario(topology=one(part), training=job), "")
    assert "no attention backend 'flash'" in str(actions["attention:flash"].infeasible)


def one(part: Accelerator) -> Topology:
    return topology([fabric(bytes_per_second=NO_LIMIT)], [1], accelerator=part)
