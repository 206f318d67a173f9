"""Terms of a step's time: the small ones together, and the words of the others."""

import pytest

from planner.report.text.pieces import plain_text
from planner.report.text.terms import (
    SMALLER_TERMS,
    differences,
    short_term,
    term_words,
    time_table,
    with_small_ones_summed,
)


def test_small_terms_are_summed() -> None:
    terms = {"compute": 0.99, "tp": 0.005, "pp": 0.004, "dp": 0.001}
    assert with_small_ones_summed(terms, 1.0) == {
        "compute": 0.99, "tp": 0.005, SMALLER_TERMS: pytest.approx(0.005),
    }  # fmt: skip
    assert with_small_ones_summed({"compute": 1.0, "pp": 0.0}, 1.0) == {"compute": 1.0}


def test_words() -> None:
    assert term_words("compute_memory_bound") == "compute memory bound"
    assert short_term("compute_memory_bound") == "memory bound"
    assert differences([("compute_gemm", -4.7), ("bubble", 0.025)]) == [
        "gemm -4.7 s",
        "bubble +25 ms",
    ]


def test_a_table_ends_with_the_step() -> None:
    table = time_table({"compute_gemm": 0.3, "bubble": 0.1}, 0.4, lambda term: "green")
    lines = [line.split() for line in plain_text(table, 60).splitlines()]
    assert lines[0][:6] == ["compute", "gemm", "300.000", "ms", "75.0", "%"]
    assert lines[-1] == ["step", "400.000", "ms", "100.0", "%"]
