"""Host lists as Slurm writes them: node[11-12,20],login1 → each name, in order, and back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import product

from planner.clusters.reading import MAX_NODES
from planner.errors import InputError, Place
from planner.problem.inventory import first_repeat

_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_LONGEST_RANGE = 40  # characters; Python reads numbers of up to 4,300 digits only


def expand(text: str, place: Place) -> list[str]:
    """Return the names of a host list; leading zeros are kept.

    Args:
        place: where the list stands, for errors.

    Raises:
        InputError: brackets that do not pair, a range that runs backwards or is not one, a name
            given twice, more than MAX_NODES names.
    """
    names: list[str] = []
    for item in _items(text, place):
        names += _expanded(item, MAX_NODES - len(names), place)
    repeat = first_repeat(names)
    if repeat is not None:
        raise _error(f"'{names[repeat]}' is named twice", text, place)
    return names


def compressed(names: Sequence[str]) -> str:
    """Return the host list of the names, sorted; names with a common prefix share brackets."""
    numbers_of: dict[tuple[str, int], list[str]] = {}
    for name in sorted(set(names)):
        digits = name[len(name.rstrip("0123456789")) :][-18:]
        prefix = name[: len(name) - len(digits)]
        numbers_of.setdefault((prefix, len(digits)), []).append(digits)
    return ",".join(
        f"{prefix}[{_ranges(numbers)}]" if len(numbers) > 1 else f"{prefix}{numbers[0]}"
        for (prefix, _), numbers in numbers_of.items()
    )


def _ranges(numbers: Sequence[str]) -> str:
    """Return sorted numbers with runs as ranges: '11-13,20'."""
    runs: list[tuple[str, str]] = []
    for number in numbers:
        if runs and int(number) == int(runs[-1][1]) + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return ",".join(first if first == last else f"{first}-{last}" for first, last in runs)


def _items(text: str, place: Place) -> Iterator[str]:
    """Yield what stands between the commas outside of brackets."""
    depth, item = 0, ""
    for character in text:
        depth += {"[": 1, "]": -1}.get(character, 0)
        if depth not in (0, 1):
            raise _error("brackets do not pair", text, place)
        if character == "," and depth == 0:
            yield item
            item = ""
        else:
            item += character
    if depth:
        raise _error("a bracket is not closed", text, place)
    yield item


def _expanded(item: str, most: int, place: Place) -> list[str]:
    """Return the names of an item such as rack[1-2]node[01-16], at most so many."""
    item = item.strip()
    if not item or re.search(r"\s", item):
        raise _error("a name is empty or contains a blank", item, place)
    pieces = re.split(r"\[([^]]*)\]", item)  # fixed text and brackets, in turn
    choices: list[list[str]] = []
    total = 1
    for position, piece in enumerate(pieces):
        choices.append([piece] if position % 2 == 0 else _numbers(piece, most, place))
        total *= len(choices[-1])
        if total > most:
            raise _error(f"more than {MAX_NODES} names", item, place)
    return ["".join(choice) for choice in product(*choices)]


def _numbers(text: str, most: int, place: Place) -> list[str]:
    """Return the numbers of what stands in brackets, '001-016,20', as text of equal length."""
    numbers: list[str] = []
    for item in text.split(","):
        match = _RANGE.fullmatch(item.strip())
        if match is None or len(item) > _LONGEST_RANGE:
            raise _error(f"'{item}' is not a range", text, place)
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first):
            raise _error(f"the range {item} runs backwards", text, place)
        if int(last) - int(first) >= most - len(numbers):
            raise _error(f"more than {MAX_NODES} names", text, place)
        numbers += [f"{n:0{len(first)}d}" for n in range(int(first), int(last) + 1)]
    return numbers


def _error(message: str, value: str, place: Place) -> InputError:
    return place.error(message, value=value, allowed="names such as node[001-128,200],login1")
