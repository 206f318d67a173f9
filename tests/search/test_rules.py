"""Every rule accepts and rejects hand-made layouts, one by one and in a table alike."""

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.cost.context import CostContext
from planner.errors import IllegalLayoutError, InputError
from planner.frameworks.layout_rules import FRAMEWORK_RULES
from planner.frameworks.rule import Rule
from planner.inputs.files import names
from planner.layouts.keys import CP_KINDS, OFFLOADS, RECOMPUTE, SCHEDULES
from planner.layouts.layout import Layout, LayoutTable
from planner.search.rules.catalog import rule_sentences, rules_of
from planner.search.rules.legality import check, nearest_values
from planner.search.rules.schedules import SCHEDULE_RULES
from planner.search.rules.structural import STRUCTURAL_RULES
from tests.scenarios import (
    shipped_software,
    small_model,
    small_scenario,
    small_software,
    small_training,
)

# Sixteen accelerators, sixteen sequences of 24 tokens, 6 layers, 8 heads, 4 key/value heads.
NUM, BATCH, TOKENS, LAYERS, HEADS, KV, FFN = 16, 16, 24, 6, 8, 4, 48


def context(**software: Any) -> CostContext:
    return CostContext.of(
        small_scenario(
            NUM,
            model=small_model(
                num_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=KV,
                ffn_hidden_size=FFN,
            ),
            training=small_training(sequence_length=TOKENS, global_batch_size=BATCH),
            software=small_software(**software),
        )
    )  # fmt: skip


def rule_named(ctx: CostContext, rule_id: str) -> Rule:
    (rule,) = [rule for rule in rules_of(ctx.software) if rule.id == rule_id]
    return rule


def L(**values: Any) -> Layout:  # noqa: N802
    return Layout(**values)


EVERY = {"schedules": SCHEDULES}

# id → (software profile, layouts it accepts, layouts it rejects)
CASES: Mapping[str, tuple[dict[str, Any], list[Layout], list[Layout]]] = {
    "world-size": (
        {},
        [L(tp=2, cp=2, pp=2, dp_shard=2), L(tp=4, dp_replicate=4), L(dp_shard=4, dp_replicate=4)],
        [L(tp=2), L(tp=32), L(tp=5, dp_shard=3), L(dp_shard=16, dp_replicate=2)],
    ),
    "batch-divides": (
        {},
        [L(mbs=2, dp_shard=4, num_microbatches=2), L(dp_replicate=16), L(mbs=16)],
        [L(mbs=3, dp_shard=4, num_microbatches=1), L(mbs=2, dp_shard=4, num_microbatches=3)],
    ),
    "tp-divides-heads": ({}, [L(tp=1), L(tp=4), L(tp=8)], [L(tp=3), L(tp=16), L(tp=6)]),
    "tp-divides-ffn": ({}, [L(tp=3), L(tp=16), L(tp=48)], [L(tp=5), L(tp=32)]),
    "sp-divides-sequence": (
        {},
        [L(tp=4, cp=2, sp=True), L(tp=8, cp=2, sp=False), L(tp=8, cp=3, sp=True), L(tp=16)],
        [L(tp=8, cp=2, sp=True), L(tp=16, sp=True)],
    ),
    "sp-needs-tp": ({}, [L(tp=2, sp=True), L(), L(tp=2)], [L(sp=True), L(cp=2, sp=True)]),
    "cp-divides-sequence": (
        {}, [L(cp=1), L(cp=3), L(cp=4), L(cp=12)], [L(cp=8), L(cp=5), L(cp=24)],
    ),
    # documents as long as the sequence; shorter ones below
    "cp-fits-documents": (
        {},
        [L(cp=12), L(cp=2, cp_kind="all_gather"), L(cp=24, cp_kind="a2a")],
        [L(cp=13), L(cp=24, cp_kind="all_gather")],
    ),
    "a2a-divides-heads": (
        {},
        [L(tp=2, cp=2, cp_kind="a2a"), L(tp=8, cp_kind="a2a"), L(cp=4, cp_kind="a2a"),
         L(tp=4, cp=2), L(tp=4, cp=2, cp_kind="all_gather"), L(tp=16, cp=2),
         L(tp=2, cp=8, cp_kind="hierarchical", cp_a2a=2)],
        [L(tp=4, cp=4, cp_kind="hierarchical", cp_a2a=2),
         L(tp=4, cp=2, cp_kind="a2a"), L(cp=8, cp_kind="a2a"), L(cp=3, cp_kind="a2a")],
    ),
    "cp-a2a-divides-cp": (
        {},
        [L(cp=8, cp_kind="hierarchical", cp_a2a=4), L(cp=6, cp_kind="hierarchical", cp_a2a=3),
         L(cp=4, cp_kind="a2a"), L()],
        [L(cp=8, cp_kind="hierarchical"), L(cp=8, cp_kind="hierarchical", cp_a2a=8),
         L(cp=8, cp_kind="hierarchical", cp_a2a=3), L(cp=8, cp_a2a=2)],
    ),
    "cp-kind": (
        {"cp_kinds": ("all_gather", "ring")},
        [L(cp=2), L(cp=2, cp_kind="all_gather"), L(cp_kind="a2a")],
        [L(cp=2, cp_kind="a2a"), L(cp=4, cp_kind="hierarchical", cp_a2a=2)],
    ),
    "recompute-layers-full": (
        {"recompute_counts": True},
        [L(), L(recompute="full"), L(recompute="full", recompute_layers=5)],
        [L(recompute_layers=1), L(recompute="selective", recompute_layers=1)],
    ),
    # six layers
    "recompute-layers-in-chunks": (
        {"recompute_counts": True},
        [L(pp=6), L(pp=2, recompute_layers=2), L(pp=4, recompute_layers=1), L(recompute_layers=5),
         L(pp=2, vp=2, recompute_layers=1)],
        [L(pp=6, recompute_layers=1), L(pp=2, recompute_layers=3), L(pp=4, recompute_layers=2),
         L(recompute_layers=6), L(pp=3, vp=2, recompute_layers=1)],
    ),
    "recompute-layers-alike": (
        {"recompute_counts": True},
        [L(recompute_layers=1), L(recompute_layers=1, offload="optimizer"),
         L(pp=2, vp=2, recompute_layers=1)],
        [L(recompute_layers=1, offload="activations"),
         L(pp=2, recompute_layers=1, schedule="zb-h1")],
    ),
    "recompute-counts": (
        {"recompute_counts": False}, [L(), L(recompute="full")], [L(recompute_layers=1)],
    ),
    "chunks-have-layers": (
        {},
        [L(pp=6), L(pp=2, vp=3), L(pp=4), L(pp=3, vp=2)],
        [L(pp=4, vp=2), L(pp=8), L(pp=2, vp=4)],
    ),
    "vp-needs-pp": ({}, [L(vp=1), L(pp=2, vp=2)], [L(vp=2), L(tp=4, vp=3)]),
    "kv-heads-replicate": (
        {"rules": ("kv-heads-replicate",)},
        [L(tp=1), L(tp=2), L(tp=4), L(tp=8), L(tp=16)],
        [L(tp=3), L(tp=6)],
    ),
    "tp-divides-kv-heads": (
        {"rules": ("tp-divides-kv-heads",)}, [L(tp=1), L(tp=4)], [L(tp=8), L(tp=3)],
    ),
    "interleaved-microbatches": (
        {"rules": ("interleaved-microbatches",)},
        [L(pp=2, vp=2, num_microbatches=4), L(pp=4, vp=1, num_microbatches=3)],
        [L(pp=2, vp=2, num_microbatches=3), L(pp=4, vp=2, num_microbatches=2)],
    ),
    "microbatches-fill-pipeline": (
        {"rules": ("microbatches-fill-pipeline",)},
        [L(pp=4, num_microbatches=4), L(pp=4, num_microbatches=5), L()],
        [L(pp=4, num_microbatches=3), L(pp=2)],
    ),
    "stages-even": (
        {"rules": ("stages-even",)}, [L(pp=3, vp=2), L(pp=6), L(pp=2)], [L(pp=4), L(pp=2, vp=2)],
    ),
    "zero2-excludes-pipeline": (
        {"rules": ("zero2-excludes-pipeline",)},
        [L(pp=2, zero_stage=1), L(zero_stage=3), L(pp=2, zero_stage=0)],
        [L(pp=2, zero_stage=2), L(pp=2, zero_stage=3)],
    ),
    # the toy has neither experts nor latent attention
    "recompute-module": (
        {},
        [L(recompute=kind) for kind in ("none", "selective", "full", "act", "act_norm")],
        [L(recompute="moe"), L(recompute="mla_up_proj")],
    ),
    # the toy has no host
    "offload-needs-host": ({}, [L()], [L(offload="optimizer"), L(offload="activations")]),
    "optimizer-offload-needs-zero": (
        {},
        [L(zero_stage=1, offload="optimizer"), L(zero_stage=0),
         L(zero_stage=0, offload="activations")],
        [L(zero_stage=0, offload="optimizer"), L(zero_stage=0, offload="optimizer+activations")],
    ),
    "offload": (
        {"offloads": ("optimizer",)},
        [L(), L(offload="optimizer")],
        [L(offload="activations"), L(offload="optimizer+activations")],
    ),
    "activation-offload-excludes-pipeline": (
        {"rules": ("activation-offload-excludes-pipeline",)},
        [L(pp=2), L(offload="activations"), L(pp=2, offload="optimizer")],
        [L(pp=2, offload="activations"), L(pp=4, offload="optimizer+activations")],
    ),
    "activation-offload-excludes-recompute": (
        {"rules": ("activation-offload-excludes-recompute",)},
        [L(recompute="full"), L(offload="activations"), L(recompute="full", offload="optimizer")],
        [L(recompute="selective", offload="activations")],
    ),
    "data-parallel-only": (
        {"rules": ("data-parallel-only",)},
        [L(dp_shard=16), L(dp_shard=4, dp_replicate=4)],
        [L(tp=2), L(cp=2), L(pp=2)],
    ),
    "no-context-parallelism": (
        {"rules": ("no-context-parallelism",)}, [L(tp=4, pp=2)], [L(cp=2)],
    ),
    "zero-stage": (
        {"zero_stages": (1, 3)},
        [L(zero_stage=1), L(zero_stage=3)],
        [L(zero_stage=0), L(zero_stage=2)],
    ),
    "schedule": ({"schedules": ("1f1b",)}, [L(pp=2), L()], [L(pp=2, vp=2)]),
    "schedule-chunks": (
        EVERY,
        [L(pp=2), L(pp=2, vp=3), L(pp=2, vp=2, schedule="zb-v"), L(pp=2, schedule="dualpipe"),
         L(pp=2, vp=3, schedule="zb-h1")],
        [L(pp=2, schedule="dualpipev"), L(pp=2, vp=3, schedule="zb-v"),
         L(pp=2, vp=2, schedule="dualpipe")],
    ),
    "schedule-needs-pp": (
        EVERY, [L(), L(pp=2, schedule="zb-h1")], [L(schedule="zb-h1"), L(vp=2, schedule="zb-v")],
    ),
    "dualpipe-even-stages": (
        EVERY,
        [L(pp=2, schedule="dualpipe"), L(pp=3), L(pp=3, vp=2, schedule="dualpipev")],
        [L(pp=3, schedule="dualpipe")],
    ),
    "dualpipe-microbatches": (
        EVERY,
        [L(pp=4, num_microbatches=8, schedule="dualpipe"), L(pp=4, num_microbatches=2),
         L(pp=2, vp=2, num_microbatches=5, schedule="dualpipev")],
        [L(pp=4, num_microbatches=6, schedule="dualpipe"),
         L(pp=4, num_microbatches=9, schedule="dualpipe"),
         L(pp=2, vp=2, num_microbatches=3, schedule="dualpipev")],
    ),
    "zb-v-microbatches": (
        EVERY,
        [L(pp=4, vp=2, num_microbatches=7, schedule="zb-v"), L(pp=4, vp=2, num_microbatches=4)],
        [L(pp=4, vp=2, num_microbatches=6, schedule="zb-v")],
    ),
    "shard-group": (
        {"shard_groups": "full"},
        [L(dp_shard=4, zero_stage=2), L(dp_replicate=4, zero_stage=0)],
        [L(dp_shard=2, dp_replicate=2), L(dp_replicate=4, zero_stage=3)],
    ),
    "no-loss-chunks": ({}, [L()], [L(loss_chunks=2)]),
    "loss-chunks-divide": (
        {"loss_chunks": True},
        [L(loss_chunks=8), L(loss_chunks=TOKENS), L(loss_chunks=TOKENS // 2, cp=2)],
        [L(loss_chunks=11), L(loss_chunks=TOKENS, cp=2)],
    ),
    "sp-always": (
        {"sequence_parallel": "always"},
        [L(tp=2, sp=True), L(tp=1)],
        [L(tp=2, sp=False), L(tp=1, sp=True)],
    ),
    "sp-never": (
        {"sequence_parallel": "never"},
        [L(tp=2), L()],
        [L(tp=2, sp=True)],
    ),
}  # fmt: skip

IDS = sorted(CASES)


def test_every_rule_has_a_case() -> None:
    known = {rule.id for rule in (*STRUCTURAL_RULES, *SCHEDULE_RULES)} | {*FRAMEWORK_RULES}
    profile = {
        "zero-stage",
        "recompute-counts",
        "no-loss-chunks",
        "loss-chunks-divide",
        "cp-kind",
        "offload",
        "schedule",
        "shard-group",
        "sp-always",
        "sp-never",
    }
    assert set(CASES) == known | profile


@pytest.mark.parametrize("rule_id", IDS)
def test_rule_accepts_and_rejects(rule_id: str) -> None:
    software, accepted, rejected = CASES[rule_id]
    ctx = context(**software)
    rule = rule_named(ctx, rule_id)
    assert [bool(rule.holds(ctx, layout)) for layout in accepted] == [True] * len(accepted)
    assert [bool(rule.holds(ctx, layout)) for layout in rejected] == [False] * len(rejected)


def test_documents_are_cut_in_two_pieces_a_rank() -> None:
    ctx = context()
    ctx = replace(ctx, training=ctx.training.replace(mean_document_length=7))
    rule = rule_named(ctx, "cp-fits-documents")
    kept = [L(cp=3), L(cp=4, cp_kind="a2a")]
    broken = [L(cp=4), L(cp=4, cp_kind="all_gather")]
    assert [bool(rule.holds(ctx, layout)) for layout in (*kept, *broken)] == [True] * 2 + [
        False
    ] * 2
    check_table(ctx, rule, kept + broken)


@pytest.mark.parametrize("rule_id", IDS)
def test_rule_cites_itself(rule_id: str) -> None:
    rule = rule_named(context(**CASES[rule_id][0]), rule_id)
    assert rule.sentence and rule.source and rule.keys
    assert all(hasattr(Layout(), key) for key in rule.keys)


@pytest.mark.parametrize("rule_id", IDS)
def test_table_equals_scalar_on_hand_made_layouts(rule_id: str) -> None:
    ctx = context(**CASES[rule_id][0])
    rule = rule_named(ctx, rule_id)
    rows = [row for _, accepted, rejected in CASES.values() for row in (*accepted, *rejected)]
    check_table(ctx, rule, rows)


def check_table(ctx: CostContext, rule: Rule, rows: list[Layout]) -> None:
    table = np.broadcast_to(rule.holds(ctx, LayoutTable.from_layouts(rows)), (len(rows),))
    assert table.tolist() == [bool(np.all(rule.holds(ctx, row))) for row in rows]


DEGREES = st.integers(1, 24)
ROWS = st.builds(
    Layout, tp=DEGREES, cp=DEGREES, pp=st.integers(1, 8), dp_shard=DEGREES,
    dp_replicate=st.integers(1, 4), vp=st.integers(1, 4), mbs=st.integers(1, 4),
    num_microbatches=st.integers(1, 8), zero_stage=st.integers(0, 3), sp=st.booleans(),
    recompute=st.sampled_from(RECOMPUTE), cp_kind=st.sampled_from(CP_KINDS),
    cp_a2a=st.integers(1, 8), offload=st.sampled_from(OFFLOADS),
    loss_chunks=st.integers(1, 8),
)  # fmt: skip


@given(st.lists(ROWS, min_size=1, max_size=20))
@settings(max_examples=30, deadline=None, derandomize=True)
def test_table_equals_scalar_on_random_layouts(rows: list[Layout]) -> None:
    for rule_id, (software, _, _) in CASES.items():
        ctx = context(**software)
        check_table(ctx, rule_named(ctx, rule_id), rows)


# --- nearest values -------------------------------------------------------------------------------


def changed(layout: Layout, text: str) -> Layout:
    """The layout with `key=value` applied; micro-batches follow from the batch."""
    key, value = text.split("=")
    if key == "dp":
        layout = replace(layout, dp_shard=int(value), dp_replicate=1)
    else:
        assert isinstance(getattr(layout, key), int)
        change: dict[str, Any] = {key: int(value)}
        layout = replace(layout, **change)
    if key in ("dp", "dp_shard", "dp_replicate", "mbs"):
        layout = replace(layout, num_microbatches=max(BATCH // (layout.mbs * layout.dp), 1))
    return layout


@pytest.mark.parametrize("rule_id", IDS)
def test_nearest_values_keep_the_rule_and_none_is_nearer(rule_id: str) -> None:
    software, _, rejected = CASES[rule_id]
    ctx = context(**software)
    rule = rule_named(ctx, rule_id)
    for layout in rejected:
        for key in rule.keys:
            found = nearest_values(ctx, layout, rule, key)
            assert len(found) <= 2
            now = getattr(layout, key)
            for text in found:
                name, value = text.split("=")
                assert name == key
                assert bool(rule.holds(ctx, changed(layout, text)))
                between = range(min(now, int(value)) + 1, max(now, int(value)))
                assert not any(
                    rule.holds(ctx, changed(layout, f"{key}={other}")) for other in between
                )


@pytest.mark.parametrize(
    ("rule_id", "layout", "key", "nearest"),
    [
        ("tp-divides-heads", L(tp=7), "tp", ("tp=4", "tp=8")),
        ("tp-divides-heads", L(tp=3), "tp", ("tp=2", "tp=4")),
        ("tp-divides-heads", L(tp=16), "tp", ("tp=8",)),
        ("cp-divides-sequence", L(cp=5), "cp", ("cp=4", "cp=6")),
        ("chunks-have-layers", L(pp=4, vp=2), "pp", ("pp=3",)),
        ("world-size", L(tp=2, dp_shard=4), "dp", ("dp=8",)),
        ("world-size", L(tp=3, dp_shard=4), "dp", ()),
        ("zero-stage", L(zero_stage=2), "zero_stage", ("zero_stage=1", "zero_stage=3")),
        ("zero2-excludes-pipeline", L(pp=2, zero_stage=3), "zero_stage", ("zero_stage=1",)),
        ("batch-divides", L(mbs=3, dp_shard=2, num_microbatches=2), "mbs", ("mbs=2", "mbs=4")),
    ],
)
def test_nearest_values_by_hand(
    rule_id: str, layout: Layout, key: str, nearest: tuple[str, ...]
) -> None:
    ctx = context(**(CASES[rule_id][0]))
    assert nearest_values(ctx, layout, rule_named(ctx, rule_id), key) == nearest


# --- the check ------------------------------------------------------------------------------------


LEGAL = L(tp=2, pp=2, dp_shard=4, num_microbatches=4)


def test_check_passes_a_legal_layout() -> None:
    check(context(), LEGAL)
    check(context(), replace(LEGAL, stage_layers=(2, 4)))


@pytest.mark.parametrize("rule_id", IDS)
def test_check_raises_for_the_broken_rule(rule_id: str) -> None:
    software, _, rejected = CASES[rule_id]
    ctx = context(**software)
    for layout in rejected:
        with pytest.raises(IllegalLayoutError) as caught:
            check(ctx, layout)
        broken = [rule for rule in rules_of(ctx.software) if not np.all(rule.holds(ctx, layout))]
        assert caught.value.rule == broken[0].id
        assert caught.value.source == broken[0].source
        assert broken[0].sentence in str(caught.value)
        assert rule_id in {rule.id for rule in broken}


@pytest.mark.parametrize("stage_layers", [(6,), (3, 2), (3, 4), (6, 0), (2, 2, 2), ()])
def test_stage_layers_must_sum_to_the_layers(stage_layers: tuple[int, ...]) -> None:
    with pytest.raises(IllegalLayoutError) as caught:
        check(context(), replace(LEGAL, stage_layers=stage_layers))
    assert caught.value.rule == "stage-layers"
    assert "pp=2" in str(caught.value) and "6 layers" in str(caught.value)


def test_an_unknown_rule_names_the_profile_and_the_near_one() -> None:
    with pytest.raises(InputError) as caught:
        rules_of(small_software(rules=("stages-evn",)))
    assert caught.value.nearest == "stages-even"
    for rule_id in FRAMEWORK_RULES:
        assert rule_id in str(caught.value)


@pytest.mark.parametrize("name", names("software"))
def test_shipped_profiles_name_known_rules_only(name: str) -> None:
    software = shipped_software(name)
    found = rules_of(software)
    ids = [rule.id for rule in found]
    assert len(set(ids)) == len(ids)
    assert {rule.id for rule in STRUCTURAL_RULES} | set(software.rules) <= set(ids)
    assert rule_sentences(found) == {rule.id: rule.sentence for rule in found}


def test_legal_layout_uses_all_accelerators() -> None:
    assert prod(LEGAL.degrees()) == NUM
