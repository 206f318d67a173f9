"""The scenario that a script's layout is judged on: the hardware of the scenario given, the
training, model and count of accelerators of the script."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from planner.errors import IllegalLayoutError, InputError, Place
from planner.frameworks.launchers.hosts import accelerators_per_host
from planner.frameworks.read import interpret
from planner.frameworks.script import Interpretation, LaunchScript, Note
from planner.frameworks.target import Target, target
from planner.inputs.values import load
from planner.problem.blocks import MLA, MoE
from planner.problem.model import Model
from planner.problem.scenario import Scenario
from planner.problem.software import Software

WIDER = {
    "recompute": "recompute", "cp_kinds": "cp_kind", "offloads": "offload",
    "schedules": "schedule", "dispatchers": "dispatcher",
}  # fmt: skip
"""Choices of a profile, and the keys of a target's codes that name all its framework has."""

RULE_OF_KEY = {
    "training.precision": "precision-exists",
    "training.sequence_length": "positions-exist",
}
"""Rules of ours that a scenario keeps, by the key that breaks them."""


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A key on which script and scenario differ; `judged` is the value that counts."""

    key: str
    script: Any
    scenario: Any
    judged: Any
    line: int | None = None


@dataclass(slots=True)
class Judged:
    """A script on a scenario.

    base: the scenario with the script's count, training and model. scenario: the same under the
    script's rank order, with the choices its framework has.
    """

    script: LaunchScript
    interpretation: Interpretation
    base: Scenario
    scenario: Scenario
    contradictions: list[Contradiction] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    broken: list[IllegalLayoutError] = field(default_factory=list)


def judged(script: LaunchScript, scenario: Scenario) -> Judged:
    """What the script runs, on what the scenario has.

    Raises:
        InputError: a value is of the wrong kind, or it names more accelerators than there are.
    """
    contradictions: list[Contradiction] = []
    notes: list[Note] = []
    to = target(script.target)
    counted = _counted(script, scenario, contradictions, notes)
    counted = counted.replace(software=_software(counted.software, to, notes))
    found = interpret(script, counted)
    if found.software and counted.software.family == found.software.removesuffix("-eager"):
        profile = load(found.software, "software", Software)
        counted = counted.replace(software=profile)
    broken = list(found.broken)
    base = counted
    changes: Mapping[str, Any] = {"model": found.model, "training": found.training}
    if found.model_name not in (None, scenario.model.name):
        contradictions.append(_contradiction(found, "model.name", found.model_name,
                                             scenario.model.name))  # fmt: skip
        base = base.replace(model=load(str(found.model_name), "model", Model))
    for part, keys in changes.items():
        base = _changed(found, base, part, keys, contradictions, broken)
    orders = {found.rank_order: to.orders[found.rank_order]}
    own = base.software
    if to.takes(own):  # the very framework that the target is
        own = _widened(own, to, found)
    search = base.search.replace(orders="framework")
    narrow = base.replace(software=own.replace(orders=orders), search=search)
    return Judged(script, found, base, narrow, contradictions, notes, broken)


def _counted(
    script: LaunchScript, scenario: Scenario, contradictions: list[Contradiction], notes: list[Note]
) -> Scenario:
    """The scenario with as many accelerators as the script names, if nothing else decides it."""
    count, n = script.count, scenario.num_accelerators
    total = count.total
    if count.hosts is not None:
        each = count.per_host or accelerators_per_host(scenario.topology)
        total = None if each is None else count.hosts * each
    if total is None or total == n:
        return scenario
    names = " ".join(count.settings)
    if count.overridable:
        notes.append(
            Note("num_accelerators", f"{names} make {total}, which the environment may change: "
                 f"judged on the scenario's {n}", count.line)
        )  # fmt: skip
        return scenario
    contradictions.append(Contradiction("num_accelerators", total, n, total, count.line))
    try:
        return scenario.replace(num_accelerators=total)
    except InputError as error:
        raise error.located(Place(script.path, count.line, key=names)) from None


def _software(software: Software, to: Target, notes: list[Note]) -> Software:
    """The scenario's profile, if it is one of the target's; else the target's own."""
    if {software.name, software.family} & {*to.software, *to.checked_under}:
        return software
    notes.append(
        Note("software", f"the scenario's {software.name} does not read {to.name}'s settings: "
             f"judged under {to.software[0]}")
    )  # fmt: skip
    return load(to.software[0], "software", Software)


def _widened(software: Software, to: Target, found: Interpretation) -> Software:
    """A profile with all choices that the framework has, not only those a search would try."""
    changes: dict[str, Any] = {}
    zero = {*software.zero_stages, *(int(value) for value in to.values("zero_stage"))}
    if found.layout.get("zero_stage") in (2, 3):  # Megatron's FSDP is another mode of it
        zero |= {2, 3}
    changes["zero_stages"] = tuple(sorted(zero))
    kinds = to.values("sp")
    if kinds:
        changes["sequence_parallel"] = (
            "optional" if len(kinds) > 1 else "always" if kinds == ("true",) else "never"
        )
    for field_, key in WIDER.items():
        own = getattr(software, field_)
        if own or key != "dispatcher":  # no dispatcher: no experts
            named = [value for value in to.values(key) if value != "none" or "none" in own]
            changes[field_] = tuple(dict.fromkeys([*own, *named]))
    if "dp_replicate" in to.names:
        changes["shard_groups"] = "any"
    return software.replace(**changes)


def _changed(
    found: Interpretation, base: Scenario, part: str, values: Mapping[str, Any],
    contradictions: list[Contradiction], broken: list[IllegalLayoutError],
) -> Scenario:  # fmt: skip
    """The scenario with what the script says otherwise; what cannot be is a broken rule."""
    owner = getattr(base, part)
    changes: dict[str, Any] = {}
    for key, value in values.items():
        now = owner
        for name in key.split("."):
            now = getattr(now, name, None)
        typed = value == "true" if isinstance(now, bool) and isinstance(value, str) else value
        if typed != now and not (typed in (None, 0) and now in (None, 0)):
            changes[key] = typed
            contradictions.append(_contradiction(found, f"{part}.{key}", typed, now))
    if not changes:
        return base
    try:
        return _replaced(base, part, changes)
    except InputError as error:
        key = f"{part}.{_culprit(base, part, changes)}"
        broken.append(
            IllegalLayoutError(
                RULE_OF_KEY.get(key, "model-dimensions"), "definition",
                f"{key}={changes[key.partition('.')[2]]}", error.message,
                (error.allowed,) if error.allowed else (),
            )
        )  # fmt: skip
        return base


def _replaced(base: Scenario, part: str, changes: Mapping[str, Any]) -> Scenario:
    owner = getattr(base, part)
    new = _model(owner, changes) if part == "model" else owner.replace(**changes)
    return base.replace(**{part: new})


def _culprit(base: Scenario, part: str, changes: Mapping[str, Any]) -> str:
    """The first change that cannot be even alone, else the first of those that cannot together."""
    for key, value in changes.items():
        try:
            _replaced(base, part, {key: value})
        except InputError:
            return key
    return next(iter(changes))


def _contradiction(found: Interpretation, key: str, script: Any, scenario: Any) -> Contradiction:
    named = {"model.name": "model_name"}.get(key, key)
    line = next((stated.line for stated in found.stated if stated.key == named), None)
    return Contradiction(key, script, scenario, script, line)


def _model(model: Model, changes: Mapping[str, Any]) -> Model:
    """The model with some keys changed, `moe.` and `mla.` ones inside those parts."""
    plain = {key: value for key, value in changes.items() if "." not in key}
    for part, kind in (("moe", MoE), ("mla", MLA)):
        inner = {
            key.partition(".")[2]: value
            for key, value in changes.items()
            if key.startswith(f"{part}.")
        }
        if not inner:
            continue
        now = getattr(model, part)
        if part == "moe" and inner.get("num_experts", 1) is None:
            plain[part] = None
        elif now is not None:
            plain[part] = now.replace(**inner)
        else:
            plain[part] = kind(**inner)
    plain |= {"published_parameters": None, "published_active_parameters": None}
    return model.replace(**plain)
