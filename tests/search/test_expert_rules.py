"""Rules of models with experts: each with layouts it keeps and breaks, users' cases among them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import api
from planner.cost.context import CostContext
from planner.errors import IllegalLayoutError
from planner.frameworks.rule import Rule
from planner.inputs.values import load
from planner.layouts.layout import Layout, LayoutTable
from planner.problem.topology import Topology
from planner.search.rules.catalog import rules_of
from planner.search.rules.experts import EXPERT_RULES, flex_members
from planner.search.rules.legality import check, nearest_values
from planner.search.rules.structural import STRUCTURAL_RULES
from planner.search.space.given import given_layout
from tests.expert_scenarios import LATENT, experts, shipped_scenario
from tests.oracles import expert_layouts
from tests.scenarios import shipped_software, small_model, small_scenario, small_software


def L(**values: Any) -> Layout:  # noqa: N802
    return Layout(**values)


def sparse_context(**changes: Any) -> CostContext:
    """12 experts of 96 on 16 accelerators."""
    moe = experts(num_experts=12, expert_ffn_hidden_size=96)
    model = small_model(moe=moe, num_layers=8, mla=changes.pop("mla", None))
    software = small_software(**({"dispatchers": ("flex", "alltoall")} | changes))
    return CostContext.of(small_scenario(16, model=model, software=software))


def without_dispatch_kernels(topology: Topology) -> Topology:
    """The topology with a network that kernels of the flex dispatcher do not send over."""
    inner, *outer = topology.tiers
    fabrics = [tier.fabric.replace(dispatch_kernels=False) for tier in outer]
    tiers = [t.replace(fabric=f) for t, f in zip(outer, fabrics, strict=True)]
    return topology.replace(tiers=(inner, *tiers))


PLAIN = sparse_context()
CTX = replace(PLAIN, topology=without_dispatch_kernels(PLAIN.topology))
INNER = PLAIN.topology.tiers[0].width

# id → layouts it accepts, layouts it rejects, a rejected one's nearest values
CASES: Mapping[str, tuple[list[Layout], list[Layout], tuple[str, ...]]] = {
    "flex-needs-dispatch-kernels": (
        [L(ep=INNER, dispatcher="flex"), L(ep=2 * INNER), L(dispatcher="flex")],
        [L(ep=2 * INNER, dispatcher="flex")],
        (),
    ),
    "ep-divides-experts": (
        [L(ep=4), L(ep=12), L(ep=1)], [L(ep=8), L(ep=5), L(ep=24)], ("ep=6", "ep=12"),
    ),
    "etp-divides-expert-ffn": (
        [L(etp=2), L(etp=96)], [L(etp=5), L(etp=64)], ("etp=4", "etp=6"),
    ),
    "experts-fit-ranks": (
        [L(dp_shard=8, ep=4), L(tp=2, cp=2, dp_shard=2, ep=4), L(tp=4, dp_shard=2, etp=2, ep=4)],
        [L(dp_shard=4, ep=8), L(dp_shard=2, dp_replicate=4, ep=8), L(dp_shard=8, etp=4, ep=4)],
        ("ep=4",),
    ),
    "experts-need-sp": ([L(tp=2, sp=True), L()], [L(tp=2)], ()),
    "ep-overlap-needs-virtual-stages": (
        [L(overlap="ep"), L(pp=2, vp=2, overlap="ep"), L(pp=2, overlap="dp")],
        [L(pp=2, overlap="ep"), L(pp=4, overlap="dp+ep")],
        (),
    ),
    "ep-overlap-needs-microbatches": (
        [L(overlap="ep", num_microbatches=2), L(num_microbatches=1)],
        [L(overlap="ep", num_microbatches=1)],
        (),
    ),
    "ep-overlap-excludes-moe-recompute": (
        [L(overlap="ep", recompute="act"), L(recompute="moe"), L(overlap="ep")],
        [L(overlap="ep", recompute="moe"), L(overlap="tp+ep", recompute="full")],
        (),
    ),
}  # fmt: skip


def rule_named(rule_id: str) -> Rule:
    (rule,) = [rule for rule in rules_of(CTX.software, True) if rule.id == rule_id]
    return rule


def test_every_rule_has_a_case() -> None:
    assert set(CASES) == {rule.id for rule in EXPERT_RULES}


@pytest.mark.parametrize("rule_id", CASES)
def test_rule_accepts_and_rejects(rule_id: str) -> None:
    accepted, rejected, _ = CASES[rule_id]
    rule = rule_named(rule_id)
    assert [bool(rule.holds(CTX, layout)) for layout in accepted] == [True] * len(accepted)
    assert [bool(rule.holds(CTX, layout)) for layout in rejected] == [False] * len(rejected)
    assert rule.sentence and rule.source and all(hasattr(Layout(), key) for key in rule.keys)


@pytest.mark.parametrize("rule_id", CASES)
def test_nearest_values_by_hand(rule_id: str) -> None:
    _, (layout, *_), nearest = CASES[rule_id]
    rule = rule_named(rule_id)
    assert nearest_values(CTX, layout, rule, rule.keys[0]) == nearest


def test_flex_runs_where_its_kernels_do() -> None:
    """Of shipped clusters: InfiniBand and RoCE carry groups of any size, EFA and TCPXO those of a
    node, and without CUDA or with compute capability 7.0 nothing does."""
    sizes = {
        name: flex_members(load(name, "topology", Topology))
        for name in (
            "dgx-h100", "dgx-a100", "alibaba-hpn", "gb300-nvl72", "aws-p5", "gcp-a3-mega",
            "gh200-slingshot", "h100-nvl", "mi300x", "tpu-v5p", "trainium2", "dgx-v100",
        )
    }  # fmt: skip
    anywhere = dict.fromkeys(("dgx-h100", "dgx-a100", "alibaba-hpn", "gb300-nvl72"), np.inf)
    inside = {"aws-p5": 8, "gcp-a3-mega": 8, "gh200-slingshot": 4, "h100-nvl": 2}
    nowhere = dict.fromkeys(("mi300x", "tpu-v5p", "trainium2", "dgx-v100"), 1)
    assert sizes == anywhere | inside | nowhere


@pytest.mark.parametrize(
    ("cluster", "ep", "dispatcher"),
    [("dgx-h100", 16, "flex"), ("aws-p5", 8, "flex"), ("aws-p5", 16, "alltoall"),
     ("mi300x", 8, "alltoall"), ("dgx-h100", 1, "alltoall")],
)  # fmt: skip
def test_a_dispatcher_left_open_is_one_that_runs(cluster: str, ep: int, dispatcher: str) -> None:
    ctx = CostContext.of(shipped_scenario("qwen3-30b-a3b", cluster, 32))
    layout = given_layout(ctx, {"ep": ep})
    assert layout.dispatcher == dispatcher


def test_flex_over_efa_is_refused() -> None:
    ctx = CostContext.of(shipped_scenario("qwen3-30b-a3b", "aws-p5", 32))
    with pytest.raises(IllegalLayoutError) as caught:
        check(ctx, L(dp_shard=32, ep=16, dispatcher="flex", num_microbatches=32))
    assert caught.value.rule == "flex-needs-dispatch-kernels"
    check(ctx, L(dp_shard=32, ep=16, num_microbatches=32))


@given(st.lists(expert_layouts(8, 12), min_size=1, max_size=20))
@settings(max_examples=30, deadline=None)
def test_table_equals_scalar_on_random_layouts(rows: list[Layout]) -> None:
    for rule in rules_of(CTX.software, True):
        table = np.broadcast_to(rule.holds(CTX, LayoutTable.from_layouts(rows)), (len(rows),))
        assert table.tolist() == [bool(np.all(rule.holds(CTX, row))) for row in rows], rule.id


def test_dense_models_have_no_rules_of_experts() -> None:
    ids = {rule.id for rule in rules_of(CTX.software)}
    assert not ids & set(CASES)
    assert {rule.id for rule in STRUCTURAL_RULES} <= ids


def test_a_framework_without_dispatchers_has_no_expert_parallelism() -> None:
    ctx = sparse_context(dispatchers=())
    with pytest.raises(IllegalLayoutError) as caught:
        check(ctx, L(dp_shard=16, ep=4))
    assert caught.value.rule == "no-expert-parallelism"
    check(ctx, L(dp_shard=16))
    shipped = {name for name in api.names("software") if shipped_software(name).dispatchers}
    assert shipped >= {"megatron-core", "torchtitan"}


def test_modules_that_a_model_has_may_be_recomputed() -> None:
    usual = {"dp_shard": 16}
    check(CTX, L(recompute="moe", **usual))
    check(sparse_context(mla=LATENT), L(recompute="mla_up_proj", **usual))
    with pytest.raises(IllegalLayoutError, match="latent attention"):
        check(CTX, L(recompute="mla_up_proj", **usual))


# ---------------------------------------------------------------- users' cases


@pytest.mark.parametrize(
    ("pp", "ep", "valid"), [(8, 32, False), (4, 32, False), (8, 8, True), (2, 32, True)]
)
def test_val_01_ranks_that_experts_need(pp: int, ep: int, valid: bool) -> None:
    """NVIDIA-NeMo/Megatron-Bridge#6054: recipes of 64 GPUs that ask for 256 and 128 ranks."""
    scenario = shipped_scenario("qwen3-235b-a22b", "gb200-nvl72", 64)
    ctx = CostContext.of(scenario)
    given_ = {"pp": pp, "ep": ep, "etp": 1}
    if valid:
        layout = given_layout(ctx, given_)
        assert layout.num_ranks == 64 and layout.edp * ep * pp == 64
        return
    with pytest.raises(IllegalLayoutError) as caught:
        given_layout(ctx, given_)
    assert caught.value.rule == "experts-fit-ranks"
    assert "pp·lcm(tp·cp, etp·ep)" in str(caught.value)
    # the nearest that the ranks of a stage hold
    assert f"ep={64 // pp}" in caught.value.nearest


@pytest.mark.parametrize(("ep", "edp"), [(4, 2), (8, 1)])
def test_val_11_experts_are_carved_from_the_other_ranks(ep: int, edp: int) -> None:
    """pytorch/torchtitan#4831: tp 2, cp 2, dp_shard 2 on eight GPUs, without ep in the product."""
    scenario = shipped_scenario("qwen3-30b-a3b", "dgx-h100", 8, "torchtitan")
    layout = given_layout(CostContext.of(scenario), {"tp": 2, "cp": 2, "dp_shard": 2, "ep": ep})
    assert layout.num_ranks == 8
    assert layout.edp == edp


@pytest.mark.parametrize(
    ("changes", "layout", "rule"),
    [
        ({"sequence_length": 8192}, {"cp": 8}, None),
        # the case says 10000, which is 16·625
        ({"sequence_length": 10000}, {"cp": 8}, None),
        ({"sequence_length": 10008}, {"cp": 8}, "cp-divides-sequence"),
        ({}, {"tp": 1, "sp": True}, "sp-needs-tp"),
        ({}, {"ep": 8, "recompute": "moe", "overlap": "ep"}, "ep-overlap-excludes-moe-recompute"),
        ({}, {"ep": 8, "pp": 2, "overlap": "ep"}, "ep-overlap-needs-virtual-stages"),
        ({}, {"ep": 8, "pp": 2, "vp": 2, "overlap": "ep"}, None),
    ],
)
def test_val_16_rules_are_cited(
    changes: dict[str, Any], layout: dict[str, Any], rule: str | None
) -> None:
    """Megatron-LM arguments.py and Megatron-Bridge's parallelism guide, as rules with ids."""
    ctx = CostContext.of(shipped_scenario("qwen3-30b-a3b", "dgx-h100", 64, **changes))
    if rule is None:
        given_layout(ctx, layout)
        return
    with pytest.raises(IllegalLayoutError) as caught:
        given_layout(ctx, layout)
    assert caught.value.rule == rule
    assert rule in str(caught.value) and caught.value.source
