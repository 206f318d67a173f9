"""Shipped profiles fitted to published rows: which are fitted, from which prior, and refusals."""

from collections.abc import Callable
from statistics import median

import pytest

from planner.errors import InputError
from planner.evidence.maintenance.profiles import (
    coefficients_of_others,
    fallback_yaml,
    fit_profiles,
)
from planner.evidence.published_runs import PublishedRun
from planner.evidence.row_predictions import Prediction, Selection
from planner.inputs.files import data_root, names
from planner.inputs.values import load
from planner.problem.software import Software
from tests.evidence.made_runs import FEW, TRUTH

MakeRun = Callable[..., PublishedRun]

EVERY_ROW = Selection(min_mfu=0.15, half="all")


def runs_of(rows: list[Prediction]) -> list[PublishedRun]:
    return [row.run for row in rows]


def test_others_are_the_medians_of_the_other_shipped_profiles() -> None:
    torchtitan = load("torchtitan", "software", Software)
    found = coefficients_of_others(torchtitan)
    kin, copies = ("torchtitan", "torchtitan-eager"), ("deepseek", "megatron-zero-bubble")
    others = [load(n, "software", Software).coefficients for n in names("software")
              if n not in (*kin, *copies, "fallback")]  # fmt: skip
    assert len(others) == len(names("software")) - 5
    for name, value in found.items():
        assert value == median(float(getattr(other, name)) for other in others)
    assert found["dp_overlap_fraction"] != float(torchtitan.coefficients.dp_overlap_fraction)


def test_the_fallback_has_the_medians_of_all_others() -> None:
    """Of those that are no copy of their kin: read from the files as text."""
    texts = {n: (data_root() / f"software/{n}.yaml").read_text("utf-8") for n in names("software")}
    others = [
        load(name, "software", Software)
        for name, text in texts.items()
        if name != "fallback"
        and ("\nkin:" not in text or "status: fitted" in text[text.index("\ncoefficients:") :])
    ]
    fallback = load("fallback", "software", Software)
    for name in type(fallback.coefficients).model_fields:
        figure = getattr(fallback.coefficients, name)
        medians = median(float(getattr(other.coefficients, name)) for other in others)
        assert float(figure) == pytest.approx(medians, rel=1e-12), name
        assert figure.status == "assumed" and "median" in figure.source
    for name in ("gradient_bytes", "logits_bytes", "runtime_bytes", "communicator_bytes",
                 "fragile_fraction"):  # fmt: skip
        assert getattr(fallback, name) == median(float(getattr(other, name)) for other in others)


def test_the_fallback_that_ships_is_what_would_be_written() -> None:
    shipped = (data_root() / "software/fallback.yaml").read_text("utf-8")
    assert fallback_yaml() == shipped, "stale: see CONTRIBUTING.md on software/fallback.yaml"


def test_assumed_software_moves_no_fit(made: Callable[..., list[Prediction]]) -> None:
    known = runs_of(made({"dp_overlap_fraction": 0.7}, jobs=FEW))
    unknown = [run.replace(framework="Homemade") for run in runs_of(made({}, 0.5, jobs=FEW))]
    alone, found = (fit_profiles(rows, EVERY_ROW) for rows in (known, known + unknown))
    assert found.profiles.keys() == {"megatron-core"}
    assert (
        found.profiles["megatron-core"].coefficients == alone.profiles["megatron-core"].coefficients
    )
    assert found.skipped == {"framework without a software profile": len(FEW)}
    assert alone.skipped == {}


def test_a_calibration_fits_each_profile_it_touches(
    made: Callable[..., list[Prediction]],
) -> None:
    runs = runs_of(made(TRUTH, jobs=FEW))
    titan = {"framework": "torchtitan", "zero_stage": 3, "overlap": None}
    runs += runs_of(made(TRUTH, source="t/t", jobs=FEW, pp=1, tp=1, dp=16, n_gpus=16, gbs=64,
                         grad_accum=4, **titan))  # fmt: skip
    found = fit_profiles(runs, EVERY_ROW)
    assert sorted(found.profiles) == ["megatron-core", "torchtitan"]
    document = found.to_document()["profiles"]["megatron-core"]
    assert document["after"]["mape_fraction"] < document["before"]["mape_fraction"]
    assert document["sources"] == {"a/b": len(FEW)}


def test_profiles_of_few_rows_keep_their_numbers(made: Callable[..., list[Prediction]]) -> None:
    rows = runs_of(made(TRUTH, jobs=FEW)) + [
        run.replace(framework="InternEvo") for run in runs_of(made({}, jobs=FEW[:2]))
    ]
    found = fit_profiles(rows, EVERY_ROW)
    assert found.too_few == {"deepspeed": 2}


def test_nothing_to_fit_is_refused(make_run: MakeRun) -> None:
    with pytest.raises(InputError, match="timed rows"):
        fit_profiles([make_run()], EVERY_ROW)


@pytest.mark.parametrize("factor", [1000.0, 1e-3])
def test_absurd_measurements_are_refused_by_name(
    made: Callable[..., list[Prediction]], factor: float
) -> None:
    rows = runs_of(made({}))
    wrong = rows[3].replace(std=rows[3].std.replace(iter_time_s=rows[3].std.iter_time_s * factor))
    with pytest.raises(InputError, match="a/b x 3"):
        fit_profiles([*rows[:3], wrong, *rows[4:]], EVERY_ROW)
