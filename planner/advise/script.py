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
from planner.inputs.values import Strict, StrictT, load
from planner.problem.blocks import MLA, MoE
from planner.problem.model import Model
from planner.problem.scenario import Scenario
from planner.problem.software import Software
from planner.problem.training import Training

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
        InputError: a value is of the wrong kind or makes no model or training, or it names more
            accelerators than there are.
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
    base = _with_own_job(found, counted, contradictions, broken)
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


def _with_own_job(
    script: Interpretation, scenario: Scenario, contradictions: list[Contradiction],
    broken: list[IllegalLayoutError],
) -> Scenario:  # fmt: skip
    """The scenario with the script's model and training.

    What the hardware or the model's positions forbid is a broken rule; then the scenario's own
    training is judged, and its model where the script's does not go with that either.

    Raises:
        InputError: the script's values make no model or no training.
    """
    model = scenario.model
    if script.model_name not in (None, model.name):
        contradictions.append(_contradiction(script, "model.name", script.model_name, model.name))
        model = load(str(script.model_name), "model", Model)
    training = _with_one_batch(scenario.training, script.training.get("global_batch_size"))
    model = _with_own_values(script, "model", model, script.model, contradictions)
    training = _with_own_values(script, "training", training, script.training, contradictions)
    try:
        return scenario.replace(model=model, training=training)
    except InputError as error:
        if error.key not in RULE_OF_KEY:
            raise script.placed(error, str(error.key)) from None
        value, rule = f"{error.key}={error.value}", RULE_OF_KEY[error.key]
        nearest = (error.allowed,) if error.allowed else ()
        broken.append(IllegalLayoutError(rule, "definition", value, error.message, nearest))
    try:
        return scenario.replace(model=model)
    except InputError:
        return scenario


def _with_one_batch(training: Training, own: Any) -> Training:
    """The training with its batch as one number of sequences: of a band the nearest to `own`."""
    if not isinstance(own, int):
        return training
    lowest, highest = training.batch_range
    return training.with_batch(min(max(own, lowest), highest))


def _with_own_values(
    script: Interpretation, section: str, scenario_value: StrictT, own: Mapping[str, Any],
    contradictions: list[Contradiction],
) -> StrictT:  # fmt: skip
    """The scenario's model or training with what the script has otherwise.

    section: `model` or `training`. own: the script's values, by dotted key below it.

    Raises:
        InputError: they make none; placed at the settings of the key that cannot be.
    """
    changes: dict[str, Any] = {}
    for key, value in own.items():
        now: Any = scenario_value
        for name in key.split("."):
            now = getattr(now, name, None)
        typed = value == "true" if isinstance(now, bool) and isinstance(value, str) else value
        if typed != now and not (typed in (None, 0) and now in (None, 0)):
            changes[key] = typed
            contradictions.append(_contradiction(script, f"{section}.{key}", typed, now))
    if not changes:
        return scenario_value
    try:
        return _changed(scenario_value, changes)
    except InputError as error:
        key = error.key if error.key in changes else _culprit(scenario_value, changes, error)
        raise script.placed(error, f"{section}.{key}") from None


def _culprit(value: Strict, changes: Mapping[str, Any], error: InputError) -> str:
    """The change to blame for an error about a key that is not changed.

    The first that makes the same error by itself, else one of the same part of the model, else the
    first of all.
    """
    for key, changed in changes.items():
        try:
            _changed(value, {key: changed})
        except InputError as own:
            if own.key == error.key:
                return key
    owner = str(error.key).rpartition(".")[0]
    same_owner = (key for key in changes if owner and key.startswith(f"{owner}."))
    return next(same_owner, next(iter(changes)))


def _changed(value: StrictT, changes: Mapping[str, Any]) -> StrictT:
    """A value with some keys changed, by name; those of a model's experts and latent attention
    dotted.

    Raises:
        InputError: it cannot be; its key is one such.
    """
    if not isinstance(value, Model):
        return value.replace(**changes)
    own = {key: changed for key, changed in changes.items() if "." not in key}
    for part, part_cls in (("moe", MoE), ("mla", MLA)):
        inner = {
            key.partition(".")[2]: changed
            for key, changed in changes.items()
            if key.startswith(f"{part}.")
        }
        if not inner:
            continue
        now = getattr(value, part)
        if part == "moe" and inner.get("num_experts", 1) is None:
            own[part] = None
            continue
        try:
            own[part] = part_cls.of(**inner) if now is None else now.replace(**inner)
        except InputError as error:
            raise error.located(Place(key=f"{part}.{error.key}")) from None
    own |= {"published_parameters": None, "published_active_parameters": None}
    return value.replace(**own)


def _contradiction(found: Interpretation, key: str, script: Any, scenario: Any) -> Contradiction:
    named = {"model.name": "model_name"}.get(key, key)
    line = next((stated.line for stated in found.stated if stated.key == named), None)
    return Contradiction(key, script, scenario, script, line)
