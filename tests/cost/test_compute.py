"""Seconds of a layer's kernels on an ideal part, by hand, and what each loss adds."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from operator import attrgetter
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.cost.compute import (
    EndTimes,
    KernelTimes,
    RankShare,
    attention_flops,
    end_times,
    layer_times,
    on_unique,
    ring_members,
)
from planner.cost.context import CostContext
from planner.cost.recompute import RECOMPUTED, RecomputedShares, recomputed_shares
from planner.layouts.keys import CP_KINDS, RECOMPUTE
from planner.layouts.layout import Layout
from planner.problem.blocks import DENSE
from planner.problem.precision import RECIPES, TrainingPrecision
from tests.scenarios import (
    BACKENDS,
    LOSSY,
    NO_LIMIT,
    PEAK,
    accelerator,
    attention,
    context,
    figure,
    gemm,
    model,
    software,
    topology,
    training,
)

RING, GATHER, A2A, HIERARCHICAL = range(len(CP_KINDS))
WEIGHTS = 4 * 32**2 + 2 * 32 * 128  # of a layer of the toy
HBM = 1e9


def times(
    ctx: CostContext, tp: int = 1, cp: int = 1, mbs: int = 1, sp: int = 0, kind: int = RING
) -> KernelTimes:
    layout = Layout(cp=cp, cp_kind=CP_KINDS[kind], cp_a2a=2 if kind == HIERARCHICAL else 1)
    return layer_times(ctx, DENSE, RankShare(tp, cp, mbs, sp, ring_members(layout)))


def ends(
    ctx: CostContext, tp: int = 1, cp: int = 1, mbs: int = 1, loss_chunks: int = 1
) -> EndTimes:
    return end_times(ctx, Layout(tp=tp, cp=cp, mbs=mbs, loss_chunks=loss_chunks))


def term(times: Any, name: str) -> Any:
    """Seconds of a term by its path, such as 'gemm.forward'."""
    return attrgetter(name)(times)


def terms(times: Any, prefix: str = "") -> dict[str, Any]:
    """All terms by their paths."""
    found = {}
    for f in fields(times):
        value = getattr(times, f.name)
        inner = terms(value, f"{prefix}{f.name}.") if is_dataclass(value) else None
        found |= {f"{prefix}{f.name}": value} if inner is None else inner
    return found


def on_part(train: dict[str, Any] | None = None, toy: Any = None, **changes: Any) -> CostContext:
    return context(
        topology=topology(accelerator=accelerator(**changes)),
        training=training(**(train or {})),
        model=toy or model(),
    )


def slow_hbm(**train: Any) -> CostContext:
    """A part whose every kernel but matmuls waits for HBM (and matmuls for nothing)."""
    return on_part(train, hbm_bytes_per_second=HBM, peak_flops={"bf16": NO_LIMIT})


# ---------------------------------------------------------------- matmuls


def test_matmuls_take_two_flops_a_weight_and_token_and_twice_that_backwards() -> None:
    found = times(context(), mbs=3)
    assert found.gemm.forward == pytest.approx(2 * WEIGHTS * 3 * 64 / PEAK, rel=1e-12)
    assert found.gemm.backward == pytest.approx(4 * WEIGHTS * 3 * 64 / PEAK, rel=1e-12)


@pytest.mark.parametrize(("tp", "cp", "sp"), [(4, 1, 0), (1, 4, 0), (2, 2, 1)])
def test_tensor_and_context_parallelism_share_matmuls(tp: int, cp: int, sp: int) -> None:
    whole, cut = times(context()), times(context(), tp, cp, sp=sp)
    for name in ("gemm.forward", "gemm.backward"):
        assert term(cut, name) == pytest.approx(term(whole, name) / (tp * cp), rel=1e-12)
    head, part = ends(context()), ends(context(), tp, cp)
    for name in ("head.forward", "head.backward"):
        assert term(part, name) == pytest.approx(term(head, name) / (tp * cp), rel=1e-12)


def test_a_loss_in_chunks_multiplies_by_the_head_once_a_chunk() -> None:
    """As many times the matmuls of a chunk's tokens; the loss itself streams the same bytes."""
    whole, chunked = ends(context(), mbs=8), ends(context(), mbs=8, loss_chunks=8)
    one = ends(context(), mbs=1)
    assert chunked.head.both == pytest.approx(8 * one.head.both)
    waiting = slow_hbm()  # for the head's weights, which every chunk reads anew
    assert ends(waiting, mbs=8, loss_chunks=8).head.both > ends(waiting, mbs=8).head.both
    assert (chunked.loss, chunked.embedding) == (whole.loss, whole.embedding)


def test_head_multiplies_every_token_by_the_vocabulary() -> None:
    found = ends(context(), mbs=2)
    assert found.head.forward == pytest.approx(2 * 2 * 64 * 32 * 64 / PEAK, rel=1e-12)
    assert found.head.backward == pytest.approx(2 * found.head.forward, rel=1e-12)


def test_gated_mlp_and_narrow_keys() -> None:
    toy = model(gated_mlp=True, num_key_value_heads=2)
    weights = 2 * 32**2 + 2 * 32 * 16 + 3 * 32 * 128
    found = times(context(model=toy))
    assert found.gemm.forward == pytest.approx(2 * weights * 64 / PEAK, rel=1e-12)


def test_low_precision_speeds_up_the_layers_matmuls_alone() -> None:
    slow, fast = (times(context(training=training(precision=p))) for p in ("bf16", "fp8"))
    assert fast.gemm.forward == pytest.approx(slow.gemm.forward / 2, rel=1e-12)
    assert fast.gemm.backward == pytest.approx(slow.gemm.backward / 2, rel=1e-12)
    heads = [ends(context(training=training(precision=p))) for p in ("bf16", "fp8")]
    assert heads[1].head.forward == pytest.approx(heads[0].head.forward, rel=1e-12)
    assert fast.core.forward == pytest.approx(slow.core.forward, rel=1e-12)


def test_sustained_clock_slows_matmuls_and_attention() -> None:
    full, half = times(context()), times(on_part(sustained_fraction=figure(0.5)))
    for name in ("gemm.forward", "core.forward", "core.backward"):
        assert term(half, name) == pytest.approx(2 * term(full, name), rel=1e-12)
    head = ends(on_part(sustained_fraction=figure(0.5))).head.backward
    assert head == pytest.approx(2 * ends(context()).head.backward, rel=1e-12)


def test_matmul_losses_are_those_of_the_precision_s_kernels() -> None:
    lossy = {"bf16": gemm(), "fp8": gemm(efficiency=0.5)}
    ideal, found = (on_part({"precision": "fp8"}, **parts) for parts in ({}, {"gemm": lossy}))
    whole, half = times(ideal), times(found)
    assert half.gemm.forward == pytest.approx(2 * whole.gemm.forward, rel=1e-12)
    assert ends(found).head.forward == pytest.approx(ends(ideal).head.forward, rel=1e-12)


def test_matmul_without_flops_waits_for_its_operands() -> None:
    """Forward, in elements of 2 bytes: inputs and weights of 4 products once, outputs once."""
    h, f, t = 32, 128, 64
    products = [(3 * h, h), (h, h), (f, h), (h, f)]
    moved = sum(2 * (t * k + k * n + t * n) for n, k in products)
    assert times(slow_hbm()).gemm.forward == pytest.approx(moved / HBM, rel=1e-12)


# ---------------------------------------------------------------- attention


def test_attention_flops_count_the_causal_half() -> None:
    """4·s²·q halved; shared by tp and cp."""
    assert attention_flops(context(), RankShare(1, 1, 1, 0, 1)) == 2 * 64**2 * 32
    assert attention_flops(context(), RankShare(2, 4, 3, 0, 4)) == 3 * 2 * 64**2 * 32 / 8


def test_flash_attention_runs_at_its_share_of_the_peak() -> None:
    flops = 2 * 64**2 * 32
    shares = {"flash": attention(forward=0.5, backward=0.25)}
    found = times(on_part(attention=shares))
    assert found.core.forward == pytest.approx(flops / (0.5 * PEAK), rel=1e-12)
    assert found.core.backward == pytest.approx(2.5 * flops / (0.25 * PEAK), rel=1e-12)


def test_written_scores_do_the_whole_square_and_travel_through_hbm() -> None:
    ideal = times(on_part({"attention": "naive"}))
    flops = 4 * 64**2 * 32
    assert ideal.core.forward == pytest.approx(flops / PEAK, rel=1e-12)
    assert ideal.core.backward == pytest.approx(2 * flops / PEAK, rel=1e-12)
    waiting = times(slow_hbm(attention="naive"), mbs=3)
    shared = times(slow_hbm(attention="naive"), tp=2, cp=2, mbs=3)
    scores = 3 * 4 * 64**2
    # at least out, through the softmax and in again, of 2 bytes each
    assert waiting.core.forward >= 4 * 2 * scores / HBM
    assert waiting.core.backward > waiting.core.forward
    assert shared.core.forward == pytest.approx(waiting.core.forward / 4, rel=1e-12)


def test_short_blocks_run_below_the_share() -> None:
    """Half of it at sequence_half; a ring's blocks are s over its members, gathered keys whole."""
    slow = {"flash": attention(sequence_half=64.0)}
    ideal, found = context(), on_part(attention=slow)
    base = float(times(ideal).core.forward)
    assert times(found).core.forward == pytest.approx(2 * base, rel=1e-12)
    for kind, loss in ((RING, 1 + 64 / 16), (GATHER, 2), (A2A, 2), (HIERARCHICAL, 1 + 64 / 32)):
        cut = times(found, cp=4, kind=kind)
        assert cut.core.forward == pytest.approx(loss * base / 4, rel=1e-12)


def test_packed_documents_shorten_kernels_and_blocks() -> None:
    """16 of 64 tokens: a quarter of the work, in kernels over 16 tokens, or 4 of a ring of 4."""
    slow = {"flash": attention(sequence_half=64.0)}
    base = float(times(context()).core.forward)
    packed = context(
        topology=topology(accelerator=accelerator(attention=slow)),
        training=training(mean_document_length=16),
    )
    for cp, kind, block in ((1, RING, 16), (4, RING, 4), (4, GATHER, 16), (4, A2A, 16)):
        found = times(packed, cp=cp, kind=kind).core.forward
        assert found == pytest.approx((1 + 64 / block) * base / 4 / cp, rel=1e-12)


def test_written_scores_are_masked_not_left_out() -> None:
    whole, packed = (
        times(context(training=training(attention="naive", mean_document_length=length)))
        for length in (None, 16)
    )
    assert packed == whole


# ---------------------------------------------------------------- memory-bound kernels


def test_memory_bound_kernels_follow_tokens_and_hbm() -> None:
    for part, names in (
        (times, ("memory_bound.forward", "memory_bound.backward")),
        (ends, ("loss", "embedding")),
    ):
        once, tripled = part(slow_hbm()), part(slow_hbm(), mbs=3)
        for name in names:
            assert term(once, name) > 0
            assert term(tripled, name) == pytest.approx(3 * term(once, name), rel=1e-12)


def test_memory_bound_kernels_see_a_layer_s_activations_several_times() -> None:
    """A norm and a residual at each of two places, each at least in and out, and the MLP's f."""
    least = 64 * 2 * (2 * 2 * 32 + 2 * 3 * 32 + 2 * 128)
    assert times(slow_hbm()).memory_bound.forward >= least / HBM
    assert times(slow_hbm()).memory_bound.forward <= 2 * least / HBM


def test_sequence_parallelism_shares_norms_and_residuals() -> None:
    whole, parted, shared = (
        float(times(slow_hbm(), tp=tp, sp=sp).memory_bound.forward)
        for tp, sp in ((1, 0), (4, 0), (4, 1))
    )
    assert shared == pytest.approx(whole / 4, rel=1e-12)
    # without it every rank norms all of its sequence
    assert parted - shared == pytest.approx(
        0.75 * 64 * 2 * (2 * 2 * 32 + 2 * 3 * 32) / HBM, rel=1e-12
    )


def test_gated_mlp_dropout_and_rotary_move_more() -> None:
    def forward(**changes: Any) -> float:
        ctx = on_part(toy=model(**changes), hbm_bytes_per_second=HBM)
        return float(times(ctx).memory_bound.forward)

    assert forward(gated_mlp=True) > forward()
    assert forward(dropout=True) > forward()
    assert forward(num_position_embeddings=64) < forward()  # learned ones: nothing to rotate


def test_eager_norms_move_their_fp32_steps() -> None:
    """36 bytes an element forward and 92 back in place of 4 and 6, at both norms; on every rank
    the whole sequence, without sequence parallelism."""
    for tp, sp, share in ((1, 0, 1), (4, 0, 1), (4, 1, 4)):
        fused, eager = (
            times(replace(slow_hbm(), software=software(eager_norm=flag)), tp=tp, sp=sp)
            for flag in (False, True)
        )
        elements = 64 * 2 * 32 / share
        for name, more in (("memory_bound.forward", 36 - 4), ("memory_bound.backward", 92 - 6)):
            added = term(eager, name) - term(fused, name)
            assert added == pytest.approx(elements * more / HBM, rel=1e-9)


def test_eager_activations_and_rotation_move_their_steps() -> None:
    """Gate and rotation, 16 bits: 5 and 9 for 3 and 5 passes of f, 10 and 14 for 2 and 2 of q + k;
    an ungated activation and learned positions are one kernel anyway."""
    gated = on_part(toy=model(gated_mlp=True), hbm_bytes_per_second=HBM)
    plain = on_part(toy=model(num_position_embeddings=64), hbm_bytes_per_second=HBM)
    heads, ffn = 64 * 2 * 32, 64 * 128
    for ctx, more in ((gated, (8 * heads + 2 * ffn, 12 * heads + 4 * ffn)), (plain, (0, 0))):
        fused, eager = (
            times(replace(ctx, software=software(eager_elementwise=flag))) for flag in (False, True)
        )
        for name, passes in zip(
            ("memory_bound.forward", "memory_bound.backward"), more, strict=True
        ):
            added = term(eager, name) - term(fused, name)
            assert added == pytest.approx(2 * passes / HBM, rel=1e-9)


def test_the_software_s_multiplier_is_of_fused_kernels_alone() -> None:
    """What runs operator by operator moves what each operator does, whatever the rest takes."""

    def forward(multiplier: float, **flags: bool) -> float:
        profile = software({"memory_bound_multiplier": multiplier}, **flags)
        return float(times(replace(gated, software=profile)).memory_bound.forward)

    gated = on_part(toy=model(gated_mlp=True), hbm_bytes_per_second=HBM)
    residuals = 3 * 64 * 2 * 32 * 2 / HBM
    flags = {"eager_norm": True, "eager_elementwise": True}
    assert forward(2.0, **flags) - forward(1.0, **flags) == pytest.approx(residuals, rel=1e-9)


def test_low_precision_is_paid_for_in_conversions() -> None:
    slow, fast = (
        times(on_part({"precision": p}, hbm_bytes_per_second=HBM)) for p in ("bf16", "fp8")
    )
    assert fast.memory_bound.forward > slow.memory_bound.forward
    assert fast.memory_bound.backward > slow.memory_bound.backward


def test_scaling_per_row_casts_every_operand_of_every_matmul() -> None:
    """Forward: inputs and weights read in 2 bytes and written in 1; back: inputs and weights across
    their rows, read twice, and gradients both ways, read three times and written twice."""
    bound = {"hbm_bytes_per_second": HBM, "peak_flops": {"bf16": NO_LIMIT, "fp8": NO_LIMIT}}
    per_tensor, per_row, none = (
        times(on_part({"precision": precision}, **bound))
        for precision in ("fp8", "fp8-rowwise", "bf16")
    )
    inputs, gradients = 64 * (32 + 32 + 32 + 128), 64 * (32 + 32 + 96 + 128)
    added = per_tensor.memory_bound.forward - none.memory_bound.forward
    assert added == pytest.approx(4 * inputs / HBM)
    assert per_tensor.memory_bound.backward - none.memory_bound.backward == pytest.approx(
        4 * gradients / HBM
    )
    added = per_row.memory_bound.forward - none.memory_bound.forward
    assert added == pytest.approx(3 * (inputs + WEIGHTS) / HBM)
    added = per_row.memory_bound.backward - none.memory_bound.backward
    assert added == pytest.approx((5 * (inputs + WEIGHTS) + 8 * gradients) / HBM)


def test_every_precision_has_a_recipe() -> None:
    assert set(RECIPES) == set(get_args(TrainingPrecision))
    for precision, recipe in RECIPES.items():
        assert recipe.source and recipe.scales
        cast = recipe.casts.input_forward != (0.0, 0.0)
        assert cast == (precision not in ("bf16", "fp16"))


def test_overhead_is_paid_for_each_kernel() -> None:
    start = 1e-3
    late = {"bf16": gemm(overhead_seconds=start), "fp8": gemm()}
    added = {}
    for part in (times, ends):
        found, ideal = terms(part(on_part(gemm=late))), terms(part(context()))
        added |= {name: (found[name] - ideal[name]) / start for name in found}
    assert added["gemm.forward"] == pytest.approx(4)
    assert added["gemm.backward"] == pytest.approx(8)
    assert added["head.forward"] == pytest.approx(1)
    assert added["head.backward"] == pytest.approx(2)
    for name in ("core.forward", "memory_bound.forward", "loss", "embedding"):
        assert added[name] == pytest.approx(round(added[name])) and added[name] >= 1


# ---------------------------------------------------------------- recompute


def test_recomputed_shares() -> None:
    assert RECOMPUTED["none"] == RecomputedShares()
    assert RECOMPUTED["selective"] == RecomputedShares(attention=1)
    # up-projections are among the matmuls: what is whole is not recomputed twice
    everything = asdict(RecomputedShares()) | dict.fromkeys(asdict(RecomputedShares()), 1.0)
    assert asdict(RECOMPUTED["full"]) == everything | {"up_projection": 0}
    half = {name: share / 2 for name, share in asdict(RECOMPUTED["full"]).items()}
    assert asdict(RECOMPUTED["alternate"]) == half
    operators = RECOMPUTED["operators"]
    assert replace(operators, collectives=0) == RecomputedShares(gemm=0.5, memory_bound=1, scan=1)
    assert 0 <= operators.collectives <= 1
    assert RECOMPUTED["moe"] == RecomputedShares(experts=1)
    assert RECOMPUTED["mla_up_proj"] == RecomputedShares(up_projection=1)
    # of the memory-bound kernels the activation is some, with the norms some more
    act, act_norm = RECOMPUTED["act"], RECOMPUTED["act_norm"]
    assert 0 < act.memory_bound < act_norm.memory_bound < 1
    assert sum(asdict(act).values()) == act.memory_bound
    assert sum(asdict(act_norm).values()) == act_norm.memory_bound


def test_a_layout_s_shares_are_those_of_its_choice() -> None:
    assert set(RECOMPUTED) == set(RECOMPUTE)
    for choice, expected in RECOMPUTED.items():
        assert recomputed_shares(context(), Layout(recompute=choice)) == expected


# ---------------------------------------------------------------- tables

keys = st.tuples(
    st.sampled_from([1, 2, 3, 4, 8]),
    st.sampled_from([1, 2, 3, 4, 8]),
    st.integers(1, 8),
    st.integers(0, 1),
    st.sampled_from([1, 2, 8]),
)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("precision", ["bf16", "fp8"])
@settings(max_examples=25, deadline=None)
@given(rows=st.lists(keys, min_size=1, max_size=8))
def test_table_equals_numbers(backend: str, precision: str, rows: list[tuple[int, ...]]) -> None:
    ctx = LOSSY[backend, precision]
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    table = terms(on_unique(lambda *unique: layer_times(ctx, DENSE, RankShare(*unique)), *columns))
    for i, row in enumerate(rows):
        one = terms(layer_times(ctx, DENSE, RankShare(*row)))
        for name, column in table.items():
            if name == "weight_gradients" and ctx.software.only_1f1b:
                assert column == one[name] == 0.0  # nothing asks for them
                continue
            assert column.shape == (len(rows),) and column.dtype == np.float64
            assert column[i] == pytest.approx(float(one[name]), rel=1e-12), name


@dataclass(frozen=True)
class Mixed:
    """A result of several arrays, for `on_unique` alone."""

    digits: Any
    first: Any


@dataclass(frozen=True)
class Nested:
    """The same with one inside."""

    inner: Mixed
    alone: Any


@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.sampled_from([1, 7, 10**12]), st.integers(-3, 3)),
        min_size=1,
        max_size=20,
    )
)
def test_on_unique_gathers_every_row_and_computes_each_key_once(
    rows: list[tuple[int, ...]],
) -> None:
    lengths = []

    def formula(a: Any, b: Any, c: Any) -> Nested:
        lengths.append(len(a))
        return Nested(Mixed(digits=10.0 * a + 0.5 * c + b, first=1.0 * a), alone=2.0)

    columns = [np.array(column) for column in zip(*rows, strict=True)]
    table = on_unique(formula, *columns)
    assert lengths == [len(set(rows))]
    assert table.inner.digits.tolist() == [10.0 * a + 0.5 * c + b for a, b, c in rows]
    assert table.inner.first.tolist() == [a for a, _, _ in rows]
    assert table.alone == 2.0


def test_on_unique_of_numbers_is_the_formula() -> None:
    assert on_unique(lambda a, b: a + b, 2, 3) == 5
