"""YAML 1.2 text, of which JSON is a subset, read into a tree with places.

Besides wrong syntax, what YAML lets through and nobody means is refused: duplicate and non-text
keys, merge keys, unknown tags, numbers that are not finite, anchors given twice, and aliases that
write out to a document too large to be read.
"""

import re
from collections.abc import Mapping
from functools import cache
from itertools import count
from typing import Any

from planner.errors import InputError, Place, one_paragraph
from planner.inputs.documents import (
    MAX_DEPTH,
    MAX_NODES,
    Node,
    Scalar,
    is_finite,
    join_key,
    not_finite,
    repeated_key,
    show,
    too_many_nodes,
)

_TAG = "tag:yaml.org,2002:"


def read_yaml(text: str, path: str, key: str = "") -> Node:
    """Return the tree of one YAML 1.2 (or JSON) document.

    Args:
        path: names the text in errors.
        key: the dotted key under which the document is to stand, if not at the root.

    Raises:
        InputError: not YAML, or YAML that nobody means; with path, line, column and key.
    """
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("%YAML") and line.split()[1:2] != ["1.2"]:
            raise _syntax_error(f"{line.strip()} is another version of YAML", path, number, 1)
    if _open_brackets(text) > 3 * MAX_DEPTH:
        raise _syntax_error("is nested too deeply", path, None, None)
    try:
        root = _parser().compose(text)
        if root is None:
            return Node(None, path, 1, 1, key)
        return _Builder(path).build(root, root.start_mark, key, frozenset())
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        position = (mark.line + 1, mark.column + 1) if mark else (None, None)
        problem = " ".join(words for words in (error.context, error.problem) if words)
        raise _syntax_error(problem, path, *position) from None
    except YAMLError as error:
        raise _syntax_error(str(error), path, None, None) from None
    except RecursionError:
        raise _syntax_error("is nested too deeply", path, None, None) from None


def _syntax_error(problem: str, path: str, line: int | None, column: int | None) -> InputError:
    in_words = one_paragraph(problem).replace("'<stream end>'", "the end")
    return Place(path, line, column).error(
        f"not readable as YAML: {in_words}",
        allowed="one YAML 1.2 or JSON document, indented with blanks, not tabs",
    )


def _open_brackets(text: str) -> int:
    """Return the most brackets open at once, those in quoted text and comments included.

    ruamel's scanner takes time with the square of the depth before it yields anything, so a text
    of nothing but brackets has to be refused before.
    """
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return 0
    depth = deepest = 0
    for bracket in re.finditer(r"[\[\]{}]", text):
        depth += 1 if bracket.group() in "[{" else -1
        deepest = max(deepest, depth)
    return deepest


@cache
def _bounded_composer() -> type[Any]:
    """ruamel's composer, except that it stops where values are nested too deeply (its scanner
    takes time with the square of the depth), and where an anchor is given a second meaning."""
    from ruamel.yaml.composer import Composer, ComposerError
    from ruamel.yaml.events import AliasEvent

    class Bounded(Composer):
        depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            self.depth += 1
            if self.depth > MAX_DEPTH:
                raise RecursionError
            event = self.parser.peek_event()
            if event.anchor in self.anchors and not isinstance(event, AliasEvent):
                problem = f"the anchor '{event.anchor}' is given twice"
                raise ComposerError(None, None, problem, event.start_mark)
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

    return Bounded


def _parser() -> Any:
    from ruamel.yaml import YAML

    yaml = YAML(typ="safe", pure=True)
    yaml.Composer = _bounded_composer()
    return yaml


class _Builder:
    """Turns the nodes that ruamel.yaml composed into our tree.

    A `mark` is ruamel's position, from 0: of a key for what stands under it.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.counter = count(1)

    def place(self, mark: Any, key: str) -> Place:
        return Place(self.path, mark.line + 1, mark.column + 1, key or None)

    def build(self, node: Any, mark: Any, key: str, open_ids: frozenset[int]) -> Node:
        """Return the tree of a composed node; `open_ids` are the ids of the nodes around it."""
        if next(self.counter) > MAX_NODES:
            raise too_many_nodes(self.place(mark, ""), " once its aliases are written out")
        if id(node) in open_ids:
            raise self.place(mark, key).error(
                "an alias refers to a part that contains it", allowed="no cycles"
            )
        tag = str(node.tag).removeprefix(_TAG)
        inside = open_ids | {id(node)}
        value: Scalar | tuple[Node, ...] | Mapping[str, Node]
        if tag == "map":
            value = self.mapping(node, key, inside)
        elif tag == "seq":
            value = tuple(
                self.build(item, item.start_mark, join_key(key, position), inside)
                for position, item in enumerate(node.value)
            )
        else:
            value = self.scalar(tag, node, self.place(mark, key))
        return Node(value, self.path, mark.line + 1, mark.column + 1, key)

    def mapping(self, node: Any, key: str, inside: frozenset[int]) -> dict[str, Node]:
        children: dict[str, Node] = {}
        for name_node, value_node in node.value:
            mark = name_node.start_mark
            if str(name_node.tag) == f"{_TAG}merge":
                raise self.place(mark, key).error(
                    "the merge key << is not read", allowed="every key written out"
                )
            if str(name_node.tag) != f"{_TAG}str":
                shown = name_node.value if isinstance(name_node.value, str) else "a collection"
                raise self.place(mark, key).error(
                    f"the key {shown} is not text", allowed="keys that are plain text"
                )
            name = str(name_node.value)
            if name in children:
                raise repeated_key(self.place(mark, join_key(key, name)), children[name])
            children[name] = self.build(value_node, mark, join_key(key, name), inside)
        return children

    def scalar(self, tag: str, node: Any, place: Place) -> Scalar:
        text = str(node.value)
        if tag in ("str", "timestamp"):
            return text
        if tag == "null":
            return None
        if tag == "bool":
            return text.casefold() == "true"
        try:
            number = _number(tag, text)
        except ValueError:
            raise place.error(
                f"{show(text)} with the tag {node.tag} is not a value",
                value=text,
                allowed="text, numbers, true, false, null, lists and mappings",
            ) from None
        if not is_finite(number):
            raise not_finite(place, text)
        return number


def _number(tag: str, text: str) -> int | float:
    if tag == "int":
        prefixed = text.lstrip("+-")[:2].lower() in ("0x", "0o", "0b")
        return int(text, 0) if prefixed else int(text)
    if tag == "float":
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    raise ValueError(tag)
