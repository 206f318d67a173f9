"""The CP-SAT assignment model against the vectorised minimum and a plain tie rule."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.search import assign as assign_module
from planner.search.assign import (
    MAX_COEFFICIENT_SUM,
    MAX_ROWS,
    Candidates,
    SolverError,
    assign,
    choose_row,
    quantise,
    solve,
    tie_ranks,
)


def candidates(seed, rows, spread=0.01, forbidden_share=0.0):
    rng = np.random.default_rng(seed)
    forbidden = {}
    if forbidden_share:
        names = ("keep tp within tier 0", "framework orders only")
        forbidden = {name: rng.random(rows) < forbidden_share for name in names}
    return Candidates(
        step_seconds=5.0 * (1.0 + spread * rng.random(rows)),
        in_framework_order=rng.random(rows) < 0.2,
        slow_tier_seconds=rng.choice([0.0, 1.0, 2.5], rows),
        degrees_sum=rng.integers(4, 9, rows),
        forbidden=forbidden,
    )


def plain_choice(table, tie_fraction):
    """(least, best) rows by sorting Python tuples."""
    rows = [i for i in range(len(table)) if not any(f[i] for f in table.forbidden.values())]
    if not rows:
        return None
    least = min(rows, key=lambda i: table.step_seconds[i])
    limit = table.step_seconds[least] * (1.0 + tie_fraction)
    best = min(
        (i for i in rows if table.step_seconds[i] <= limit),
        key=lambda i: (
            not table.in_framework_order[i],
            table.slow_tier_seconds[i],
            table.degrees_sum[i],
            table.step_seconds[i],
            i,
        ),
    )
    return least, best


@given(
    st.integers(0, 10_000),
    st.integers(1, 60),
    st.sampled_from([0.0, 0.001, 0.005]),
    st.sampled_from([0.0, 0.4, 0.9]),
)
@settings(max_examples=40, deadline=None)
def test_answer_equals_the_vectorised_rule(seed, rows, tie_fraction, forbidden_share):
    table = candidates(seed, rows, forbidden_share=forbidden_share)
    found = assign(table, upper_seconds=table.step_seconds.max(), tie_fraction=tie_fraction)
    expected = plain_choice(table, tie_fraction)
    if expected is None:
        assert found is None
    else:
        assert (found.fastest_row, found.row) == expected
        assert found.fastest_seconds == table.step_seconds[expected[0]]


def test_least_below_the_resolution_is_still_the_float_least():
    table = candidates(0, 3)
    steps = np.array([1.0 + 2e-12, 1.0 + 1e-12, 2.0])
    table = Candidates(
        steps, table.in_framework_order, table.slow_tier_seconds, table.degrees_sum, {}
    )  # fmt: skip
    found = assign(table, upper_seconds=2.0, tie_fraction=0.0)
    assert found.row == found.fastest_row == 1


def test_side_constraints_may_leave_only_rows_above_the_threshold():
    table = candidates(3, 10)
    order = np.argsort(table.step_seconds)
    outside = np.ones(10, dtype=bool)
    outside[order[7]] = False
    table = Candidates(
        table.step_seconds,
        table.in_framework_order,
        table.slow_tier_seconds,
        table.degrees_sum,
        {"keep tp within tier 0": outside},
    )
    found = assign(table, upper_seconds=table.step_seconds[order[2]], tie_fraction=0.0)
    assert found.row == found.fastest_row == order[7]


@given(st.integers(0, 10_000), st.integers(1, 5000), st.floats(0.0, 2.0))
@settings(max_examples=40, deadline=None)
def test_oth_05_coefficients_round_down_and_sum_below_2_to_the_31(seed, rows, upper):
    steps = 1.0 + np.random.default_rng(seed).random(rows)
    kept, units = quantise(steps, upper)
    assert 0 <= units.sum() <= MAX_COEFFICIENT_SUM == 2**31 - 1
    assert set(kept.tolist()) >= {int(np.argmin(steps))}
    assert (steps[kept] <= max(upper, steps.min())).all()
    span = steps[kept].max() - steps.min()
    top = units.max(initial=0)
    assert (units <= (steps[kept] - steps.min()) / max(span, 1e-300) * max(top, 1) + 1e-6).all()
    assert (np.diff(units[np.argsort(steps[kept])]) >= 0).all()


def test_many_rows_are_reduced_without_losing_the_choice():
    table = candidates(7, 3 * MAX_ROWS, spread=0.02)
    found = assign(table, upper_seconds=table.step_seconds.max(), tie_fraction=0.005)
    assert (found.fastest_row, found.row) == plain_choice(table, 0.005)


def test_tie_ranks_are_a_permutation():
    assert sorted(tie_ranks(candidates(1, 200)).tolist()) == list(range(200))


def test_all_rows_forbidden_is_none_and_not_an_error():
    outside = {"keep tp within tier 0": np.array([True, True])}
    assert choose_row(np.array([1, 2]), outside) is None


def test_oth_06_model_invalid_is_an_error():
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    model.minimize(2**62 * model.new_int_var(0, 2**40, "x"))
    with pytest.raises(SolverError, match="MODEL_INVALID"):
        solve(model)


def test_oth_06_unknown_is_an_error(monkeypatch):
    from ortools.sat.python import cp_model

    monkeypatch.setattr(assign_module, "_SOLVER_SECONDS", 0.0)
    model = cp_model.CpModel()
    variables = [model.new_int_var(0, 50, f"x{i}") for i in range(40)]
    model.add_all_different(variables)
    model.add(sum(v * (i % 7 + 1) for i, v in enumerate(variables)) == 3001)
    with pytest.raises(SolverError, match="UNKNOWN"):
        solve(model)


def test_an_answer_that_is_not_the_minimum_is_an_error(monkeypatch):
    monkeypatch.setattr(assign_module, "choose_row", lambda coefficients, forbidden: 0)
    table = candidates(5, 10)
    assert np.argmin(table.step_seconds) != 0
    with pytest.raises(SolverError, match="vectorised minimum"):
        assign(table, upper_seconds=9.0, tie_fraction=0.0)
    monkeypatch.setattr(assign_module, "choose_row", lambda coefficients, forbidden: None)
    with pytest.raises(SolverError, match="disagree on feasibility"):
        assign(table, upper_seconds=9.0, tie_fraction=0.0)


def test_ortools_is_imported_only_where_the_model_is_built():
    code = (
        "import sys; import planner.search.optimize, planner.search.certify; "
        "sys.exit(any(name.split('.')[0] == 'ortools' for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
