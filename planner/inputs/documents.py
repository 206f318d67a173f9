"""Documents as trees: every value knows the file, line, column and dotted key where it stands.

`yaml_text` and `json_text` read text into such trees, `from_plain` makes one of plain values.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import PurePath
from typing import Any

from pydantic import BaseModel

from planner.errors import InputError, Place

MAX_DEPTH = 100
"""Lists and mappings inside each other; no file of ours has ten."""

MAX_NODES = 100_000
"""Keys and items of a document, counted after YAML's aliases are written out."""

_MAX_INTEGER = 10**300  # greater ones overflow as soon as they meet a float

Scalar = str | int | float | bool | None
Plain = Any  # str | int | float | bool | None | tuple[Plain, ...] | dict[str, Plain]


@dataclass(frozen=True, slots=True)
class Node:
    """One value of a document, and where it stands: at its key, or at itself in a list.

    `key` is the dotted key inside its own file, such as 'tiers.0.width'; '' at the root.
    """

    value: "Scalar | tuple[Node, ...] | Mapping[str, Node]"
    path: str | None = None
    line: int | None = None
    column: int | None = None
    key: str = ""

    @property
    def place(self) -> Place:
        """Where the value stands."""
        return Place(self.path, self.line, self.column, self.key or None)

    def plain(self) -> Plain:
        """Return the content without places; lists become tuples, as strict pydantic wants."""
        if isinstance(self.value, Mapping):
            return {key: child.plain() for key, child in self.value.items()}
        if isinstance(self.value, tuple):
            return tuple(child.plain() for child in self.value)
        return self.value

    def child(self, key: str | int) -> "Node | None":
        """Return the value under a key or at a position of a list; None if there is none."""
        if isinstance(self.value, Mapping):
            return self.value.get(str(key))
        if isinstance(self.value, tuple):
            position = key if isinstance(key, int) else int(key) if key.isdecimal() else -1
            return self.value[position] if 0 <= position < len(self.value) else None
        return None

    def descendant(self, *keys: str | int) -> "Node | None":
        """Return the value under keys inside each other; None where one of them is missing."""
        node: Node | None = self
        for key in keys:
            node = None if node is None else node.child(key)
        return node

    @property
    def items(self) -> "tuple[Node, ...]":
        """The items of a list; none of anything else."""
        return self.value if isinstance(self.value, tuple) else ()

    def error(
        self, message: str, *, allowed: str | None = None, nearest: str | None = None
    ) -> InputError:
        """Return the error that this value is wrong, with its place."""
        return self.place.error(message, value=self.plain(), allowed=allowed, nearest=nearest)


def from_plain(value: Plain, path: str | None = None, key: str = "") -> Node:
    """Return the tree of plain values, such as `json.load` gives; places have no lines.

    Values of Python callers become plain: numbers of numpy, paths, and models such as a `Model`.
    """
    value = _plain(value)
    if isinstance(value, Mapping):
        children = {
            str(name): from_plain(child, path, join_key(key, name)) for name, child in value.items()
        }
        return Node(children, path, key=key)
    if isinstance(value, tuple | list):
        items = (
            from_plain(child, path, join_key(key, position)) for position, child in enumerate(value)
        )
        return Node(tuple(items), path, key=key)
    return Node(value, path, key=key)


def _plain(value: Any) -> Any:
    """A Python caller's value as JSON has it."""
    if value is None or type(value) in (str, bool, int, float):  # nearly all
        return value
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else value


def join_key(around: str, name: object) -> str:
    """Return the dotted key of what stands under `name` in `around`."""
    return f"{around}.{name}" if around else str(name)


def show(value: object) -> str:
    """Return a value as the user wrote it, shortened, with text in quotes."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, tuple | list):
        return "a list"
    text = f"'{value}'" if isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


# ---------------------------------------------------------------- what every reader refuses


def is_finite(number: int | float) -> bool:
    """Whether a number is neither infinite nor NaN, nor an integer that no float can hold."""
    return math.isfinite(number) if isinstance(number, float) else abs(number) < _MAX_INTEGER


def repeated_key(place: Place, first: Node) -> InputError:
    """Return the error that the key at a place has been given before."""
    return place.error(
        f"the key is given twice, first on line {first.line}", allowed="each key once"
    )


def not_finite(place: Place, text: str) -> InputError:
    """Return the error that a number's text stands for no finite number."""
    shown = text[:40]
    return place.error(f"{shown} is not a finite number", value=shown, allowed="a finite number")


def too_many_nodes(place: Place, counted: str = "") -> InputError:
    """Return the error that a document is too large; `counted` says how values are counted."""
    return place.error(
        f"the document has more than {MAX_NODES} parts{counted}",
        allowed=f"at most {MAX_NODES} keys and items",
    )
