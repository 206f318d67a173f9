"""Parameters of a fabric fitted to measured collectives: `planner calibrate collectives`.

    found = calibrate(read_sweeps(["all_reduce.log"]), topology)
    Path("my-fabric.yaml").write_text(found.to_yaml(), "utf-8")

Fitted is the fabric of the outermost tier that the logs cross; the tiers inside stay as the
topology has them. The loss is mean |log(predicted / measured)|^1.5 over all points: between the
mean, which lets no odd point rule, and the square, which ignores none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.cost.context import TierArrays
from planner.errors import InputError
from planner.evidence.collective_logs import Floats, Sweep, bus_factor
from planner.evidence.descent import Range, descend
from planner.evidence.fabric_file import fabric_yaml, figures
from planner.evidence.fabrics import Placed, UnmatchedError, place
from planner.evidence.slow_hosts import slow_against_prediction, slow_among_repeats
from planner.evidence.validate_collectives import Errors, LogErrors, line, predicted, ramps
from planner.inputs.quantities import Figure
from planner.problem.topology import Fabric, Topology

LOSS_POWER = 1.5
STARTS = (1.0, 0.6)
"""The search starts from the parameters as they are, and again from so much lower ones."""

PROBE = 1.25
LEAST_EFFECT = 0.01
"""A parameter is determined if a value so much larger moves predictions by this share at least:
of the largest messages for bandwidth, of the smallest for latency, of all for the ramp, of any for
a rendezvous. Others keep their value: the logs may be bound by another tier, or hold no small
message."""

OUT_OF_ORDER = 1.2
"""A message that takes so much longer than a larger one does is left out of the loss: a protocol
badly chosen, or other traffic."""

LEAST_FIGURE = {"efficiency": 0.01, "ramp": 0.01}
MOST_FIGURE = {"efficiency": 1.0, "ramp": 20.0}
MOST_REDUCING = 2.0  # of an all-reduce that switches help; others move every byte

Columns = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A number of a fabric that a fit may change."""

    name: str  # attribute of Fabric
    operations: tuple[str, ...]  # one of these must have been measured
    with_gather: bool = False  # whether the ring's share of bandwidth follows it


HOP = Parameter("hop_seconds", ("all_reduce", "all_gather", "reduce_scatter", "sendrecv"))
BASE = Parameter("base_seconds", HOP.operations)
RAMP = Parameter("ramp", ("all_reduce", "all_gather", "reduce_scatter"))
GATHER = Parameter("efficiency", ("all_gather", "reduce_scatter", "broadcast"))
REDUCE = Parameter("all_reduce_efficiency", ("all_reduce",))
EXCHANGE = Parameter("all_to_all_efficiency", ("alltoall",))
SEND = Parameter("p2p_efficiency", ("sendrecv",))
RENDEZVOUS = Parameter("rendezvous_seconds", ("all_reduce", "all_gather", "reduce_scatter"))


@dataclass(frozen=True, slots=True)
class Calibration:
    """A fitted fabric, what the logs did not determine, and the errors it leaves."""

    fabric: Fabric
    tier: str
    fitted: tuple[str, ...]  # attributes of the fabric
    kept: Mapping[str, str]  # attribute → why it keeps its value
    logs: tuple[LogErrors, ...]
    suspicious: Mapping[str, str]  # name of a log → why it is suspected

    @property
    def errors(self) -> Errors:
        """Errors of the fit, all points of logs that are not suspicious pooled."""
        return Errors.of([log for log in self.logs if log.placed.sweep.name not in self.suspicious])

    def to_document(self) -> dict[str, Any]:
        """The result as JSON values."""
        return {
            "fabric": self.fabric.name,
            "figures": figures(self.fabric),
            "tier": self.tier,
            "fitted": list(self.fitted),
            "kept": dict(self.kept),
            "errors": asdict(self.errors),
            "by_log": {
                log.placed.sweep.name: {
                    "operation": log.placed.sweep.operation,
                    "ranks": log.placed.num_ranks,
                    "num_bytes": log.placed.sweep.num_bytes.tolist(),
                    "measured_seconds": log.placed.sweep.seconds.tolist(),
                    "error_fraction": log.errors.tolist(),
                    "busbw": _busbw(log.placed).tolist(),
                    "notes": list(log.placed.sweep.notes),
                }
                for log in self.logs
            },
            "suspicious": dict(self.suspicious),
        }

    def to_yaml(self) -> str:
        """The fabric as a file of topologies/fabrics/."""
        return fabric_yaml(self.fabric)


def calibrate(sweeps: Iterable[Sweep], topology: Topology, name: str | None = None) -> Calibration:
    """Fit the fabric of the tier that the sweeps reach on a topology.

    Raises:
        InputError: the logs do not fit the topology, reach different tiers, or hold no point.
    """
    placed = [_placed(sweep, topology) for sweep in sweeps]
    placed = [log for log in placed if len(log.sweep.num_bytes) and log.num_ranks > 1]
    if not placed:
        raise InputError("no log holds a point of two ranks or more", allowed="nccl-tests output")
    position = _reached(placed)
    suspects = slow_among_repeats(placed)
    trusted = [log for log in placed if log.sweep.name not in suspects]
    tier = topology.tiers[position]
    free = parameters(tier.fabric, trusted)
    fitted, values = fit(trusted, position, free)
    kept = {p.name: "the logs do not depend on it" for p in free if p not in fitted}
    source = "fit to " + ", ".join(log.sweep.name for log in trusted)
    fabric = fitted_fabric(tier.fabric, fitted, values, source, name or tier.fabric.name)
    logs = tuple(errors_on(log, position, fabric) for log in placed)
    return Calibration(
        fabric=fabric,
        tier=tier.name,
        fitted=tuple(p.name for p in fitted),
        kept=kept,
        logs=logs,
        suspicious=slow_against_prediction(placed) | suspects,
    )


def _placed(sweep: Sweep, topology: Topology) -> Placed:
    try:
        return place(sweep, topology)
    except UnmatchedError as reason:
        raise InputError(
            str(reason), path=sweep.path, line=sweep.line,
            allowed="a log whose header lists the ranks",
        ) from None  # fmt: skip


def _reached(placed: Sequence[Placed]) -> int:
    """Position of the outermost tier crossed: the same for all logs."""
    outermost = [max(t for t, g in enumerate(log.split) if g > 1) for log in placed]
    for (log, a), (_, b) in pairwise(zip(placed, outermost, strict=True)):
        if a != b:
            names = [tier.name for tier in log.tiers]
            raise InputError(
                f"the logs reach different tiers, {names[a]} and {names[b]}",
                path=log.sweep.path, line=log.sweep.line,
                allowed="logs of one tier; calibrate the inner one first",
            )  # fmt: skip
    return outermost[0]


def parameters(fabric: Fabric, placed: Sequence[Placed]) -> list[Parameter]:
    """What the logs may determine; the base latency only beside logs of other numbers of hops."""
    measured = {log.sweep.operation for log in placed}
    lifted = fabric.all_reduce_efficiency != fabric.efficiency
    gathers = bool(measured & set(GATHER.operations))
    reduce = replace(REDUCE, with_gather=not lifted and not gathers)
    free = [HOP, RAMP, GATHER, reduce, EXCHANGE, SEND]
    if fabric.rendezvous_seconds is not None:
        free.insert(1, RENDEZVOUS)
    if len({(log.sweep.operation, log.split) for log in placed}) > 1:
        free.insert(0, BASE)
    return [p for p in free if measured & set(p.operations)]


# ---------------------------------------------------------------- the fit


def fit(
    placed: Sequence[Placed], position: int, free: Sequence[Parameter]
) -> tuple[list[Parameter], list[float]]:
    """The parameters that the logs determine, of those free, and their values of least loss."""
    start = [float(getattr(placed[0].tiers[position].fabric, p.name)) for p in free]
    values = _least(placed, position, free, start)
    moves = [_effect(placed, position, free, values, i) for i in range(len(free))]
    determined = [p for p, moved in zip(free, moves, strict=True) if moved >= LEAST_EFFECT]
    if len(determined) < len(free):
        start = [v for v, moved in zip(start, moves, strict=True) if moved >= LEAST_EFFECT]
        values = _least(placed, position, determined, start)
    return determined, values


def _least(
    placed: Sequence[Placed], position: int, free: Sequence[Parameter], start: Sequence[float]
) -> list[float]:
    def loss(point: Sequence[float]) -> float:
        return _loss(placed, position, free, point)

    ranges = [_range(parameter) for parameter in free]
    found = []
    for scale in STARTS:
        scaled = (max(value, 1e-9) * scale for value in start)
        point = [allowed.clipped(value) for allowed, value in zip(ranges, scaled, strict=True)]
        found.append(descend(loss, point, ranges))
    return min(found, key=loss)


def _range(parameter: Parameter) -> Range:
    kind = "efficiency" if "efficiency" in parameter.name else parameter.name
    most = MOST_FIGURE.get(kind, np.inf)
    if parameter.name == REDUCE.name and not parameter.with_gather:
        most = MOST_REDUCING
    return Range(LEAST_FIGURE.get(kind, 1e-9), most)


def _loss(
    placed: Sequence[Placed], position: int, free: Sequence[Parameter], values: Sequence[float]
) -> float:
    off = [
        np.abs(np.log(_times(log, position, free, values) / log.sweep.seconds))[in_order(log.sweep)]
        for log in placed
    ]
    return float(np.mean(np.concatenate(off) ** LOSS_POWER))


def in_order(sweep: Sweep) -> NDArray[np.bool_]:
    """Which points take about as long as larger ones at most; others are not the size's doing."""
    larger = np.minimum.accumulate(sweep.seconds[::-1])[::-1]
    return sweep.seconds <= OUT_OF_ORDER * larger


def _effect(
    placed: Sequence[Placed],
    position: int,
    free: Sequence[Parameter],
    values: Sequence[float],
    changed: int,
) -> float:
    """Largest share by which a larger value of one parameter moves a log's predictions."""
    other = [v * PROBE if i == changed else v for i, v in enumerate(values)]
    name = free[changed].name
    moved = []
    for log in placed:
        before, after = (_times(log, position, free, point) for point in (values, other))
        shares = np.abs(np.log(after / before))
        if "efficiency" in name:
            moved.append(shares[-1])
        elif name == RENDEZVOUS.name:
            moved.append(np.max(shares))
        else:
            moved.append(np.mean(shares) if name == RAMP.name else shares[0])
    return float(max(moved))


def _times(
    log: Placed, position: int, free: Sequence[Parameter], values: Sequence[float]
) -> Floats:
    """Predicted seconds with some parameters of one tier's fabric changed."""
    tiers, ramp = TierArrays.of_tiers(log.tiers), ramps(log.tiers)
    line_rate = float(tiers.bytes_per_second[position])
    for parameter, value in zip(free, values, strict=True):
        if parameter == RAMP:
            ramp[position] = value
            continue
        for column in COLUMNS[parameter.name] if not parameter.with_gather else ALL_RINGS:
            rated = value * line_rate if "efficiency" in parameter.name else value
            changed: dict[str, Any] = {column: _put(getattr(tiers, column), position, rated)}
            tiers = replace(tiers, **changed)
    return predicted(log, tiers, ramp, log.sweep.num_bytes)


COLUMNS: Mapping[str, tuple[str, ...]] = {
    "hop_seconds": ("hop_seconds",),
    "base_seconds": ("base_seconds",),
    "efficiency": ("gather",),
    "all_reduce_efficiency": ("all_reduce",),
    "all_to_all_efficiency": ("all_to_all",),
    "p2p_efficiency": ("point_to_point",),
    "rendezvous_seconds": ("rendezvous_seconds",),
}
ALL_RINGS = ("gather", "all_reduce")


def _put(column: Floats, position: int, value: float) -> Floats:
    changed = column.copy()
    changed[position] = value
    return changed


def fitted_fabric(
    fabric: Fabric, fitted: Sequence[Parameter], values: Sequence[float], source: str, name: str
) -> Fabric:
    """The fabric with the fitted numbers, to four digits, and their source."""
    changes: dict[str, Any] = {}
    for parameter, value in zip(fitted, values, strict=True):
        figure = Figure(float(f"{value:.4g}"), source, "fitted")
        changes[parameter.name] = figure
        if parameter.with_gather:
            changes["efficiency"] = Figure(figure, f"as all-reduce: {source}", "fitted")
    return fabric.replace(name=name, **changes)


def errors_on(log: Placed, position: int, fabric: Fabric) -> LogErrors:
    """A log's errors with another fabric on one tier."""
    tiers = tuple(
        tier.replace(fabric=fabric) if t == position else tier for t, tier in enumerate(log.tiers)
    )
    moved, arrays = replace(log, tiers=tiers), TierArrays.of_tiers(tiers)
    times = predicted(moved, arrays, ramps(tiers), log.sweep.num_bytes)
    plain = line(moved, arrays, log.sweep.num_bytes)
    return LogErrors(moved, "fit", times / log.sweep.seconds - 1.0, plain / log.sweep.seconds - 1.0)


def _busbw(placed: Placed) -> Floats:
    sweep = placed.sweep
    return sweep.num_bytes / sweep.seconds * bus_factor(sweep.operation, placed.num_ranks)
