"""The points of a sweep: its axes crossed and filtered, and the scenario of each point."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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

MOST_PARTS = 1024
"""Parts of scenarios that are kept for the points that share them."""

_PARTS: Mapping[str, Any] = {name: inner(Scenario, name) for name in Scenario.model_fields}


@dataclass(frozen=True, slots=True)
class Point:
    """One point: the value of every axis key as written, and what replaces what in the base.

    key is the SHA-256 of the inputs, of the program and of the search's settings; reason says why
    the point is no scenario, or is None.
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
    """Scenarios of one base with changes; parts that points share are read and checked once."""

    def __init__(self, base: Node, folder: Path) -> None:
        self._base, self._folder = base, folder
        self._parts: dict[tuple[str, str], Any] = {}

    def at(self, changes: Changes) -> Scenario:
        """The scenario with these changes.

        Raises:
            InputError: the place and the reason, as for a scenario file.
        """
        if isinstance(self._base.value, Mapping):
            try:
                names = {*self._base.value, *(key[0] for key in changes)}
                parts = {name: self._part(name, changes) for name in sorted(names)}
                return Scenario.model_validate(
                    parts, by_alias=True, by_name=False, context={"from_file": True}
                )
            except (ValidationError, InputError):
                pass  # the whole, read at once, knows the place of what is wrong
        return value_of(inlined(self._base, Scenario, self._folder, changes), Scenario)

    def _part(self, name: str, changes: Changes) -> Any:
        own = {key: node for key, node in changes.items() if key[0] == name}
        known = name, repr([(key, node.plain()) for key, node in own.items()])
        if known not in self._parts:
            if len(self._parts) >= MOST_PARTS:
                self._parts.clear()
            self._parts[known] = self._read(name, own)
        return self._parts[known]

    def _read(self, name: str, changes: Changes) -> Any:
        child = self._base.child(name)
        alone = replace(self._base, value={} if child is None else {name: child})
        part = inlined(alone, Scenario, self._folder, changes).child(name)
        assert part is not None
        cls: Any = _PARTS.get(name)
        cls = getattr(cls, "__origin__", cls)
        return value_of(part, cls) if hasattr(cls, "model_fields") else part.plain()


# ---------------------------------------------------------------- axes


@dataclass(frozen=True, slots=True)
class _Step:
    """One value of an axis: of each of its keys as written, and the node that replaces it."""

    written: tuple[Any, ...]
    nodes: tuple[Node, ...]


def _steps(axis: str, node: Node, values: Any, folder: Path) -> list[_Step]:
    keys = keys_of(axis)
    if isinstance(values, FileGlob):
        return [_Step((text,), (file,)) for text, file in _matching(keys[0], node, values, folder)]
    steps = []
    for position, value in enumerate(values):
        item = node.child(position)
        given = item or replace(node, value=value)  # of a range there is no item
        row = (given,) if len(keys) == 1 else tuple(given.child(i) for i in range(len(keys)))
        placed = [_placed(key, part, folder) for key, part in zip(keys, row, strict=True) if part]
        written = tuple(_lists(part.plain()) for part in row if part)
        steps.append(_Step(written, tuple(placed)))
    return steps


def _lists(value: Any) -> Any:
    """The value with the lists of JSON, which are tuples in ours."""
    if isinstance(value, Mapping):
        return {key: _lists(child) for key, child in value.items()}
    return [_lists(child) for child in value] if isinstance(value, tuple) else value


def _reference(key: str) -> Reference | None:
    annotation: Any = Scenario
    for part in key.split("."):
        annotation = inner(annotation, part)
    return next((mark for mark in marks_of(annotation) if isinstance(mark, Reference)), None)


def _placed(key: str, node: Node, folder: Path) -> Node:
    """The node of a value; the path of a file is sought beside the sweep first."""
    text = node.value
    if not isinstance(text, str) or _reference(key) is None:
        return node
    try:
        beside = (folder / text).is_file()
    except (OSError, ValueError):
        beside = False
    return replace(node, value=str(folder / text)) if beside else node


def _matching(key: str, node: Node, pattern: FileGlob, folder: Path) -> Iterator[tuple[str, Node]]:
    place: dict[str, Any] = {"path": node.path, "line": node.line, "column": node.column}
    if _reference(key) is None:
        fields = [name for name in _PARTS if _reference(name)]
        raise InputError(
            f"{key} takes no file", key=node.key, value=pattern.files, **place,
            allowed=f"files for a key such as {', '.join(fields)}",
        )  # fmt: skip
    found = sorted(glob(pattern.files, root_dir=folder, recursive=True))  # noqa: PTH207
    if not found:
        raise InputError(
            f"no file matches {pattern.files}", key=f"{node.key}.files", value=pattern.files,
            allowed=f"a pattern, relative to {folder}, of one or more files", **place,
        )  # fmt: skip
    for text in found:
        yield text, replace(node, value=str(folder / text))


# ---------------------------------------------------------------- filters


def _same(value: Any, other: Any) -> bool:
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)


_COMPARED = {
    "above": lambda value, other: value > other,
    "at_least": lambda value, other: value >= other,
    "below": lambda value, other: value < other,
    "at_most": lambda value, other: value <= other,
    "multiple_of": lambda value, other: other != 0 and value % other == 0,
}


class _Lookup:
    """Values of keys at a point: of an axis as written, of another key as the base has it."""

    def __init__(self, base: Node, axes: Sequence[str], path: str | None) -> None:
        self._base, self._axes, self._path = base, axes, path

    def value(self, key: str, values: Mapping[str, Any]) -> Any:
        if key in values:
            return values[key]
        replaced = any(key.startswith(f"{axis}.") for axis in self._axes)
        node: Node | None = self._base
        for part in key.split("."):
            node = None if node is None or replaced else node.child(part)
        if node is None:
            raise InputError(
                f"{key} is neither an axis nor a key that the base gives",
                path=self._path,
                key="filters",
                value=key,
                allowed=f"{', '.join(self._axes)}, or a key of the base that no axis replaces",
                nearest=nearest_of(key, self._axes),
            )
        return _lists(node.plain())

    def number(self, key: str, values: Mapping[str, Any]) -> int | float | None:
        value = self.value(key, values)
        if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
            return value
        raise InputError(
            f"{key} is no number, and only numbers can be compared",
            path=self._path,
            key="filters",
            value=value,
            allowed="a value or a list of values",
        )

    def holds(self, conditions: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
        return all(self._one(key, condition, values) for key, condition in conditions.items())

    def _one(self, key: str, condition: Any, values: Mapping[str, Any]) -> bool:
        if not isinstance(condition, Mapping):
            value = self.value(key, values)
            choices = condition if isinstance(condition, tuple) else (condition,)
            return any(_same(value, _lists(choice)) for choice in choices)
        own = self.number(key, values)
        others = {
            name: self.number(other, values) if isinstance(other, str) else other
            for name, other in condition.items()
        }
        return own is not None and all(
            other is not None and _COMPARED[name](own, other) for name, other in others.items()
        )

    def stays(self, filters: Sequence[Filter], values: Mapping[str, Any]) -> bool:
        """Whether a point of these values is kept."""
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
    base, axes_node = root.child("base"), root.child("axes")
    assert base is not None and axes_node is not None
    axes = [key for axis in settings.axes for key in keys_of(axis)]
    steps = []
    for axis, values in settings.axes.items():
        node = axes_node.child(axis)
        assert node is not None
        steps.append(_steps(axis, node, values, path.parent))
    if prod(map(len, steps)) > MAX_POINTS:
        raise _wrong(
            root, "axes", f"the axes have {prod(map(len, steps)):,} points",
            f"at most {MAX_POINTS:,} before filters",
        )  # fmt: skip
    lookup = _Lookup(base, axes, root.path)
    scenarios = Scenarios(base, path.parent)
    crossed = [_crossed(axes, combination) for combination in product(*steps)]
    kept = [pair for pair in crossed if lookup.stays(settings.filters, pair[0])]
    if not kept:
        raise _wrong(root, "filters", "no point is left", "filters that leave one point or more")
    points = tuple(Point(number, *pair) for number, pair in enumerate(kept))
    checked = _Checking(settings, scenarios, base).all(points, root)
    return Points(path.stem, settings, tuple(axes), checked, scenarios)


def _crossed(axes: Sequence[str], combination: Sequence[_Step]) -> tuple[dict[str, Any], Changes]:
    written = [value for step in combination for value in step.written]
    nodes = [node for step in combination for node in step.nodes]
    changes = {tuple(key.split(".")): node for key, node in zip(axes, nodes, strict=True)}
    return dict(zip(axes, written, strict=True)), changes


def _wrong(root: Node, key: str, message: str, allowed: str) -> InputError:
    node = root.child(key) or root
    return InputError(
        message, path=node.path, line=node.line, column=node.column, key=key, allowed=allowed
    )


@dataclass
class _Checking:
    """Keys and faults of points; two points of one key are refused."""

    settings: SweepFile
    scenarios: Scenarios
    base: Node
    numbers: dict[str, Point] = field(default_factory=dict)

    def all(self, points: Sequence[Point], root: Node) -> tuple[Point, ...]:
        """The points with their keys and faults."""
        checked, faults = [], []
        for point in points:
            try:
                document = scenario_to_document(self.scenarios.at(point.changes))
                key, reason = point_key(inputs_sha256(document), self.settings), None
            except PlannerError as error:
                faults.append(error)
                key, reason = self._key_of_no_scenario(point), str(error)
            first = self.numbers.setdefault(key, point)
            if first is not point:
                raise _wrong(
                    root, "axes",
                    f"points {first.number} and {point.number} have the same inputs: "
                    f"{_written(first)}; {_written(point)}",
                    "axes whose points differ",
                )  # fmt: skip
            checked.append(replace(point, key=key, reason=reason))
        if len(faults) == len(points):
            raise faults[0]
        return tuple(checked)

    def _key_of_no_scenario(self, point: Point) -> str:
        inputs = {"base": _lists(self.base.plain()), "values": point.values}
        return point_key(inputs_sha256(inputs), self.settings)


def _written(point: Point) -> str:
    return ", ".join(f"{key} {json.dumps(value)}" for key, value in point.values.items())


def point_key(inputs: str, settings: SweepFile) -> str:
    """The SHA-256 of what a point's result depends on; inputs is that of its scenario."""
    parts = {
        "inputs_sha256": inputs,
        "program": program_version(),
        "top_k": settings.top_k,
        "time_limit_seconds": settings.time_limit_seconds,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
