"""What ranks of a pipeline hold: a stage, or two stages of a way that is folded over the ranks.

Under dualpipe micro-batches pass pp stages from both ends, so a rank holds stage r of one direction
and stage pp − 1 − r of the other. Under zb-v and dualpipev they pass 2·pp stages, to the last rank
and back, so a rank holds stages r and 2·pp − 1 − r. Software without these schedules costs no more
for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from planner.cost.pipeline import DIRECTIONS, stage_classes, stages, zero_bubble_in_flight
from planner.cost.pipeline import microbatches_in_flight as in_flight_1f1b
from planner.layouts.layout import SCHEDULES, V_SHAPED, Layout, LayoutLike, Numeric
from planner.layouts.stage_split import NONE, Cut, Reserved, default_stage_layers, given_stages

_V = np.isin(SCHEDULES, V_SHAPED)
_FOLDED = _V | np.isin(SCHEDULES, ["dualpipe"])


class Way(NamedTuple):
    """The stages that a micro-batch passes, one after another: a layout unfolded."""

    pp: Numeric
    vp: Numeric
    stage_layers: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Held:
    """A stage that a rank holds: its place on the way, the model's layers on it (shapes alike).

    passes: share of the micro-batches that pass it; far: the second one, on the way back.
    """

    way: Cut
    stage: Numeric
    first: Numeric
    last: Numeric
    layers: Numeric
    passes: Numeric
    far: bool = False


def way_of(layout: LayoutLike) -> Way:
    """A layout unfolded: of a V with a split that is given, halves of a rank's layers."""
    v = _V[layout.schedule_index]
    split = layout.stage_layers
    if split is not None and np.all(v):
        split = (*((n + 1) // 2 for n in split), *(n // 2 for n in reversed(split)))
    return Way(np.where(v, 2 * layout.pp, layout.pp), np.where(v, 1, layout.vp), split)


def held(
    num_layers: int,
    layout: LayoutLike,
    stage: Numeric,
    layers: Numeric,
    reserved: Reserved,
    only_1f1b: bool,
) -> tuple[Held, ...]:
    """The stages that the rank of `stage` with `layers` layers holds: one, or two of which the
    second has no layers where nothing is folded."""
    if only_1f1b:
        return (Held(layout, stage, stage == 0, stage == layout.pp - 1, layers, 1.0),)
    kind = np.asarray(layout.schedule_index)
    way, folded, v = way_of(layout), _FOLDED[kind], _V[kind]
    far = np.where(folded, way.pp - 1 - stage, -1)
    passes = 1.0 / DIRECTIONS[kind]
    near_layers = np.where(v, _layers(num_layers, way, stage, reserved), layers)
    far_layers = folded * _layers(num_layers, way, far, reserved)
    last = way.pp - 1
    return (
        Held(way, stage, stage == 0, stage == last, near_layers, passes),
        Held(way, far, far == 0, far == last, far_layers, passes, far=True),
    )


def microbatches_in_flight(layout: LayoutLike, part: Held, only_1f1b: bool) -> Numeric:
    """Micro-batches whose activations of this stage a rank holds at its peak.

    Of a folded way a stage holds as many as are ahead of it to the way's end, itself among them:
    PP + 1 of both together (DeepSeek-V3, table 2).
    """
    if only_1f1b:
        return in_flight_1f1b(layout, part.stage)
    kind, m = np.asarray(layout.schedule_index), layout.num_microbatches
    folded, ahead = _FOLDED[kind], part.way.pp - part.stage
    if part.far:
        return folded * np.minimum(m, ahead)
    # zb-v starts to pass back with one forward pass less ahead than dualpipev
    ahead = ahead - (kind == SCHEDULES.index("zb-v"))
    apart = kind >= SCHEDULES.index("zb-h1")
    plain = np.where(apart, zero_bubble_in_flight(layout), in_flight_1f1b(layout, part.stage))
    return np.where(folded, np.minimum(m, ahead), plain)


def _layers(num_layers: int, way: Way, stage: Numeric, reserved: Reserved) -> Numeric:
    if way.stage_layers is not None:
        return np.array(way.stage_layers)[stage]
    return default_stage_layers(num_layers, way, stage, reserved)


def rank_stages(
    num_layers: int,
    layout: LayoutLike,
    reserved: Reserved,
    leading: int,
    only_1f1b: bool,
    latest: bool = False,
) -> tuple[Numeric, Numeric]:
    """Ranks among which the fullest is, or (`latest`) the one that the step waits for, and the
    layers of each: shapes (S, …).

    Of a folded way the first rank has both ends; those in the middle, what is left over.
    """
    if only_1f1b or layout.stage_layers is not None:
        return stages(num_layers, layout, reserved, leading, latest)
    way = way_of(layout)
    kind = np.asarray(layout.schedule_index)
    middle = way.pp // 2 - 1
    plain = stage_classes(num_layers, layout, reserved, leading, latest)
    folded = np.minimum(stage_classes(num_layers, way, reserved, leading, latest), middle)
    stage = np.where(_FOLDED[kind], folded, plain)
    return stage, rank_layers(num_layers, layout, stage, reserved)


def rank_layers(num_layers: int, layout: LayoutLike, stage: Numeric, reserved: Reserved) -> Numeric:
    """Layers of the stage that a rank has in the default split; of a V, of both its stages."""
    v, way = _V[layout.schedule_index], way_of(layout)
    back = default_stage_layers(num_layers, way, way.pp - 1 - stage, reserved)
    return default_stage_layers(num_layers, way, stage, reserved) + v * back


def layers_by_rank(num_layers: int, layout: Layout, reserved: Reserved = NONE) -> list[int]:
    """Layers of every stage of one layout, of a V of every rank."""
    if layout.stage_layers is not None:
        return given_stages(layout)
    layers = rank_layers(num_layers, layout, np.arange(layout.pp), reserved)
    return [int(count) for count in np.broadcast_to(layers, (layout.pp,))]
