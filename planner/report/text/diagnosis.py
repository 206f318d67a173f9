"""A measured run against its prediction, as words and tables, down the decision tree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from planner.advise.diagnose import Diagnosis, Suspect
from planner.advise.mfu_conventions import Convention
from planner.inputs.units import format_quantity
from planner.report.text.explanation import headline, times, waits_for
from planner.report.text.numbers import ABSENT, percent, seconds, signed_percent
from planner.report.text.pieces import (
    BAD,
    FAIR,
    GOOD,
    STRONG,
    Fact,
    facts,
    note,
    printable,
    section,
    stacked,
    table,
    warnings_section,
)


def diagnosis_report(diagnosis: Diagnosis) -> RenderableType:
    """What was measured, the verdict, and what follows from it."""
    ledger = waits_for(diagnosis.plan, diagnosis.regime, "What the predicted step waits for")
    return stacked(
        headline(diagnosis.plan),
        _compared(diagnosis),
        *_verdict(diagnosis),
        ledger if diagnosis.step_seconds is not None else None,
        warnings_section(diagnosis.warnings),
    )


def _compared(diagnosis: Diagnosis) -> RenderableType:
    predicted_step = seconds(diagnosis.predicted_step_seconds, 4)
    rows: list[Fact] = [
        ("Measured", ", ".join(_measured(diagnosis))),
        ("Predicted", f"step {predicted_step}, MFU {percent(diagnosis.predicted_mfu)}"),
    ]
    if diagnosis.step_seconds is not None:
        beyond = diagnosis.step_seconds / diagnosis.predicted_step_seconds - 1.0
        rows.append(("Step", f"{signed_percent(beyond)} against the prediction"))
    return Group(Text(""), facts(rows))


def _measured(diagnosis: Diagnosis) -> Iterator[str]:
    if diagnosis.step_seconds is not None:
        yield f"step {seconds(diagnosis.step_seconds, 4)}"
    if diagnosis.claimed_mfu is not None:
        yield f"MFU {percent(diagnosis.claimed_mfu)} as given"
    if diagnosis.mfu is not None:
        yield f"MFU {percent(diagnosis.mfu)} by the step time"


def _verdict(diagnosis: Diagnosis) -> Iterator[RenderableType]:
    if diagnosis.verdict == "accounting-error":
        yield _accounting_error(diagnosis)
    elif diagnosis.verdict == "as-predicted":
        yield section(
            "As predicted",
            Text(
                f"The run is within {percent(diagnosis.near_fraction, 0)} of the prediction: it "
                "does what its walls allow.",
                GOOD,
            ),
        )
    elif diagnosis.verdict == "above":
        yield section(
            "Faster than predicted",
            Text(
                "The prediction is too pessimistic here, or something was counted differently.",
                FAIR,
            ),
            _conventions(diagnosis.conventions),
        )
    if diagnosis.suspects:
        yield from _below(diagnosis)


def _accounting_error(diagnosis: Diagnosis) -> RenderableType:
    by_step_time = diagnosis.mfu
    claimed = by_step_time if diagnosis.claimed_mfu is None else diagnosis.claimed_mfu
    assert claimed is not None
    if claimed > 1:
        reason = f"An MFU of {percent(claimed)} is above the dense peak: no run can do that."
    elif by_step_time is not None and by_step_time > 1:
        reason = f"The step time implies an MFU of {percent(by_step_time)}: no run can do that."
    else:
        reason = "The MFU given and the step time contradict each other."
    return section(
        "Accounting error",
        Text(reason, BAD),
        _conventions(diagnosis.conventions),
        note(
            "MFU here counts the matmuls of three forward passes with the LM head, the causal half "
            "of attention once and no recompute, over the dense peak. If nothing explains the "
            "difference, work is missing: an axis not in effect, tokens dropped or counted twice."
        ),
    )


def _conventions(conventions: Sequence[Convention]) -> RenderableType | None:
    if not conventions:
        return None
    rows = [
        (
            percent(convention.mfu),
            Text("explains", GOOD) if convention.explains else "",
            f"{printable(convention.text)} ({convention.factor:.3g} ×)",
        )
        for convention in conventions
    ]
    return table([("MFU then", "r"), ("", "l"), ("if the difference is", "w")], rows)


# ---------------------------------------------------------------- below the prediction


def _below(diagnosis: Diagnosis) -> Iterator[RenderableType]:
    missing = diagnosis.unexplained_seconds or 0.0
    share = missing / diagnosis.predicted_step_seconds
    yield section(
        "Below the prediction",
        Text(
            f"{seconds(missing)} of each step is unexplained, {percent(share)} of the predicted "
            "step.",
            BAD,
        ),
        _conventions(diagnosis.conventions) if diagnosis.verdict == "below" else None,
    )
    off = [suspect for suspect in diagnosis.suspects if suspect.kind == "off"]
    if off:
        yield section(
            "Is something off that the prediction assumes?",
            table(
                [("explains", "r"), ("step", "r"), ("if", "w")],
                [(percent(s.explained_fraction, 0), seconds(s.step_seconds), s.text) for s in off],
            ),
        )
    slow = [suspect for suspect in diagnosis.suspects if suspect.kind == "slow"]
    yield section(
        "Is something slow? How slow each would have to be to explain all of it",
        table(
            [("slower", "r"), ("at", "r"), ("if", "w")],
            [(_factor(s), _value(s), Text(s.text)) for s in slow],
        ),
        note("Measure the first ones: nccl-tests per tier, times of each rank, a kernel trace."),
    )


def _factor(suspect: Suspect) -> RenderableType:
    return Text(ABSENT if suspect.factor is None else f"{times(suspect.factor)} ×", STRONG)


def _value(suspect: Suspect) -> str:
    if suspect.value is None or suspect.unit is None:
        return ABSENT
    return format_quantity(suspect.value, suspect.unit, 3)
