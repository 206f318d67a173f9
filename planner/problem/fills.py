"""Fills: how many children of each tier's domains a job uses.

A job of n accelerators is placed in equal nested blocks. A fill (f_1 .. f_T), innermost tier first,
says that f_1 accelerators of one innermost domain make a block, f_2 such blocks of one domain of
the next tier a block of that tier, and so on: f_t is at most the tier's width, and n = Π f_t.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

Fill = tuple[int, ...]


def fills(widths: Sequence[int], num: int) -> list[Fill]:
    """All fills of `num` accelerators over tiers of these widths, the innermost fullest first.

    Raises:
        ValueError: a count below 1.
    """
    if num < 1 or any(width < 1 for width in widths):
        raise ValueError(f"fills need positive counts, not {num} over {tuple(widths)}")
    return list(_factorisations(num, tuple(widths)))


@lru_cache(maxsize=1024)
def _factorisations(num: int, widths: tuple[int, ...]) -> tuple[Fill, ...]:
    if not widths:
        return ((),) if num == 1 else ()
    return tuple(
        (first, *rest)
        for first in range(min(num, widths[0]), 0, -1)
        if num % first == 0
        for rest in _factorisations(num // first, widths[1:])
    )
