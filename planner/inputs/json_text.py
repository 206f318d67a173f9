"""JSON text (RFC 8259) read into a tree with places, or into plain values.

What `json.loads` lets through is refused: keys given twice, NaN and Infinity, numbers beyond a
float, halves of surrogate pairs; and what is nested too deeply to be meant.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Mapping
from typing import Any, NoReturn

from planner.errors import InputError, Place
from planner.inputs.documents import (
    MAX_DEPTH,
    MAX_NODES,
    Node,
    Scalar,
    is_finite,
    join_key,
    not_finite,
    repeated_key,
    too_many_nodes,
)

_MOST_DIGITS = 310  # of an integer that is converted at all; that takes time with their square

_BLANKS = re.compile(r"[ \t\r\n]*")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_WORD = re.compile(r"[A-Za-z_]\w*|\S")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_CONSTANTS: dict[str, bool | None] = {"true": True, "false": False, "null": None}


def read_json(text: str, path: str) -> Node:
    """Return the tree of a JSON document; `path` names it in errors.

    Raises:
        InputError: not JSON, or JSON of doubtful meaning; with path, line, column and key.
    """
    return _Reader(text, path).document()


def json_value(text: str, path: str, allowed: str, line: int = 1) -> Any:
    """Return the value of a JSON text, as `json.loads` does; what `read_json` refuses is refused.

    The standard library reads it, many times faster than a tree is built; only a text with a
    mistake is read into a tree as well, to name the mistake's place.

    Args:
        path: names the text in errors.
        allowed: what such a text holds, for errors.
        line: where the text begins in its file, such as the line of a row.

    Raises:
        InputError: as `read_json`.
    """
    try:
        value = json.loads(text, parse_constant=_refuse, object_pairs_hook=_without_repeats)
        if _is_sound(value) and (not _SURROGATE.search(text) or _is_unicode(value)):
            return value
        mistake = ValueError("a number is not finite, or it is nested too deeply")
    except ValueError as error:
        mistake = error
    except RecursionError:
        mistake = ValueError("it is nested too deeply")
    if sum(map(text.count, ",[{")) < MAX_NODES:  # else a tree would take gigabytes
        _Reader(text, path, allowed, line).document()
    raise InputError(
        f"not readable as JSON: {getattr(mistake, 'msg', mistake)}", path=path,
        line=line - 1 + getattr(mistake, "lineno", 1), column=getattr(mistake, "colno", None),
        allowed=allowed,
    )  # fmt: skip


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a finite number")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        raise ValueError("a key is given twice")
    return mapping


def _is_sound(value: Any) -> bool:
    """Whether a value has at most MAX_DEPTH levels, and numbers that are finite."""
    level = [value]
    for _ in range(MAX_DEPTH):
        deeper: list[Any] = []
        for item in level:
            item_type = type(item)
            if item_type is dict:
                deeper.extend(item.values())
            elif item_type is list:
                deeper.extend(item)
            elif (item_type is float or item_type is int) and not is_finite(item):
                return False
        if not deeper:
            return True
        level = deeper
    return False


def _is_unicode(value: Any) -> bool:
    """Whether all text of a value can be written, that is, has no half of a surrogate pair."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


class _Reader:
    """Reads a text from the left; `at` is the position of the next character."""

    def __init__(
        self, text: str, path: str, allowed: str = "one JSON document", first_line: int = 1
    ) -> None:
        self.text = text
        self.path = path
        self.allowed = allowed
        self.first_line = first_line
        self.at = 0
        self.nodes = 0
        self.line_starts = [0, *(match.end() for match in re.finditer("\n", text))]

    # --- places and mistakes ----------------------------------------------------------------------

    def place(self, at: int, key: str) -> Place:
        line = bisect_right(self.line_starts, at)
        column = at - self.line_starts[line - 1] + 1
        return Place(self.path, line + self.first_line - 1, column, key or None)

    def error(self, message: str, key: str) -> InputError:
        return self.place(self.at, key).error(message, allowed=self.allowed)

    def unexpected(self, wanted: str, key: str) -> InputError:
        match = _WORD.match(self.text, self.at)
        problem = f"{match.group()[:40]} where {wanted} is expected" if match else "the text ends"
        return self.error(f"not readable as JSON: {problem}", key)

    # --- values -----------------------------------------------------------------------------------

    def document(self) -> Node:
        root = self.value("", level=1)
        if self.peek():
            raise self.error("there is more behind the document", "")
        return root

    def peek(self) -> str:
        """Step over blanks, and return the next character; '' at the end."""
        match = _BLANKS.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return self.text[self.at : self.at + 1]

    def value(self, key: str, level: int, key_at: int | None = None) -> Node:
        """Read the next value; `key_at` is where its key stands."""
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise too_many_nodes(self.place(self.at, ""))
        if level > MAX_DEPTH:
            raise self.place(self.at, key).error(
                "is nested too deeply", allowed=f"at most {MAX_DEPTH} levels"
            )
        first = self.peek()
        place = self.place(self.at if key_at is None else key_at, key)
        value: Scalar | tuple[Node, ...] | Mapping[str, Node]
        if first == "{":
            value = self.mapping(key, level)
        elif first == "[":
            value = self.items(key, level)
        elif first == '"':
            value = self.string(key)
        else:
            value = self.scalar(key)
        return Node(value, place.path, place.line, place.column, key)

    def mapping(self, key: str, level: int) -> dict[str, Node]:
        children: dict[str, Node] = {}
        self.at += 1
        if self.peek() == "}":
            self.at += 1
            return children
        while True:
            if self.peek() != '"':
                raise self.unexpected("a key in double quotes", key)
            start = self.at
            name = self.string(key)
            inner = join_key(key, name)
            if name in children:
                raise repeated_key(self.place(start, inner), children[name])
            if self.peek() != ":":
                raise self.unexpected("a colon", inner)
            self.at += 1
            children[name] = self.value(inner, level + 1, start)
            if self.ends("}", key):
                return children

    def items(self, key: str, level: int) -> tuple[Node, ...]:
        items: list[Node] = []
        self.at += 1
        if self.peek() == "]":
            self.at += 1
            return ()
        while True:
            items.append(self.value(join_key(key, len(items)), level + 1))
            if self.ends("]", key):
                return tuple(items)

    def ends(self, bracket: str, key: str) -> bool:
        """Step over a comma or the closing bracket; return whether it was the bracket."""
        character = self.peek()
        if character not in (",", bracket):
            raise self.unexpected(f"a comma or {bracket}", key)
        self.at += 1
        return character == bracket

    def string(self, key: str) -> str:
        match = _STRING.match(self.text, self.at)
        if match is None:
            raise self.error(
                "not readable as JSON: text without its end, or with a line break", key
            )
        try:
            text = str(json.loads(match.group()))
            text.encode("utf-8")
        except ValueError:
            problem = "text with an escape that stands for nothing"
            raise self.error(f"not readable as JSON: {problem}", key) from None
        self.at = match.end()
        return text

    def scalar(self, key: str) -> int | float | bool | None:
        match = _NUMBER.match(self.text, self.at)
        if match is None:
            word = _WORD.match(self.text, self.at)
            if word is None or word.group() not in _CONSTANTS:
                raise self.unexpected("a value", key)
            self.at = word.end()
            return _CONSTANTS[word.group()]
        digits = match.group()
        if match.group(1) or match.group(2):
            number: int | float = float(digits)
        else:
            number = int(digits) if len(digits) < _MOST_DIGITS else float("inf")
        if not is_finite(number):
            raise not_finite(self.place(self.at, key), digits)
        self.at = match.end()
        following = self.text[self.at : self.at + 1]
        if following.isalnum() or following in (".", "_", "+", "-"):
            raise self.unexpected("the end of the number", key)
        return number
