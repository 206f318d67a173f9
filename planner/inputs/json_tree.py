"""Strict JSON (RFC 8259) read into a tree that knows the line and column of every part.

What `json.loads` lets through is refused: keys given twice, NaN and Infinity, numbers beyond a
float, halves of surrogate pairs; so is what is too large or nested too deeply to be meant.
"""

import json
import math
import re
from bisect import bisect_right
from typing import NoReturn

from planner.errors import InputError
from planner.inputs.documents import MAX_BYTES, MAX_NODES, Node, Plain, join_key

MAX_DEPTH = 64
_MOST_DIGITS = 300

_BLANKS = re.compile(r"[ \t\r\n]*")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_WORD = re.compile(r"[A-Za-z_]\w*|\S")
_CONSTANTS: dict[str, bool | None] = {"true": True, "false": False, "null": None}


def read_json(text: str, path: str) -> Node:
    """The tree of a JSON document.

    Raises:
        InputError: not JSON, or JSON of doubtful meaning; with path, line, column and key.
    """
    if len(text) > MAX_BYTES:
        raise InputError("is too long", path=path, allowed=f"at most {MAX_BYTES} characters")
    return _Reader(text, path).document()


class _Reader:
    def __init__(self, text: str, path: str) -> None:
        self.text, self.path, self.at, self.parts = text, path, 0, 0
        self.lines = [0, *(match.end() for match in re.finditer("\n", text))]

    def document(self) -> Node:
        root = self.value("", 0)
        if self.peek():
            self.fail("there is more behind the document", "")
        return root

    def peek(self) -> str:
        """The next character that is no blank; '' at the end."""
        match = _BLANKS.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return self.text[self.at : self.at + 1]

    def place(self, at: int) -> tuple[int, int]:
        line = bisect_right(self.lines, at)
        return line, at - self.lines[line - 1] + 1

    def fail(self, message: str, key: str, at: int | None = None, **more: object) -> NoReturn:
        line, column = self.place(self.at if at is None else at)
        allowed = str(more.pop("allowed", "one JSON document"))
        raise InputError(
            message, path=self.path, line=line, column=column, key=key or None, allowed=allowed,
            **more,  # type: ignore[arg-type]
        )  # fmt: skip

    def unexpected(self, wanted: str, key: str) -> NoReturn:
        match = _WORD.match(self.text, self.at)
        found = f"{match.group()[:40]} where {wanted} is expected" if match else "the text ends"
        self.fail(f"not readable as JSON: {found}", key)

    def value(self, key: str, depth: int, at: int | None = None) -> Node:
        """The next value; `at` is where its key stands."""
        self.parts += 1
        if self.parts > MAX_NODES:
            self.fail("the document has too many parts", "", allowed=f"at most {MAX_NODES}")
        if depth > MAX_DEPTH:
            self.fail("is nested too deeply", key, allowed=f"at most {MAX_DEPTH} levels")
        sign = self.peek()
        place = self.place(self.at if at is None else at)
        found: Plain
        if sign == "{":
            found = self.mapping(key, depth)
        elif sign == "[":
            found = self.items(key, depth)
        elif sign == '"':
            found = self.string(key)
        else:
            found = self.scalar(key)
        return Node(found, self.path, *place, key)

    def mapping(self, key: str, depth: int) -> dict[str, Node]:
        children: dict[str, Node] = {}
        self.at += 1
        if self.peek() == "}":
            self.at += 1
            return children
        while True:
            if self.peek() != '"':
                self.unexpected("a key in double quotes", key)
            start = self.at
            name = self.string(key)
            inner = join_key(key, name)
            if name in children:
                first = children[name].line
                self.fail(f"the key is given twice, first on line {first}", inner, start,
                          allowed="each key once")  # fmt: skip
            if self.peek() != ":":
                self.unexpected("a colon", inner)
            self.at += 1
            children[name] = self.value(inner, depth + 1, start)
            if self.more("}", key):
                return children

    def items(self, key: str, depth: int) -> tuple[Node, ...]:
        found: list[Node] = []
        self.at += 1
        if self.peek() == "]":
            self.at += 1
            return ()
        while True:
            found.append(self.value(join_key(key, len(found)), depth + 1))
            if self.more("]", key):
                return tuple(found)

    def more(self, end: str, key: str) -> bool:
        """Step over a comma, or the end: whether it was the end."""
        sign = self.peek()
        if sign not in (",", end):
            self.unexpected(f"a comma or {end}", key)
        self.at += 1
        return sign == end

    def string(self, key: str) -> str:
        match = _STRING.match(self.text, self.at)
        if match is None:
            self.fail("not readable as JSON: text without its end, or with a line break", key)
        try:
            found = str(json.loads(match.group()))
            found.encode("utf-8")
        except ValueError:
            self.fail("not readable as JSON: text with an escape that stands for nothing", key)
        self.at = match.end()
        return found

    def scalar(self, key: str) -> int | float | bool | None:
        match = _NUMBER.match(self.text, self.at)
        if match is None:
            word = _WORD.match(self.text, self.at)
            if word is None or word.group() not in _CONSTANTS:
                self.unexpected("a value", key)
            self.at = word.end()
            return _CONSTANTS[word.group()]
        digits = match.group()
        whole = not (match.group(1) or match.group(2))
        number = math.inf
        if not whole or len(digits) < _MOST_DIGITS:
            number = int(digits) if whole else float(digits)
        if not math.isfinite(number):
            self.fail(f"{digits[:40]} is not a finite number", key, value=digits[:40],
                      allowed="a finite number")  # fmt: skip
        self.at = match.end()
        following = self.text[self.at : self.at + 1]
        if following.isalnum() or following in (".", "_", "+", "-"):
            self.unexpected("the end of the number", key)
        return number
