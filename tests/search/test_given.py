"""Layouts as users write them: completed, checked, refused with the nearest legal choice."""

from dataclasses import replace
from typing import Any

import pytest

from planner.cost.context import CostContext
from planner.errors import IllegalLayoutError, InputError
from planner.layouts.keys import KEYS, SCHEDULES
from planner.layouts.layout import Layout
from planner.search.rules.catalog import rules_of
from planner.search.space.given import given_layout, parse_layout
from tests.scenarios import small_scenario, small_software, small_topology, small_training

# Sixteen accelerators, sixteen sequences, 4 layers, 8 heads, 4 key/value heads.


def context(num: int = 16, **software: Any) -> CostContext:
    changes = {"sequence_parallel": "always", "shard_groups": "any", **software}
    return CostContext.of(
        small_scenario(num, software=small_software(cp_kinds=("ring", "a2a"), **changes))
    )


def given(text: str, ctx: CostContext | None = None) -> Layout:
    return given_layout(ctx or context(), parse_layout(text))


# --- text -----------------------------------------------------------------------------------------


def test_parse_layout() -> None:
    assert parse_layout("tp=8, pp = 4 ,vp=2,") == {"tp": "8", "pp": "4", "vp": "2"}
    assert parse_layout("") == {}


@pytest.mark.parametrize("text", ["tp", "tp=", "tp:8", "tp=2,pp", "=2,"])
def test_what_is_not_key_equals_value_is_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        given(text)
    assert "tp" in str(caught.value)
    assert caught.value.path == "--layout" or caught.value.key == "--layout"


def test_a_key_twice_is_refused() -> None:
    with pytest.raises(InputError, match="tp is given twice"):
        parse_layout("tp=2,pp=2,tp=4")


# --- completion -----------------------------------------------------------------------------------


def test_nothing_given_is_data_parallelism() -> None:
    assert given("") == Layout(dp_shard=16, num_microbatches=1, zero_stage=1, overlap="tp+dp+pp")


def test_dp_takes_what_is_left_and_companions_follow_the_software() -> None:
    layout = given("tp=2,pp=2,vp=2,mbs=2")
    assert layout == Layout(
        tp=2, pp=2, dp_shard=4, vp=2, mbs=2, num_microbatches=2, zero_stage=1, sp=True,
        overlap="tp+dp+pp",
    )  # fmt: skip
    assert (layout.dp, layout.edp, layout.schedule) == (4, 8, "interleaved")


@pytest.mark.parametrize(
    ("text", "shard", "replicate"),
    [
        ("tp=2,dp_shard=2", 2, 4),
        ("tp=2,dp_replicate=2", 4, 2),
        ("tp=2,dp=8,dp_shard=4", 4, 2),
        ("tp=2,dp_shard=4,dp_replicate=2", 4, 2),
        ("tp=2,dp=8", 8, 1),
        ("dp_shard=1", 1, 16),
    ],
)
def test_shards_and_replicas_complete_each_other(text: str, shard: int, replicate: int) -> None:
    layout = given(text)
    assert (layout.dp_shard, layout.dp_replicate) == (shard, replicate)


def test_zero_stage_defaults_to_one_or_the_highest_there_is() -> None:
    assert given("").zero_stage == 1
    assert given("", context(zero_stages=(0,), shard_groups="full")).zero_stage == 0
    assert given("", context(zero_stages=(2, 3))).zero_stage == 3


def test_values_of_every_kind_are_read() -> None:
    layout = given(
        "tp=2,cp=2,pp=2,zero_stage=3,sp=TRUE,recompute=full,cp_kind=a2a,overlap=pp+tp,"
        "stage_layers=1+3"
    )
    assert layout.sp is True
    assert (layout.recompute, layout.cp_kind, layout.overlap) == ("full", "a2a", "tp+pp")
    assert layout.stage_layers == (1, 3)
    assert given("overlap=none").overlap == "none"


def test_a_mapping_of_python_values_is_a_layout_too() -> None:
    layout = given_layout(
        context(), {"tp": 2, "pp": 2, "sp": True, "stage_layers": [1, 3], "vp": None}
    )
    assert layout == replace(given("tp=2,pp=2"), stage_layers=(1, 3))


@pytest.mark.parametrize(
    "derived",
    ["dp=2", "edp=8", "num_microbatches=4", "schedule=interleaved", "dp_shard=2", "dp_replicate=1",
     "ep=1", "etp=1", "sp=true"],
)  # fmt: skip
def test_derived_keys_may_be_given_and_agree(derived: str) -> None:
    text = "tp=2,cp=2,pp=2,vp=2,mbs=2"
    assert given(f"{text},{derived}") == given(text)


def test_a_layout_document_is_read_back() -> None:
    layout = given("tp=2,cp=2,pp=2,vp=2,dp_shard=1,zero_stage=2,recompute=none")
    assert given_layout(context(), layout.to_document()) == layout


def test_schedules_that_turn_have_two_chunks() -> None:
    every = context(schedules=SCHEDULES)
    layout = given_layout(every, {"tp": 4, "pp": 2, "schedule": "dualpipev"})
    assert (layout.vp, layout.schedule) == (2, "dualpipev")
    assert given_layout(every, layout.to_document()) == layout
    assert given_layout(every, {"pp": 2, "vp": 2}).schedule == "interleaved"
    assert given_layout(every, {"pp": 2, "schedule": "zb-h1"}).label() == (
        "pp2 dp8 zb-h1 mbs1 zero1"
    )


@pytest.mark.parametrize(
    ("keys", "rule"),
    [
        ({"pp": 2, "vp": 2, "schedule": "zb-h1"}, "derived-keys-agree"),
        ({"pp": 2, "vp": 1, "schedule": "zb-v"}, "schedule-chunks"),
        ({"schedule": "zb-h1"}, "schedule-needs-pp"),
        ({"pp": 2, "mbs": 2, "schedule": "dualpipe"}, "dualpipe-microbatches"),
    ],
)
def test_schedules_that_cannot_be_are_illegal(keys: dict[str, Any], rule: str) -> None:
    every = context(schedules=SCHEDULES)
    with pytest.raises(IllegalLayoutError) as caught:
        given_layout(every, keys)
    assert caught.value.rule == rule


def test_a_schedule_the_software_lacks_is_illegal() -> None:
    with pytest.raises(IllegalLayoutError) as caught:
        given("pp=2,schedule=zb-h1")
    assert caught.value.rule == "schedule"
    assert "schedule=zb-h1" in caught.value.value


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("tp=2,edp=7", "edp=16"),
        ("tp=2,pp=2,vp=2,schedule=1f1b", "schedule=interleaved"),
        ("tp=2,schedule=interleaved", "schedule=1f1b"),
        ("tp=2,num_microbatches=3", "num_microbatches=2"),
    ],
)
def test_derived_keys_that_disagree_are_illegal(text: str, nearest: str) -> None:
    with pytest.raises(IllegalLayoutError) as caught:
        given(text)
    assert caught.value.rule == "derived-keys-agree"
    assert caught.value.nearest == (nearest,)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "text", ["dp=16,dp_shard=4,dp_replicate=2", "tp=2,dp=4", "dp=8,dp_shard=16", "tp=2,dp_shard=3"]
)
def test_degrees_that_disagree_are_illegal(text: str) -> None:
    with pytest.raises(IllegalLayoutError):
        given(text)


@pytest.mark.parametrize(
    ("text", "near"),
    [("tpp=2", "tp"), ("zero_stag=1", "zero_stage"), ("microbatches=2", "num_microbatches"),
     ("Overlap=none", "overlap")],
)  # fmt: skip
def test_an_unknown_key_names_the_near_one(text: str, near: str) -> None:
    with pytest.raises(InputError) as caught:
        given(text)
    key, value = text.split("=")
    assert (caught.value.key, caught.value.value) == (key, value)
    assert caught.value.nearest == near
    assert all(known in str(caught.value) for known in KEYS)


@pytest.mark.parametrize(
    "text",
    ["tp=-1", "tp=0", "tp=1.5", "tp=two", "tp=2²", "mbs=1e3", "zero_stage=-1", "dp=nan", "cp=1_0",
     "pp=99999999999999999999", "sp=maybe", "recompute=ful", "cp_kind=rings", "schedule=gpipe",
     "overlap=tp+xp", "stage_layers=1+x", "stage_layers=1..3", "dispatcher=deepep", "tp=٣"],
)  # fmt: skip
def test_a_value_of_the_wrong_kind_says_what_is_allowed(text: str) -> None:
    key, value = text.split("=")
    with pytest.raises(InputError) as caught:
        given(text)
    assert (caught.value.key, caught.value.value) == (key, value)
    assert caught.value.allowed


@pytest.mark.parametrize("text", ["tp=-1", "recompute=ful", "sp=maybe", "stage_layers=1+x"])
def test_a_value_of_the_wrong_kind_is_shown(text: str) -> None:
    with pytest.raises(InputError) as caught:
        given(text)
    assert text.split("=")[1] in str(caught.value)


def test_a_misspelt_choice_names_the_near_one() -> None:
    with pytest.raises(InputError) as caught:
        given("recompute=ful")
    assert caught.value.nearest == "full"


@pytest.mark.parametrize("text", ["tp=7", "pp=3", "tp=8,cp=3"])
def test_a_degree_that_does_not_divide_the_accelerators(text: str) -> None:
    with pytest.raises(IllegalLayoutError) as caught:
        given(text)
    assert caught.value.rule in ("world-size", "tp-divides-heads")


@pytest.mark.parametrize(("text", "near"), [("tp=7", {"tp=4", "tp=8"}), ("pp=3", {"pp=2", "pp=4"})])
def test_a_degree_that_does_not_divide_names_itself_and_what_would(
    text: str, near: set[str]
) -> None:
    with pytest.raises(IllegalLayoutError) as caught:
        given(text)
    assert text in str(caught.value)
    assert set(caught.value.nearest) & near


def test_heads_that_do_not_divide_name_the_degrees_that_do() -> None:
    ctx = CostContext.of(
        small_scenario(
            12, topology=small_topology((4, 3)), training=small_training(global_batch_size=12)
        )
    )
    with pytest.raises(IllegalLayoutError) as caught:
        given("tp=3,sp=false", ctx)
    assert caught.value.rule == "tp-divides-heads"
    assert caught.value.nearest == ("tp=2", "tp=4")


def test_a_batch_that_does_not_divide_names_the_nearest_on_both_sides() -> None:
    with pytest.raises(IllegalLayoutError) as caught:
        given("tp=4,mbs=3")
    assert caught.value.rule == "batch-divides"
    assert caught.value.nearest == ("mbs=2", "mbs=4")


def test_more_micro_batch_than_batch_names_one_that_divides() -> None:
    with pytest.raises(IllegalLayoutError) as caught:
        given("tp=4,mbs=8")
    assert caught.value.rule == "batch-divides"
    assert caught.value.nearest == ("mbs=4",)


@pytest.mark.parametrize("stage_layers", ["2+3", "1+1+2", "4", "4+0"])
def test_stage_layers_must_sum(stage_layers: str) -> None:
    with pytest.raises(IllegalLayoutError) as caught:
        given(f"pp=2,stage_layers={stage_layers}")
    assert caught.value.rule == "stage-layers"
    assert f"stage_layers={stage_layers}" in str(caught.value.value)


@pytest.mark.parametrize("text", ["ep=2", "etp=2"])
def test_expert_axes_need_experts(text: str) -> None:
    with pytest.raises(IllegalLayoutError) as caught:
        given(text)
    assert caught.value.rule == "experts-need-moe"
    assert caught.value.nearest == (text.replace("2", "1"),)


ILLEGAL = (
    "tp=2,sp=false", "sp=true", "vp=2", "pp=4,vp=2", "zero_stage=0", "pp=8", "cp=16,tp=1",
    "tp=16", "pp=2,zero_stage=2",
)  # fmt: skip


@pytest.mark.parametrize("text", ILLEGAL)
def test_every_refusal_cites_a_rule_of_the_software(text: str) -> None:
    ctx = context(
        zero_stages=(1, 2), shard_groups="full", rules=("zero2-excludes-pipeline",)
    ) if text != "cp=16,tp=1" else CostContext.of(
        small_scenario(16, training=small_training(sequence_length=24))
    )  # fmt: skip
    with pytest.raises(IllegalLayoutError) as caught:
        given(text, ctx)
    rule = next(rule for rule in rules_of(ctx.software) if rule.id == caught.value.rule)
    assert caught.value.source == rule.source
    assert rule.keys[0] in str(caught.value.value)
    for near in caught.value.nearest:
        fixed = {**parse_layout(text), **parse_layout(near)}
        try:
            given_layout(ctx, fixed)
        except IllegalLayoutError as other:
            assert other.rule != rule.id


def test_exchanges_overlap_only_where_there_are_any() -> None:
    """Of a dense model, or of experts on one rank, there is nothing to run beside a pass."""
    with pytest.raises(IllegalLayoutError) as caught:
        given("tp=2,overlap=dp+ep")
    assert caught.value.rule == "ep-overlap-needs-ep"


@pytest.mark.parametrize("text", ["9" * 5000, "٣", "8.0", "+8", "1_0", ""])
def test_degrees_are_plain_short_numbers(text: str) -> None:
    with pytest.raises(InputError, match="is none of its values; allowed: an integer >= 1"):
        given_layout(CostContext.of(small_scenario()), {"tp": text})
