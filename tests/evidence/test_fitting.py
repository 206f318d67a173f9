"""Fits of software coefficients: known ones found again from runs made with them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
import pytest

from planner.errors import InputError
from planner.evidence.fits import software as fitting
from planner.evidence.fits.software import (
    COEFFICIENTS,
    calibrate_runs,
    fit_profile,
    own_values,
    step_seconds,
    values_of_others,
    with_coefficients,
)
from planner.evidence.published_runs import PublishedRun
from planner.evidence.row_jobs import job_of
from planner.evidence.validate_runs import Prediction, predict
from planner.inputs.files import load, names
from planner.problem.software import Software, SoftwareCoefficients

MakeRun = Callable[..., PublishedRun]

TRUTH = {
    "dp_overlap_fraction": 0.7, "memory_bound_multiplier": 1.3, "step_overhead_seconds": 0.2,
    "straggler_fraction_per_doubling": 0.008,
}  # fmt: skip

JOBS: tuple[dict[str, Any], ...] = tuple(
    {"tp": tp, "pp": pp, "vp": 1, "dp": dp, "n_gpus": tp * pp * dp, "gbs": gbs, "seq_len": seq,
     "grad_accum": gbs // dp}
    for tp, pp, dp in ((1, 1, 16), (2, 1, 8), (4, 2, 2), (8, 1, 64), (1, 4, 32), (2, 2, 4))
    for gbs, seq in ((64, 8192), (128, 2048))
)  # fmt: skip


FEW = JOBS[::3]
"""Of each kind of parallelism one: enough where it is not about the values that are found."""


@pytest.fixture
def made(make_run: MakeRun) -> Callable[..., list[Prediction]]:
    """Rows measured as the model says with given coefficients, times 1 + error."""

    def make(
        truth: dict[str, float],
        error: float = 0.0,
        source: str = "a/b x",
        jobs: Sequence[dict[str, Any]] = JOBS,
        **changes: Any,
    ) -> list[Prediction]:
        rows = []
        for number, job in enumerate(jobs):
            settings = {"id": f"{source} {number}", "source": source, **job, **changes}
            found = predict(job_of(make_run(**settings)))
            software = found.job.scenario.software
            other = with_coefficients(software, own_values(software) | truth, "truth")
            seconds = step_seconds(found, other) * (1 + error)
            rows.append(predict(job_of(make_run(seconds=seconds, **settings))))
        return rows

    return make


def runs_of(rows: list[Prediction]) -> list[PublishedRun]:
    return [row.run for row in rows]


def test_known_coefficients_are_found_again(
    made: Callable[..., list[Prediction]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing pulls to the prior: the error goes, and what no other number can mimic."""
    monkeypatch.setattr(fitting, "_penalty", lambda point, prior: 0.0)
    found = fit_profile(made(TRUTH))
    assert found.after.mape_fraction is not None and found.before.mape_fraction is not None
    assert found.after.mape_fraction < 0.01 < 0.05 < found.before.mape_fraction
    assert found.coefficients["step_overhead_seconds"] == pytest.approx(0.2, abs=0.05)


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
    own = own_values(found.software)
    assert found.coefficients["tp_overlap_fraction"] == own["tp_overlap_fraction"]
    assert "step_overhead_seconds" in found.determined


def test_few_rows_stay_nearer_to_the_prior(made: Callable[..., list[Prediction]]) -> None:
    rows = made(TRUTH, jobs=FEW)
    prior = own_values(rows[0].job.scenario.software)
    many, one = (fit_profile(part).coefficients for part in (rows, rows[:1]))
    far = [abs(c["step_overhead_seconds"] - prior["step_overhead_seconds"]) for c in (one, many)]
    assert 0 < far[0] < far[1]


def test_sources_count_as_the_square_root_of_their_rows(
    made: Callable[..., list[Prediction]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loss by hand: four rows off by one noise, one row of another source off by four."""
    rows = made({})
    model = fitting._Model([*rows[:4], replace(rows[4], job=replace(
        rows[4].job, run=rows[4].run.replace(source="c/d y")))])  # fmt: skip
    monkeypatch.setattr(fitting, "NOISE", 1.0)
    off = [1.0, 1.0, 1.0, 1.0, 4.0]
    monkeypatch.setattr(model, "ratios", lambda values: np.exp(off))
    assert model.loss({}) == pytest.approx(4 * 1 / 4**0.5 + 4.0**1.5 / 1)


def test_others_are_the_medians_of_the_other_shipped_profiles() -> None:
    torchtitan = load("torchtitan", "software", Software)
    found = values_of_others(torchtitan)
    kin, copies = ("torchtitan", "torchtitan-eager"), ("deepseek", "megatron-zero-bubble")
    others = [load(n, "software", Software).coefficients for n in names("software")
              if n not in (*kin, *copies)]  # fmt: skip
    assert len(others) == len(names("software")) - 4
    for name, value in found.items():
        assert value == median(float(getattr(other, name)) for other in others)
    assert found["dp_overlap_fraction"] != float(torchtitan.coefficients.dp_overlap_fraction)


def test_every_coefficient_of_time_is_in_the_table() -> None:
    assert {c.name for c in COEFFICIENTS} | {"allocator_fraction"} == set(
        SoftwareCoefficients.model_fields
    )
    for name in names("software"):
        own = own_values(load(name, "software", Software))
        assert all(c.least <= own[c.name] <= c.most for c in COEFFICIENTS), name


def test_calibrate_runs_fits_each_profile_it_touches(
    made: Callable[..., list[Prediction]],
) -> None:
    runs = runs_of(made(TRUTH, jobs=FEW))
    titan = {"framework": "torchtitan", "zero_stage": 3, "overlap": None}
    runs += runs_of(made(TRUTH, source="t/t", jobs=FEW, pp=1, tp=1, dp=16, n_gpus=16, gbs=64,
                         grad_accum=4, **titan))  # fmt: skip
    found = calibrate_runs(runs, half="all")
    assert sorted(found.profiles) == ["megatron-core", "torchtitan"]
    document = found.to_document()["profiles"]["megatron-core"]
    assert document["after"]["mape_fraction"] < document["before"]["mape_fraction"]
    assert document["sources"] == {"a/b": len(FEW)}


def test_profiles_of_few_rows_keep_their_numbers(made: Callable[..., list[Prediction]]) -> None:
    rows = runs_of(made(TRUTH, jobs=FEW)) + [
        run.replace(framework="InternEvo") for run in runs_of(made({}, jobs=FEW[:2]))
    ]
    found = calibrate_runs(rows, half="all")
    assert found.too_few == {"deepspeed": 2}


def test_nothing_to_fit_is_refused(make_run: MakeRun) -> None:
    with pytest.raises(InputError, match="timed rows"):
        calibrate_runs([make_run()], half="all")


@pytest.mark.parametrize("factor", [1000.0, 1e-3])
def test_absurd_measurements_are_refused_by_name(
    made: Callable[..., list[Prediction]], factor: float
) -> None:
    rows = runs_of(made({}))
    wrong = rows[3].replace(std=rows[3].std.replace(iter_time_s=rows[3].std.iter_time_s * factor))
    with pytest.raises(InputError, match="a/b x 3"):
        calibrate_runs([*rows[:3], wrong, *rows[4:]], half="all")
