"""Leave one source out: what a source measured must not move its own predictions."""

from collections.abc import Callable
from typing import Any

import pytest

from planner.errors import InputError
from planner.evidence.maintenance import left_out
from planner.evidence.maintenance.left_out import fits_without, predict_left_out
from planner.evidence.maintenance.profiles import coefficients_of_others
from planner.evidence.profile_fit import fit_profile, step_seconds, with_coefficients
from planner.evidence.published_runs import PublishedRun
from planner.evidence.row_jobs import job_of
from planner.evidence.row_predictions import Prediction, Selection, predict

MakeRun = Callable[..., PublishedRun]

SHAPES: tuple[dict[str, Any], ...] = tuple(
    {"tp": tp, "pp": 1, "vp": 1, "dp": dp, "n_gpus": tp * dp, "gbs": 64, "grad_accum": 64 // dp}
    for tp, dp in ((1, 8), (2, 8), (4, 4), (8, 2), (8, 8))
)


@pytest.fixture(autouse=True)
def every_row_is_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The halves are a matter of their own."""
    monkeypatch.setattr(left_out, "in_half", lambda run, half: True)


@pytest.fixture
def rows_of(make_run: MakeRun) -> Callable[..., list[PublishedRun]]:
    def make(source: str, slower: float, **changes: Any) -> list[PublishedRun]:
        made = []
        for number, shape in enumerate(SHAPES):
            values = {"id": f"{source} {number}", "source": source, **shape, **changes}
            seconds = predict(job_of(make_run(**values))).step_seconds * slower
            made.append(make_run(seconds=seconds, **values))
        return made

    return make


@pytest.mark.slow
def test_a_sources_own_measurements_do_not_move_its_predictions(
    rows_of: Callable[..., list[PublishedRun]],
) -> None:
    others = rows_of("c/d", 1.1)
    found = [
        predict_left_out(rows_of("a/b", slower) + others, Selection()).validation.by_source["a/b"]
        for slower in (1.0, 1.3)
    ]
    ratios = [1 + (errors.bias_fraction or 0.0) for errors in found]
    assert ratios[0] / ratios[1] == pytest.approx(1.3, rel=1e-9)


@pytest.mark.slow
def test_a_source_is_predicted_with_the_fit_of_the_others(
    rows_of: Callable[..., list[PublishedRun]],
) -> None:
    first, second = rows_of("a/b", 1.0), rows_of("c/d", 1.2)
    predictions = [predict(job_of(run)) for run in first + second]
    left = fits_without(predictions)
    prior = coefficients_of_others(predictions[0].job.scenario.software)
    alone = fit_profile(predictions[len(first) :], prior)
    assert left["a/b"]["megatron-core"].coefficients == alone.coefficients
    assert left["a/b"]["megatron-core"].rows_fitted == len(second)
    software = with_coefficients(alone.software, alone.coefficients, "x")
    expected = step_seconds(predictions[0], software) / (first[0].std.iter_time_s or 0) - 1
    errors = predict_left_out(first[:1] + second, Selection()).validation.by_source["a/b"]
    assert errors.bias_fraction == pytest.approx(expected, rel=1e-9)


def test_a_profile_without_other_sources_takes_the_medians(
    rows_of: Callable[..., list[PublishedRun]],
) -> None:
    predictions = [predict(job_of(run)) for run in rows_of("a/b", 1.5)]
    left = fits_without(predictions)["a/b"]["megatron-core"]
    assert left.rows_fitted == 0
    assert left.coefficients == coefficients_of_others(predictions[0].job.scenario.software)


def test_document_has_the_keys_of_validate_and_the_numbers_used(
    rows_of: Callable[..., list[PublishedRun]],
) -> None:
    document = predict_left_out(
        rows_of("a/b", 1.0) + rows_of("c/d", 1.1), Selection()
    ).to_document()
    assert {"time", "by_source", "macro_mape_fraction", "intervals"} <= set(document)
    assert set(document["leave_one_out"]) == {"a/b", "c/d"}
    numbers = document["leave_one_out"]["a/b"]["megatron-core"]["coefficients"]
    assert 0 <= numbers["dp_overlap_fraction"] <= 1


def test_wrong_options_are_refused(make_run: MakeRun) -> None:
    with pytest.raises(InputError):
        predict_left_out([make_run()], Selection("X"))


@pytest.mark.slow
def test_folds_are_what_the_function_says(rows_of: Callable[..., list[PublishedRun]]) -> None:
    """By model family: a family's rows of all sources are left out together."""
    rows = (
        rows_of("a/b", 1.0, model_name="llama-x")
        + rows_of("c/d", 1.3, model_name="llama-y")
        + rows_of("e/f", 1.1, model_name="gpt-z")
    )

    def family(row: Prediction) -> str:
        return row.run.model_name.split("-")[0]

    by_family = predict_left_out(rows, Selection(), family).fold_fits
    assert set(by_family) == {"llama", "gpt"}
    predictions = [predict(job_of(run)) for run in rows]
    others = predictions[2 * len(SHAPES) :]
    prior = coefficients_of_others(others[0].scenario.software)
    left = by_family["llama"]["megatron-core"]
    assert left.coefficients == fit_profile(others, prior).coefficients
    assert left.rows_fitted == len(SHAPES)
    assert by_family["gpt"]["megatron-core"].rows_fitted == 2 * len(SHAPES)
