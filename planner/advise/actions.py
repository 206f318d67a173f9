"""What would make a step faster, under the three labels of the roofline, each action tried.

Fill the roof you are under (launches, waves, overlap, bubbles), raise it (precision, faster
memory and links), move the point (more FLOPs per byte). An action is a change of the scenario or
the layout; its gain is the difference of two evaluations, never an estimate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Literal

import numpy as np

from planner.advise.baseline import Baseline
from planner.advise.changes import Change, Keys, Outcome, try_change
from planner.cost.context import SCORE_WRITING_BACKENDS
from planner.cost.traffic import channel_costs
from planner.inputs.text import counted_runs
from planner.inputs.units import format_quantity
from planner.layouts.keys import OVERLAPS
from planner.layouts.layout import Layout, LayoutTable
from planner.search.stage_splits.best_split import BestSplit, best_split
from planner.search.stage_splits.options import is_searched, stage_options

COEFFICIENTS = "software.coefficients"
ACCELERATOR = "topology.accelerator"
RAISED = {"fp8": "fp8", "nvfp4": "fp4"}
"""Precisions that raise the roof of 16-bit matmuls, and the peak each runs against."""

Label = Literal["fill", "raise", "move"]
LABELS: Mapping[Label, str] = {
    "fill": "fill the roof you are under",
    "raise": "raise the roof",
    "move": "move the point",
}


@dataclass(frozen=True, slots=True)
class Action:
    """One change and the step the model predicts with it.

    set, layout: what to give `planner evaluate` to see it, scenario keys for --set and layout keys
    that replace the plan's. gain_seconds, gain_fraction: of the step, negative for a loss.
    infeasible: why the change cannot be made, if it cannot.
    """

    id: str
    label: Label
    text: str
    set: Keys
    layout: Mapping[str, Any]
    step_seconds: float | None
    gain_seconds: float | None
    gain_fraction: float | None
    infeasible: str | None


@dataclass(frozen=True, slots=True)
class Idea:
    """An action not yet tried; of several changes the best one counts."""

    id: str
    label: Label
    text: str
    changes: tuple[Change, ...]


def actions(base: Baseline) -> tuple[Action, ...]:
    """Every idea tried; under each label the greatest gain first, what cannot be made last."""
    order = list(LABELS)
    tried = [_tried(base, idea) for idea in ideas(base)]
    return tuple(sorted(tried, key=lambda a: (order.index(a.label), -_gain(a), a.id)))


def ideas(base: Baseline) -> Iterator[Idea]:
    """The changes that apply to a plan."""
    for source in (_overlap, _pipeline, _kernels, _ranks, _precision, _rates, _intensity, _trades):
        yield from source(base)


def _gain(action: Action) -> float:
    return -inf if action.gain_seconds is None else action.gain_seconds


def _tried(base: Baseline, idea: Idea) -> Action:
    outcomes = [(change, try_change(base, change)) for change in idea.changes]
    change, best = min(outcomes, key=lambda item: _seconds(item[1]))
    gain = None if best.step_seconds is None else base.step_seconds - best.step_seconds
    return Action(
        id=idea.id,
        label=idea.label,
        text=f"{idea.text}: {change.text}" if change.text else idea.text,
        set=change.set,
        layout=change.layout,
        step_seconds=best.step_seconds,
        gain_seconds=gain,
        gain_fraction=None if gain is None else gain / base.step_seconds,
        infeasible=best.infeasible,
    )


def _seconds(outcome: Outcome) -> float:
    return inf if outcome.step_seconds is None else outcome.step_seconds


# ---------------------------------------------------------------- fill the roof you are under


def _overlap(base: Baseline) -> Iterator[Idea]:
    layout = base.layout
    present = [axis for axis in OVERLAPS if _communicates(base, axis)]
    on = [axis for axis in present if axis in layout.overlap.split("+")]
    everything = "+".join(present) or "none"
    if missing := [axis for axis in present if axis not in on]:
        text = f"run the traffic of {', '.join(missing)} beside computation"
        yield Idea("overlap", "fill", text, (Change(layout={"overlap": everything}),))
    shares = {
        f"{COEFFICIENTS}.{axis}_overlap_fraction.value": 1.0
        for axis in present
        if axis != "ep" and getattr(base.ctx.software.coefficients, f"{axis}_overlap_fraction") < 1
    }
    if shares:
        text = f"overlap of {', '.join(present)} that uses all the work there is to hide behind"
        yield Idea(
            "overlap-fully", "fill", text, (Change(set=shares, layout={"overlap": everything}),)
        )


def _communicates(base: Baseline, axis: str) -> bool:
    layout = base.layout
    sizes = {"tp": layout.tp, "dp": layout.dp * layout.cp, "pp": layout.pp, "ep": layout.ep}
    return sizes[axis] > 1


def _pipeline(base: Baseline) -> Iterator[Idea]:
    layout = base.layout
    if layout.pp == 1:
        return
    more = (Change(layout={"vp": 2 * layout.vp}),)
    yield Idea("virtual-stages", "fill", f"twice the virtual stages: vp={2 * layout.vp}", more)
    if layout.mbs % 2 == 0:
        smaller = (Change(layout={"mbs": layout.mbs // 2}),)
        text = f"more micro-batches to fill the pipeline: mbs={layout.mbs // 2}"
        yield Idea("smaller-microbatch", "fill", text, smaller)
    better = _better_split(base)
    if better.split is not None:
        split = better.split.stage_layers
        which = "the best" if better.open_seconds == inf else "a better"
        over = "stages" if len(split) == layout.pp else "virtual stages"
        change = Change(layout={"stage_layers": split}, text=counted_runs(split))
        yield Idea("stage-layers", "fill", f"{which} split of the layers over {over}", (change,))


def _better_split(base: Baseline) -> BestSplit:
    """The layout's best split of layers in its own places, if it is faster than the one it has."""
    table = LayoutTable.from_layouts([replace(base.layout, stage_layers=None)])
    if not np.all(is_searched(base.ctx, table)):
        return BestSplit(None)
    return best_split(
        base.ctx,
        table,
        stage_options(base.ctx, base.scenario.search, table),
        lambda shape: channel_costs(base.ctx, shape.traffic, base.splits),
        base.step_seconds,
    )


def _kernels(base: Baseline) -> Iterator[Idea]:
    coefficients = base.ctx.software.coefficients
    if coefficients.host_seconds_per_kernel > 0:
        none = Change(set={f"{COEFFICIENTS}.host_seconds_per_kernel.value": "0 s"})
        yield Idea("launches", "fill", "no launches from the host (captured graphs)", (none,))
    full_tiles = {
        f"{ACCELERATOR}.gemm.{precision}.{side}.value": 1.0
        for precision in base.ctx.accelerator.gemm
        for side in ("tile_m", "tile_n")
    }
    yield Idea("waves", "fill", "matmuls that fill every tile and wave", (Change(set=full_tiles),))


def _ranks(base: Baseline) -> Iterator[Idea]:
    overheads = base.ctx.topology.overheads
    if overheads.straggler_fraction_per_doubling > 0:
        numbers = [n for n in type(overheads).model_fields if n.startswith("straggler")]
        given = [n for n in numbers if getattr(overheads, n) is not None]
        none = Change(set={f"topology.overheads.{name}.value": 0.0 for name in given})
        yield Idea("stragglers", "fill", "all ranks as fast as the median one", (none,))


# ---------------------------------------------------------------- raise the roof


def _precision(base: Baseline) -> Iterator[Idea]:
    peaks = base.ctx.accelerator.peak_flops
    now = base.ctx.training.peak_key
    order = ["fp16", "bf16", *RAISED.values()]
    for precision, peak in RAISED.items():
        if order.index(peak) > order.index(now):
            text = f"main matmuls in {precision}"
            if peak in peaks:
                text += f", a dense peak of {format_quantity(peaks[peak], 'FLOP/s')}"
            change = Change(set={"training.precision": precision})
            yield Idea(f"precision:{precision}", "raise", text, (change,))


def _rates(base: Baseline) -> Iterator[Idea]:
    accelerator = base.ctx.accelerator
    rate = format_quantity(2 * accelerator.hbm_bytes_per_second, "B/s", 6)
    change = Change(set={f"{ACCELERATOR}.hbm_bandwidth.value": rate})
    yield Idea("tier:hbm", "raise", f"twice the bandwidth of hbm: {rate}", (change,))
    if accelerator.sustained_fraction[base.ctx.training.peak_key] < 1:
        key = f"{ACCELERATOR}.sustained.{base.ctx.training.peak_key}.value"
        full = Change(set={key: 1.0})
        yield Idea("clocks", "raise", "clocks held under load (power, cooling)", (full,))
    for position, tier in enumerate(base.scenario.topology.tiers):
        if all(split[position] <= 1 for split in base.splits.values()):
            continue
        rate = format_quantity(2 * tier.link_bytes_per_second, "B/s", 6)
        key = f"topology.{base.scenario.topology.link_rate_key(position)}"
        text = f"twice the bandwidth of {tier.name}: {rate}"
        yield Idea(f"tier:{tier.name}", "raise", text, (Change(set={key: rate}),))


# ---------------------------------------------------------------- move the point


def _intensity(base: Baseline) -> Iterator[Idea]:
    layout, software = base.layout, base.ctx.software
    larger = (Change(layout={"mbs": 2 * layout.mbs}),)
    yield Idea("larger-microbatch", "move", f"larger micro-batch: mbs={2 * layout.mbs}", larger)
    yield from _attention(base)
    if software.coefficients.memory_bound_multiplier > 1:
        fused = Change(set={f"{COEFFICIENTS}.memory_bound_multiplier.value": 1.0})
        yield Idea("fusion", "move", "fused norms, activations and residuals", (fused,))
    known = software.recompute  # from the lightest to the heaviest
    lighter = known[: known.index(layout.recompute)] if layout.recompute in known else ()
    for recompute in lighter:
        change = Change(layout={"recompute": recompute})
        text = "recompute off" if recompute == "none" else f"recompute {recompute} only"
        yield Idea(f"recompute:{recompute}", "move", text, (change,))
    if layout.tp > 1 and not layout.sp and software.sequence_parallel == "optional":
        change = Change(layout={"sp": True})
        yield Idea("sequence-parallel", "move", "sequence parallelism with tp", (change,))
    below = [s for s in software.zero_stages if 1 <= s < layout.zero_stage]
    for stage in sorted(below):
        change = Change(layout={"zero_stage": stage})
        text = f"fewer gathers: ZeRO-{stage} instead of ZeRO-{layout.zero_stage}"
        yield Idea(f"zero:{stage}", "move", text, (change,))
    if layout.cp > 1:
        for kind in (k for k in software.cp_kinds if k != layout.cp_kind):
            text = f"context parallelism by {kind.replace('_', '-')}"
            change = Change(layout={"cp_kind": kind, "cp_a2a": None})
            yield Idea(f"cp-kind:{kind}", "move", text, (change,))
    yield from _experts(base)
    yield from _shard_group(base)
    if (gain := base.plan.custom_order_gain_fraction) is not None and gain > 0:
        change = Change(set={"search.tie_fraction": 0.0}, replaced=True)
        text = "ranks placed from a table, not in the software's order"
        yield Idea("rank-order", "move", text, (change,))
    inner = base.scenario.topology.tiers[0]
    if any(max(split[1:], default=1) > 1 for split in base.splits.values()):
        change = Change(set={"topology.tiers.0.width": 2 * inner.width}, replaced=True)
        text = f"more of an axis on {inner.name}: domains of {2 * inner.width}"
        yield Idea("wider-domain", "move", text, (change,))


def _attention(base: Baseline) -> Iterator[Idea]:
    now = base.ctx.attention_backend
    known = base.ctx.accelerator.attention
    better = [name for name in known if name not in SCORE_WRITING_BACKENDS and name != now]
    if now in SCORE_WRITING_BACKENDS and not better:
        better = ["flash"]  # tried all the same, to say what the accelerator type lacks
    for name in better:
        if now in SCORE_WRITING_BACKENDS or known[name].forward > known[now].forward:
            change = Change(set={"training.attention": name})
            yield Idea(f"attention:{name}", "move", f"attention by {name}", (change,))


def _experts(base: Baseline) -> Iterator[Idea]:
    """More and fewer ranks that share a layer's experts, and other dispatchers."""
    layout = base.layout
    if base.ctx.model.moe is None:
        return
    for ep in (layout.ep // 2, 2 * layout.ep):
        if ep >= 1:
            change = Change(layout={"ep": ep}, replaced=True)
            yield Idea(f"experts:{ep}", "move", f"experts over {ep} ranks: ep={ep}", (change,))
    for dispatcher in base.ctx.software.dispatchers if layout.ep > 1 else ():
        if dispatcher != layout.dispatcher:
            change = Change(layout={"dispatcher": dispatcher})
            text = f"tokens to experts by {dispatcher}"
            yield Idea(f"dispatcher:{dispatcher}", "move", text, (change,))


def _shard_group(base: Baseline) -> Iterator[Idea]:
    """States sharded inside each innermost domain, replicated beyond it."""
    layout, placement = base.layout, base.plan.placement
    if placement is None or not layout.zero_stage or base.ctx.software.shard_groups != "any":
        return
    tier = base.scenario.topology.tiers[0].name
    inside = int(placement["dp_shard"][tier])
    if 1 < inside < layout.dp_shard:
        change = Change(layout={"dp_shard": inside, "dp_replicate": layout.dp // inside})
        text = f"states sharded inside {tier} only: dp_shard={inside}"
        yield Idea("shard-inside", "move", text, (change,))


def _trades(base: Baseline) -> Iterator[Idea]:
    """Half of an axis's degree given to another; all are then placed anew."""
    axes = ("tp", "cp", "pp", "dp")
    for axis in axes:
        if getattr(base.layout, axis) % 2 == 0:
            changes = tuple(_traded(base.layout, axis, other) for other in axes if other != axis)
            yield Idea(f"less-{axis}", "move", f"less {axis}", changes)


def _traded(layout: Layout, axis: str, other: str) -> Change:
    keys = {"dp": "dp_shard"}
    give, take = keys.get(axis, axis), keys.get(other, other)
    if axis == "dp" and layout.dp_shard % 2:
        give = "dp_replicate"
    new = {give: getattr(layout, give) // 2, take: 2 * getattr(layout, take)}
    now = {axis: getattr(layout, axis) // 2, other: 2 * getattr(layout, other)}
    if new.get("pp") == 1:
        new["vp"] = 1
    text = ", ".join(f"{name}={degree}" for name, degree in now.items())
    return Change(layout=new, text=text)
