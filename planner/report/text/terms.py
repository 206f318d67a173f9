"""Terms of a step's time: their words, the small ones together, and tables of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from rich.table import Table
from rich.text import Text

from planner.report.text.numbers import column_unit, percent, signed_seconds
from planner.report.text.pieces import STRONG, Bar, Row, table

SMALL_FRACTION = 0.005
"""Share of a step below which terms are summed in one row, and a gain counts as none."""

SMALLER_TERMS = "smaller terms"
"""The row of the terms below SMALL_FRACTION."""

COMMUNICATION = ("tp", "cp", "ep", "pp", "dp")
"""Terms that are exposed communication."""


def term_words(term: str) -> str:
    """'compute_memory_bound' as 'compute memory bound'."""
    return term.replace("_", " ")


def short_term(term: str) -> str:
    """'compute_memory_bound' as 'memory bound'."""
    return term_words(term.removeprefix("compute_"))


def with_small_ones_summed(terms: Mapping[str, float], step_seconds: float) -> dict[str, float]:
    """Seconds of the terms, those below SMALL_FRACTION of the step together as SMALLER_TERMS."""
    shown = {n: v for n, v in terms.items() if v >= SMALL_FRACTION * step_seconds}
    # so that the rows add up to the step
    rest = sum(terms.values()) - sum(shown.values())
    return shown | ({SMALLER_TERMS: rest} if rest > 1e-6 * step_seconds else {})


def time_table(
    terms: Mapping[str, float], step_seconds: float, style: Callable[[str], str]
) -> Table:
    """A row per term with seconds, share and a bar in `style(term)`; last the step, their sum."""
    unit, unit_seconds = column_unit(step_seconds)
    # bars are relative to the longest term, so that short ones can be compared
    longest = max(terms.values(), default=1.0)

    def row(name: str | Text, seconds: float, bar: Bar | str) -> Row:
        return name, f"{seconds / unit_seconds:,.3f} {unit}", percent(seconds / step_seconds), bar

    rows = [
        row(term_words(term), value, Bar(value / longest, style(term)))
        for term, value in terms.items()
    ]
    rows.append(row(Text("step", STRONG), step_seconds, ""))
    return table([("", "l"), ("", "r"), ("", "r"), ("", "b")], rows)


def by_size(terms: Mapping[str, float]) -> list[tuple[str, float]]:
    """Terms and their differences in seconds, the largest difference first."""
    return sorted(terms.items(), key=lambda item: -abs(item[1]))


def differences(terms: Iterable[tuple[str, float]]) -> list[str]:
    """'gemm -4.7 s' for each term and its difference in seconds."""
    return [f"{short_term(term)} {signed_seconds(value, 2)}" for term, value in terms]
