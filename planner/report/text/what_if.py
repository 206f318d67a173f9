"""What other machines would buy, as words and tables."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from planner.advise.break_even import BreakEven
from planner.advise.scaling import ScalePoint, Scaling
from planner.advise.what_if import Upgrade, WhatIf
from planner.layouts.layout import Layout
from planner.report.text.numbers import ABSENT, percent, seconds, signed_seconds, words
from planner.report.text.pieces import FAIR, GOOD, STRONG, Phrases, note, printable, section, table
from planner.report.text.plan import plan_report
from planner.report.text.sweep_rows import COUNT

NOTHING = 0.0005
"""Gains below this share of the step are called nothing."""

UPGRADES = "What each change would buy"
SCALING = "More or fewer accelerators, the batch as it is"

TOLD_TERMS = 2
TOLD_CHANGES = 5


def what_if_report(found: WhatIf) -> RenderableType:
    """The plan in a line, then upgrades, the break-even and the scaling curve."""
    plan = found.plan
    if plan.layout is None or plan.objective_seconds is None:
        return plan_report(plan)
    inputs = plan.inputs
    head = Text(
        f"{printable(inputs['model']['name'])} on {inputs['num_accelerators']:,} × "
        f"{printable(inputs['topology']['accelerator']['name'])}: "
        f"{seconds(plan.objective_seconds, 4)} a step at best",
        STRONG,
    )
    return Group(head, note(plan.layout.label()), *what_if_sections(found))


def what_if_sections(found: WhatIf) -> list[RenderableType]:
    """Upgrades, the break-even and the scaling curve, and what they rest on; none where no layout
    fits, so that nothing was asked."""
    if found.plan.layout is None:
        return []
    parts = [
        _upgrades(found),
        None if found.break_even is None else _break_even(found.break_even),
        None if found.scaling is None else _scaling(found.scaling),
        Text(""),
        note(
            f"{found.plans_made} plans, each searched anew and proven "
            f"({seconds(found.cpu_seconds)} of CPU)"
        ),
    ]
    return [part for part in parts if part is not None]


# ---------------------------------------------------------------- upgrades


def _upgrades(found: WhatIf) -> RenderableType:
    rows = [_row(upgrade, found.plan.objective_seconds or 0.0) for upgrade in found.upgrades]
    columns = [("change", "w"), ("step", "r"), ("saves", "r"), ("what it buys", "w")]
    return section(UPGRADES, table(columns, rows))


def _row(upgrade: Upgrade, base: float) -> tuple[RenderableType | str, ...]:
    if upgrade.step_seconds is None or upgrade.gain_fraction is None:
        reason = f"cannot be: {printable(upgrade.infeasible or '')}"
        return printable(upgrade.text), ABSENT, ABSENT, Text(reason, FAIR)
    gain = upgrade.gain_fraction
    saved = Text(_saved(gain))
    if abs(gain) >= NOTHING:
        saved.stylize(GOOD if gain > 0 else FAIR)
    return (
        printable(upgrade.text),
        seconds(upgrade.step_seconds, 4),
        saved,
        Phrases(_buys(upgrade, base), joint="; "),
    )


def _saved(fraction: float) -> str:
    return percent(fraction) if abs(fraction) >= NOTHING else "nothing"


def _buys(upgrade: Upgrade, base: float) -> list[str]:
    """The new layout, what the old one would gain by itself, and in which terms."""
    found = []
    shown = list(upgrade.layout_changes.items())[:TOLD_CHANGES]
    if shown:
        found.append(", ".join(f"{key} {_from_to(*pair)}" for key, pair in shown))
    else:
        found.append("the same layout")
    if upgrade.same_layout_seconds is not None and shown:
        alone = 1.0 - upgrade.same_layout_seconds / base
        found.append(f"the old layout alone saves {_saved(alone)}")
    largest = sorted(upgrade.terms.items(), key=lambda item: -abs(item[1]))[:TOLD_TERMS]
    terms = [
        f"{name.removeprefix('compute_').replace('_', ' ')} {signed_seconds(value, 2)}"
        for name, value in largest
        if abs(value) >= NOTHING * base
    ]
    return [*found, *terms]


def _from_to(before: Any, after: Any) -> str:
    return f"{_shown(before)} → {_shown(after)}"


def _shown(value: Any) -> str:
    return ABSENT if value is None else str(value)


# ---------------------------------------------------------------- break-even


def _break_even(even: BreakEven) -> RenderableType:
    lines: list[RenderableType] = [Phrases(_verdict(even))]
    if even.assumed is not None:
        lines.append(note(even.assumed))
    if even.trials:
        rows = [
            (
                _rate(trial.bytes_per_second),
                f"{trial.factor:.4g}×",
                seconds(trial.fsdp_seconds, 4),
                ("" if trial.proven else "≤ ") + seconds(trial.best_seconds, 4),
                "matches" if trial.matches else "does not",
                ABSENT if trial.layout is None else trial.layout.label(),
            )
            for trial in even.trials
        ]
        columns = [
            ("network", "r"), ("of today's", "r"), ("FSDP", "r"), ("rival", "r"),
            ("FSDP", "l"), ("rival's layout", "w"),
        ]  # fmt: skip
        lines.append(table(columns, rows))
    return section("When sharding alone (FSDP: ZeRO-3, tp = cp = pp = 1) would do", *lines)


def _verdict(even: BreakEven) -> list[str]:
    within = f"within {percent(even.match_fraction, 0)} of the best layout"
    if even.verdict == "impossible":
        return [f"It cannot be asked: {even.reason}."]
    if even.verdict == "always" and even.upper is not None:
        return [f"Already: it is {within} down to {_rate(even.upper)}, the least tried."]
    if even.verdict == "never" and even.lower is not None:
        return [f"Never: even at {_rate(even.lower)} it is not {within}."]
    assert even.lower is not None and even.upper is not None and even.now is not None
    return [
        f"From {_rate(even.upper)} an accelerator on ({even.upper / even.now:.3g} times today's "
        f"{_rate(even.now)}) it is {within}; at {_rate(even.lower)} it is not."
    ]


def _rate(bytes_per_second: float) -> str:
    return f"{bytes_per_second / 1e9:,.4g} GB/s"


# ---------------------------------------------------------------- scaling


def _scaling(scaling: Scaling) -> RenderableType:
    rows = [_scale_row(point) for point in scaling.points]
    columns = [
        ("accelerators", "r"), ("step", "r"), ("tokens/s", "r"), ("MFU", "r"),
        ("efficiency", "r"), ("marginal", "r"), ("layout", "w"),
    ]  # fmt: skip
    last = scaling.points[-1].num_accelerators if scaling.points else 0
    if scaling.wasted_beyond is None:
        text = (
            f"Up to {last:,} an added accelerator brings at least "
            f"{percent(scaling.threshold_fraction, 0)} of what those before it achieve."
        )
    else:
        text = (
            f"Beyond {scaling.wasted_beyond:,} accelerators more are wasted: an added one brings "
            f"less than {percent(scaling.threshold_fraction, 0)} of what those before it achieve, "
            "or none fits."
        )
    return section(
        SCALING,
        table(columns, rows),
        Text(text),
        note("efficiency: per accelerator, of the smallest count's; marginal: of added ones"),
    )


def scaling_rows(scaling: Scaling) -> list[dict[str, Any]]:
    """The points as rows of a sweep, for its picture."""
    return [
        {
            COUNT: point.num_accelerators,
            "status": "infeasible" if point.tokens_per_second is None else "optimal",
            "layout": _label(point.layout),
            "tokens_per_second_per_accelerator": (
                None
                if point.tokens_per_second is None
                else point.tokens_per_second / point.num_accelerators
            ),
        }
        for point in scaling.points
    ]


def _scale_row(point: ScalePoint) -> tuple[str, ...]:
    def share(value: float | None) -> str:
        return ABSENT if value is None else percent(value)

    return (
        f"{point.num_accelerators:,}",
        "nothing fits" if point.step_seconds is None else seconds(point.step_seconds, 4),
        ABSENT if point.tokens_per_second is None else words(point.tokens_per_second),
        share(point.mfu),
        share(point.efficiency_fraction),
        share(point.marginal_fraction),
        _label(point.layout),
    )


def _label(layout: Layout | None) -> str:
    return ABSENT if layout is None else layout.label()
