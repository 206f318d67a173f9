"""Predictions held against measured collectives: `planner validate collectives`.

    sweeps = read_sweeps(["scenarios/published/nccl_measurements.jsonl"])
    validate_collectives(sweeps).to_document()

A fabric's parameters are fitted on one all-reduce run, named in their source. Errors of that run
are apart from those of the runs it predicts, and so are those of fabrics nobody fitted and of runs
whose publisher calls the cluster degraded; the headline is of the fit and what it predicts.
What all fabrics share (switch and posting in `cost.collectives`, the shares that networks assume)
was chosen over the same runs, so it is not held out: a ring's hop between domains on all-gathers of
B200 with InfiniBand and of A3 Mega, the distance of a tree's levels on H100 over 2 and 4 nodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from planner.cost.collective_costs import unit_cost
from planner.cost.collectives import Collective, CollectiveKind, GroupCost, duration
from planner.cost.context import TierArrays
from planner.evidence.collective_logs import Floats, Sweep
from planner.evidence.fabrics import Placed, UnmatchedError, place
from planner.inputs.quantities import Figure
from planner.problem.topology import Fabric, Tier, Topology

PRICED_AS: Mapping[str, Collective] = {
    "all_reduce": Collective(CollectiveKind.ALL_REDUCE),
    "all_gather": Collective(CollectiveKind.ALL_GATHER),
    "reduce_scatter": Collective(CollectiveKind.ALL_GATHER),
    "alltoall": Collective(CollectiveKind.ALL_TO_ALL),
    "sendrecv": Collective(CollectiveKind.POINT_TO_POINT),
    "broadcast": Collective(CollectiveKind.BROADCAST),
}
"""Operation of nccl-tests → what it is priced as."""

SECTIONS = ("fit", "held_out", "without_fit", "degraded")
SOUND = "held_out_sound"
"""Of what is held out, the logs that the rule for suspicious hosts does not flag."""

SUSPICIOUS_RATIO = 1.8
"""Measured over predicted seconds of large messages from which a host is suspected: badly
configured ones take two to four times as long."""

LARGE_BYTES = 64 * 2**20
LARGEST_POINTS = 3


def predicted(
    placed: Placed, tiers: TierArrays, ramp: Sequence[float], num_bytes: Floats
) -> Floats:
    """Seconds of the operation for each message size."""
    unit = unit_cost(PRICED_AS[placed.sweep.operation], placed.split, tiers)
    return np.asarray(duration(unit.cost(1.0, num_bytes), ramp), dtype=np.float64)


def line(placed: Placed, tiers: TierArrays, num_bytes: Floats) -> Floats:
    """Seconds on the plain line α + S/β of the same fabrics."""
    unit = unit_cost(PRICED_AS[placed.sweep.operation], placed.split, tiers)
    cost = unit.cost(1.0, num_bytes)
    plain = GroupCost(cost.latency_seconds, cost.busy_seconds)
    return np.asarray(duration(plain, [0.0] * len(placed.split)), dtype=np.float64)


def ramps(tiers: Iterable[Tier]) -> list[float]:
    """Ramps of tiers, inner to outer."""
    return [float(tier.fabric.ramp) for tier in tiers]


@dataclass(frozen=True, slots=True)
class Errors:
    """Relative errors of time, predicted / measured − 1, points pooled; null without points.

    line_: the same of the plain line α + S/β.
    """

    logs: int
    points: int
    median_fraction: float | None
    p95_fraction: float | None
    bias_fraction: float | None
    line_median_fraction: float | None
    line_p95_fraction: float | None

    @classmethod
    def of(cls, logs: Sequence[LogErrors]) -> Errors:
        """Pool the points of some logs."""
        points = sum(len(log.errors) for log in logs)
        if not points:
            return cls(len(logs), 0, None, None, None, None, None)
        errors = np.concatenate([log.errors for log in logs])
        plain = np.abs(np.concatenate([log.line_errors for log in logs]))
        return cls(
            logs=len(logs),
            points=points,
            median_fraction=float(np.median(np.abs(errors))),
            p95_fraction=float(np.quantile(np.abs(errors), 0.95)),
            bias_fraction=float(np.mean(errors)),
            line_median_fraction=float(np.median(plain)),
            line_p95_fraction=float(np.quantile(plain, 0.95)),
        )


@dataclass(frozen=True, slots=True)
class LogErrors:
    """One sweep against its prediction."""

    placed: Placed
    section: str
    errors: Floats  # signed, by size
    line_errors: Floats

    @property
    def slowdown(self) -> float | None:
        """Measured over predicted seconds of its largest messages; null without large ones."""
        return slowdown(self.placed.sweep, self.errors)

    @property
    def suspicious(self) -> bool:
        """Whether large messages take so long that something must be wrong with a host."""
        ratio = self.slowdown
        return ratio is not None and ratio >= SUSPICIOUS_RATIO

    def to_document(self) -> dict[str, Any]:
        """The errors, and what predicted them."""
        sweep = self.placed.sweep
        whole = asdict(Errors.of([self]))
        del whole["logs"]
        return whole | {
            "section": self.section,
            "operation": sweep.operation,
            "ranks": self.placed.num_ranks,
            "split": {
                tier.name: members
                for tier, members in zip(self.placed.tiers, self.placed.split, strict=True)
            },
            "fabrics": [tier.fabric.name for tier in self.placed.spanned],
            "slowdown": self.slowdown,
            "suspicious": self.suspicious,
            "notes": list(sweep.notes),
        }


def slowdown(sweep: Sweep, errors: Floats) -> float | None:
    """Median of measured over predicted seconds of the largest messages."""
    large = np.flatnonzero(sweep.num_bytes >= LARGE_BYTES)[-LARGEST_POINTS:]
    return float(np.median(1.0 / (1.0 + errors[large]))) if len(large) else None


@dataclass(frozen=True, slots=True)
class CollectivesValidation:
    """Errors of predicted collectives, as `planner validate collectives --json` prints them."""

    logs: tuple[LogErrors, ...]
    skipped: Mapping[str, str]  # name of the sweep → why

    def section(self, *names: str) -> Errors:
        """Errors of the logs of some sections."""
        return Errors.of([log for log in self.logs if log.section in names])

    @property
    def headline(self) -> Errors:
        """Errors of the runs that fabrics are fitted on and of those they predict."""
        return self.section("fit", "held_out")

    @property
    def sound(self) -> Errors:
        """Errors of the runs held out, without those of hosts under suspicion."""
        return Errors.of([x for x in self.logs if x.section == "held_out" and not x.suspicious])

    def to_document(self) -> dict[str, Any]:
        """The result as JSON values."""
        operations = sorted({log.placed.sweep.operation for log in self.logs})
        return asdict(self.headline) | {
            "sections": {
                **{name: asdict(self.section(name)) for name in SECTIONS},
                SOUND: asdict(self.sound),
            },
            "by_operation": {
                operation: asdict(
                    Errors.of(
                        [log for log in self._scored if log.placed.sweep.operation == operation]
                    )
                )
                for operation in operations
            },
            "by_log": {log.placed.sweep.name: log.to_document() for log in self.logs},
            "skipped": dict(self.skipped),
        }

    @property
    def _scored(self) -> list[LogErrors]:
        return [log for log in self.logs if log.section in ("fit", "held_out")]


def validate_collectives(
    sweeps: Iterable[Sweep], topology: Topology | None = None
) -> CollectivesValidation:
    """Predict measured collectives on the fabrics that match, or on a topology, and summarise."""
    logs, skipped = [], {}
    for sweep in sweeps:
        if not len(sweep.num_bytes):
            skipped[sweep.name] = "no point is left to score"
            continue
        try:
            logs.append(_compared(place(sweep, topology)))
        except UnmatchedError as reason:
            skipped[sweep.name] = str(reason)
    return CollectivesValidation(tuple(logs), skipped)


def _compared(placed: Placed) -> LogErrors:
    sweep, tiers = placed.sweep, TierArrays.of_tiers(placed.tiers)
    found = predicted(placed, tiers, ramps(placed.tiers), sweep.num_bytes)
    plain = line(placed, tiers, sweep.num_bytes)
    return LogErrors(
        placed=placed,
        section=_section(placed),
        errors=found / sweep.seconds - 1.0,
        line_errors=plain / sweep.seconds - 1.0,
    )


def _section(placed: Placed) -> str:
    if placed.sweep.degraded:
        return "degraded"
    fabrics = [tier.fabric for tier in placed.spanned]
    if any(_cites(fabric, placed.sweep.name) for fabric in fabrics):
        return "fit"
    return "held_out" if all(_is_fitted(fabric) for fabric in fabrics) else "without_fit"


def _figures(fabric: Fabric) -> list[Figure]:
    found = (getattr(fabric, name) for name in type(fabric).model_fields)
    return [value for value in found if isinstance(value, Figure)]


def _cites(fabric: Fabric, name: str) -> bool:
    word = re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])")
    return any(
        word.search(figure.source)
        for figure in _figures(fabric)
        if figure.status in ("fitted", "measured")
    )


def _is_fitted(fabric: Fabric) -> bool:
    figures = (fabric.hop_seconds, fabric.ramp, fabric.all_reduce_efficiency)
    return any(figure.status in ("fitted", "measured") for figure in figures)
