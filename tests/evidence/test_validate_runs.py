"""Predictions summarised: rows whose measurements are made from the predictions themselves."""

import hashlib
import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from planner.errors import InputError
from planner.evidence.published_runs import PublishedRun, read_runs
from planner.evidence.row_jobs import job_of
from planner.evidence.row_predictions import in_half, predict, predict_rows
from planner.evidence.validate_runs import ranking_groups, validate_runs

MakeRun = Callable[..., PublishedRun]

EXPERTS = {"n_experts": 8, "topk": 2, "expert_ffn": 1024}

WIDE = {"tp": 8, "pp": 1, "vp": 1, "dp": 2, "grad_accum": 32}
DEEP = {"tp": 2, "pp": 4, "vp": 1, "dp": 2, "grad_accum": 32}


def test_prediction_is_sane(make_run: MakeRun) -> None:
    prediction = predict(job_of(make_run()))
    assert 0.1 < prediction.step_seconds < 60
    assert 1e9 < prediction.allocated_bytes < prediction.peak_bytes
    assert prediction.verdict in ("fits", "fragile", "no")


def test_time_metrics_by_hand(off_by: MakeRun) -> None:
    runs = [
        off_by(-0.1, id="1", source="a/b x"),
        off_by(0.3, id="2", source="a/b y"),
        off_by(-0.2, id="3", source="c/d", gpu="A100-80G-SXM", attention="flash-v2"),
    ]
    result = validate_runs(runs)
    assert result.rows_scored == 3
    assert result.time.mape_fraction == pytest.approx(0.2)
    assert result.time.median_fraction == pytest.approx(0.2)
    assert result.time.bias_fraction == pytest.approx(0.0, abs=1e-12)
    assert list(result.by_source) == ["a/b", "c/d"]
    assert result.by_source["a/b"].mape_fraction == pytest.approx(0.2)
    assert result.by_accelerator["a100-sxm-80gb"].bias_fraction == pytest.approx(-0.2)
    assert result.macro_mape_fraction == pytest.approx((0.2 + 0.2) / 2)


def test_the_document_has_the_keys_of_the_contract(off_by: MakeRun) -> None:
    document = json.loads(json.dumps(validate_runs([off_by(0.1)]).to_document(), allow_nan=False))
    errors = {"mape_fraction", "median_fraction", "bias_fraction", "p95_fraction"}
    assert errors <= set(document["time"])
    assert errors <= set(document["by_source"]["owner/benchmarks"])
    assert errors <= set(document["by_accelerator"]["h100-sxm-80gb"])
    assert set(document["ranking"]) == {
        "groups", "pairwise_fraction", "regret_median_fraction", "regret_max_fraction", "picks",
        "picks_oom",
    }  # fmt: skip
    counts = {"true_fit", "false_fit", "true_oom", "false_oom", "balanced_accuracy"}
    assert counts <= set(document["fits"])
    assert set(document["memory"]) == {
        "rows", "median_fraction", "max_under_fraction", "max_over_fraction",
    }  # fmt: skip
    rest = {"rows_scored", "rows_skipped", "rows_assumed_network", "macro_mape_fraction"}
    assert rest | {"macro_pairwise_fraction"} <= set(document)


def test_assumed_software_has_errors_of_its_own_only(off_by: MakeRun, make_run: MakeRun) -> None:
    """Both would move every figure: of the rows one is far off, one ran out of memory."""
    known = [off_by(0.1, id="1", peak_mem_gb=40.0), off_by(-0.2, id="2", dtype="fp8")]
    unknown = [
        off_by(0.6, id="3", framework="Homemade 1.0", peak_mem_gb=200.0),
        off_by(-0.1, id="4", framework=None, gpu="A100-80G-SXM", attention="flash-v2"),
        make_run(id="5", framework="Homemade 1.0", oom=True, seconds=None),
        make_run(id="6", framework="Homemade 1.0", mbs=None),
    ]
    alone, found = (validate_runs(runs).to_document() for runs in (known, known + unknown))
    assert alone["rows_assumed_software"] == 0 and alone["assumed_software"]["time"]["rows"] == 0
    assert found["rows_skipped"] == {"mbs unknown": 1}
    own = ("rows_skipped", "rows_assumed_software", "assumed_software")
    assert {k: v for k, v in found.items() if k not in own} == {
        k: v for k, v in alone.items() if k not in own
    }
    assert found["rows_assumed_software"] == 3
    errors = found["assumed_software"]
    assert errors["time"]["rows"] == 2
    assert errors["time"]["mape_fraction"] == pytest.approx((0.6 + 0.1) / 2)
    assert errors["by_framework"]["Homemade 1.0"]["bias_fraction"] == pytest.approx(0.6)
    assert errors["by_framework"]["unknown"]["bias_fraction"] == pytest.approx(-0.1)
    assert errors["memory"]["rows"] == 1
    assert set(errors["intervals"]["step_seconds"]) == {"new-software", "all"}


def test_skipped_rows_are_counted_by_reason(make_run: MakeRun) -> None:
    runs = [
        make_run(),
        make_run(moe=EXPERTS),
        make_run(moe=EXPERTS, ep=None),
        make_run(mbs=None),
        make_run(mbs=None),
        make_run(seconds=None),
        make_run(quality="C"),
    ]
    result = validate_runs(runs)
    assert result.rows_scored == 2
    assert result.rows_skipped == {"mbs unknown": 2, "ep unknown": 1, "nothing measured": 1}
    dense, moe = (validate_runs(runs, models=models) for models in ("dense", "moe"))
    assert (dense.rows_scored, moe.rows_scored) == (1, 1)
    assert dense.rows_skipped == {"mbs unknown": 2, "nothing measured": 1}
    assert moe.rows_skipped == {"ep unknown": 1}
    assert validate_runs(runs, quality="ABC").rows_scored == 3


def test_assumed_networks_are_counted(make_run: MakeRun) -> None:
    runs = [make_run(nic_gbps_per_gpu=None), make_run()]
    assert validate_runs(runs).rows_assumed_network == 1


def test_min_mfu_filters_time_and_ranking_only(off_by: MakeRun, make_run: MakeRun) -> None:
    runs = [
        off_by(0.1, id="1", mfu=0.4, peak_mem_gb=30.0),
        off_by(0.5, id="2", mfu=0.1, peak_mem_gb=30.0),
        off_by(0.5, id="3", mfu=None),
    ]
    result = validate_runs(runs, min_mfu=0.15)
    assert result.time.rows == 1
    assert result.time.mape_fraction == pytest.approx(0.1)
    assert result.rows_scored == 3
    assert result.fits.true_fit + result.fits.false_oom == 3
    assert result.memory.rows == 2


def test_memory_is_compared_without_the_runtime_term(make_run: MakeRun) -> None:
    allocated = predict(job_of(make_run())).allocated_bytes
    runs = [
        make_run(peak_mem_gb=allocated / 1e9 / 0.9, seconds=None),
        make_run(peak_mem_gb=allocated / 1e9 / 1.2, seconds=None),
    ]
    result = validate_runs(runs)
    assert result.memory.max_under_fraction == pytest.approx(0.1)
    assert result.memory.max_over_fraction == pytest.approx(0.2)
    assert result.memory.median_fraction == pytest.approx(0.15)
    assert result.time.rows == 0 and result.fits.true_fit == 0


def test_verdicts_against_runs(make_run: MakeRun) -> None:
    huge = {"seq_len": 2**19, "gbs": 64}
    runs = [
        make_run(id="ran"),
        make_run(id="ran out", seconds=None, oom=True),
        make_run(id="huge out", seconds=None, oom=True, **huge),
        make_run(id="huge ran", **huge),
    ]
    fits = validate_runs(runs).fits
    assert (fits.true_fit, fits.false_fit, fits.true_oom, fits.false_oom) == (1, 1, 1, 1)
    assert fits.balanced_accuracy == 0.5


def test_ranking_by_hand(make_run: MakeRun) -> None:
    wide = predict(job_of(make_run(**WIDE))).step_seconds
    deep = predict(job_of(make_run(**DEEP))).step_seconds
    slow, fast = (WIDE, DEEP) if wide > deep else (DEEP, WIDE)

    def group(name: str, source: str, slow_seconds: float, fast_seconds: float) -> list[Any]:
        both = {"rank_group": name, "source": source}
        return [
            make_run(id=f"{name}-slow", seconds=slow_seconds, **both, **slow),
            make_run(id=f"{name}-fast", seconds=fast_seconds, **both, **fast),
        ]

    right = group("right", "a/a", 3.0, 2.0) + group("right 2", "a/a", 3.0, 2.0)
    wrong = group("wrong", "b/b", 2.0, 3.0)
    result = validate_runs(right + wrong)
    assert result.ranking.groups == 3
    assert result.ranking.pairwise_fraction == pytest.approx(2 / 3)
    assert result.macro_pairwise_fraction == pytest.approx(1 / 2)
    assert result.ranking.regret_median_fraction == 0.0
    assert result.ranking.regret_max_fraction == pytest.approx(0.5)
    assert (result.ranking.picks, result.ranking.picks_oom) == (3, 0)


def test_groups_of_one_layout_are_not_ranked(make_run: MakeRun) -> None:
    runs = [
        make_run(id="1", rank_group="g", overlap={"grad_sync": True}),
        make_run(id="2", rank_group="g", overlap={"grad_sync": False}),
        make_run(id="3", rank_group="g", seconds=None, oom=True, **WIDE),
        make_run(id="4", rank_group="h"),
        make_run(id="5", **WIDE),
    ]
    assert ranking_groups(predict_rows(runs)[0], 0.0) == []


def test_jobs_of_different_batches_are_ranked_per_token(make_run: MakeRun) -> None:
    small, large = (predict(job_of(make_run(gbs=g, grad_accum=g // 4))) for g in (64, 128))
    assert large.step_seconds > small.step_seconds
    assert large.candidate.predicted < small.candidate.predicted
    assert large.candidate.measured == pytest.approx((small.candidate.measured or 0) / 2)


def test_halves_hash_the_group_then_the_hint_then_the_key(make_run: MakeRun) -> None:
    def odd(text: str) -> bool:
        return hashlib.sha256(text.encode()).hexdigest()[-1] in "13579bdf"

    keys = {"config_key": "k", "split_hint": "h", "rank_group": "g"}
    for given, text in (
        (keys, "g"),
        (keys | {"rank_group": None}, "h"),
        (keys | {"rank_group": None, "split_hint": None}, "k"),
    ):
        run = make_run(**given)
        assert in_half(run, "test") == odd(text)
        assert in_half(run, "fit") != in_half(run, "test")
        assert in_half(run, "all")


def test_halves_are_a_partition(make_run: MakeRun) -> None:
    runs = [make_run(id=str(i), config_key=str(i)) for i in range(30)]
    whole, fit, test = (validate_runs(runs, half=h).rows_scored for h in ("all", "fit", "test"))
    assert whole == 30 == fit + test
    assert fit and test


def test_order_of_rows_does_not_matter(make_run: MakeRun) -> None:
    rng = random.Random(0)
    runs = [
        make_run(
            id=str(i),
            seconds=rng.uniform(1, 9),
            rank_group=rng.choice("gh"),
            source=rng.choice(["a/b", "c/d"]),
            peak_mem_gb=rng.choice([None, 30.0]),
            **rng.choice([WIDE, DEEP, {}]),
        )
        for i in range(20)
    ]
    expected = validate_runs(runs)
    for _ in range(3):
        assert validate_runs(rng.sample(runs, len(runs))) == expected


@pytest.mark.parametrize(
    "options",
    [{"quality": "AX"}, {"quality": ""}, {"min_mfu": -0.1}, {"min_mfu": 15.0},
     {"min_mfu": float("nan")}, {"half": "tset"}, {"models": "sparse"}],
)  # fmt: skip
def test_wrong_options(make_run: MakeRun, options: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        validate_runs([make_run()], **options)
    assert caught.value.allowed


def test_memory_verdicts_hold_on_the_half_that_nothing_was_fitted_to() -> None:
    """Of the published runs; the README says by how much."""
    runs = read_runs("scenarios/published/measured_runs.jsonl")
    held_out = validate_runs(runs, min_mfu=0.15, half="test", models="dense")
    fits = held_out.fits
    assert fits.true_fit / (fits.true_fit + fits.false_oom) >= 0.93
    assert fits.true_oom / (fits.true_oom + fits.false_fit) >= 0.93
    assert fits.balanced_accuracy is not None and fits.balanced_accuracy >= 0.95
    assert held_out.memory.median_fraction is not None
    assert held_out.memory.median_fraction <= 0.04
    assert held_out.ranking.picks_oom <= 1
