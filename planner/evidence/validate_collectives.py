"""Predictions compared with measured collectives: `planner validate collectives`.

    sweeps = read_sweeps(["scenarios/published/nccl_measurements.jsonl"])
    compare_sweeps(sweeps).to_document()

A fabric's parameters are fitted to one all-reduce run, named in their source. Errors of that run
are reported apart from those of the runs it predicts, and so are those of fabrics that nobody
fitted and of runs whose publisher calls the cluster degraded. The headline is of the fitted runs
and of those they predict.

What all fabrics share (switches in `cost.collectives`, the shares that networks assume) was chosen
over the same runs, so it is not held out: a ring's hop between domains on all-gathers of B200 with
InfiniBand and of A3 Mega, the distance of a tree's levels on H100 over 2 and 4 nodes. The switch of
an all-to-all comes from another source.
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


# ---------------------------------------------------------------- predictions


def predicted(
    placed: Placed, tiers: TierArrays, ramp: Sequence[float], num_bytes: Floats
) -> Floats:
    """Seconds of the operation for each message size, shape (sizes,).

    ramp: of each tier, innermost first; see `cost.collectives.duration`.
    """
    unit = unit_cost(PRICED_AS[placed.sweep.operation], placed.split, tiers)
    return np.asarray(duration(unit.cost(1.0, num_bytes), ramp), dtype=np.float64)


def alpha_beta(placed: Placed, tiers: TierArrays, num_bytes: Floats) -> Floats:
    """Seconds on the plain line α + S/β of the same fabrics, shape (sizes,): what the form of
    `predicted` is compared with."""
    unit = unit_cost(PRICED_AS[placed.sweep.operation], placed.split, tiers)
    cost = unit.cost(1.0, num_bytes)
    plain = GroupCost(cost.latency_seconds, cost.busy_seconds)
    return np.asarray(duration(plain, [0.0] * len(placed.split)), dtype=np.float64)


def ramps(tiers: Iterable[Tier]) -> list[float]:
    """Ramps of tiers, innermost first."""
    return [float(tier.fabric.ramp) for tier in tiers]


# ---------------------------------------------------------------- slow hosts

SUSPICIOUS_RATIO = 1.8
"""Seconds of large messages over those predicted from which a host is suspected: misconfigured ones
take two to four times as long in public logs, far beyond what a model is off by."""

PEER_RATIO = 1.5
"""Seconds of large messages over those of peers from which a host is suspected. Of the published
logs with peers, sound ones take 0.2 to 1.2 times as long, the others 1.6 to 3.5 times."""

LARGE_BYTES = 64 * 2**20
LARGEST_POINTS = 3
"""Judged are so many of the largest messages: small ones vary by themselves."""


def slowdown(sweep: Sweep, errors: Floats) -> float | None:
    """Median of measured / predicted seconds of the largest messages; null without large ones."""
    large = np.flatnonzero(sweep.num_bytes >= LARGE_BYTES)[-LARGEST_POINTS:]
    return float(np.median(1.0 / (1.0 + errors[large]))) if len(large) else None


def slow_against_prediction(placed: Sequence[Placed]) -> dict[str, str]:
    """Log → why it is suspected: far slower than the topology's own fabrics predict."""
    suspects = {}
    for log in placed:
        arrays = TierArrays.of_tiers(log.tiers)
        times = predicted(log, arrays, ramps(log.tiers), log.sweep.num_bytes)
        ratio = slowdown(log.sweep, times / log.sweep.seconds - 1.0)
        if ratio is not None and ratio >= SUSPICIOUS_RATIO:
            suspects[log.sweep.name] = _suspicion(ratio, "what the topology's fabric reaches")
    return suspects


def peer_slowdown(log: Placed, placed: Sequence[Placed]) -> float | None:
    """Median over a log's peers of its seconds over theirs, for large messages; null without peers.

    Peers are other logs of its operation and fabrics, with as many ranks in each innermost domain
    and no fewer domains: no operation gets faster over more of them, so sound hosts have ratios of
    1 or less, but for what clusters differ by. No prediction enters.
    """
    ratios = (_ratio(log, other) for other in placed if _is_peer(log, other))
    known = [ratio for ratio in ratios if ratio is not None]
    return float(np.median(known)) if known else None


def slow_among_peers(placed: Sequence[Placed]) -> dict[str, str]:
    """Log → why it is suspected: far slower than its peers.

    Empty where that would suspect all of them: then no log is left to say what is usual.
    """
    suspects = {
        log.sweep.name: _suspicion(ratio, "the other logs of its configuration")
        for log in placed
        if (ratio := peer_slowdown(log, placed)) is not None and ratio >= PEER_RATIO
    }
    return suspects if len(suspects) < len(placed) else {}


def _is_peer(log: Placed, other: Placed) -> bool:
    """Whether another log says how fast this one should at least be: see `peer_slowdown`."""
    return (
        other is not log
        and other.sweep.operation == log.sweep.operation
        and [tier.fabric.name for tier in other.tiers] == [tier.fabric.name for tier in log.tiers]
        and other.split[0] == log.split[0]
        and all(more >= members for more, members in zip(other.split, log.split, strict=True))
    )


def _ratio(log: Placed, other: Placed) -> float | None:
    """Median ratio of seconds over the largest third of the sizes that both logs have."""
    both, mine, theirs = np.intersect1d(
        log.sweep.num_bytes, other.sweep.num_bytes, return_indices=True
    )
    if not len(both):
        return None
    ratios = log.sweep.seconds[mine] / other.sweep.seconds[theirs]
    return float(np.median(ratios[-max(LARGEST_POINTS, len(both) // 3) :]))


def _suspicion(ratio: float, than: str) -> str:
    return (
        f"large messages take {ratio:.1f} times as long as {than}; badly configured hosts cost two "
        "to four times (adapters down or not used, no GPUDirect RDMA, PCIe ACS, wrong interface)"
    )


# ---------------------------------------------------------------- errors


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
    """One sweep and the errors of its predictions.

    errors, line_errors: predicted / measured − 1 of `predicted` and of α + S/β, shape (sizes,).
    peer_slowdown: see the function; null where no other log was compared.
    """

    placed: Placed
    section: str
    errors: Floats
    line_errors: Floats
    peer_slowdown: float | None = None

    @classmethod
    def of(cls, placed: Placed, section: str, peers: Sequence[Placed] = ()) -> LogErrors:
        """Predict a sweep on the tiers where it is placed; compare it with its peers among some."""
        sweep, tiers = placed.sweep, TierArrays.of_tiers(placed.tiers)
        times = predicted(placed, tiers, ramps(placed.tiers), sweep.num_bytes)
        plain = alpha_beta(placed, tiers, sweep.num_bytes)
        return cls(
            placed=placed,
            section=section,
            errors=times / sweep.seconds - 1.0,
            line_errors=plain / sweep.seconds - 1.0,
            peer_slowdown=peer_slowdown(placed, peers),
        )

    @property
    def slowdown(self) -> float | None:
        """Measured over predicted seconds of its largest messages; null without large ones."""
        return slowdown(self.placed.sweep, self.errors)

    @property
    def suspicious(self) -> bool:
        """Whether large messages take so long that something must be wrong with a host."""
        return (self.slowdown or 0.0) >= SUSPICIOUS_RATIO or (
            self.peer_slowdown or 0.0
        ) >= PEER_RATIO

    def to_document(self) -> dict[str, Any]:
        """The errors, and what predicted them."""
        sweep = self.placed.sweep
        pooled = asdict(Errors.of([self]))
        del pooled["logs"]
        return pooled | {
            "section": self.section,
            "operation": sweep.operation,
            "ranks": self.placed.num_ranks,
            "split": {
                tier.name: members
                for tier, members in zip(self.placed.tiers, self.placed.split, strict=True)
            },
            "fabrics": [tier.fabric.name for tier in self.placed.spanned],
            "slowdown": self.slowdown,
            "peer_slowdown": self.peer_slowdown,
            "suspicious": self.suspicious,
            "notes": list(sweep.notes),
        }


@dataclass(frozen=True, slots=True)
class CollectivesValidation:
    """Errors of predicted collectives, as `planner validate collectives --json` prints them.

    skipped: name of the sweep → why.
    """

    logs: tuple[LogErrors, ...]
    skipped: Mapping[str, str]

    def section(self, *names: str) -> Errors:
        """Errors of the logs of some sections."""
        return Errors.of([log for log in self.logs if log.section in names])

    @property
    def headline(self) -> Errors:
        """Errors of the runs that fabrics are fitted to and of those they predict."""
        return Errors.of(self._scored)

    @property
    def sound(self) -> Errors:
        """Errors of the runs held out, without those of suspicious hosts."""
        return Errors.of(
            [log for log in self.logs if log.section == "held_out" and not log.suspicious]
        )

    def to_document(self) -> dict[str, Any]:
        """The result as JSON values."""
        return asdict(self.headline) | {
            "sections": {
                **{name: asdict(self.section(name)) for name in SECTIONS},
                SOUND: asdict(self.sound),
            },
            "by_operation": self._by_operation(),
            "by_log": {log.placed.sweep.name: log.to_document() for log in self.logs},
            "skipped": dict(self.skipped),
        }

    def _by_operation(self) -> dict[str, dict[str, Any]]:
        """Scored errors of every operation that any log has."""
        return {
            operation: asdict(
                Errors.of([log for log in self._scored if log.placed.sweep.operation == operation])
            )
            for operation in sorted({log.placed.sweep.operation for log in self.logs})
        }

    @property
    def _scored(self) -> list[LogErrors]:
        return [log for log in self.logs if log.section in ("fit", "held_out")]


def compare_sweeps(
    sweeps: Iterable[Sweep], topology: Topology | None = None
) -> CollectivesValidation:
    """Predict measured collectives on the fabrics that match, or on a topology, and summarise."""
    found, skipped = [], {}
    for sweep in sweeps:
        if not len(sweep.num_bytes):
            skipped[sweep.name] = "no point is left to score"
            continue
        try:
            found.append(place(sweep, topology))
        except UnmatchedError as reason:
            skipped[sweep.name] = str(reason)
    logs = tuple(LogErrors.of(placed, _section(placed), found) for placed in found)
    return CollectivesValidation(logs, skipped)


# ---------------------------------------------------------------- sections


def _section(placed: Placed) -> str:
    """The name in SECTIONS that says whether a fit has seen the sweep."""
    if placed.sweep.degraded:
        return "degraded"
    fabrics = [tier.fabric for tier in placed.spanned]
    if any(_cites(fabric, placed.sweep.name) for fabric in fabrics):
        return "fit"
    return "held_out" if all(_is_fitted(fabric) for fabric in fabrics) else "without_fit"


def _cites(fabric: Fabric, name: str) -> bool:
    """Whether a fabric's figures name the sweep as their source."""
    word = re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])")
    values = (getattr(fabric, attribute) for attribute in type(fabric).model_fields)
    return any(
        word.search(value.source)
        for value in values
        if isinstance(value, Figure) and value.status in ("fitted", "measured")
    )


def _is_fitted(fabric: Fabric) -> bool:
    figures = (fabric.hop_seconds, fabric.ramp, fabric.all_reduce_efficiency)
    return any(figure.status in ("fitted", "measured") for figure in figures)
