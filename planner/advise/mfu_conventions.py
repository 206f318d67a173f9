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


@dataclass(frozen=True, slots=True)
class Convention:
    """Another way to count MFU.

    factor: what it multiplies MFU by. mfu: the claim without it. explains: whether that is near
    the reference.
    """

    id: str
    text: str
    factor: float
    mfu: float
    explains: bool


@dataclass(frozen=True, slots=True)
class _Factor:
    id: str
    text: str
    size: float

    def times(self, other: _Factor) -> _Factor:
        """Both at once."""
        return _Factor(
            f"{self.id}+{other.id}", f"{self.text}, and {other.text}", self.size * other.size
        )


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

    counted: whether the claim rests on the user's own FLOP count and peak, or only on a time.
    pairs: whether to add pairs of a FLOP count and a peak, where no single convention explains.
    """

    def judged(factor: _Factor) -> Convention:
        mfu = claimed_mfu / factor.size
        explains = abs(mfu / reference_mfu - 1.0) <= near_fraction
        return Convention(factor.id, factor.text, factor.size, mfu, explains)

    factors = [*_counts(base), *_peaks(base)] if counted else []
    factors += _work(base)
    known = [judged(f) for f in factors if abs(f.size - 1.0) >= SMALL_FRACTION]
    if pairs and not any(convention.explains for convention in known):
        both = (judged(count.times(peak)) for count, peak in product(_counts(base), _peaks(base)))
        known += [convention for convention in both if convention.explains]
    return tuple(sorted(known, key=lambda c: (not c.explains, abs(c.mfu / reference_mfu - 1.0))))


def _counts(base: Baseline) -> Iterator[_Factor]:
    """Other FLOP counts of the same step."""
    ctx = base.ctx
    layers, attention, scans, head = flops.forward_flops_per_token(ctx)
    ours = layers + attention + scans + head
    model = flops.model_flops(ctx)
    executed = float(flops.executed_flops(ctx, base.layout))
    yield _Factor(
        "full-attention", "both halves of the causal mask counted", 1.0 + attention / ours
    )
    if executed > model:
        yield _Factor("recompute", "recomputed FLOPs counted (that is HFU)", executed / model)
    if base.layout.recompute != "full":
        yield _Factor("full-recompute", "a whole recomputed forward pass counted", 4.0 / 3.0)
    six = 6.0 * ctx.model.num_parameters * flops.tokens_per_step(ctx)
    yield _Factor("six-parameters", "6 FLOPs per parameter and token, no attention", six / model)
    yield _Factor("no-head", "the LM head left out", (layers + attention + scans) / ours)


def _peaks(base: Baseline) -> Iterator[_Factor]:
    """Other denominators."""
    ctx = base.ctx
    for name, peak in ctx.accelerator.peak_flops.items():
        ratio = ctx.peak_flops / float(peak)
        if name == "bf16" and ratio > 1.0:
            yield _Factor("bf16-peak", "divided by the BF16 peak", ratio)
        elif ratio < 1.0:
            text = f"the matmuls ran in {name}, not {ctx.training.peak_key}"
            yield _Factor(f"{name}-ran", text, 1.0 / ratio)
    text = "divided by the sparse peak, twice the dense one"
    yield _Factor("sparse-peak", text, 1.0 / SPARSE)


def _work(base: Baseline) -> Iterator[_Factor]:
    """Work that is counted and not done, tokens or ranks miscounted."""
    layout = base.layout
    if layout.cp > 1:
        layers, attention, scans, head = flops.forward_flops_per_token(base.ctx)
        done = layers + attention / layout.cp + scans + head
        text = "context parallelism not in force: ranks attend to their own shards alone"
        counted = layers + attention + scans + head
        yield _Factor("context-parallel-off", text, counted / done)
    model_parallel = layout.tp * layout.cp * layout.pp
    if model_parallel > 1:
        text = f"every rank's tokens counted as its own, though {model_parallel} share them"
        yield _Factor("model-parallel-ranks", text, float(model_parallel))
    if layout.num_microbatches > 1:
        text = "the time of one micro-batch taken for the step's"
        yield _Factor("micro-batch-time", text, float(layout.num_microbatches))
