"""What a user measured: read, checked, and made into a step time and a claimed MFU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

from planner.cost import flops
from planner.cost.context import CostContext
from planner.errors import InputError, nearest_of
from planner.layouts.keys import KEYS as LAYOUT_KEYS

OPTION = "--measured"
KEYS: Mapping[str, str] = {
    "mfu": "a share, such as 0.31; 1 is the dense peak",
    "step_seconds": "seconds of one step, a plain number > 0",
    "tokens_per_second": "of all accelerators together, a plain number > 0",
    "tflops": "model TFLOP/s of one accelerator, a plain number > 0",
}
MOST_MFU = 5.0
"""No miscount that was ever reported made MFU larger; above it a percentage was meant."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """A step time and a claimed MFU.

    step_seconds: as given, or from tokens per second, or from the claim. timed: whether it is not
    from the claim.
    """

    given: Mapping[str, float]
    step_seconds: float
    claimed_mfu: float | None
    timed: bool

    @classmethod
    def of(cls, ctx: CostContext, given: Mapping[str, float]) -> Measurement:
        """The step time and the claimed MFU that measured values make."""
        at_peak = flops.model_flops(ctx) / (ctx.num_accelerators * ctx.peak_flops)
        claimed = given.get("mfu")
        if claimed is None and "tflops" in given:
            claimed = given["tflops"] * 1e12 / ctx.peak_flops
        seconds = given.get("step_seconds")
        if seconds is None and "tokens_per_second" in given:
            seconds = flops.tokens_per_step(ctx) / given["tokens_per_second"]
        if seconds is not None and "tokens_per_second" in given:
            implied = flops.tokens_per_step(ctx) / given["tokens_per_second"]
            _agree("step_seconds", seconds, "tokens_per_second", implied)
        if "mfu" in given and "tflops" in given:
            implied = given["tflops"] * 1e12 / ctx.peak_flops
            _agree("mfu", given["mfu"], "tflops", implied)
        if seconds is not None:
            return cls(given, seconds, claimed, timed=True)
        assert claimed is not None
        return cls(given, at_peak / claimed, claimed, timed=False)


ROUNDING = 0.02
"""How far two statements of one figure may lie apart."""


def _agree(key: str, value: float, other: str, implied: float) -> None:
    if abs(implied / value - 1) > ROUNDING:
        raise InputError(
            f"{key} {value:g} and {other}, which makes it {implied:.4g}, do not agree",
            key=OPTION,
            allowed=f"one of {key} and {other}, or both within {ROUNDING:.0%}",
        )


def read_measured(measured: str | Mapping[str, float | str]) -> dict[str, float]:
    """Measured values by key, of `mfu=0.31,step_seconds=10.4` or a mapping.

    Raises:
        InputError: an unknown key, a key twice, or a value that cannot be.
    """
    pairs = _pairs(measured) if isinstance(measured, str) else list(measured.items())
    values: dict[str, float] = {}
    for key, value in pairs:
        if key not in KEYS:
            raise _unknown(key, value)
        if key in values:
            raise InputError(f"{key} is given twice", key=OPTION, value=key)
        values[key] = _number(key, value)
    if not values:
        raise InputError("nothing is measured", key=OPTION, allowed=_allowed())
    return values


def _pairs(text: str) -> list[tuple[str, str]]:
    pairs = []
    for pair in filter(None, (piece.strip() for piece in text.split(","))):
        key, equals, value = (piece.strip() for piece in pair.partition("="))
        if not equals or not value:
            raise InputError(
                f"{pair!r} is not key=value", key=OPTION, value=text, allowed=_allowed()
            )
        pairs.append((key, value))
    return pairs


def _allowed() -> str:
    return "; ".join(f"{key}: {meaning}" for key, meaning in KEYS.items())


def _unknown(key: str, value: object) -> InputError:
    near = nearest_of(key, KEYS)
    if key in LAYOUT_KEYS and near is None:
        return InputError(
            f"{key} is a key of the layout", path=OPTION, key=key, value=value,
            allowed=", ".join(KEYS), nearest=f"--layout {key}={value}",
        )  # fmt: skip
    return InputError(
        "nothing of that name can be measured", path=OPTION, key=key, value=value,
        allowed=", ".join(KEYS), nearest=near,
    )  # fmt: skip


def _number(key: str, value: float | str) -> float:
    text = str(value).strip()
    percent = key == "mfu" and text.endswith("%")
    try:
        number = float(text.removesuffix("%")) if percent else float(text)
    except ValueError:
        raise _wrong(key, value, "is not a number") from None
    if not isfinite(number):
        raise _wrong(key, value, "is not finite")
    if number <= 0:
        raise _wrong(key, value, "is negative" if number < 0 else "is zero")
    if percent or (key == "mfu" and number > MOST_MFU):
        raise _wrong(key, value, "is a percentage", f"mfu={number / 100:g}")
    return number


def _wrong(key: str, value: object, reason: str, nearest: str | None = None) -> InputError:
    return InputError(
        f"{value} {reason}", path=OPTION, key=key, value=value, allowed=KEYS[key], nearest=nearest
    )
