"""Leave one source out: what a source measured must not move its own predictions."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from planner.cost import prediction_intervals as intervals
from planner.errors import InputError
from planner.evidence.maintenance.joint_fit import Number
from planner.evidence.maintenance.left_out import (
    FoldsErrors,
    fits_without,
    predict_left_out,
    source_of,
)
from planner.evidence.maintenance.profiles import coefficients_of_others
from planner.evidence.profile_fit import with_coefficients
from planner.evidence.published_runs import PublishedRun
from planner.evidence.row_jobs import job_of
from planner.evidence.row_predictions import Selection, predict
from planner.inputs.quantities import Figure

MakeRun = Callable[..., PublishedRun]


SHAPES: tuple[dict[str, Any], ...] = tuple(
    {"tp": tp, "pp": 1, "vp": 1, "dp": dp, "n_gpus": tp * dp, "gbs": 64, "grad_accum": 64 // dp}
    for tp, dp in ((1, 8), (2, 8), (4, 4), (8, 2), (8, 8))
)


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


def test_a_source_is_predicted_with_the_fit_of_the_others(
    rows_of: Callable[..., list[PublishedRun]],
) -> None:
    """Others ran 20 % slower, so the source is predicted slower, by numbers that say how."""
    first, second = rows_of("a/b", 1.0), rows_of("c/d", 1.2)
    predictions = [predict(job_of(run)) for run in first + second]
    left = fits_without(predictions)["a/b"]
    assert left.rows_fitted == {"megatron-core": len(second)}
    assert left.kin == {}
    values = {n.name: v for n, v in left.numbers.items() if n.holder == "software"}
    scenario = predictions[0].scenario
    software = with_coefficients(scenario.software, values, "x")
    accelerator = scenario.topology.accelerator
    clock = left.numbers[Number("clock", "h100-sxm-80gb", "bf16")]
    overheads = {
        n.name: Figure(v, "x", "fitted") for n, v in left.numbers.items() if n.holder == "cluster"
    }
    topology = scenario.topology.replace(
        accelerator=accelerator.replace(
            sustained_fraction={
                **accelerator.sustained_fraction, "bf16": Figure(clock, "x", "fitted")
            }
        ),
        overheads=scenario.topology.overheads.replace(**overheads),
    )  # fmt: skip
    other = scenario.replace(software=software, topology=topology)
    expected = predict(replace(predictions[0].job, scenario=other)).step_seconds
    found = left.predicted(predictions[0])
    assert found.step_seconds == pytest.approx(expected, rel=1e-9)
    assert found.step_seconds > 1.05 * predictions[0].step_seconds
    errors = predict_left_out(first + second, Selection()).validation.by_source["a/b"]
    assert errors.bias_fraction is not None and 0.05 < errors.bias_fraction < 0.3


def test_a_profile_without_other_sources_takes_the_medians(
    rows_of: Callable[..., list[PublishedRun]],
) -> None:
    predictions = [predict(job_of(run)) for run in rows_of("a/b", 1.5)]
    left = fits_without(predictions)["a/b"]
    assert (left.rows_fitted, left.kin) == ({"megatron-core": 0}, {"megatron-core": None})
    values = {n.name: v for n, v in left.numbers.items() if n.holder == "software"}
    assert values == coefficients_of_others(predictions[0].job.scenario.software)


def test_rows_are_of_the_kind_that_they_are_without_their_fold(
    rows_of: Callable[..., list[PublishedRun]], make_run: MakeRun
) -> None:
    """No other source has the clock; then the clock, not the software; then both."""
    rows = [predict(job_of(run)) for run in rows_of("a/b", 1.0)]
    alone = fits_without(rows)["a/b"].predicted(rows[0])
    assert alone.interval_kind == "new-accelerator"
    other = [predict(job_of(run)) for run in rows_of("c/d", 1.0, framework="torchtitan",
                                                     zero_stage=3)]  # fmt: skip
    known_clock = fits_without(rows + other)["a/b"].predicted(rows[0])
    assert known_clock.interval_kind == "new-software"
    both = fits_without(rows + [predict(job_of(run)) for run in rows_of("c/d", 1.0)])["a/b"]
    assert both.predicted(rows[0]).interval_kind == rows[0].interval_kind


def test_features_of_other_folds_alone_are_measured(
    rows_of: Callable[..., list[PublishedRun]],
) -> None:
    experts = {"moe": {"n_experts": 8, "topk": 2, "expert_ffn": 1024}, "ep": 1}
    rows = [predict(job_of(run)) for run in rows_of("a/b", 1.0) + rows_of("c/d", 1.0, **experts)]
    fits = fits_without(rows)
    assert fits["a/b"].features["experts"] == ("h100-sxm-80gb",)
    assert fits["c/d"].features["experts"] == ()
    found = fits["c/d"].predicted(rows[-1])
    assert found.interval_kind == "unseen-feature"


def test_assumed_software_is_in_no_fold(
    rows_of: Callable[..., list[PublishedRun]],
) -> None:
    unknown = rows_of("x/y", 1.25, framework="Homemade")
    found = predict_left_out(rows_of("a/b", 1.0) + unknown, Selection())
    assert set(found.fold_fits) == set(found.errors["dense"].by_fold) == {"a/b"}
    assert found.validation.assumed_software.time.bias_fraction == pytest.approx(1 / 1.25 - 1)


def test_document_has_the_keys_of_validate_and_the_numbers_used(
    rows_of: Callable[..., list[PublishedRun]],
) -> None:
    document = predict_left_out(
        rows_of("a/b", 1.0) + rows_of("c/d", 1.1), Selection()
    ).to_document()
    assert {"time", "by_source", "macro_mape_fraction", "intervals"} <= set(document)
    assert set(document["leave_one_out"]) == {"a/b", "c/d"}
    left = document["leave_one_out"]["a/b"]
    assert 0 <= left["software"]["megatron-core"]["dp_overlap_fraction"] <= 1
    assert 0.4 <= left["clock"]["h100-sxm-80gb"]["bf16"] <= 1
    assert set(left["cluster"]) == {"usual"}


def test_wrong_options_are_refused(make_run: MakeRun) -> None:
    with pytest.raises(InputError):
        predict_left_out([make_run()], Selection("X"))
    with pytest.raises(InputError, match=r"'famly' cannot be left out.*did you mean 'family'"):
        predict_left_out([make_run()], Selection(), "famly")  # type: ignore[arg-type]


@pytest.mark.slow
def test_folds_are_what_the_function_says(rows_of: Callable[..., list[PublishedRun]]) -> None:
    """By model family: a family's rows of all sources are left out together."""
    rows = (
        rows_of("a/b", 1.0, model_name="llama-x")
        + rows_of("c/d", 1.3, model_name="llama-y")
        + rows_of("e/f", 1.1, model_name="gpt-z")
    )

    found = predict_left_out(rows, Selection(), "family")
    by_family = found.fold_fits
    assert set(by_family) == {"llama", "gpt"}
    assert by_family["llama"].rows_fitted == {"megatron-core": len(SHAPES)}
    assert by_family["gpt"].rows_fitted == {"megatron-core": 2 * len(SHAPES)}
    document = found.to_document()
    assert document["left_out_by"] == "family"
    rows_of_fold = {
        fold: errors["time"]["rows"]
        for fold, errors in document["left_out"]["dense"]["by_fold"].items()
    }
    assert rows_of_fold == {"llama": 2 * len(SHAPES), "gpt": len(SHAPES)}
    assert document["left_out"]["moe"]["total"]["time"]["rows"] == 0


@pytest.mark.parametrize("own_rows", [5, 4, 3, 0])
def test_kin_count_only_where_own_rows_are_too_few(
    rows_of: Callable[..., list[PublishedRun]], own_rows: int
) -> None:
    """nemo's kin is megatron-core; three sources, of which a/b is left out."""
    runs = (
        rows_of("a/b", 1.0, framework="NeMo")
        + rows_of("c/d", 1.2, framework="NeMo")[:own_rows]
        + rows_of("e/f", 1.1)
    )
    found = fits_without([predict(job_of(run)) for run in runs])["a/b"]
    assert found.rows_fitted == {"nemo": own_rows if own_rows >= 4 else 0}
    assert found.kin == ({} if own_rows >= 4 else {"nemo": "megatron-core"})

    def values(name: str) -> list[float]:
        return [v for n, v in found.numbers.items() if n.owner == name]

    assert (values("nemo") == values("megatron-core")) == (own_rows < 4)


def test_errors_of_folds_by_hand(off_by: MakeRun) -> None:
    """Errors of ±20 % are outside every interval that ships, one of 1 % is inside."""
    rows = [
        predict(job_of(run))
        for run in (
            off_by(0.2, id="1", source="a/b"),
            off_by(0.4, id="2", source="a/b"),
            off_by(0.01, id="3", source="c/d"),
        )
    ]
    ends = intervals.shipped().step_seconds["model-parallel"]
    assert {row.interval_kind for row in rows} == {"model-parallel"}
    assert 1 / 1.2 < float(ends.low) < 1 / 1.01 < float(ends.high)
    errors = FoldsErrors.of(rows, source_of)
    assert errors.total.time.mape_fraction == pytest.approx(0.61 / 3)
    assert errors.total.inside_fraction == pytest.approx(1 / 3)
    assert errors.macro_mape_fraction == pytest.approx((0.3 + 0.01) / 2)
    assert list(errors.by_fold) == ["a/b", "c/d"]
    assert errors.by_fold["a/b"].time.bias_fraction == pytest.approx(0.3)
    assert [fold.inside_fraction for fold in errors.by_fold.values()] == [0.0, 1.0]


def test_dense_models_and_experts_are_apart(
    rows_of: Callable[..., list[PublishedRun]],
) -> None:
    experts = {"moe": {"n_experts": 8, "topk": 2, "expert_ffn": 1024}, "ep": 1}
    runs = rows_of("a/b", 1.0) + rows_of("c/d", 1.0, **experts)
    errors = predict_left_out(runs, Selection()).errors
    assert {models: list(found.by_fold) for models, found in errors.items()} == {
        "dense": ["a/b"], "moe": ["c/d"]
    }  # fmt: skip
