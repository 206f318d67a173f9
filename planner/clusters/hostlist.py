"""Host lists as Slurm writes them: node[11-12,20],login1 → each name, in order, and back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import product

from planner.clusters.cluster_facts import MOST_NODES
from planner.errors import InputError
from planner.problem.inventory import first_repeat

_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_ALLOWED = "names such as node[001-128,200],login1"


def expand(text: str, path: str, line: int | None, key: str) -> list[str]:
    """The names of a host list; leading zeros are kept.

    Raises:
        InputError: brackets that do not close, a range that runs backwards or is no number, a
            name given twice, more than MOST_NODES names.
    """
    found: list[str] = []
    for item in _split(text, path, line, key):
        found += _expanded(item, MOST_NODES - len(found), path, line, key)
    again = first_repeat(found)
    if again is not None:
        raise _error(f"'{found[again]}' is named twice", text, path, line, key)
    return found


def compressed(names: Sequence[str]) -> str:
    """The host list of the names, sorted; those that differ in a last number share brackets."""
    alike: dict[tuple[str, int], list[str]] = {}
    for name in sorted(set(names)):
        prefix = name.rstrip("0123456789")
        number = name[len(prefix) :][-18:]
        prefix = name[: len(name) - len(number)]
        alike.setdefault((prefix, len(number)), []).append(number)
    return ",".join(
        f"{prefix}[{_ranges(numbers)}]" if len(numbers) > 1 else f"{prefix}{numbers[0]}"
        for (prefix, _), numbers in alike.items()
    )


def _ranges(numbers: Sequence[str]) -> str:
    runs: list[list[str]] = []
    for number in numbers:
        if runs and int(number) == int(runs[-1][1]) + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(first if first == last else f"{first}-{last}" for first, last in runs)


def _split(text: str, path: str, line: int | None, key: str) -> Iterator[str]:
    depth, item = 0, ""
    for sign in text:
        depth += {"[": 1, "]": -1}.get(sign, 0)
        if depth not in (0, 1):
            raise _error("brackets do not pair", text, path, line, key)
        if sign == "," and depth == 0:
            yield item
            item = ""
        else:
            item += sign
    if depth:
        raise _error("a bracket is not closed", text, path, line, key)
    yield item


def _expanded(item: str, room: int, path: str, line: int | None, key: str) -> list[str]:
    item = item.strip()
    if not item or re.search(r"\s", item):
        raise _error("a name is empty or holds a blank", item, path, line, key)
    parts = re.split(r"\[([^]]*)\]", item)
    choices: list[list[str]] = []
    total = 1
    for position, part in enumerate(parts):
        choices.append([part] if position % 2 == 0 else _numbers(part, room, path, line, key))
        total *= len(choices[-1])
        if total > room:
            raise _error(f"more than {MOST_NODES} names", item, path, line, key)
    return ["".join(pieces) for pieces in product(*choices)]


def _numbers(text: str, room: int, path: str, line: int | None, key: str) -> list[str]:
    found: list[str] = []
    for piece in text.split(","):
        match = _RANGE.fullmatch(piece.strip())
        if match is None or len(piece) > 40:
            raise _error(f"'{piece}' is not a range", text, path, line, key)
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first):
            raise _error(f"the range {piece} runs backwards", text, path, line, key)
        if int(last) - int(first) >= room - len(found):
            raise _error(f"more than {MOST_NODES} names", text, path, line, key)
        found += [f"{n:0{len(first)}d}" for n in range(int(first), int(last) + 1)]
    return found


def _error(message: str, value: str, path: str, line: int | None, key: str) -> InputError:
    return InputError(message, path=path, line=line, key=key, value=value, allowed=_ALLOWED)
