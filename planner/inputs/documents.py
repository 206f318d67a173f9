"""YAML or JSON text read into a tree that knows the file, line and column of every part."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Any

from planner.errors import InputError, one_paragraph
from planner.inputs.text import MOST_DEPTH

MAX_BYTES = 4 * 2**20
MAX_NODES = 100_000  # after aliases are written out, so that an alias bomb is refused

Scalar = str | int | float | bool | None
Plain = Any  # str | int | float | bool | None | tuple[Plain, ...] | dict[str, Plain]

_TAG = "tag:yaml.org,2002:"


@dataclass(frozen=True, slots=True)
class Node:
    """One part of a document and where it stands: at its key, or at itself in a list.

    `key` is the dotted key inside its own file: 'tiers.0.width'.
    """

    value: "Scalar | tuple[Node, ...] | Mapping[str, Node]"
    path: str | None = None
    line: int | None = None
    column: int | None = None
    key: str = ""

    def plain(self) -> Plain:
        """Return the content without places; lists become tuples, as strict pydantic wants."""
        if isinstance(self.value, Mapping):
            return {key: child.plain() for key, child in self.value.items()}
        if isinstance(self.value, tuple):
            return tuple(child.plain() for child in self.value)
        return self.value

    def child(self, key: str | int) -> "Node | None":
        """Return the part under a key or at a list position, or None."""
        if isinstance(self.value, Mapping):
            return self.value.get(str(key))
        if isinstance(self.value, tuple):
            position = key if isinstance(key, int) else int(key) if key.isdecimal() else -1
            return self.value[position] if 0 <= position < len(self.value) else None
        return None


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


def from_plain(value: Plain, path: str | None = None, key: str = "") -> Node:
    """Return the tree of a value that came from JSON; it has a path but no lines."""
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


def join_key(around: str, part: object) -> str:
    """Return the dotted key of a part."""
    return f"{around}.{part}" if around else str(part)


def read_text(text: str, path: str, key: str = "") -> Node:
    """Return the tree of one YAML 1.2 (or JSON) document; `key` is where it is to stand."""
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("%YAML") and line.split()[1:2] != ["1.2"]:
            raise _syntax_error(f"{line.strip()} is another version of YAML", path, number, 1)
    if _opened(text) > 3 * MOST_DEPTH:
        raise _syntax_error("is nested too deeply", path, None, None)
    try:
        root = _parser().compose(text)
        if root is None:
            return Node(None, path, 1, 1, key)
        return _Builder(path).build(root, root.start_mark, key, frozenset())
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = (mark.line + 1, mark.column + 1) if mark else (None, None)
        problem = " ".join(part for part in (error.context, error.problem) if part)
        raise _syntax_error(problem, path, *place) from None
    except YAMLError as error:
        raise _syntax_error(str(error), path, None, None) from None
    except RecursionError:
        raise _syntax_error("is nested too deeply", path, None, None) from None


def _opened(text: str) -> int:
    """The most brackets open at once, those of quoted text and remarks too: no file has many, and
    the scanner takes time with the square of them before it gives the first part."""
    if text.count("[") + text.count("{") <= MOST_DEPTH:
        return 0
    depth = most = 0
    for bracket in re.finditer(r"[\[\]{}]", text):
        depth += 1 if bracket.group() in "[{" else -1
        most = max(most, depth)
    return most


@cache
def _shallow_composer() -> type[Any]:
    """ruamel's composer, but that it stops where parts are nested too deeply, as its scanner takes
    time with the square of the depth, and where an anchor is given another meaning."""
    from ruamel.yaml.composer import Composer, ComposerError
    from ruamel.yaml.events import AliasEvent

    class Shallow(Composer):
        depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            self.depth += 1
            if self.depth > MOST_DEPTH:
                raise RecursionError
            event = self.parser.peek_event()
            if event.anchor in self.anchors and not isinstance(event, AliasEvent):
                again = f"the anchor '{event.anchor}' is given twice"
                raise ComposerError(None, None, again, event.start_mark)
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

    return Shallow


def _parser() -> Any:
    from ruamel.yaml import YAML

    yaml = YAML(typ="safe", pure=True)
    yaml.Composer = _shallow_composer()
    return yaml


def _syntax_error(problem: str, path: str, line: int | None, column: int | None) -> InputError:
    return InputError(
        f"not readable as YAML: {one_paragraph(problem)}",
        path=path,
        line=line,
        column=column,
        allowed="one YAML 1.2 or JSON document, indented with blanks, not tabs",
    )


class _Builder:
    """Turns the composed nodes of ruamel.yaml into our tree and refuses what YAML lets through:
    duplicate and non-text keys, merge keys, unknown tags, non-finite numbers, alias bombs."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.counter = count(1)

    def error(self, message: str, mark: Any, key: str, **more: Any) -> InputError:
        line, column = mark.line + 1, mark.column + 1
        place = {"path": self.path, "line": line, "column": column, "key": key or None}
        return InputError(message, **place, **more)

    def build(self, node: Any, mark: Any, key: str, open_ids: frozenset[int]) -> Node:
        if next(self.counter) > MAX_NODES:
            raise self.error(
                f"the document has more than {MAX_NODES} parts once its aliases are written out",
                mark,
                "",
                allowed=f"at most {MAX_NODES} keys and items",
            )
        if id(node) in open_ids:
            raise self.error(
                "an alias refers to a part that contains it", mark, key, allowed="no cycles"
            )
        kind = str(node.tag).removeprefix(_TAG)
        inside = open_ids | {id(node)}
        value: Scalar | tuple[Node, ...] | Mapping[str, Node]
        if kind == "map":
            value = self.mapping(node, key, inside)
        elif kind == "seq":
            value = tuple(
                self.build(item, item.start_mark, join_key(key, position), inside)
                for position, item in enumerate(node.value)
            )
        else:
            value = self.scalar(kind, node, mark, key)
        return Node(value, self.path, mark.line + 1, mark.column + 1, key)

    def mapping(self, node: Any, key: str, inside: frozenset[int]) -> dict[str, Node]:
        children: dict[str, Node] = {}
        for name_node, value_node in node.value:
            mark = name_node.start_mark
            if str(name_node.tag) != f"{_TAG}str":
                shown = name_node.value if isinstance(name_node.value, str) else "a collection"
                raise self.error(
                    f"the key {shown} is not text", mark, key, allowed="keys that are plain text"
                )
            name = str(name_node.value)
            if name in children:
                raise self.error(
                    f"the key is given twice, first on line {children[name].line}",
                    mark,
                    join_key(key, name),
                    allowed="each key once",
                )
            children[name] = self.build(value_node, mark, join_key(key, name), inside)
        return children

    def scalar(self, kind: str, node: Any, mark: Any, key: str) -> Scalar:
        text = str(node.value)
        if kind in ("str", "timestamp"):
            return text
        if kind == "null":
            return None
        if kind == "bool":
            return text.casefold() == "true"
        try:
            number = _number(kind, text)
        except ValueError:
            raise self.error(
                f"{show(text)} with the tag {node.tag} is not a value",
                mark,
                key,
                value=text,
                allowed="text, numbers, true, false, null, lists and mappings",
            ) from None
        if not math.isfinite(number):
            raise self.error(
                f"{text} is not a finite number",
                mark,
                key,
                value=text,
                allowed="a finite number",
            )
        return number


def _number(kind: str, text: str) -> int | float:
    if kind == "int":
        prefixed = text.lstrip("+-")[:2].lower() in ("0x", "0o", "0b")
        number = int(text, 0) if prefixed else int(text)
        return number if abs(number) < 10**300 else math.inf
    if kind == "float":
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    raise ValueError(kind)
