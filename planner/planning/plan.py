"""The answer: a layout, where it lives, what it costs, and what was proven. The plan file.

`Plan.to_document()` is the one JSON form (`planner plan --json`, plan.json, `--target json`);
`Plan.from_document` reads it back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from planner.errors import InputError, nearest_of
from planner.planning.document import SCHEMA_VERSION, document

_NO_OTHER_KEYS = ConfigDict(extra="forbid")

Status = Literal["optimal", "feasible", "infeasible", "unknown"]


@dataclass(frozen=True, slots=True)
class GroupReport:
    """One communicating group of the plan: traffic of a step on one accelerator.

    bytes moved, FLOPs (model and recompute), intensity = FLOPs per byte, exposed_intensity the
    same with bytes × exposed / busy (null where nothing is exposed), tiers {name: {bytes,
    busy_seconds, ridge}}, wall one of compute, bandwidth, latency; busbw in bytes per second as
    nccl-tests define it (null without traffic); members and tiers it spans.
    """

    __pydantic_config__ = _NO_OTHER_KEYS

    members: int
    bytes: float
    flops: float
    intensity: float | None
    exposed_intensity: float | None
    busy_seconds: float
    exposed_seconds: float
    latency_seconds: float
    tiers: Mapping[str, Mapping[str, float]]
    split: Mapping[str, float]
    wall: str
    busbw: float | None


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """Bytes of the worst rank by term, their sum, the capacity, the verdict.

    by_stage has for every stage its number, layers, peak_bytes and the terms.
    """

    __pydantic_config__ = _NO_OTHER_KEYS

    terms: Mapping[str, float]
    peak_bytes: float
    capacity_bytes: float
    verdict: str
    worst_stage: int
    by_stage: tuple[Mapping[str, float], ...]
    peak_low_bytes: float | None = None  # the error bar, as of step_seconds
    peak_high_bytes: float | None = None
    host_bytes: float | None = None  # pinned for what is offloaded; null where nothing is
    host_capacity_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class Swap:
    """What it costs to exchange the places of two groups' atoms: seconds added to the step."""

    __pydantic_config__ = _NO_OTHER_KEYS

    atoms: tuple[str, str]
    seconds: float | None


@dataclass(frozen=True, slots=True)
class RunnerUp:
    """Another layout in its best placement, what it loses and in which terms."""

    __pydantic_config__ = _NO_OTHER_KEYS

    layout: Mapping[str, Any]
    rank_order: tuple[tuple[str, int], ...]
    step_seconds: float
    loss_fraction: float
    terms: Mapping[str, float]  # seconds it takes more (or fewer) than the plan, by time term
    step_seconds_high: float | None = None  # upper end of its bar
    groups: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What each group exposes more than the plan's, and the tier that sets its pace."""


@dataclass(frozen=True, slots=True)
class SearchReport:
    """How the answer was found and what was ruled out."""

    __pydantic_config__ = _NO_OTHER_KEYS

    shapes: int
    placements: int
    opened: int
    seconds: float
    cpu_seconds: float
    excluded: Mapping[str, int]
    rule_texts: Mapping[str, str]
    any_split: bool = False  # whether it is over every split of the layers, or the default one
    best_splits: int = 0  # layouts whose best split was computed


@dataclass(frozen=True, slots=True)
class Option:
    """One count and precision that could have been chosen, and what became of it.

    status: chosen; solved (its own best is proven, and worse), ruled out (no better by its
    bound), unneeded (more accelerators than keep the deadline), infeasible, or unknown (time ran
    out). value, bound: of the objective (fewest_for_deadline: of the step), in its unit.
    """

    num_accelerators: int
    precision: str
    status: Literal["chosen", "solved", "ruled out", "unneeded", "infeasible", "unknown"]
    value: float | None = None
    bound: float | None = None
    step_seconds: float | None = None
    global_batch_size: int | None = None
    layout: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen beside the layout: counts, precision, batch, by a named objective.

    value: the proven least, bound: of every option, in `unit`. asked: the scenario's keys that left
    the choice, as they were given; the plan's inputs are those of the chosen one.
    """

    objective: str
    unit: str
    value: float | None
    bound: float | None
    gap_fraction: float | None
    asked: Mapping[str, Any]
    options: tuple[Option, ...]
    deadline_seconds: float | None = None  # of a step


@dataclass(frozen=True, slots=True)
class GroupCrossings:
    """How many of a kind of group have members in several domains of a tier, by tier's name.

    before: ranks in the software's own order on nodes by name, as a scheduler hands them out;
    after: as planned.
    """

    groups: int
    before: Mapping[str, int]
    after: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class NodesReport:
    """The nodes of a plan for an inventory.

    ranks: (node, ranks in a row) in the plan's rank order; local ranks of a node count up. spares:
    usable nodes without ranks. left_out: node → why it was not usable. domains: in use, per tier.
    shared: whether some domain holds more than one of the equal blocks that the search planned.
    """

    ranks: tuple[tuple[str, int], ...]
    spares: tuple[str, ...]
    left_out: Mapping[str, str]
    domains: Mapping[str, int]
    shared: bool
    crossings: Mapping[str, GroupCrossings]


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan or, with status infeasible, why there is none. Seconds, bytes, FLOP per byte.

    Objective, bound and gap are of the least step; where the search is robust, of the least upper
    end of the bars; where the batch is a band, of the least time per token, as seconds of a step of
    the chosen batch. Other objectives are in `choice`.
    """

    __pydantic_config__ = _NO_OTHER_KEYS

    inputs: Mapping[str, Any]
    inputs_sha256: str
    status: Status
    objective_seconds: float | None = None
    bound_seconds: float | None = None
    gap_fraction: float | None = None
    step_seconds: float | None = None
    step_seconds_low: float | None = None  # of published runs, interval_coverage lie between
    step_seconds_high: float | None = None
    interval_coverage: float | None = None
    interval_kind: str | None = None  # of planner.cost.prediction_intervals.KINDS
    mfu: float | None = None
    mfu_denominator: Mapping[str, Any] | None = None  # {precision, peak_flops, accelerator}
    mfu_bf16: float | None = None
    hfu: float | None = None
    tokens_per_second: float | None = None
    tokens_per_second_per_accelerator: float | None = None
    days: float | None = None
    accelerator_hours: float | None = None
    cost: float | None = None
    layout: Mapping[str, Any] | None = None
    # where another split was chosen: {stage_layers, step_seconds, fits} of the default one
    default_split: Mapping[str, Any] | None = None
    fill: Mapping[str, int] | None = None
    placement: Mapping[str, Mapping[str, int]] | None = None
    rank_order: tuple[tuple[str, int], ...] | None = None
    rank_order_name: str | None = None
    custom_order_gain_fraction: float | None = None  # what this layout's best placement gains
    nodes: NodesReport | None = None  # where the scenario has an inventory
    time: Mapping[str, float] | None = None
    memory: MemoryReport | None = None
    groups: Mapping[str, GroupReport] = field(default_factory=dict)
    swaps: tuple[Swap, ...] = ()
    search: SearchReport | None = None
    choice: Choice | None = None  # null where the scenario leaves none but the layout
    runners_up: tuple[RunnerUp, ...] = ()
    warnings: tuple[str, ...] = ()
    nearest_miss: Mapping[str, Any] | None = None  # {layout, over_bytes, stage, term}
    relaxations: tuple[Mapping[str, Any], ...] = ()
    reasons: tuple[Mapping[str, Any], ...] = ()  # a smallest set that leaves nothing

    def to_document(self) -> dict[str, Any]:
        """The plan as one JSON document."""
        memory = None if self.memory is None else asdict(self.memory)
        return document(
            self,
            memory=memory and {**memory.pop("terms"), **memory},
            excluded={} if self.search is None else dict(self.search.excluded),
        )

    @classmethod
    def from_document(cls, document: Any, path: str = "plan") -> Plan:
        """The plan of such a document.

        Raises:
            InputError: not a plan document, or of another schema version.
        """
        if not isinstance(document, dict) or "schema_version" not in document:
            raise InputError(
                "not a plan file", path=path, allowed="what `planner plan --json` prints"
            )
        _require_version(document["schema_version"], path)
        for name in document:
            if name not in cls.__dataclass_fields__ and name not in _BESIDE:
                raise InputError(
                    "unknown key", path=path, key=str(name), value=document[name],
                    allowed="what `planner plan --json` prints",
                    nearest=nearest_of(str(name), cls.__dataclass_fields__),
                )  # fmt: skip
        known = {name: document.get(name) for name in cls.__dataclass_fields__}
        memory = known["memory"]
        try:
            if isinstance(memory, dict):
                whole = [f for f in MemoryReport.__dataclass_fields__ if f != "terms"]
                known["memory"] = {
                    "terms": {k: v for k, v in memory.items() if k not in whole},
                    **{k: v for k, v in memory.items() if k in whole},
                }
            given = {name: value for name, value in known.items() if value is not None}
            plan = _reader().validate_json(json.dumps(given), strict=True)
        except ValidationError as error:
            first = error.errors()[0]
            raise InputError(
                f"a plan file's part is wrong ({first['msg']})",
                path=path,
                key=".".join(str(part) for part in first["loc"]),
                value=first["input"],
                allowed="what `planner plan --json` prints",
            ) from error
        except ValueError as error:  # numbers too long, or not of JSON
            raise InputError(
                f"a plan file's part is wrong ({error})",
                path=path, allowed="what `planner plan --json` prints",
            ) from error  # fmt: skip
        if dict(document.get("excluded") or {}) != plan.to_document()["excluded"]:
            raise InputError(
                "is not what the search excluded", path=path, key="excluded",
                allowed="search.excluded once more",
            )  # fmt: skip
        return plan


def _require_version(version: object, path: str) -> None:
    """Refuse a plan file of another schema version, with what to do about it.

    Raises:
        InputError: the version is not the one that this program writes.
    """
    if version == SCHEMA_VERSION:
        return
    remedy = "a newer planner is needed"
    if not isinstance(version, int) or version < SCHEMA_VERSION:
        remedy = (
            "plan its scenario again: save what stands under `inputs` as a file of its own and "
            "give it to `planner plan`"
        )
    raise InputError(
        f"the plan file is of version {version}, and this program reads version {SCHEMA_VERSION}; "
        f"{remedy}",
        path=path, key="schema_version", value=version, allowed=str(SCHEMA_VERSION),
    )  # fmt: skip


_BESIDE = ("schema_version", "planner_version", "excluded")
"""Keys of a plan document that are no field of `Plan`."""


@cache
def _reader() -> TypeAdapter[Plan]:
    return TypeAdapter(Plan)
