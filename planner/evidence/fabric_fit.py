"""Parameters of a fabric fitted to measured collectives: `planner calibrate collectives`.

    calibration = fit_fabric(read_sweeps(["all_reduce.log"]), topology)
    Path("my-fabric.yaml").write_text(calibration.to_yaml(), "utf-8")

Fitted is the fabric of the outermost tier that the logs cross; the tiers inside stay as the
topology has them. The loss is

    mean over points  |ln(predicted / measured)|^LOSS_POWER

between the mean, which lets no odd point rule, and the square, which ignores none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.cost.context import TierArrays
from planner.errors import InputError
from planner.evidence.collective_logs import Floats, Sweep, bus_factor
from planner.evidence.descent import Range, descend
from planner.evidence.fabrics import Placed, UnmatchedError, place
from planner.evidence.fitted_files import fabric_yaml, figures
from planner.evidence.validate_collectives import (
    Errors,
    LogErrors,
    predicted,
    ramps,
    slow_against_prediction,
    slow_among_peers,
)
from planner.inputs.quantities import Figure
from planner.problem.topology import Fabric, Topology

LOSS_POWER = 1.5

START_FACTORS = (1.0, 0.6)
"""The search starts from the parameters as they are, and again from so much lower ones: coordinate
descent from one start can stop at a ridge."""

PROBE = 1.25
MIN_EFFECT = 0.01
"""A parameter is determined if a value larger by the factor PROBE moves predictions by this much,
relatively: see `_TierModel.effect`. Others keep their value: the logs may be bound by another tier,
or hold no small message."""

OUT_OF_ORDER = 1.2
"""A message that takes so much longer than a larger one does is left out of the loss: a protocol
badly chosen, or other traffic."""

MIN_VALUE = 1e-9


# ---------------------------------------------------------------- parameters


@dataclass(frozen=True, slots=True)
class Parameter:
    """A number of a fabric that a fit may change.

    name: attribute of `Fabric`.
    operations: of nccl-tests; one of these must have been measured.
    columns: of `TierArrays`, which the number fills for its tier; a ramp has none.
    is_rate: whether it is a share of the line rate, and the columns bytes per second.
    """

    name: str
    operations: tuple[str, ...]
    columns: tuple[str, ...]
    range: Range
    is_rate: bool = False


_TREES_AND_RINGS = ("all_reduce", "all_gather", "reduce_scatter")
_SHARE = Range(0.01, 1.0)
_SECONDS = Range(MIN_VALUE, inf)

BASE = Parameter("base_seconds", (*_TREES_AND_RINGS, "sendrecv"), ("base_seconds",), _SECONDS)
HOP = Parameter("hop_seconds", (*_TREES_AND_RINGS, "sendrecv"), ("hop_seconds",), _SECONDS)
RENDEZVOUS = Parameter("rendezvous_seconds", _TREES_AND_RINGS, ("rendezvous_seconds",), _SECONDS)
RAMP = Parameter("ramp", _TREES_AND_RINGS, (), Range(0.01, 20.0))
GATHER = Parameter(
    "efficiency",
    ("all_gather", "reduce_scatter", "broadcast"),
    ("all_gather",),
    _SHARE,
    is_rate=True,
)
# switches that reduce let an all-reduce move fewer bytes over a link than rings do
REDUCE = Parameter(
    "all_reduce_efficiency", ("all_reduce",), ("all_reduce",), Range(0.01, 2.0), is_rate=True
)
# without them, and without logs that tell the two apart, one number serves all rings
REDUCE_AND_GATHER = replace(REDUCE, columns=("all_gather", "all_reduce"), range=_SHARE)
ALL_TO_ALL = Parameter(
    "all_to_all_efficiency", ("alltoall",), ("all_to_all",), _SHARE, is_rate=True
)
POSTING = Parameter("posting_seconds", ("alltoall",), ("posting_seconds",), _SECONDS)
SEND = Parameter("p2p_efficiency", ("sendrecv",), ("point_to_point",), _SHARE, is_rate=True)


def parameters(fabric: Fabric, placed: Sequence[Placed]) -> list[Parameter]:
    """What the logs may determine."""
    measured = {log.sweep.operation for log in placed}
    switches_reduce = fabric.all_reduce_efficiency != fabric.efficiency
    rings_measured = bool(measured & set(GATHER.operations))
    reduce = REDUCE if switches_reduce or rings_measured else REDUCE_AND_GATHER
    free = [HOP, RAMP, GATHER, reduce, ALL_TO_ALL, SEND]
    if fabric.rendezvous_seconds is not None:
        free.insert(1, RENDEZVOUS)
    if fabric.posting_seconds is not None:
        free.append(POSTING)
    # one log cannot tell the base from the hops; logs of other numbers of hops can
    if len({(log.sweep.operation, log.split) for log in placed}) > 1:
        free.insert(0, BASE)
    return [p for p in free if measured & set(p.operations)]


# ---------------------------------------------------------------- the calibration


@dataclass(frozen=True, slots=True)
class FabricCalibration:
    """A fitted fabric, what the logs did not determine, and the errors it leaves.

    fitted: attributes of the fabric; kept: attribute → why it keeps its value.
    suspicious: name of a log → why something is wrong with its hosts.
    """

    fabric: Fabric
    tier: str
    fitted: tuple[str, ...]
    kept: Mapping[str, str]
    logs: tuple[LogErrors, ...]
    suspicious: Mapping[str, str]

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
            "by_log": {log.placed.sweep.name: _log_document(log) for log in self.logs},
            "suspicious": dict(self.suspicious),
        }

    def to_yaml(self) -> str:
        """The fabric as a file of topologies/fabrics/."""
        return fabric_yaml(self.fabric)


def _log_document(log: LogErrors) -> dict[str, Any]:
    sweep, num_ranks = log.placed.sweep, log.placed.num_ranks
    busbw = sweep.num_bytes / sweep.seconds * bus_factor(sweep.operation, num_ranks)
    return {
        "operation": sweep.operation,
        "ranks": num_ranks,
        "num_bytes": sweep.num_bytes.tolist(),
        "measured_seconds": sweep.seconds.tolist(),
        "error_fraction": log.errors.tolist(),
        "busbw": busbw.tolist(),
        "notes": list(sweep.notes),
    }


def fit_fabric(
    sweeps: Iterable[Sweep], topology: Topology, name: str | None = None
) -> FabricCalibration:
    """Fit the fabric of the outermost tier that the sweeps cross on a topology.

    name: of the fitted fabric; that of the topology's by default.

    Raises:
        InputError: the logs do not fit the topology, reach different tiers, or hold no point.
    """
    placed = [_placed(sweep, topology) for sweep in sweeps]
    placed = [log for log in placed if len(log.sweep.num_bytes) and log.num_ranks > 1]
    if not placed:
        raise InputError("no log holds a point of two ranks or more", allowed="nccl-tests output")
    position = _outermost_tier(placed)
    suspects = slow_among_peers(placed)
    trusted = tuple(log for log in placed if log.sweep.name not in suspects)
    tier = topology.tiers[position]
    free = parameters(tier.fabric, trusted)
    model, values = _fit(_TierModel(trusted, position, tuple(free)))
    source = "fit to " + ", ".join(log.sweep.name for log in trusted)
    fabric = _fitted_fabric(tier.fabric, model.free, values, source).replace(
        name=name or tier.fabric.name
    )
    return FabricCalibration(
        fabric=fabric,
        tier=tier.name,
        fitted=tuple(p.name for p in model.free),
        kept={p.name: "the logs do not depend on it" for p in free if p not in model.free},
        logs=tuple(LogErrors.of(_with_fabric(log, position, fabric), "fit") for log in placed),
        suspicious=slow_against_prediction(placed) | suspects,
    )


def _placed(sweep: Sweep, topology: Topology) -> Placed:
    try:
        return place(sweep, topology)
    except UnmatchedError as reason:
        raise InputError(
            str(reason),
            path=sweep.path,
            line=sweep.line,
            allowed="a log whose header lists the ranks",
        ) from None


def _outermost_tier(placed: Sequence[Placed]) -> int:
    """Position of the outermost tier crossed: the same for all logs."""
    outermost = [max(t for t, members in enumerate(log.split) if members > 1) for log in placed]
    for (log, a), (_, b) in pairwise(zip(placed, outermost, strict=True)):
        if a != b:
            names = [tier.name for tier in log.tiers]
            raise InputError(
                f"the logs reach different tiers, {names[a]} and {names[b]}",
                path=log.sweep.path,
                line=log.sweep.line,
                allowed="logs of one tier; calibrate the inner one first",
            )
    return outermost[0]


def _fitted_fabric(
    fabric: Fabric, free: Sequence[Parameter], values: Sequence[float], source: str
) -> Fabric:
    """The fabric with the fitted numbers, to four digits, and their source."""
    changes: dict[str, Any] = {}
    for parameter, value in zip(free, values, strict=True):
        figure = Figure(float(f"{value:.4g}"), source, "fitted")
        changes[parameter.name] = figure
        if parameter == REDUCE_AND_GATHER:
            changes[GATHER.name] = Figure(figure, f"as all-reduce: {source}", "fitted")
    return fabric.replace(**changes)


def _with_fabric(log: Placed, position: int, fabric: Fabric) -> Placed:
    tiers = (
        tier.replace(fabric=fabric) if t == position else tier for t, tier in enumerate(log.tiers)
    )
    return replace(log, tiers=tuple(tiers))


# ---------------------------------------------------------------- the fit


@dataclass(frozen=True, slots=True)
class _TierModel:
    """Predicted times of logs as a function of the free parameters of one tier's fabric.

    position: of the tier. Values of the methods are those of `free`, in its order.
    """

    logs: tuple[Placed, ...]
    position: int
    free: tuple[Parameter, ...]

    @property
    def start(self) -> list[float]:
        """The values that the topology has."""
        fabric = self.logs[0].tiers[self.position].fabric
        return [float(getattr(fabric, p.name)) for p in self.free]

    def seconds(self, log: Placed, values: Sequence[float]) -> Floats:
        """Predicted seconds of a log, shape (sizes,)."""
        tiers, ramp = TierArrays.of_tiers(log.tiers), ramps(log.tiers)
        line_rate = float(tiers.bytes_per_second[self.position])
        for parameter, value in zip(self.free, values, strict=True):
            if parameter == RAMP:
                ramp[self.position] = value
            figure = value * line_rate if parameter.is_rate else value
            for column in parameter.columns:
                filled = getattr(tiers, column).copy()
                filled[self.position] = figure
                changed: dict[str, Any] = {column: filled}
                tiers = replace(tiers, **changed)
        return predicted(log, tiers, ramp, log.sweep.num_bytes)

    def loss(self, values: Sequence[float]) -> float:
        """That of the module's docstring."""
        off = [
            np.abs(np.log(self.seconds(log, values) / log.sweep.seconds))[in_order(log.sweep)]
            for log in self.logs
        ]
        return float(np.mean(np.concatenate(off) ** LOSS_POWER))

    def effect(self, values: Sequence[float], changed: int) -> float:
        """The largest relative change that a larger value of one parameter makes to a log.

        Of the largest messages for a rate, of the smallest for a latency, the mean of all for the
        ramp, and of any for a rendezvous: where each of them matters most.
        """
        larger = [v * PROBE if i == changed else v for i, v in enumerate(values)]
        parameter = self.free[changed]
        moved = []
        for log in self.logs:
            before, after = self.seconds(log, values), self.seconds(log, larger)
            changes = np.abs(np.log(after / before))
            if parameter.is_rate:
                moved.append(changes[-1])
            elif parameter == RENDEZVOUS:
                moved.append(np.max(changes))
            else:
                moved.append(np.mean(changes) if parameter == RAMP else changes[0])
        return float(max(moved))


def _fit(model: _TierModel) -> tuple[_TierModel, list[float]]:
    """The model of the parameters that the logs determine, and their values of lowest loss."""
    values = _lowest(model, model.start)
    determined = tuple(
        parameter
        for position, parameter in enumerate(model.free)
        if model.effect(values, position) >= MIN_EFFECT
    )
    if len(determined) < len(model.free):
        # what the logs do not depend on has drifted: the others are fitted anew without it
        model = replace(model, free=determined)
        values = _lowest(model, model.start)
    return model, values


def _lowest(model: _TierModel, start: Sequence[float]) -> list[float]:
    """The values of lowest loss, from the better of two starts."""
    ranges = [p.range for p in model.free]
    candidates = []
    for factor in START_FACTORS:
        scaled = (max(value, MIN_VALUE) * factor for value in start)
        first = [allowed.clipped(value) for allowed, value in zip(ranges, scaled, strict=True)]
        candidates.append(descend(model.loss, first, ranges))
    return min(candidates, key=model.loss)


def in_order(sweep: Sweep) -> NDArray[np.bool_]:
    """Which points take about as long as larger ones at most, shape (sizes,).

    What makes others slow is not their size.
    """
    larger = np.minimum.accumulate(sweep.seconds[::-1])[::-1]
    return sweep.seconds <= OUT_OF_ORDER * larger
