"""The points of a sweep: its axes crossed and filtered, and the scenario of each point."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from glob import glob
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from planner.errors import InputError, PlannerError, nearest_of
from planner.inputs.complaints import inner, marks_of
from planner.inputs.documents import Node
from planner.inputs.files import read, resolve
from planner.inputs.values import Changes, Reference, inlined, value_of
from planner.problem.scenario import Scenario, inputs_sha256, scenario_to_document
from planner.problem.sweep import MAX_POINTS, FileGlob, Filter, SweepFile, keys_of
from planner.sweep.version import program_version

MOST_CACHED = 1024
"""Values of scenario keys that are kept for the points that share them."""

_KEYS: Mapping[str, Any] = {name: inner(Scenario, name) for name in Scenario.model_fields}
"""Key of a scenario → the type of its value."""


@dataclass(frozen=True, slots=True)
class Point:
    """One point: the value of every axis key as written, and the changes of the base.

    key: SHA-256 of the inputs, of the program and of the search's settings. reason: why the point
    is not a scenario, or None.
    """

    number: int
    values: Mapping[str, Any]
    changes: Changes
    key: str = ""
    reason: str | None = None


@dataclass(frozen=True)
class Points:
    """The checked points of a sweep file."""

    name: str
    settings: SweepFile
    axes: tuple[str, ...]
    points: tuple[Point, ...]
    scenarios: Scenarios


class Scenarios:
    """Scenarios of one base with changes; values that points share (model, topology, …) are read
    and checked once."""

    def __init__(self, base: Node, folder: Path) -> None:
        self._base, self._folder = base, folder
        self._cache: dict[tuple[str, str], Any] = {}

    def at(self, changes: Changes) -> Scenario:
        """The scenario with these changes.

        Raises:
            InputError: the place and the reason, as for a scenario file.
        """
        if isinstance(self._base.value, Mapping):
            try:
                names = {*self._base.value, *(key[0] for key in changes)}
                values = {name: self._value(name, changes) for name in sorted(names)}
                return Scenario.model_validate(
                    values, by_alias=True, by_name=False, context={"from_file": True}
                )
            except (ValidationError, InputError):
                pass  # read in one go, below, the error names its place in the file
        return value_of(inlined(self._base, Scenario, self._folder, changes), Scenario)

    def _value(self, name: str, changes: Changes) -> Any:
        """The value of one key of the scenario, from the cache if a point had it before."""
        own = {key: node for key, node in changes.items() if key[0] == name}
        cached = name, repr([(key, node.plain()) for key, node in own.items()])
        if cached not in self._cache:
            # axes change in order, so that old values are rarely needed again
            if len(self._cache) >= MOST_CACHED:
                self._cache.clear()
            self._cache[cached] = self._read(name, own)
        return self._cache[cached]

    def _read(self, name: str, changes: Changes) -> Any:
        child = self._base.child(name)
        only_it = replace(self._base, value={} if child is None else {name: child})
        node = inlined(only_it, Scenario, self._folder, changes).child(name)
        assert node is not None
        cls: Any = _KEYS.get(name)
        # the class inside an Annotated type
        cls = getattr(cls, "__origin__", cls)
        return value_of(node, cls) if hasattr(cls, "model_fields") else node.plain()


# ---------------------------------------------------------------- axes


@dataclass(frozen=True, slots=True)
class _Step:
    """One value of an axis: for each of its keys the value as written, and its node."""

    written: tuple[Any, ...]
    nodes: tuple[Node, ...]


def _steps(axis: str, node: Node, values: Any, folder: Path) -> list[_Step]:
    keys = keys_of(axis)
    if isinstance(values, FileGlob):
        return [_Step((text,), (file,)) for text, file in _matching(keys[0], node, values, folder)]
    steps = []
    for position, value in enumerate(values):
        # a range has no node for each of its values
        item = node.child(position) or replace(node, value=value)
        children = (item,) if len(keys) == 1 else tuple(item.child(i) for i in range(len(keys)))
        nodes = [
            _with_path(key, child, folder)
            for key, child in zip(keys, children, strict=True)
            if child
        ]
        written = tuple(_with_lists(child.plain()) for child in children if child)
        steps.append(_Step(written, tuple(nodes)))
    return steps


def _with_lists(value: Any) -> Any:
    """The value with lists, as JSON has them, for the tuples of a node."""
    if isinstance(value, Mapping):
        return {key: _with_lists(child) for key, child in value.items()}
    return [_with_lists(child) for child in value] if isinstance(value, tuple) else value


def _reference(key: str) -> Reference | None:
    """The mark of a key whose value may be the name of a file."""
    annotation: Any = Scenario
    for name in key.split("."):
        annotation = inner(annotation, name)
    return next((mark for mark in marks_of(annotation) if isinstance(mark, Reference)), None)


def _with_path(key: str, node: Node, folder: Path) -> Node:
    """The node of a value; if it names a file in the sweep's folder, with the path of that."""
    text = node.value
    if not isinstance(text, str) or _reference(key) is None:
        return node
    try:
        is_there = (folder / text).is_file()
    except (OSError, ValueError):
        is_there = False
    return replace(node, value=str(folder / text)) if is_there else node


def _matching(key: str, node: Node, pattern: FileGlob, folder: Path) -> Iterator[tuple[str, Node]]:
    """The files of a pattern as written, each with its node."""
    place: dict[str, Any] = {"path": node.path, "line": node.line, "column": node.column}
    if _reference(key) is None:
        fields = [name for name in _KEYS if _reference(name)]
        raise InputError(
            f"{key} takes no file", key=node.key, value=pattern.files, **place,
            allowed=f"files for a key such as {', '.join(fields)}",
        )  # fmt: skip
    paths = sorted(glob(pattern.files, root_dir=folder, recursive=True))  # noqa: PTH207
    if not paths:
        raise InputError(
            f"no file matches {pattern.files}", key=f"{node.key}.files", value=pattern.files,
            allowed=f"a pattern, relative to {folder}, of one or more files", **place,
        )  # fmt: skip
    for text in paths:
        yield text, replace(node, value=str(folder / text))


# ---------------------------------------------------------------- filters


def _same(value: Any, other: Any) -> bool:
    """Whether values are equal, and not as True and 1 are."""
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)


_COMPARED = {
    "above": lambda value, other: value > other,
    "at_least": lambda value, other: value >= other,
    "below": lambda value, other: value < other,
    "at_most": lambda value, other: value <= other,
    "multiple_of": lambda value, other: other != 0 and value % other == 0,
}


class _Filter:
    """Filters of points by the values of keys: of an axis as written, else as the base has it."""

    def __init__(self, base: Node, axes: Sequence[str], path: str | None) -> None:
        self._base, self._axes, self._path = base, axes, path

    def value(self, key: str, values: Mapping[str, Any]) -> Any:
        if key in values:
            return values[key]
        # `topology.name` is not the base's where an axis replaces `topology`
        replaced = any(key.startswith(f"{axis}.") for axis in self._axes)
        node: Node | None = self._base
        for name in key.split("."):
            node = None if node is None or replaced else node.child(name)
        if node is None:
            raise InputError(
                f"{key} is neither an axis nor a key that the base gives",
                path=self._path,
                key="filters",
                value=key,
                allowed=f"{', '.join(self._axes)}, or a key of the base that no axis replaces",
                nearest=nearest_of(key, self._axes),
            )
        return _with_lists(node.plain())

    def number(self, key: str, values: Mapping[str, Any]) -> int | float | None:
        value = self.value(key, values)
        if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
            return value
        raise InputError(
            f"{key} is not a number, and only numbers can be compared",
            path=self._path,
            key="filters",
            value=value,
            allowed="a value or a list of values",
        )

    def holds(self, conditions: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
        return all(self._holds(key, condition, values) for key, condition in conditions.items())

    def _holds(self, key: str, condition: Any, values: Mapping[str, Any]) -> bool:
        if not isinstance(condition, Mapping):
            value = self.value(key, values)
            choices = condition if isinstance(condition, tuple) else (condition,)
            return any(_same(value, _with_lists(choice)) for choice in choices)
        own = self.number(key, values)
        others = {
            name: self.number(other, values) if isinstance(other, str) else other
            for name, other in condition.items()
        }
        return own is not None and all(
            other is not None and _COMPARED[name](own, other) for name, other in others.items()
        )

    def keeps(self, filters: Sequence[Filter], values: Mapping[str, Any]) -> bool:
        """Whether a point with these values is kept."""
        kept = [self.holds(f.keep, values) for f in filters if f.keep is not None]
        dropped = [self.holds(f.drop, values) for f in filters if f.drop is not None]
        return all(kept) and not any(dropped)


# ---------------------------------------------------------------- points


def read_points(name_or_path: str | Path) -> Points:
    """The points of a sweep file, each checked; the first axis changes slowest.

    Raises:
        InputError: the file is wrong, no point is left or none is a scenario, there are more than
            MAX_POINTS, or two have the same inputs.
    """
    path = resolve("sweep", name_or_path)
    root = inlined(read(path), SweepFile, path.parent)
    settings = value_of(root, SweepFile)
    base = root.child("base")
    assert base is not None
    axes = tuple(key for axis in settings.axes for key in keys_of(axis))
    crossed = _crossed(axes, _steps_of_axes(settings, root, path.parent))
    chosen = _Filter(base, axes, root.path)
    kept = [pair for pair in crossed if chosen.keeps(settings.filters, pair[0])]
    if not kept:
        raise _wrong(root, "filters", "no point is left", "filters that leave one point or more")
    points = [Point(number, *pair) for number, pair in enumerate(kept)]
    scenarios = Scenarios(base, path.parent)
    checked = _checked(points, settings, scenarios, root)
    return Points(path.stem, settings, axes, checked, scenarios)


def _steps_of_axes(settings: SweepFile, root: Node, folder: Path) -> list[list[_Step]]:
    axes = root.child("axes")
    assert axes is not None
    steps = []
    for axis, values in settings.axes.items():
        node = axes.child(axis)
        assert node is not None
        steps.append(_steps(axis, node, values, folder))
    number = prod(map(len, steps))
    if number > MAX_POINTS:
        raise _wrong(
            root, "axes", f"the axes have {number:,} points",
            f"at most {MAX_POINTS:,} before filters",
        )  # fmt: skip
    return steps


def _crossed(
    axes: Sequence[str], steps: Sequence[Sequence[_Step]]
) -> Iterator[tuple[dict[str, Any], Changes]]:
    """Values as written and changes of the base for every combination of steps, one per axis."""
    for combination in product(*steps):
        written = [value for step in combination for value in step.written]
        nodes = [node for step in combination for node in step.nodes]
        changes = {tuple(key.split(".")): node for key, node in zip(axes, nodes, strict=True)}
        yield dict(zip(axes, written, strict=True)), changes


def _wrong(root: Node, key: str, message: str, allowed: str) -> InputError:
    node = root.child(key) or root
    return InputError(
        message, path=node.path, line=node.line, column=node.column, key=key, allowed=allowed
    )


def _checked(
    points: Sequence[Point], settings: SweepFile, scenarios: Scenarios, root: Node
) -> tuple[Point, ...]:
    """The points with their keys, and the reasons of those that are no scenarios.

    Raises:
        InputError: none is a scenario, or two have the same key.
    """
    base = root.child("base")
    assert base is not None
    by_key: dict[str, Point] = {}
    checked, errors = [], []
    for point in points:
        try:
            document = scenario_to_document(scenarios.at(point.changes))
            key, reason = point_key(inputs_sha256(document), settings), None
        except PlannerError as error:
            errors.append(error)
            # it has no document, but a failed point needs a key too
            inputs = {"base": _with_lists(base.plain()), "values": point.values}
            key, reason = point_key(inputs_sha256(inputs), settings), str(error)
        first = by_key.setdefault(key, point)
        if first is not point:
            raise _wrong(
                root, "axes",
                f"points {first.number} and {point.number} have the same inputs: "
                f"{_values(first)}; {_values(point)}",
                "axes whose points differ",
            )  # fmt: skip
        checked.append(replace(point, key=key, reason=reason))
    if len(errors) == len(points):
        raise errors[0]
    return tuple(checked)


def _values(point: Point) -> str:
    return ", ".join(f"{key} {json.dumps(value)}" for key, value in point.values.items())


def point_key(inputs: str, settings: SweepFile) -> str:
    """The SHA-256 of all that a point's result depends on; inputs is that of its scenario."""
    document = {
        "inputs_sha256": inputs,
        "program": program_version(),
        "top_k": settings.top_k,
        "time_limit_seconds": settings.time_limit_seconds,
    }
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
