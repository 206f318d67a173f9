"""Damage done to files: to their text, to the tree they hold, to their encoding.

Every function takes a `random.Random`, so that one seed gives one input.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from random import Random
from typing import Any

NUMBERS = (
    "0", "-0", "-1", "1e400", "-1e400", "nan", ".nan", "inf", "-.inf", "1e-320", "0x10", "0o17",
    "1_000", "007", "1e3", "٣", "８", "²", "9" * 40, "-" + "9" * 40, "9" * 5000, "1.5.2", "+5",
    "1,000", "0.1", "2**70", "1e308", "true", "null", "~", "12:30:00", "2020-01-01",
)  # fmt: skip

WORDS = (
    "\0", "\x1b[31m", "\u2028", "\ufeff", "\ud7ff", "é", "\t", "\r", "\n", " ", "#", "%", "&a ",
    "*a", "!!python/object/apply:os.system ['true']", "!!python/name:os.system ",
    "!!binary aGk=", "!x ",
    "<<: *a", "? ", "- ", ": ", "{", "}", "[", "]", ",", "=", ";", "'", '"', "\\", "`true`",
    "$(true)", "${", "$((1/0))", "../../../../../../etc/passwd", "/etc/passwd", "/dev/zero",
    "/dev/stdin", "file:///etc/passwd", "~root/.bashrc", "a.yaml", "con", "--", "---\n", "...\n",
    "%YAML 1.1\n", "%TAG ! tag:x,2000:\n", "|\n", ">-\n", "NaN", "Infinity", "<script>", "A" * 5000,
)  # fmt: skip

BOMBS = (
    "a: &a [x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a]\nc: &c [*b, *b, *b, *b, *b, *b, *b, *b]\n"
    "d: &d [*c, *c, *c, *c, *c, *c, *c, *c]\ne: &e [*d, *d, *d, *d, *d, *d, *d, *d]\n"
    "f: &f [*e, *e, *e, *e, *e, *e, *e, *e]\ng: [*f, *f, *f, *f, *f, *f, *f, *f]\n",
    "a: &a {b: *a}\n",
    "[" * 2000 + "]" * 2000,
    "{a: " * 1500 + "1" + "}" * 1500,
    '{"a":' * 3000 + "1" + "}" * 3000,
    "- " * 3000 + "x",
    "((((" * 500,
    '"' + "\\u0041" * 3000 + '"',
)

_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_TOKEN = re.compile(r"[\w.]+|[^\w\s]")


def _span(text: str, random: Random, longest: int = 40) -> tuple[int, int]:
    start = random.randint(0, len(text))
    return start, min(start + random.randint(0, longest), len(text))


def _cut(text: str, random: Random) -> str:
    start, end = _span(text, random)
    return text[:start] + text[end:]


def _double(text: str, random: Random) -> str:
    start, end = _span(text, random)
    return text[:end] + text[start:end] + text[end:]


def _truncate(text: str, random: Random) -> str:
    return text[: random.randint(0, len(text))]


def _put(text: str, random: Random) -> str:
    start = random.randint(0, len(text))
    return text[:start] + random.choice(WORDS) + text[start:]


def _number(text: str, random: Random) -> str:
    found = list(_NUMBER.finditer(text))
    if not found:
        return _put(text, random)
    match = random.choice(found)
    return text[: match.start()] + random.choice(NUMBERS) + text[match.end() :]


def _swap_tokens(text: str, random: Random) -> str:
    found = list(_TOKEN.finditer(text))
    if len(found) < 2:
        return _put(text, random)
    first, second = sorted(random.sample(range(len(found)), 2))
    a, b = found[first], found[second]
    return text[: a.start()] + b.group() + text[a.end() : b.start()] + a.group() + text[b.end() :]


def _token(text: str, random: Random) -> str:
    found = list(_TOKEN.finditer(text))
    if not found:
        return _put(text, random)
    match = random.choice(found)
    return text[: match.start()] + random.choice(WORDS) + text[match.end() :]


def _lines(text: str, random: Random) -> str:
    lines = text.split("\n")
    position = random.randrange(len(lines))
    kind = random.choice(("drop", "double", "indent", "swap"))
    if kind == "drop":
        del lines[position]
    elif kind == "double":
        lines.insert(position, lines[position])
    elif kind == "indent":
        lines[position] = "  " + lines[position]
    else:
        other = random.randrange(len(lines))
        lines[position], lines[other] = lines[other], lines[position]
    return "\n".join(lines)


def _bomb(text: str, random: Random) -> str:
    bomb = random.choice(BOMBS)
    return random.choice((bomb, text + "\n" + bomb, bomb + "\n" + text))


def _tree(text: str, random: Random) -> str:
    """JSON, or a line of it, that says something else; other text is damaged as text."""
    lines = text.split("\n")
    position = random.randrange(len(lines))
    for part in (text, lines[position]):
        try:
            said = changed(json.loads(part), random)
        except (ValueError, RecursionError):
            continue
        if said is not None:
            new = json.dumps(said[0])
            return (
                new if part is text else "\n".join([*lines[:position], new, *lines[position + 1 :]])
            )
    return _token(text, random)


TEXTUAL: tuple[Callable[[str, Random], str], ...] = (
    _cut, _double, _truncate, _put, _number, _number, _swap_tokens, _token, _lines, _bomb,
    _tree, _tree, _tree,
)  # fmt: skip


def encoded(text: str, random: Random) -> bytes:
    """The text's bytes, now and then in another encoding, with other line ends, or damaged."""
    raw = text.encode("utf-8", "surrogatepass")
    kind = random.randrange(16)
    if kind == 0:
        return b"\xef\xbb\xbf" + raw
    if kind == 1:
        return text.encode("utf-16", "surrogatepass")
    if kind == 2:
        return raw.replace(b"\n", b"\r\n")
    if kind == 3:
        place = random.randint(0, len(raw))
        return raw[:place] + random.choice((b"\0", b"\xff", b"\xc0\x80", b"\x80")) + raw[place:]
    if kind == 4:
        return text.encode("latin-1", "replace")
    return raw


def damaged(text: str, random: Random) -> bytes:
    """A file's text after one to four mutations."""
    if random.random() < 0.2:
        return encoded(_tree(text, random), random)
    for _ in range(random.randint(1, 4)):
        text = random.choice(TEXTUAL)(text, random)
    return encoded(text, random)


# ---------------------------------------------------------------- trees

Path = tuple[Any, ...]


def places(tree: Any, path: Path = ()) -> list[Path]:
    """The paths of all parts of a tree but its root."""
    items = (
        tree.items()
        if isinstance(tree, dict)
        else enumerate(tree)
        if isinstance(tree, list)
        else ()
    )
    return [
        found for key, child in items for found in ((*path, key), *places(child, (*path, key)))
    ]  # fmt: skip


def _around(tree: Any, path: Path) -> Any:
    for key in path[:-1]:
        tree = tree[key]
    return tree


def _renamed(tree: Any, random: Random) -> bool:
    named = [p for p in places(tree) if isinstance(_around(tree, p), dict)]
    if not named:
        return False
    path = random.choice(named)
    around, key = _around(tree, path), str(path[-1])
    new = random.choice((key + "x", key[:-1], key.upper(), key.replace("_", "-"), "x", "__class__"))
    if new in around:
        return False
    around[new] = around.pop(key)
    return True


def _unknown(tree: Any, random: Random) -> bool:
    around = [tree, *(_at(tree, p) for p in places(tree))]
    found = [part for part in around if isinstance(part, dict)]
    if not found:
        return False
    random.choice(found)["unheard_of"] = random.choice((1, None, "x", [], {}))
    return True


def _at(tree: Any, path: Path) -> Any:
    return _around(tree, path)[path[-1]]


def _another_number(tree: Any, random: Random) -> bool:
    numbers = [p for p in places(tree) if _is_number(_at(tree, p))]
    if not numbers:
        return False
    path = random.choice(numbers)
    value = _at(tree, path)
    factor = random.choice((2, 3, 7))
    _around(tree, path)[path[-1]] = (
        _NUMBER.sub(lambda m: str(float(m.group()) * factor + factor), value, count=1)
        if isinstance(value, str) else value * factor + factor
    )  # fmt: skip
    return True


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return bool(re.match(r"-?\d+(\.\d+)? ?[A-Za-z/]+$", value))  # a quantity
    return isinstance(value, int | float) and not isinstance(value, bool)


def _another_type(tree: Any, random: Random) -> bool:
    found = places(tree)
    if not found:
        return False
    path = random.choice(found)
    value = _at(tree, path)
    others: list[Any] = [[value], {"value": value}, {"value": 1}, "x", -1, 1.5, [], {}]
    others = [other for other in others if other != value]
    if isinstance(value, bool):
        others = [not value, "yes", *others]
    _around(tree, path)[path[-1]] = random.choice(others)
    return True


MEANINGFUL: tuple[Callable[[Any, Random], bool], ...] = (
    _renamed, _unknown, _another_number, _another_type,
)  # fmt: skip
"""Changes of a tree that change what it says: each returns whether it found something to change."""


def changed(tree: Any, random: Random) -> tuple[Any, str] | None:
    """A tree that says something else, and the name of the change; the given one is not touched."""
    tree = json.loads(json.dumps(tree))
    change = random.choice(MEANINGFUL)
    return (tree, change.__name__.lstrip("_")) if change(tree, random) else None


def with_twin_key(text: str, random: Random) -> str | None:
    """JSON text in which a key of a mapping is given twice, with two values."""
    found = list(re.finditer(r'"\w+": (?=-?\d|")', text))
    if not found:
        return None
    match = random.choice(found)
    return text[: match.start()] + match.group() + '"twin", ' + text[match.start() :]
