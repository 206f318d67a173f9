"""What each phenomenon of the cost model is worth: the error without it, of published runs.

    python benchmarks/ablation.py
    python benchmarks/ablation.py --sources

Each phenomenon is taken out alone, and the timed rows of quality A and B with an MFU of at least
MIN_MFU are predicted again. Numbers are not fitted anew: a phenomenon that others make up for after
a fit looks better here than it is. `ablate` takes another `Predict`, so that a fit can go between.
Prints a table of dense models and one of models with experts; with --sources, also every source
whose error a phenomenon moves by MOVED or more.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from planner.cost import context as contexts
from planner.cost import experts, overheads, overlap
from planner.cost.context import AttentionSpan, CostContext, attended_share
from planner.cost.passes import ForwardBackward
from planner.cost.step import evaluate
from planner.evidence.metrics import TimeErrors
from planner.evidence.published_runs import PUBLISHED_RUNS, read_runs
from planner.evidence.row_predictions import Prediction, Selection, is_timed, predict_rows
from planner.inputs.quantities import Figure
from planner.problem.model import Model
from planner.problem.scenario import Scenario

MIN_MFU = 0.15
MOVED = 0.001
"""A change of a source's error that is listed."""

Change = Callable[[Scenario], Scenario]


_ZERO = Figure(0.0, "ablation", "assumed")


def _unchanged(scenario: Scenario) -> Scenario:
    return scenario


def _with_coefficients(*names: str) -> Change:
    """These coefficients of the software at 0."""

    def change(scenario: Scenario) -> Scenario:
        values = dict.fromkeys(names, _ZERO)
        coefficients = scenario.software.coefficients.model_copy(update=values)
        return _with(scenario, "software", coefficients=coefficients)

    return change


def _with_overhead(name: str) -> Change:
    """This overhead of the cluster at 0."""

    def change(scenario: Scenario) -> Scenario:
        changed = scenario.topology.overheads.model_copy(update={name: _ZERO})
        return _with(scenario, "topology", overheads=changed)

    return change


def _with_field(part: str, name: str, value: Any) -> Change:
    """A field of the scenario's model, software or topology."""
    return lambda scenario: _with(scenario, part, **{name: value})


def _with(scenario: Scenario, part: str, **values: Any) -> Scenario:
    changed = getattr(scenario, part).model_copy(update=values)
    return scenario.model_copy(update={part: changed})


def _one_rate_of_heads(scenario: Scenario) -> Scenario:
    """Attention as fast with heads of any size."""
    part = scenario.topology.accelerator
    attention = {
        name: kernel.model_copy(update={"head_half": None})
        for name, kernel in part.attention.items()
    }
    changed = part.model_copy(update={"attention": attention})
    return _with(scenario, "topology", accelerator=changed)


def _one_clock(scenario: Scenario) -> Scenario:
    """The clock of 16-bit matmuls in every precision."""
    part = scenario.topology.accelerator
    clocks = part.sustained_fraction
    usual = clocks.get("bf16") or next(iter(clocks.values()))
    changed = part.model_copy(update={"sustained_fraction": dict.fromkeys(clocks, usual)})
    return _with(scenario, "topology", accelerator=changed)


def _shared_posting(scenario: Scenario) -> Scenario:
    """Sends of an all-to-all posted in the usual share of the base latency on every fabric."""
    tiers = tuple(
        tier.model_copy(update={"fabric": tier.fabric.model_copy(update={"posting_seconds": None})})
        for tier in scenario.topology.tiers
    )
    return _with(scenario, "topology", tiers=tiers)


def _exact_spans(
    model: Model, sequence_length: int, document_length: int
) -> tuple[AttentionSpan, ...]:
    """The scores under windows alone, at the rate of whole documents."""
    share = attended_share(model, sequence_length, document_length)
    return (AttentionSpan(share, float(document_length)),)


@dataclass(frozen=True)
class Phenomenon:
    """Something that the cost model accounts for, and how to take it out.

    change: of the scenario; patches: of the code, as (module, name, value), where no number of a
    scenario switches it off.
    """

    name: str
    change: Change = _unchanged
    patches: tuple[tuple[Any, str, Any], ...] = ()


NOTHING = Phenomenon("nothing")

_NO_BYTES = ForwardBackward(0.0, 0.0)

PHENOMENA = (
    Phenomenon("hidden traffic slows the work", _with_coefficients("contention_fraction")),
    Phenomenon("hidden dispatch slows the work", patches=((overlap, "DISPATCH_SHARE", 0.0),)),
    Phenomenon("waits at collectives of TP", _with_overhead("collective_seconds")),
    Phenomenon("stragglers", _with_overhead("straggler_fraction_per_doubling")),
    Phenomenon("unexplained share", _with_coefficients("unexplained_fraction")),
    Phenomenon("unexplained seconds", _with_coefficients("unexplained_seconds")),
    Phenomenon(
        "launches of overlapped experts", patches=((overheads, "OVERLAPPED_LAUNCHES", 1.0),)
    ),
    Phenomenon("deferred head gradients", _with_field("software", "deferred_head_gradients", 0)),
    Phenomenon("slower small heads", _one_rate_of_heads),
    Phenomenon("windows in tiles", patches=((contexts, "attention_spans", _exact_spans),)),
    Phenomenon(
        "biases of experts",
        patches=((experts, "BIAS_BYTES", _NO_BYTES), (experts, "BIAS_KERNELS", _NO_BYTES)),
    ),
    Phenomenon("clamped activations", _with_field("model", "clamped_activation", False)),
    Phenomenon("clocks by precision", _one_clock),
    Phenomenon("posting by fabric", _shared_posting),
)

Predict = Callable[[Sequence[Prediction], Phenomenon], Sequence[float]]
"""Seconds of a step of every row without a phenomenon."""


def without_refit(rows: Sequence[Prediction], phenomenon: Phenomenon) -> list[float]:
    """Seconds with every other number as it ships."""
    with ExitStack() as stack:
        for module, name, value in phenomenon.patches:
            stack.enter_context(patch.object(module, name, value))
        return [_seconds(row, phenomenon.change(row.scenario)) for row in rows]


def _seconds(row: Prediction, scenario: Scenario) -> float:
    return float(evaluate(CostContext.of(scenario), row.layout, row.splits).total)


# ---------------------------------------------------------------- errors


@dataclass(frozen=True)
class Ablation:
    """A phenomenon, and the seconds of every row without it."""

    phenomenon: Phenomenon
    seconds: Sequence[float]


def timed_rows() -> list[Prediction]:
    """The rows that count in the errors."""
    selection = Selection(quality="AB", min_mfu=MIN_MFU)
    rows = predict_rows(selection.rows(read_runs(PUBLISHED_RUNS))).rows
    return [row for row in rows if is_timed(row, selection.min_mfu)]


def ablate(rows: Sequence[Prediction], predict: Predict = without_refit) -> list[Ablation]:
    """The rows with everything, then without each phenomenon."""
    return [Ablation(one, predict(rows, one)) for one in (NOTHING, *PHENOMENA)]


def errors_of(
    rows: Sequence[Prediction], seconds: Sequence[float], group: Callable[[Prediction], str]
) -> Mapping[str, TimeErrors]:
    """Errors by group of rows."""
    by_group: dict[str, list[float]] = defaultdict(list)
    for row, predicted in zip(rows, seconds, strict=True):
        assert row.measured_seconds is not None
        by_group[group(row)].append(predicted / row.measured_seconds - 1)
    return {name: TimeErrors.of(errors) for name, errors in sorted(by_group.items())}


def models_of(row: Prediction) -> str:
    """Whether the row's model is dense or has experts."""
    return "experts" if row.scenario.model.moe is not None else "dense"


def source_of(row: Prediction) -> str:
    """The row's source, dense models and those with experts apart."""
    return f"{row.source} | {models_of(row)}"


# ---------------------------------------------------------------- tables


def _percent(fraction: float | None, signed: bool = False) -> str:
    return f"{100 * (fraction or 0.0):{'+' if signed else ''}.2f} %"


def _cells(before: TimeErrors, after: TimeErrors) -> list[str]:
    """Error and bias of both, and by how much the error rises."""
    rises = (after.mape_fraction or 0.0) - (before.mape_fraction or 0.0)
    return [
        _percent(after.mape_fraction),
        f"{100 * rises:+.2f}",
        _percent(after.bias_fraction, signed=True),
    ]


def totals(rows: Sequence[Prediction], ablations: Sequence[Ablation], models: str) -> Iterator[str]:
    """The table of dense models, or of models with experts; a line each."""
    chosen = [i for i, row in enumerate(rows) if models_of(row) == models]
    yield f"| without, {len(chosen)} rows of {models} models | rows it moves | MAPE | more | bias |"
    yield "|---|---|---|---|---|"
    whole = ablations[0].seconds
    for one in ablations:
        moved = sum(abs(one.seconds[i] / whole[i] - 1) > 1e-9 for i in chosen)
        before, after = (
            errors_of([rows[i] for i in chosen], [seconds[i] for i in chosen], models_of)[models]
            for seconds in (whole, one.seconds)
        )
        yield " | ".join([f"| {one.phenomenon.name} | {moved}", *_cells(before, after)]) + " |"


def sources(rows: Sequence[Prediction], ablations: Sequence[Ablation]) -> Iterator[str]:
    """The table of sources whose error a phenomenon moves; a line each."""
    yield "| without | source | models | rows | with it | MAPE | more | bias |"
    yield "|---|---|---|---|---|---|---|---|"
    before = errors_of(rows, ablations[0].seconds, source_of)
    for one in ablations[1:]:
        after = errors_of(rows, one.seconds, source_of)
        for name, was in before.items():
            now = after[name]
            if abs((now.mape_fraction or 0.0) - (was.mape_fraction or 0.0)) < MOVED:
                continue
            cells = [str(was.rows), _percent(was.mape_fraction), *_cells(was, now)]
            yield " | ".join([f"| {one.phenomenon.name} | {name}", *cells]) + " |"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sources", action="store_true", help="errors by source, too")
    wants = parser.parse_args()
    rows = timed_rows()
    ablations = ablate(rows)
    for models in ("dense", "experts"):
        print("\n".join(totals(rows, ablations, models)), end="\n\n")
    if wants.sources:
        print("\n".join(sources(rows, ablations)))


if __name__ == "__main__":
    main()
