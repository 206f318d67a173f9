"""The answer: a layout, where it lives, what it costs, and what was proven. The plan file.

`Plan.to_document()` is the one JSON form (`planner plan --json`, plan.json, `--target json`);
`Plan.from_document` reads it back. Units are seconds, bytes and FLOPs, of one step; traffic and
memory are those of one accelerator.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import (
    ConfigDict,
    PlainValidator,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)

from planner.errors import InputError, Place, nearest_of
from planner.planning.document import SCHEMA_VERSION, LayoutValue, adapter, json_values, versions
from planner.problem.hardware import AttentionBackend

PLAN_FILE = "what `planner plan --json` prints"

Status = Literal["optimal", "feasible", "infeasible", "unknown"]
OptionStatus = Literal["chosen", "solved", "ruled out", "unneeded", "infeasible", "unknown"]


class _Part:
    """Base of all that a plan file holds: one with unknown keys was edited, and is refused."""

    __slots__ = ()
    __pydantic_config__ = ConfigDict(extra="forbid")


# ---------------------------------------------------------------- what a layout costs


@dataclass(frozen=True, slots=True)
class GroupReport(_Part):
    """One communicating group of the plan: the traffic of a step on one accelerator.

    bytes: moved, over the tier that carries the most.
    flops: of the model and of recompute.
    intensity: FLOPs per byte; None without traffic.
    exposed_intensity: the same with bytes × exposed / busy; None where nothing is exposed.
    tiers: {tier: {bytes, busy_seconds, ridge in FLOPs per byte}} of the tiers that it spans.
    split: {tier: members}, of every tier.
    wall: what limits it: compute, bandwidth or latency.
    busbw: bytes per second as nccl-tests define it; None without traffic.
    """

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


def _number(value: object) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError("is no number", value=value, allowed="a number")
    return value


Number = Annotated[int | float, PlainValidator(_number)]
"""A number that stays what it is: pydantic writes the integers of a float field as floats."""


@dataclass(frozen=True, slots=True)
class MemoryReport(_Part):
    """Bytes of the fullest rank by term, their sum, the capacity, the verdict.

    by_stage: of every pipeline stage its number, layers, peak_bytes and the terms. In a document
    the terms stand beside the other keys, not in a mapping of their own.
    """

    terms: Mapping[str, float]
    peak_bytes: float
    capacity_bytes: float
    verdict: str
    worst_stage: int
    by_stage: tuple[Mapping[str, Number], ...]
    peak_low_bytes: float | None = None  # the prediction interval of peak_bytes
    peak_high_bytes: float | None = None
    host_bytes: float | None = None  # pinned for what is offloaded; None where nothing is
    host_capacity_bytes: float | None = None

    @model_serializer(mode="wrap")
    def _with_terms_beside(self, fields: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = fields(self)
        terms: dict[str, Any] = values.pop("terms")
        return {**terms, **values}


@dataclass(frozen=True, slots=True)
class MfuDenominator(_Part):
    """What MFU is a fraction of: the dense peak FLOP/s of a precision's matmuls."""

    accelerator: str
    precision: str
    peak_flops: float


@dataclass(frozen=True, slots=True)
class DefaultSplit(_Part):
    """The default stage split of a layout that has another: its best step, and whether it fits.

    stage_layers: layers of every stage. step_seconds: None where it cannot be placed.
    """

    stage_layers: tuple[int, ...]
    step_seconds: float | None
    fits: bool


# ---------------------------------------------------------------- what else there was to choose


@dataclass(frozen=True, slots=True)
class Swap(_Part):
    """Seconds that a step gains in length when two atoms change places; None where none can."""

    atoms: tuple[str, str]
    seconds: float | None


@dataclass(frozen=True, slots=True)
class GroupLoss(_Part):
    """What a group of another layout exposes more than the same group of the plan.

    tier: the one that it keeps busy longest. members: 1 where the layout has no such group.
    """

    tier: str | None
    members: int
    best_members: int
    exposed_seconds: float
    best_exposed_seconds: float
    extra_seconds: float


@dataclass(frozen=True, slots=True)
class RunnerUp(_Part):
    """Another layout in its best placement, what it loses and in which terms.

    layout: its `stage_layers` are None for the default stage split.
    loss_fraction: of the plan's step.
    terms: seconds that it takes more than the plan, or fewer, by term of time.
    step_seconds_high: the upper end of its prediction interval.
    groups: the greatest loss first.
    """

    layout: LayoutValue
    rank_order: tuple[tuple[str, int], ...]
    step_seconds: float
    loss_fraction: float
    terms: Mapping[str, float]
    step_seconds_high: float | None = None
    groups: Mapping[str, GroupLoss] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SearchReport(_Part):
    """How the answer was searched, and what was ruled out.

    shapes: layouts considered. opened: layouts whose placements were costed. excluded: layouts
    left out by rule, each counted under the first that it breaks. rule_texts: the rules in words.
    any_split: whether the search is over every stage split. best_splits: layouts whose best stage
    split was computed.
    """

    shapes: int
    placements: int
    opened: int
    seconds: float
    cpu_seconds: float
    excluded: Mapping[str, int]
    rule_texts: Mapping[str, str]
    any_split: bool = False
    best_splits: int = 0


@dataclass(frozen=True, slots=True)
class Option(_Part):
    """One count and precision that could have been chosen, and what became of it.

    status: chosen; solved (its own best is proven, and worse), ruled out (no better by its lower
    bound), unneeded (more accelerators than keep the deadline), infeasible, or unknown (time ran
    out). value, bound: of the objective (fewest_for_deadline: of the step), in its unit.
    """

    num_accelerators: int
    precision: str
    status: OptionStatus
    value: float | None = None
    bound: float | None = None
    step_seconds: float | None = None
    global_batch_size: int | None = None
    layout: LayoutValue | None = None


@dataclass(frozen=True, slots=True)
class Choice(_Part):
    """What was chosen besides the layout: count, precision or batch, by a named objective.

    value: the proven minimum; bound: of every option, in `unit`. asked: the scenario's keys that
    left the choice open, as they were given; the plan's inputs are those of the chosen option.
    """

    objective: str
    unit: str
    value: float | None
    bound: float | None
    gap_fraction: float | None
    asked: Mapping[str, Any]
    options: tuple[Option, ...]
    deadline_seconds: float | None = None  # of a step


# ---------------------------------------------------------------- nodes


@dataclass(frozen=True, slots=True)
class GroupCrossings(_Part):
    """How many groups of one axis have members in several domains of a tier, by tier's name.

    before: ranks in the software's own order on nodes by name, as a scheduler hands them out;
    after: as planned.
    """

    groups: int
    before: Mapping[str, int]
    after: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class NodesReport(_Part):
    """The nodes of a plan for an inventory.

    ranks: (node, consecutive ranks) in the plan's rank order; local ranks of a node count up.
    spares: usable nodes without ranks.
    left_out: node → why it is not usable.
    domains: how many are in use, per tier.
    shared: whether some domain holds more than one of the equal blocks that the search planned.
    """

    ranks: tuple[tuple[str, int], ...]
    spares: tuple[str, ...]
    left_out: Mapping[str, str]
    domains: Mapping[str, int]
    shared: bool
    crossings: Mapping[str, GroupCrossings]


# ---------------------------------------------------------------- the plan


@dataclass(frozen=True, slots=True)
class Plan(_Part):
    """A plan or, with status infeasible, why there is none.

    Objective, bound and gap are those of the lowest step. Where the search is robust, they are of
    the lowest upper end of a prediction interval; where the batch is a band, of the lowest time per
    token, as seconds of a step of the chosen batch. Other objectives are in `choice`.

    layout: with its stage split, also where that is the default one.
    """

    inputs: Mapping[str, Any]
    inputs_sha256: str
    status: Status
    attention: AttentionBackend | None = None  # the kernels costed; None in older files
    objective_seconds: float | None = None
    bound_seconds: float | None = None
    gap_fraction: float | None = None
    step_seconds: float | None = None
    step_seconds_low: float | None = None  # interval_coverage of published runs lie between
    step_seconds_high: float | None = None
    interval_coverage: float | None = None  # a fraction
    interval_kind: str | None = None  # of planner.cost.prediction_intervals.KINDS
    interval_reason: str | None = None  # why it is of this kind, and what the interval rests on
    mfu: float | None = None
    mfu_denominator: MfuDenominator | None = None
    mfu_bf16: float | None = None
    hfu: float | None = None
    tokens_per_second: float | None = None
    tokens_per_second_per_accelerator: float | None = None
    days: float | None = None
    accelerator_hours: float | None = None
    cost: float | None = None
    layout: LayoutValue | None = None
    default_split: DefaultSplit | None = None  # where another was chosen
    fill: Mapping[str, int] | None = None  # {tier: children used in each domain}
    placement: Mapping[str, Mapping[str, int]] | None = None  # {atom: {tier: factor}}
    rank_order: tuple[tuple[str, int], ...] | None = None  # (atom, factor), innermost first
    rank_order_name: str | None = None
    custom_order_gain_fraction: float | None = None  # what this layout's best placement gains
    nodes: NodesReport | None = None  # where the scenario has an inventory
    time: Mapping[str, float] | None = None  # seconds by term; they sum to the step
    memory: MemoryReport | None = None
    groups: Mapping[str, GroupReport] = field(default_factory=dict)
    swaps: tuple[Swap, ...] = ()
    search: SearchReport | None = None
    choice: Choice | None = None  # None where the scenario leaves only the layout open
    runners_up: tuple[RunnerUp, ...] = ()
    warnings: tuple[str, ...] = ()
    nearest_miss: Mapping[str, Any] | None = None  # {layout, over_bytes, stage, term, …}
    relaxations: tuple[Mapping[str, Any], ...] = ()
    reasons: tuple[Mapping[str, Any], ...] = ()  # a smallest set that leaves nothing

    def to_document(self) -> dict[str, Any]:
        """The plan as one JSON document."""
        return json_values(self)

    @model_serializer(mode="wrap")
    def _as_file(self, fields: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """The plan file, also inside of other answers."""
        excluded = {} if self.search is None else dict(self.search.excluded)
        return {**versions(), **fields(self), "excluded": excluded}

    @classmethod
    def from_document(cls, document: Any, path: str = "plan") -> Plan:
        """The plan of such a document; `path` names it in errors.

        Raises:
            InputError: not a plan document, of another schema version, or with a wrong value.
        """
        if not isinstance(document, dict) or "schema_version" not in document:
            raise InputError("not a plan file", path=path, allowed=PLAN_FILE)
        _require_version(document["schema_version"], path)
        _require_known_keys(document, path)
        plan = _read(_nested(document), path)
        if (document.get("excluded") or {}) != plan.to_document()["excluded"]:
            raise InputError(
                "is not what the search excluded", path=path, key="excluded",
                allowed="search.excluded once more",
            )  # fmt: skip
        return plan


_DERIVED = ("schema_version", "planner_version", "excluded")
"""Keys of a plan document that are no fields of `Plan`."""


def _require_version(version: object, path: str) -> None:
    """Refuse a plan file of another schema version, with what to do about it."""
    if version == SCHEMA_VERSION:
        return
    remedy = "a newer planner is needed"
    if not isinstance(version, int) or version < SCHEMA_VERSION:
        remedy = (
            "plan its scenario again: save what stands under `inputs` as a file of its own, with "
            "the name of `software` in place of its profile, and give it to `planner plan`"
        )
    raise InputError(
        f"the plan file is of version {version!r}, and this program reads version "
        f"{SCHEMA_VERSION}, a number; "
        f"{remedy}",
        path=path, key="schema_version", value=version, allowed=str(SCHEMA_VERSION),
    )  # fmt: skip


def _require_known_keys(document: Mapping[str, Any], path: str) -> None:
    fields = Plan.__dataclass_fields__
    for name in document:
        if name not in fields and name not in _DERIVED:
            raise InputError(
                "unknown key", path=path, key=str(name), value=document[name], allowed=PLAN_FILE,
                nearest=nearest_of(str(name), fields),
            )  # fmt: skip


def _nested(document: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a plan that a document gives, the terms of memory in their own mapping.

    pydantic's validators could do the latter, but after one of them it takes no JSON list for a
    tuple any more.
    """
    given = {
        name: document[name] for name in Plan.__dataclass_fields__ if document.get(name) is not None
    }
    if isinstance(memory := given.get("memory"), dict):
        own = [name for name in MemoryReport.__dataclass_fields__ if name != "terms"]
        given["memory"] = {
            "terms": {key: value for key, value in memory.items() if key not in own},
            **{key: value for key, value in memory.items() if key in own},
        }
    return given


def _read(given: Mapping[str, Any], path: str) -> Plan:
    """The plan of its fields as JSON values, with the place of the first that is wrong."""
    try:
        plan: Plan = adapter(Plan).validate_json(json.dumps(given), strict=True)
        return plan
    except ValidationError as error:
        first = error.errors()[0]
        names = [str(name) for name in first["loc"]]
        cause = first.get("ctx", {}).get("error")
        if isinstance(cause, InputError):  # our own validators know the key and what is allowed
            names += [cause.key] if cause.key else []
            raise cause.located(Place(path, key=".".join(names))) from None
        raise InputError(
            f"a plan file's value is wrong ({first['msg']})",
            path=path, key=".".join(names), value=first["input"], allowed=PLAN_FILE,
        ) from error  # fmt: skip
    except ValueError as error:  # numbers too long, or not of JSON
        raise InputError(
            f"a plan file's value is wrong ({error})", path=path, allowed=PLAN_FILE
        ) from error
