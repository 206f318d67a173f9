"""Numbers as people read them: SI values in, short text out."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

ABSENT = "–"
"""Stands where there is no value."""

_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
_WORDS = ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"))

_Value = TypeVar("_Value")


def or_absent(form: Callable[[_Value], str], value: _Value | None) -> str:
    """The value as `form` writes it, or ABSENT where there is none."""
    return ABSENT if value is None else form(value)


def seconds(value: float, digits: int = 3) -> str:
    """Seconds with the unit that fits: '5.12 s', '34.1 ms'; days and hours are not used."""
    if value == 0:
        return "0 s"
    # the unit is chosen after rounding: 0.9999 is 1.00 s, not 1,000 ms
    size = _rounded(abs(value), digits)
    factor, unit = next(((f, u) for f, u in _SECONDS if size >= f), _SECONDS[-1])
    # more digits than asked for, but no powers of ten
    if size >= 10 ** (digits - 1):
        return f"{value:,.0f} s"
    return f"{_significant(value / factor, digits)} {unit}"


def column_unit(seconds: float) -> tuple[str, float]:
    """The unit of a column of times whose sum is `seconds`, and its size in seconds."""
    return ("s", 1.0) if seconds >= 1 else ("ms", 1e-3)


def signed_seconds(value: float, digits: int = 3) -> str:
    """Seconds with their sign: '+1.2 s'."""
    return f"{'-' if value < 0 else '+'}{seconds(abs(value), digits)}"


def milliseconds(value: float) -> str:
    """Milliseconds without unit, for a column: '1,234.5'."""
    number = value * 1e3
    # one decimal would show small values as 0.0
    return f"{number:,.1f}" if abs(number) >= 0.1 or number == 0 else f"{number:.3f}"


def gigabytes(value: float) -> str:
    """10^9 bytes without unit, for a column: '71.2'."""
    number = value / 1e9
    return f"{number:,.1f}" if abs(number) >= 0.1 or number == 0 else f"{number:.3f}"


def percent(fraction: float, digits: int = 1) -> str:
    """A share: '41.2 %'."""
    return f"{100 * fraction:.{digits}f} %"


def signed_percent(fraction: float, digits: int = 1) -> str:
    """A relative difference: '+3.1 %'."""
    return f"{100 * fraction:+.{digits}f} %"


def in_words(value: float) -> str:
    """A large number in words: '405.9 billion'; below a million with commas."""
    for factor, word in _WORDS:
        if _rounded(abs(value), 4) >= factor:
            return f"{_significant(value / factor, 4)} {word}"
    return f"{value:,.0f}" if abs(value) >= 100 else _significant(value, 3)


def compact(value: float) -> str:
    """A ratio over many decades in few characters: '295', '6,013', '2.9e5'."""
    # outside of these limits a plain number is long, or all zeros
    if value and (abs(value) >= 1e5 or abs(value) < 0.1):
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    return f"{value:,.0f}" if abs(value) >= 10 else _significant(value, 2)


def from_ridge(margin: float) -> str:
    """Intensity over a ridge: '2.3× right' of it, or '148× left'."""
    return f"{compact(margin)}× right" if margin >= 1 else f"{compact(1 / margin)}× left"


def _rounded(value: float, digits: int) -> float:
    return float(f"{value:.{digits - 1}e}")


def _significant(value: float, digits: int) -> str:
    """`digits` significant digits, never in powers of ten, no trailing zeros cut."""
    if value == 0:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(_rounded(abs(value), digits))))
    return f"{value:,.{places}f}"


def plural(number: int, noun: str) -> str:
    """'1 placement', '560 placements'."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
