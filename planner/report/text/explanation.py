"""An explanation of a plan and a diagnosis of a measured run, as words and tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from planner.advise.actions import LABELS, Action
from planner.advise.explain import Explanation, GroupPlace
from planner.advise.ledger import Regime
from planner.planning.plan import Plan
from planner.report.text.numbers import (
    ABSENT,
    SMALL_FRACTION,
    compact,
    milliseconds,
    percent,
    seconds,
    signed_seconds,
    terms_and_other,
)
from planner.report.text.pieces import (
    FAINT,
    FAIR,
    GOOD,
    STRONG,
    Bar,
    Phrases,
    note,
    printable,
    section,
    table,
)
from planner.report.text.plan import plan_report

LEDGER: Mapping[str, str] = {
    "model_flops": "model FLOPs at the peak",
    "extra_flops": "FLOPs beyond the model",
    "clocks": "clocks under load",
    "kernels": "kernels below the roof",
    "hbm": "waiting for HBM",
    "tp": "tp traffic",
    "cp": "cp traffic",
    "ep": "ep traffic",
    "pp": "pp traffic",
    "dp": "dp traffic",
    "bubble": "bubble",
    "stage_imbalance": "uneven stages",
    "host": "host",
    "straggler": "stragglers",
}

BOUND: Mapping[str, str] = {
    "compute": "The step is compute-bound: {share} of it is tensor-core work at the rate the "
    "clocks keep.",
    "kernel": "The step is kernel-bound: kernels below their roof (tiles, waves, starts) lose "
    "{share} of it.",
    "memory": "The step is memory-bound: kernels wait for HBM for {share} of it.",
    "communication": "The step is communication-bound: traffic that does not hide takes {share}, "
    "most of it {group}'s.",
    "bubble": "The step is bubble-bound: stages idle for {share} of it.",
    "host": "The step is host-bound: accelerators wait for the host for {share} of it.",
    "straggler": "The step is bound by stragglers: ranks wait for the slowest for {share} of it.",
}

JUDGE: Mapping[str, str] = {
    "compute": "Judge it by MFU: {mfu} predicted. That HBM ({hbm}) and links stand idle is right.",
    "kernel": "Judge it by the share of the peak that kernels reach while they run: {kernels} "
    "predicted.",
    "memory": "Judge it by HBM bandwidth: {hbm} of the sheet's predicted. A low MFU ({mfu}) is "
    "the wall's, not a fault.",
    "communication": "Judge it by busbw, as nccl-tests define it: {busbw} predicted for {group}. A "
    "low MFU ({mfu}) is the wall's.",
    "bubble": "Judge it by the time stages idle: {bubble} predicted.",
    "host": "Judge it by the gaps between kernels: {host} predicted.",
    "straggler": "Judge it by the spread of the ranks' times: {straggler} predicted.",
}


def explanation_report(explanation: Explanation) -> RenderableType:
    """Why the plan is as it is: what the step waits for, the groups' places, the actions."""
    plan, regime = explanation.plan, explanation.regime
    if plan.layout is None or regime is None:
        return plan_report(plan)
    parts = [
        head(plan),
        waits_for(plan, regime),
        _walls(explanation),
        _reasons(explanation),
        section(
            "What would change the step, each change tried with the model",
            *_actions(explanation),
            note(
                "A negative gain is a loss. --json gives each change as keys for --set, --layout."
            ),
        ),
        warnings(plan.warnings),
    ]
    return Group(*(part for part in parts if part is not None))


def head(plan: Plan) -> RenderableType:
    """Model, cluster, layout, step and MFU."""
    assert plan.layout is not None and plan.mfu_denominator is not None
    peak = plan.mfu_denominator.peak_flops / 1e12
    precision = plan.mfu_denominator.precision.upper()
    return Group(
        Text(
            f"{printable(plan.inputs['model']['name'])} on {plan.inputs['num_accelerators']:,} × "
            f"{printable(plan.mfu_denominator.accelerator)} "
            f"({printable(plan.inputs['topology']['name'])})",
            STRONG,
        ),
        Phrases(
            (
                plan.layout.label(),
                f"{seconds(plan.step_seconds or 0.0, 4)} a step",
                f"MFU {percent(plan.mfu or 0.0)} of {peak:,.5g} TFLOP/s dense {precision}",
            )
        ),
    )


# ---------------------------------------------------------------- what the step waits for


def waits_for(plan: Plan, regime: Regime, title: str = "What the step waits for") -> RenderableType:
    """The regime, the metric that fits it, and the ledger."""
    total = plan.step_seconds or 0.0
    shown = terms_and_other(regime.ledger, total)
    names = {LEDGER.get(name, name): value for name, value in shown.items()}
    longest = max(names.values(), default=1.0)
    unit, factor = ("s", 1.0) if total >= 1 else ("ms", 1e-3)
    rows: list[Sequence[RenderableType | str]] = [
        (
            name,
            f"{value / factor:,.3f} {unit}",
            percent(value / total),
            Bar(value / longest, "green" if name == LEDGER["model_flops"] else "yellow"),
        )
        for name, value in names.items()
    ]
    rows.append((Text("step", STRONG), f"{total / factor:,.3f} {unit}", percent(1.0), ""))
    return section(
        title,
        Text(bound(regime)),
        Text(judge(regime)),
        Text(""),
        table([("", "l"), ("", "r"), ("", "r"), ("", "b")], rows),
    )


def bound(regime: Regime) -> str:
    """The regime in a sentence."""
    return BOUND[regime.name].format(share=percent(regime.share), group=regime.group)


def judge(regime: Regime) -> str:
    """The metric that fits the regime, in a sentence."""
    known = regime.metrics
    return JUDGE[regime.name].format(
        mfu=_share(known["mfu"]),
        hbm=_share(known["hbm_utilisation"]),
        kernels=_share(known["kernel_efficiency"]),
        busbw=ABSENT if known["busbw"] is None else f"{known['busbw'] / 1e9:,.4g} GB/s",
        group=regime.group,
        bubble=_share(known["bubble_fraction"]),
        host=_share(known["host_fraction"]),
        straggler=_share(known["straggler_fraction"]),
    )


def _share(value: float | None) -> str:
    return ABSENT if value is None else percent(value)


# ---------------------------------------------------------------- groups


def _walls(explanation: Explanation) -> RenderableType | None:
    if not explanation.groups:
        return None
    compute = max(group.walls["compute"] for group in explanation.groups)
    rows: list[Sequence[RenderableType | str]] = [
        (
            Text(group.name, STRONG),
            group.tier,
            _ratio(group.intensity),
            ABSENT if group.intensity_rank is None else str(group.intensity_rank),
            _ratio(group.exposed_intensity),
            compact(group.ridge),
            ABSENT if group.ridge_ratio is None else f"{times(group.ridge_ratio)} ×",
            milliseconds(group.walls["bandwidth"]),
            milliseconds(group.walls["latency"]),
        )
        for group in explanation.groups
    ]
    columns = [
        ("group", "l"), ("lives in", "l"), ("FLOP/B", "r"), ("rank", "r"), ("exposed", "r"),
        ("ridge", "r"), ("ratio", "r"), ("links", "r"), ("latency", "r"),
    ]  # fmt: skip
    return section(
        "Groups and their walls (ms of a step)",
        table(columns, rows),
        note(
            f"Compute, the third wall: {milliseconds(compute)} at the dense peak. Lives in: the "
            "tier that sets its pace. FLOP/B: work per byte moved, ranked from the smallest, then "
            "per byte that does not hide. Ratio: work per byte that crosses the tier over its "
            "ridge; below 1 its links need longer than compute."
        ),
    )


def _ratio(value: float | None) -> str:
    return ABSENT if value is None else compact(value)


def times(factor: float) -> str:
    """A factor in few digits: '2.3', '0.063', '173'."""
    return compact(factor) if factor >= 0.1 else f"{factor:.2g}"


def _reasons(explanation: Explanation) -> RenderableType | None:
    step = explanation.plan.step_seconds
    if not explanation.groups or not step:
        return None
    rows = [
        (Text(group.name, STRONG), " ".join(_reason(group, step))) for group in explanation.groups
    ]
    return section(
        "Why each lives there", table([("", "l"), ("", "w")], rows), *_orders(explanation)
    )


def _reason(group: GroupPlace, step: float) -> Iterator[str]:
    beyond = [tier for tier in group.spans if tier != group.tier]
    also = f", also over {', '.join(beyond)}" if beyond else ""
    yield f"{group.members:,} members on {group.tier}{also}; its nearest wall is {group.wall}."
    yield from _elsewhere(group)
    if group.exposed_seconds > 0:
        yield f"{seconds(group.exposed_seconds)} of its {seconds(group.busy_seconds)} do not hide."
    else:
        yield f"All its {seconds(group.busy_seconds)} hide behind work."
    yield from _exchanges(group, step)


def _elsewhere(group: GroupPlace) -> Iterator[str]:
    """Its intensity against the ridge of where it is, and of the tiers further out."""
    if group.ridge_ratio is None:
        return
    tiers = list(group.ridge_ratios)
    outer = {t: group.ridge_ratios[t] for t in tiers[tiers.index(group.tier) + 1 :]}
    worse = {t: ratio for t, ratio in outer.items() if ratio is not None and ratio < 1}
    if group.ridge_ratio < 1:
        yield (
            f"At {times(group.ridge_ratio)} × the ridge its links need longer than compute at the "
            "peak."
        )
    elif worse:
        tier, ratio = next(iter(worse.items()))
        yield (
            f"Here it is at {times(group.ridge_ratio)} × the ridge; alone on {tier} it would be "
            f"at {times(ratio)} ×, its links slower than compute."
        )
    else:
        yield f"At {times(group.ridge_ratio)} × the ridge its links keep up with compute."


def _exchanges(group: GroupPlace, step: float) -> Iterator[str]:
    known = {name: cost for name, cost in group.exchanges.items() if cost is not None}
    shared = [name for name, cost in group.exchanges.items() if cost is None]
    dear = sorted((n for n in known if known[n] > SMALL_FRACTION * step), key=lambda n: -known[n])
    cheap = [name for name in known if name not in dear]
    if dear:
        costs = (f"with {n} {signed_seconds(known[n])} ({percent(known[n] / step)})" for n in dear)
        yield f"Exchanging places {', '.join(costs)}."
    if cheap:
        most = max(known[name] for name in cheap)
        cost = "nothing" if most == 0 else f"at most {seconds(most)}"
        yield f"Exchanging with {' or '.join(cheap)} costs {cost}: either may live there."
    if shared:
        yield f"It shares its tiers with {', '.join(shared)}: nothing to exchange."
    if not group.exchanges:
        yield "There is no place to exchange."


def _orders(explanation: Explanation) -> Iterator[RenderableType]:
    if len(explanation.groups) < 2:
        return
    yield note(
        f"Smallest intensity first: {' < '.join(explanation.intensity_order)}; "
        f"by what does not hide: {' < '.join(explanation.exposed_order)}; "
        f"inner to outer: {', '.join(explanation.place_order)}."
    )
    for pair in explanation.inversions:
        cost = pair.exchange_seconds
        price = (
            "they move together or share their tiers, so there is nothing to exchange"
            if cost is None
            else f"the other order costs {'nothing' if cost == 0 else signed_seconds(cost)}"
        )
        yield note(
            f"{pair.inner} lives further in than {pair.outer}, against their intensities: {price}."
        )


# ---------------------------------------------------------------- actions


def _actions(explanation: Explanation) -> Iterator[RenderableType]:
    for label, title in LABELS.items():
        if found := explanation.labelled(label):
            columns = [("gain", "r"), ("", "r"), (f"{title[0].upper()}{title[1:]}", "w")]
            yield table(columns, [(*_gain(action), _what(action)) for action in found])
            yield Text("")


def _gain(action: Action) -> tuple[RenderableType, str]:
    if action.gain_fraction is None or action.gain_seconds is None:
        return Text(ABSENT, FAINT), ""
    if action.gain_seconds == 0:
        return Text("0 %", FAINT), ""
    style = GOOD if action.gain_fraction > SMALL_FRACTION else FAINT
    return Text(percent(action.gain_fraction), style), seconds(action.gain_seconds)


def _what(action: Action) -> RenderableType:
    text = Text(printable(action.text))
    if action.infeasible is not None:
        text.append(f": cannot be, {printable(action.infeasible)}", FAIR)
    return text


def warnings(found: Sequence[str]) -> RenderableType | None:
    """What to be careful about."""
    if not found:
        return None
    return section("Warnings", *(Text(f"! {printable(text)}", FAIR) for text in found))
