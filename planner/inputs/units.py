"""Quantities at the door: text with a unit in, a float in SI out.

The registry has the listed units only, with bit, FLOP and USD as dimensions:
stock pint reads `Gb/s` as gilberts and `Gbps` as gigabaud. Numbers are multiplied as decimals
and rounded once, so that `5 us` is 5e-06 exactly.
"""

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any

from planner.errors import UnitError, nearest_of

if TYPE_CHECKING:
    from pint import UnitRegistry

_DEFINITIONS = (
    "bit = [information]",
    "kbit = 1e3 bit",
    "Mbit = 1e6 bit",
    "Gbit = 1e9 bit",
    "Tbit = 1e12 bit",
    "B = 8 bit",
    "kB = 1e3 B",
    "MB = 1e6 B",
    "GB = 1e9 B",
    "TB = 1e12 B",
    "KiB = 1024 B",
    "MiB = 1024 KiB",
    "GiB = 1024 MiB",
    "TiB = 1024 GiB",
    "FLOP = [work]",
    "GFLOP = 1e9 FLOP",
    "TFLOP = 1e12 FLOP",
    "PFLOP = 1e15 FLOP",
    "s = [time]",
    "ms = 1e-3 s",
    "us = 1e-6 s",
    "ns = 1e-9 s",
    "h = 3600 s",
    "hour = 3600 s",
    "USD = [currency]",
)

_BYTES = ("TB", "GB", "MB", "kB", "B")
_OTHER_BYTES = ("TiB", "GiB", "MiB", "KiB", "Tbit", "Gbit", "Mbit", "kbit", "bit")
_FLOPS = ("PFLOP", "TFLOP", "GFLOP", "FLOP")
ALLOWED_UNITS: Mapping[str, tuple[str, ...]] = {
    "B": _BYTES + _OTHER_BYTES,
    "B/s": tuple(f"{unit}/s" for unit in _BYTES + _OTHER_BYTES),
    "FLOP": _FLOPS,
    "FLOP/s": tuple(f"{unit}/s" for unit in _FLOPS),
    "s": ("s", "ms", "us", "ns", "h", "hour"),
    "USD/hour": ("USD/hour", "USD/h"),
}
"""SI unit → the units in which its quantities may be written, in the order of messages."""

# In which units quantities are shown: decimal prefixes, largest first.
_READABLE: Mapping[str, tuple[str, ...]] = {
    "B": _BYTES,
    "B/s": tuple(f"{unit}/s" for unit in _BYTES),
    "FLOP": _FLOPS,
    "FLOP/s": tuple(f"{unit}/s" for unit in _FLOPS[1:]),  # data sheets say 2250 TFLOP/s
    "s": ("s", "ms", "us", "ns"),
    "USD/hour": ("USD/hour",),
}

_NUMBER = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)")
_BARE_BITS = re.compile(r"([kKMGT])b(ps|/s)?")
_PER_SECOND = re.compile(r"ps$|/sec(onds?)?$")


@cache
def _registry() -> "UnitRegistry[Any]":
    from pint import UnitRegistry  # imported here: 0.2 s that `planner --help` must not pay

    registry: UnitRegistry[Any] = UnitRegistry(None, non_int_type=Decimal)
    for definition in _DEFINITIONS:
        registry.define(definition)
    return registry


@cache
def _factor(written: str, unit: str) -> Decimal:
    """Return how many of `unit` one `written` is; both are listed units of one dimension."""
    registry = _registry()
    return Decimal(registry.Quantity(Decimal(1), written).to(unit).magnitude)


def _nearest_unit(written: str, unit: str) -> str | None:
    """Return the unit that `written` was most likely meant to be; None if none is likely."""
    allowed = ALLOWED_UNITS[unit]
    bits = _BARE_BITS.fullmatch(written)
    if bits and unit in ("B", "B/s"):
        prefix, rest = bits[1].replace("K", "k"), "/s" if unit == "B/s" else ""
        return f"{prefix}B{rest} or {prefix}bit{rest}"
    if written in ("k", "K", "M", "G", "T", "P"):
        fitting = [name for name in allowed if name.startswith(written.replace("K", "k"))]
        return " or ".join(name for name in fitting if "i" not in name or "bit" in name) or None
    plain = _PER_SECOND.sub("/s", written)
    for wrong, right in (("FLOPS", "FLOP"), ("FLOPs", "FLOP"), ("μ", "u"), ("µ", "u")):
        plain = plain.replace(wrong, right)
    if unit.endswith("/s") and "/" not in plain:
        plain += "/s"
    return nearest_of(plain, allowed)


def parse_quantity(text: str, unit: str) -> float:
    """Return the quantity `text`, such as '3.35 TB/s', as a float in the SI unit `unit`.

    `unit` is a key of ALLOWED_UNITS: 'B', 'B/s', 'FLOP', 'FLOP/s', 's' or 'USD/hour'.

    Raises:
        UnitError: no number, no unit, a unit that does not fit, or a number that is not finite.
    """
    allowed = "a number with one of the units " + ", ".join(ALLOWED_UNITS[unit])
    number = _NUMBER.match(text)
    if number is None:
        raise UnitError(f"'{text}' does not start with a number", value=text, allowed=allowed)
    written = text[number.end() :].strip()
    if not written:
        raise UnitError(f"'{text}' has no unit", value=text, allowed=allowed)
    if written not in ALLOWED_UNITS[unit]:
        listed = any(written in units for units in ALLOWED_UNITS.values())
        reason = "does not fit here" if listed else "is not a unit known here"
        raise UnitError(
            f"'{text}': unit '{written}' {reason}",
            value=text,
            allowed=allowed,
            nearest=None if listed else _nearest_unit(written, unit),
        )
    if not math.isfinite(float(number[1])):
        raise UnitError(f"'{text}' is not finite", value=text, allowed=allowed)
    value = float(Decimal(number[1]) * _factor(written, unit))
    if not math.isfinite(value):
        raise UnitError(f"'{text}' is not finite", value=text, allowed=allowed)
    return value


def exact_quantity(value: float, unit: str) -> str:
    """Return text that `parse_quantity` reads back as the same float, in the SI unit `unit`."""
    return f"{float(value)!r} {unit}"


def format_quantity(value: float, unit: str, digits: int = 4) -> str:
    """Return `value`, given in the SI unit `unit`, as people read it: '3.35 TB/s'."""
    names = _READABLE[unit]
    if value == 0 or not math.isfinite(value):
        return f"{value:g} {unit}"
    scaled = [(value / float(_factor(name, unit)), name) for name in names]
    # The first prefix whose number is still >= 1 after rounding, else the smallest one.
    shown = [(f"{number:.{digits}g}", name) for number, name in scaled]
    text, name = next((pair for pair in shown if abs(float(pair[0])) >= 1), shown[-1])
    return f"{float(text):.15g} {name}"
