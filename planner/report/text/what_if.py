"""What other hardware, precisions and counts would gain, as words and tables."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from planner.advise.break_even import BreakEven, Trial
from planner.advise.scaling import ScalePoint, Scaling
from planner.advise.what_if import Upgrade, WhatIf
from planner.layouts.layout import Layout
from planner.report.text.numbers import ABSENT, in_words, or_absent, percent, seconds
from planner.report.text.pieces import (
    FAIR,
    GOOD,
    STRONG,
    Phrases,
    Row,
    note,
    printable,
    section,
    table,
)
from planner.report.text.plan import plan_report
from planner.report.text.sweep_rows import COUNT
from planner.report.text.terms import by_size, differences

NOTHING = 0.0005
"""Gains below this share of the step count as none."""

UPGRADES = "What each change would save"
SCALING = "More or fewer accelerators, same batch"

SHOWN_TERMS = 2
SHOWN_CHANGES = 5


def what_if_report(outlook: WhatIf) -> RenderableType:
    """The plan in a line, then upgrades, the break-even and the scaling curve."""
    plan = outlook.plan
    if plan.layout is None or plan.objective_seconds is None:
        return plan_report(plan)
    inputs = plan.inputs
    head = Text(
        f"{printable(inputs['model']['name'])} on {inputs['num_accelerators']:,} × "
        f"{printable(inputs['topology']['accelerator']['name'])}: "
        f"{seconds(plan.objective_seconds, 4)} a step at best",
        STRONG,
    )
    return Group(head, note(plan.layout.label()), *what_if_sections(outlook))


def what_if_sections(outlook: WhatIf) -> list[RenderableType]:
    """Upgrades, the break-even and the scaling curve, and the effort; none where no layout fits,
    so that nothing was tried."""
    if outlook.plan.layout is None:
        return []
    blocks = [
        _upgrades(outlook),
        None if outlook.break_even is None else _break_even(outlook.break_even),
        None if outlook.scaling is None else _scaling(outlook.scaling),
        Text(""),
        note(
            f"{outlook.plans_made} plans, each searched and proven anew "
            f"({seconds(outlook.cpu_seconds)} of CPU)"
        ),
    ]
    return [block for block in blocks if block is not None]


# ---------------------------------------------------------------- upgrades


def _upgrades(outlook: WhatIf) -> RenderableType:
    base_seconds = outlook.plan.objective_seconds or 0.0
    rows = [_upgrade(upgrade, base_seconds) for upgrade in outlook.upgrades]
    columns = [("change", "w"), ("step", "r"), ("saves", "r"), ("what it changes", "w")]
    return section(UPGRADES, table(columns, rows))


def _upgrade(upgrade: Upgrade, base_seconds: float) -> Row:
    if upgrade.step_seconds is None or upgrade.gain_fraction is None:
        reason = f"not possible: {printable(upgrade.infeasible or '')}"
        return printable(upgrade.text), ABSENT, ABSENT, Text(reason, FAIR)
    gain = upgrade.gain_fraction
    saving = Text(_saving(gain))
    if abs(gain) >= NOTHING:
        saving.stylize(GOOD if gain > 0 else FAIR)
    return (
        printable(upgrade.text),
        seconds(upgrade.step_seconds, 4),
        saving,
        Phrases(_effects(upgrade, base_seconds), joint="; "),
    )


def _saving(fraction: float) -> str:
    return percent(fraction) if abs(fraction) >= NOTHING else "nothing"


def _effects(upgrade: Upgrade, base_seconds: float) -> list[str]:
    """How the layout changes, what the old one would save, and in which terms the gain is."""
    changes = list(upgrade.layout_changes.items())[:SHOWN_CHANGES]
    effects = [
        ", ".join(f"{key} {_value(before)} → {_value(after)}" for key, (before, after) in changes)
        or "the same layout"
    ]
    if upgrade.same_layout_seconds is not None and changes:
        saving = _saving(1.0 - upgrade.same_layout_seconds / base_seconds)
        effects.append(f"with the old layout it saves {saving}")
    largest = by_size(upgrade.terms)[:SHOWN_TERMS]
    effects += differences(item for item in largest if abs(item[1]) >= NOTHING * base_seconds)
    return effects


def _value(value: Any) -> str:
    return or_absent(str, value)


# ---------------------------------------------------------------- break-even


def _break_even(even: BreakEven) -> RenderableType:
    blocks: list[RenderableType] = [Text(_verdict(even))]
    if even.assumed is not None:
        blocks.append(note(even.assumed))
    if even.trials:
        columns = [
            ("network", "r"), ("vs today", "r"), ("FSDP", "r"), ("rival", "r"),
            ("FSDP", "l"), ("rival's layout", "w"),
        ]  # fmt: skip
        blocks.append(table(columns, [_trial(trial) for trial in even.trials]))
    return section("When FSDP by itself (ZeRO-3, tp = cp = pp = 1) would suffice", *blocks)


def _trial(trial: Trial) -> Row:
    # of a rival that was not proven best, it is known only that the best is no slower
    at_most = "" if trial.proven else "≤ "
    return (
        _rate(trial.bytes_per_second),
        f"{trial.factor:.4g}×",
        seconds(trial.fsdp_seconds, 4),
        f"{at_most}{seconds(trial.best_seconds, 4)}",
        "matches" if trial.matches else "is slower",
        or_absent(Layout.label, trial.layout),
    )


def _verdict(even: BreakEven) -> str:
    within = f"within {percent(even.match_fraction, 0)} of the best layout"
    if even.verdict == "impossible":
        return f"It does not apply: {even.reason}."
    if even.verdict == "always" and even.upper is not None:
        return f"Already today: {within} down to {_rate(even.upper)}, the lowest bandwidth tried."
    if even.verdict == "never" and even.lower is not None:
        return f"Never: even at {_rate(even.lower)} it is not {within}."
    assert even.lower is not None and even.upper is not None and even.now is not None
    return (
        f"From {_rate(even.upper)} per accelerator up ({even.upper / even.now:.3g} times today's "
        f"{_rate(even.now)}) it is {within}; at {_rate(even.lower)} it is not."
    )


def _rate(bytes_per_second: float) -> str:
    rate = bytes_per_second / 1e9
    return f"{rate:,.4g} GB/s" if rate < 1e4 else f"{rate:,.0f} GB/s"


# ---------------------------------------------------------------- scaling


def _scaling(scaling: Scaling) -> RenderableType:
    columns = [
        ("accelerators", "r"), ("step", "r"), ("tokens/s", "r"), ("MFU", "r"),
        ("efficiency", "r"), ("marginal", "r"), ("layout", "w"),
    ]  # fmt: skip
    threshold = percent(scaling.threshold_fraction, 0)
    if scaling.wasted_beyond is None:
        last = scaling.points[-1].num_accelerators if scaling.points else 0
        text = (
            f"Up to {last:,} accelerators, each added one brings at least {threshold} of the "
            "average before it."
        )
    else:
        text = (
            f"More than {scaling.wasted_beyond:,} accelerators are wasted: each added one brings "
            f"less than {threshold} of the average before it, or no layout fits."
        )
    return section(
        SCALING,
        table(columns, [_scale_point(point) for point in scaling.points]),
        Text(text),
        note(
            "efficiency: throughput per accelerator over that of the smallest count; marginal: of "
            "the added ones, over that of the count before"
        ),
    )


def _scale_point(point: ScalePoint) -> Row:
    return (
        f"{point.num_accelerators:,}",
        "nothing fits" if point.step_seconds is None else seconds(point.step_seconds, 4),
        or_absent(in_words, point.tokens_per_second),
        or_absent(percent, point.mfu),
        or_absent(percent, point.efficiency_fraction),
        or_absent(percent, point.marginal_fraction),
        or_absent(Layout.label, point.layout),
    )


def scaling_rows(scaling: Scaling) -> list[dict[str, Any]]:
    """The points as rows of a sweep, for its picture."""
    return [_scaling_row(point) for point in scaling.points]


def _scaling_row(point: ScalePoint) -> dict[str, Any]:
    rate = point.tokens_per_second
    return {
        COUNT: point.num_accelerators,
        "status": "infeasible" if rate is None else "optimal",
        "layout": or_absent(Layout.label, point.layout),
        "tokens_per_second_per_accelerator": rate and rate / point.num_accelerators,
    }
