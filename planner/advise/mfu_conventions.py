"""Ways of counting MFU that differ from ours, as the factors they multiply it by.

Ours: three forward passes' matmuls with the LM head, attention's causal half once, no recompute,
over the dense peak of the declared precision's main matmuls and all accelerators.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from planner.advise.baseline import Baseline
from planner.cost import flops

SPARSE = 2.0
"""Peaks with 2:4 sparsity, as some sheets print first, are twice the dense ones."""

SMALL_FRACTION = 0.01
"""Conventions that change MFU by less are left out."""

Factor = tuple[str, str, float]


@dataclass(frozen=True, slots=True)
class Convention:
    """One way to count MFU otherwise: what it multiplies MFU by, and what is left without it."""

    id: str
    text: str
    factor: float
    mfu: float
    explains: bool


def conventions(
    base: Baseline,
    claimed_mfu: float,
    reference_mfu: float,
    near_fraction: float,
    counted: bool = True,
    pairs: bool = True,
) -> tuple[Convention, ...]:
    """Every convention with the MFU that is left when the claim is counted our way.

    One explains the claim when that is within `near_fraction` of the reference: what the step
    time makes, or the prediction. Those that explain come first.

    counted: whether the claim rests on the user's own FLOP count and peak, or on a time alone.
    pairs: whether to add pairs of a FLOP count and a peak, where nothing explains alone.
    """
    own = [*counts(base), *peaks(base)] if counted else []
    known = [f for f in (*own, *work(base)) if abs(f[2] - 1.0) >= SMALL_FRACTION]
    found = [_convention(f, claimed_mfu, reference_mfu, near_fraction) for f in known]
    if pairs and not any(convention.explains for convention in found):
        for (id_a, text_a, a), (id_b, text_b, b) in product(counts(base), peaks(base)):
            pair = (f"{id_a}+{id_b}", f"{text_a}, and {text_b}", a * b)
            both = _convention(pair, claimed_mfu, reference_mfu, near_fraction)
            found += [both] if both.explains else []
    return tuple(sorted(found, key=lambda c: (not c.explains, abs(c.mfu / reference_mfu - 1.0))))


def _convention(factor: Factor, claimed: float, reference: float, near: float) -> Convention:
    id_, text, size = factor
    left = claimed / size
    return Convention(id_, text, size, left, abs(left / reference - 1.0) <= near)


def counts(base: Baseline) -> Iterator[Factor]:
    """Other FLOP counts of the same step."""
    ctx = base.ctx
    layers, attention, scans, head = flops.forward_flops_per_token(ctx)
    ours = layers + attention + scans + head
    model = flops.model_flops(ctx)
    executed = float(flops.executed_flops(ctx, base.layout))
    yield "full-attention", "both halves of the causal mask counted", 1.0 + attention / ours
    if executed > model:
        yield "recompute", "recomputed FLOPs counted (that is HFU)", executed / model
    if base.layout.recompute != "full":
        yield "full-recompute", "a whole recomputed forward pass counted", 4.0 / 3.0
    six = 6.0 * ctx.model.num_parameters * flops.tokens_per_step(ctx)
    yield "six-parameters", "6 FLOPs per parameter and token, no attention", six / model
    yield "no-head", "the LM head left out", (layers + attention + scans) / ours


def peaks(base: Baseline) -> Iterator[Factor]:
    """Other denominators."""
    ctx = base.ctx
    for name, peak in ctx.accelerator.peak_flops.items():
        ratio = ctx.peak_flops / float(peak)
        if name == "bf16" and ratio > 1.0:
            yield "bf16-peak", "divided by the BF16 peak", ratio
        elif ratio < 1.0:
            text = f"the matmuls ran in {name}, not {ctx.training.peak_key}"
            yield f"{name}-ran", text, 1.0 / ratio
    yield "sparse-peak", "divided by the sparse peak, twice the dense one", 1.0 / SPARSE


def work(base: Baseline) -> Iterator[Factor]:
    """Work that is counted and not done, tokens or ranks miscounted."""
    layout = base.layout
    if layout.cp > 1:
        layers, attention, scans, head = flops.forward_flops_per_token(base.ctx)
        done = layers + attention / layout.cp + scans + head
        text = "context parallelism not in force: ranks attend to their own shards alone"
        yield "context-parallel-off", text, (layers + attention + scans + head) / done
    model_parallel = layout.tp * layout.cp * layout.pp
    if model_parallel > 1:
        text = f"every rank's tokens counted as its own, though {model_parallel} share them"
        yield "model-parallel-ranks", text, float(model_parallel)
    if layout.num_microbatches > 1:
        text = "the time of one micro-batch taken for the step's"
        yield "micro-batch-time", text, float(layout.num_microbatches)
