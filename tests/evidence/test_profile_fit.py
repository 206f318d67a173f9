"""Fits of software coefficients: known ones found again from runs made with them."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from planner.evidence import profile_fit as fitting
from planner.evidence.profile_fit import COEFFICIENTS, coefficients_of, fit_profile
from planner.evidence.row_predictions import Prediction
from planner.inputs.files import names
from planner.inputs.values import load
from planner.problem.software import Software, SoftwareCoefficients
from tests.evidence.made_runs import FEW, TRUTH


@pytest.mark.slow
def test_known_coefficients_are_found_again(
    made: Callable[..., list[Prediction]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing pulls to the prior: the error goes, and what no other number can mimic."""
    monkeypatch.setattr(fitting, "_penalty", lambda point, prior: 0.0)
    found = fit_profile(made(TRUTH))
    assert found.after.mape_fraction is not None and found.before.mape_fraction is not None
    assert found.after.mape_fraction < 0.01 < 0.05 < found.before.mape_fraction
    assert found.coefficients["unexplained_seconds"] == pytest.approx(0.2, abs=0.05)


def test_rows_that_agree_with_the_profile_move_nothing(
    made: Callable[..., list[Prediction]],
) -> None:
    found = fit_profile(made({}))
    for _name, (before, after) in found.moved.items():
        assert after == pytest.approx(before, rel=1e-3)
    assert found.after.mape_fraction == pytest.approx(0.0, abs=1e-3)


def test_what_no_row_depends_on_is_kept(made: Callable[..., list[Prediction]]) -> None:
    alone = [row for row in made(TRUTH) if row.job.layout.tp * row.job.layout.pp == 1]
    found = fit_profile(alone)
    assert {"tp_overlap_fraction", "pp_overlap_fraction"} <= set(found.to_document()["kept"])
    own = coefficients_of(found.software)
    assert found.coefficients["tp_overlap_fraction"] == own["tp_overlap_fraction"]
    assert "unexplained_seconds" in found.determined


def test_few_rows_stay_nearer_to_the_prior(made: Callable[..., list[Prediction]]) -> None:
    rows = made(TRUTH, jobs=FEW)
    prior = coefficients_of(rows[0].job.scenario.software)
    many, one = (fit_profile(part).coefficients for part in (rows, rows[:1]))
    far = [abs(c["unexplained_seconds"] - prior["unexplained_seconds"]) for c in (one, many)]
    assert 0 < far[0] < far[1]


def test_sources_count_as_the_square_root_of_their_rows(
    made: Callable[..., list[Prediction]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loss by hand: four rows off by one noise, one row of another source off by four."""
    rows = made({})
    model = fitting._StepTimes([*rows[:4], replace(rows[4], job=replace(
        rows[4].job, run=rows[4].run.replace(source="c/d y")))])  # fmt: skip
    monkeypatch.setattr(fitting, "NOISE", 1.0)
    off = [1.0, 1.0, 1.0, 1.0, 4.0]
    monkeypatch.setattr(model, "ratios", lambda values: np.exp(off))
    assert model.loss({}) == pytest.approx(4 * 1 / 4**0.5 + 4.0**1.5 / 1)


def test_every_coefficient_of_time_is_in_the_table() -> None:
    assert {c.name for c in COEFFICIENTS} | {"allocator_fraction"} == set(
        SoftwareCoefficients.model_fields
    )
    for name in names("software"):
        own = coefficients_of(load(name, "software", Software))
        assert all(c.lowest <= own[c.name] <= c.highest for c in COEFFICIENTS), name
