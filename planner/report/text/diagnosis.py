"""A measured run beside its prediction, as words and tables, down the decision tree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from planner.advise.diagnose import Diagnosis, Suspect
from planner.advise.mfu_conventions import Convention
from planner.inputs.units import format_quantity
from planner.report.text.explanation import head, times, waits_for, warnings
from planner.report.text.numbers import ABSENT, percent, seconds, signed_percent
from planner.report.text.pieces import (
    BAD,
    FAIR,
    GOOD,
    STRONG,
    facts,
    note,
    printable,
    section,
    table,
)


def diagnosis_report(diagnosis: Diagnosis) -> RenderableType:
    """What was measured, the verdict, and what follows from it."""
    ledger = waits_for(diagnosis.plan, diagnosis.regime, "What the predicted step waits for")
    parts = [
        head(diagnosis.plan),
        _compared(diagnosis),
        *_answer(diagnosis),
        ledger if diagnosis.step_seconds is not None else None,
        warnings(diagnosis.warnings),
    ]
    return Group(*(part for part in parts if part is not None))


def _compared(diagnosis: Diagnosis) -> RenderableType:
    rows: list[tuple[str, RenderableType | str | None]] = [
        ("Measured", ", ".join(_measured(diagnosis))),
        (
            "Predicted",
            f"step {seconds(diagnosis.predicted_step_seconds, 4)}, "
            f"MFU {percent(diagnosis.predicted_mfu)}",
        ),
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


def _answer(diagnosis: Diagnosis) -> Iterator[RenderableType]:
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
            Text("The model is too careful here, or something was counted otherwise.", FAIR),
            _conventions(diagnosis.conventions),
        )
    if diagnosis.suspects:
        yield from _below(diagnosis)


def _accounting_error(diagnosis: Diagnosis) -> RenderableType:
    claimed = diagnosis.claimed_mfu if diagnosis.mfu is None else diagnosis.mfu
    claimed = diagnosis.claimed_mfu if diagnosis.claimed_mfu is not None else claimed
    assert claimed is not None
    if claimed > 1:
        reason = f"An MFU of {percent(claimed)} is above the dense peak: no run can do that."
    elif diagnosis.mfu is not None and diagnosis.mfu > 1:
        reason = f"The step time makes an MFU of {percent(diagnosis.mfu)}: no run can do that."
    else:
        reason = "The MFU given and the step time do not belong together."
    return section(
        "Accounting error",
        Text(reason, BAD),
        _conventions(diagnosis.conventions),
        note(
            "MFU here: three forward passes' matmuls with the LM head, attention's causal half "
            "once, no recompute, over the dense peak. If nothing explains it, work is missing: an "
            "axis not in force, tokens dropped or counted twice."
        ),
    )


def _conventions(found: Sequence[Convention]) -> RenderableType | None:
    if not found:
        return None
    rows = [
        (
            percent(convention.mfu),
            Text("explains", GOOD) if convention.explains else "",
            f"{printable(convention.text)} ({convention.factor:.3g} ×)",
        )
        for convention in found
    ]
    return table([("MFU left", "r"), ("", "l"), ("if what differs is", "w")], rows)


# ---------------------------------------------------------------- below the prediction


def _below(diagnosis: Diagnosis) -> Iterator[RenderableType]:
    missing = diagnosis.unexplained_seconds or 0.0
    share = missing / diagnosis.predicted_step_seconds
    yield section(
        "Below the prediction",
        Text(
            f"{seconds(missing)} a step are unexplained, {percent(share)} of the predicted step.",
            BAD,
        ),
        _conventions(diagnosis.conventions) if diagnosis.verdict == "below" else None,
    )
    off = [suspect for suspect in diagnosis.suspects if suspect.kind == "off"]
    if off:
        yield section(
            "Is something off that the prediction counts on?",
            table(
                [("explains", "r"), ("step", "r"), ("if", "w")],
                [(percent(s.explained_fraction, 0), seconds(s.step_seconds), s.text) for s in off],
            ),
        )
    slow = [suspect for suspect in diagnosis.suspects if suspect.kind == "slow"]
    yield section(
        "Is something slow? To explain all of it alone",
        table(
            [("slower", "r"), ("at", "r"), ("if", "w")],
            [(_times(s), _value(s), Text(s.text)) for s in slow],
        ),
        note("Measure the first of these: nccl-tests per tier, ranks' own times, a kernel trace."),
    )


def _times(suspect: Suspect) -> RenderableType:
    return Text(ABSENT if suspect.factor is None else f"{times(suspect.factor)} ×", STRONG)


def _value(suspect: Suspect) -> str:
    if suspect.value is None or suspect.unit is None:
        return ABSENT
    return format_quantity(suspect.value, suspect.unit, 3)
