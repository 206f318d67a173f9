"""An explanation of a plan: what the step waits for, where its groups live, what would help."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from rich.console import Group, RenderableType
from rich.text import Text

from planner.advise.actions import LABELS, Action
from planner.advise.explain import Explanation, GroupPlace, Inversion
from planner.advise.ledger import Regime
from planner.planning.plan import Plan
from planner.report.text.numbers import (
    ABSENT,
    compact,
    milliseconds,
    or_absent,
    percent,
    seconds,
    signed_seconds,
)
from planner.report.text.pieces import (
    FAINT,
    FAIR,
    GOOD,
    STRONG,
    Phrases,
    Row,
    note,
    printable,
    section,
    stacked,
    table,
    warnings_section,
)
from planner.report.text.plan import plan_report
from planner.report.text.plan.head import mfu_of_peak
from planner.report.text.terms import SMALL_FRACTION, time_table, with_small_ones_summed

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
    "stage_imbalance": "stage imbalance",
    "host": "host",
    "straggler": "stragglers",
    "unexplained": "unexplained time",
}
"""What the step waits for → its words."""

BOUND: Mapping[str, str] = {
    "compute": "The step is compute-bound: {share} of it is tensor-core work at sustained clocks.",
    "kernel": "The step is kernel-bound: kernels that run below their roof (tiles, waves, "
    "launches) cost {share} of it.",
    "memory": "The step is memory-bound: kernels wait for HBM for {share} of it.",
    "communication": "The step is communication-bound: exposed communication takes {share} of it, "
    "most of it {group}'s.",
    "bubble": "The step is bubble-bound: stages are idle for {share} of it.",
    "host": "The step is host-bound: accelerators wait for the host for {share} of it.",
    "straggler": "The step is straggler-bound: ranks wait for the slowest one for {share} of it.",
    "unexplained": "Most of the step is time that runs of this software take and no formula here "
    "explains: {share} of it.",
}
"""Regime → the sentence that names it."""

JUDGE: Mapping[str, str] = {
    "compute": "Judge it by MFU: {mfu} predicted. Low use of HBM ({hbm}) and links is expected.",
    "kernel": "Judge it by the share of the peak that kernels reach while they run: {kernels} "
    "predicted.",
    "memory": "Judge it by HBM bandwidth: {hbm} of the datasheet's predicted. A low MFU ({mfu}) "
    "is expected at this wall.",
    "communication": "Judge it by busbw, as nccl-tests define it: {busbw} predicted for {group}. A "
    "low MFU ({mfu}) is expected at this wall.",
    "bubble": "Judge it by the time that stages are idle: {bubble} predicted.",
    "host": "Judge it by the gaps between kernels: {host} predicted.",
    "straggler": "Judge it by the spread of the ranks' times: {straggler} predicted.",
    "unexplained": "Judge it by what a profile of the step shows outside kernels and traffic: "
    "{unexplained} predicted.",
}
"""Regime → the sentence that names the metric which tells how well such a step runs."""


def explanation_report(explanation: Explanation) -> RenderableType:
    """Why the plan is as it is: what the step waits for, the groups' places, the actions."""
    plan, regime = explanation.plan, explanation.regime
    if plan.layout is None or regime is None:
        return plan_report(plan)
    return stacked(
        headline(plan),
        waits_for(plan, regime),
        _walls(explanation),
        _reasons(explanation),
        section(
            "What would change the step: each change evaluated by the model",
            *_actions(explanation),
            note(
                "A negative gain is a loss. --json gives each change as keys for --set, --layout."
            ),
        ),
        warnings_section(plan.warnings),
    )


def headline(plan: Plan) -> RenderableType:
    """Model, cluster, layout, step and MFU."""
    assert plan.layout is not None and plan.mfu_denominator is not None
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
                f"MFU {mfu_of_peak(plan)}",
            )
        ),
    )


# ---------------------------------------------------------------- what the step waits for


def waits_for(plan: Plan, regime: Regime, title: str = "What the step waits for") -> RenderableType:
    """The regime, the metric that fits it, and the ledger."""
    step = plan.step_seconds or 0.0
    shown = with_small_ones_summed(regime.ledger, step)
    named = {LEDGER.get(name, name): value for name, value in shown.items()}
    return section(
        title,
        Text(bound(regime)),
        Text(judge(regime)),
        Text(""),
        time_table(
            named, step, lambda name: "green" if name == LEDGER["model_flops"] else "yellow"
        ),
    )


def bound(regime: Regime) -> str:
    """The regime in a sentence."""
    return BOUND[regime.name].format(share=percent(regime.share), group=regime.group)


def judge(regime: Regime) -> str:
    """The metric that fits the regime, in a sentence."""
    share, metrics = partial(or_absent, percent), regime.metrics
    return JUDGE[regime.name].format(
        mfu=share(metrics["mfu"]),
        hbm=share(metrics["hbm_utilisation"]),
        kernels=share(metrics["kernel_efficiency"]),
        busbw=or_absent(lambda rate: f"{rate / 1e9:,.4g} GB/s", metrics["busbw"]),
        group=regime.group,
        bubble=share(metrics["bubble_fraction"]),
        host=share(metrics["host_fraction"]),
        straggler=share(metrics["straggler_fraction"]),
        unexplained=share(metrics["unexplained_fraction"]),
    )


# ---------------------------------------------------------------- groups


def _walls(explanation: Explanation) -> RenderableType | None:
    if not explanation.groups:
        return None
    compute = max(group.walls["compute"] for group in explanation.groups)
    rows: list[Row] = [
        (
            Text(group.name, STRONG),
            group.tier,
            or_absent(compact, group.intensity),
            or_absent(str, group.intensity_rank),
            or_absent(compact, group.exposed_intensity),
            compact(group.ridge),
            or_absent(_times_ridge, group.ridge_ratio),
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
            "tier that sets the group's pace. FLOP/B: FLOPs per byte moved, ranked from the "
            "lowest, then per byte that is not hidden. Ratio: FLOPs per byte that crosses the "
            "tier, over its ridge; below 1 the links take longer than compute."
        ),
    )


def times(factor: float) -> str:
    """A factor in few digits: '2.3', '0.063', '173'."""
    return compact(factor) if factor >= 0.1 else f"{factor:.2g}"


def _times_ridge(ratio: float) -> str:
    return f"{times(ratio)} ×"


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


def _reason(group: GroupPlace, step_seconds: float) -> Iterator[str]:
    beyond = [tier for tier in group.spans if tier != group.tier]
    also = f", also over {', '.join(beyond)}" if beyond else ""
    yield f"{group.members:,} members on {group.tier}{also}; its wall is {group.wall}."
    yield from _against_ridges(group)
    busy = seconds(group.busy_seconds)
    if group.exposed_seconds > 0:
        yield f"{seconds(group.exposed_seconds)} of its {busy} are exposed."
    else:
        yield f"All of its {busy} is hidden behind computation."
    yield from _swaps(group, step_seconds)


def _against_ridges(group: GroupPlace) -> Iterator[str]:
    """Its intensity against the ridge of where it is, and of the tiers further out."""
    if group.ridge_ratio is None:
        return
    here = _times_ridge(group.ridge_ratio)
    tiers = list(group.ridge_ratios)
    outer = {t: group.ridge_ratios[t] for t in tiers[tiers.index(group.tier) + 1 :]}
    # the first such tier says why the group does not live further out
    too_slow = {t: ratio for t, ratio in outer.items() if ratio is not None and ratio < 1}
    if group.ridge_ratio < 1:
        yield f"At {here} the ridge, its links take longer than compute at the peak."
    elif too_slow:
        tier, ratio = next(iter(too_slow.items()))
        yield (
            f"Here it is at {here} the ridge; on {tier} alone it would be at {times(ratio)} ×, "
            "with links slower than compute."
        )
    else:
        yield f"At {here} the ridge, its links keep up with compute."


def _swaps(group: GroupPlace, step_seconds: float) -> Iterator[str]:
    """What swapping places with each other group costs."""
    costs = {name: cost for name, cost in group.exchanges.items() if cost is not None}
    same_tiers = [name for name, cost in group.exchanges.items() if cost is None]
    dear = sorted(
        (n for n in costs if costs[n] > SMALL_FRACTION * step_seconds), key=lambda n: -costs[n]
    )
    cheap = [name for name in costs if name not in dear]
    if dear:
        texts = (
            f"with {name} {signed_seconds(costs[name])} ({percent(costs[name] / step_seconds)})"
            for name in dear
        )
        yield f"Swapping places: {', '.join(texts)}."
    if cheap:
        most = max(costs[name] for name in cheap)
        cost = "nothing" if most == 0 else f"at most {seconds(most)}"
        yield f"Swapping with {' or '.join(cheap)} costs {cost}: either may live there."
    if same_tiers:
        yield f"It shares its tiers with {', '.join(same_tiers)}: nothing to swap."
    if not group.exchanges:
        yield "There is no group to swap with."


def _orders(explanation: Explanation) -> Iterator[RenderableType]:
    if len(explanation.groups) < 2:
        return
    yield note(
        f"Lowest intensity first: {' < '.join(explanation.intensity_order)}; "
        f"by exposed intensity: {' < '.join(explanation.exposed_order)}; "
        f"inner to outer: {', '.join(explanation.place_order)}."
    )
    for pair in explanation.inversions:
        yield note(
            f"{pair.inner} lives further in than {pair.outer}, against their intensities: "
            f"{_price(pair)}."
        )


def _price(pair: Inversion) -> str:
    cost = pair.exchange_seconds
    if cost is None:
        return "they move together or share their tiers, so there is nothing to swap"
    return f"the other order costs {'nothing' if cost == 0 else signed_seconds(cost)}"


# ---------------------------------------------------------------- actions


def _actions(explanation: Explanation) -> Iterator[RenderableType]:
    for label, title in LABELS.items():
        actions = explanation.labelled(label)
        if actions:
            columns = [("gain", "r"), ("", "r"), (f"{title[0].upper()}{title[1:]}", "w")]
            yield table(columns, [(*_gain(action), _change(action)) for action in actions])
            yield Text("")


def _gain(action: Action) -> tuple[RenderableType, str]:
    if action.gain_fraction is None or action.gain_seconds is None:
        return Text(ABSENT, FAINT), ""
    if action.gain_seconds == 0:
        return Text("0 %", FAINT), ""
    style = GOOD if action.gain_fraction > SMALL_FRACTION else FAINT
    return Text(percent(action.gain_fraction), style), seconds(action.gain_seconds)


def _change(action: Action) -> RenderableType:
    text = Text(printable(action.text))
    if action.infeasible is not None:
        text.append(f": not possible, {printable(action.infeasible)}", FAIR)
    return text
