"""A published row to vary: Llama 3 8B on two nodes of 8 H100, as Megatron-Core would run it."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from planner.evidence.profile_fit import coefficients_of, step_seconds, with_coefficients
from planner.evidence.published_runs import PublishedRun, read_run
from planner.evidence.row_jobs import job_of
from planner.evidence.row_predictions import Prediction, predict
from tests.evidence.made_runs import JOBS

MakeRun = Callable[..., PublishedRun]

ROW: dict[str, Any] = {
    "id": "made-1",
    "source": "owner/benchmarks docs/table.md@0123abcd (release 1)",
    "model_name": "llama3-8b",
    "n_layers": 32,
    "hidden": 4096,
    "ffn_hidden": 14336,
    "n_heads": 32,
    "n_kv_heads": 8,
    "head_dim": None,
    "vocab": 128256,
    "seq_len": 8192,
    "gated_mlp": True,
    "tied_embeddings": False,
    "moe": None,
    "params_b": 8.03,
    "gpu": "H100-80G-SXM",
    "n_gpus": 16,
    "gpus_per_nvlink_domain": 8,
    "nic_gbps_per_gpu": 400,
    "dtype": "bf16",
    "tp": 2,
    "sp": True,
    "cp": 1,
    "pp": 2,
    "vp": 2,
    "dp": 4,
    "ep": 1,
    "etp": 1,
    "zero_stage": 1,
    "mbs": 1,
    "gbs": 64,
    "grad_accum": 16,
    "recompute": "none",
    "attention": "flash(TE)",
    "overlap": None,
    "framework": "Megatron-LM",
    "measured": {"iter_time_s": 2.0, "peak_mem_gb": None, "oom": False},
    "std": {"iter_time_s": 2.0, "mfu_bf16peak_causal": 0.5},
    "split_hint": None,
    "quality": "A",
    "config_key": None,
    "rank_group": None,
    "gpu_family": "H100-80G",
}


def as_line(**changes: Any) -> str:
    """The row as a JSON line, with some fields changed."""
    return json.dumps(ROW | changes)


@pytest.fixture
def make_run() -> Callable[..., PublishedRun]:
    """Build a row with some fields changed; `seconds`, `oom`, `printed` set what was measured."""

    def make(*, seconds: float | None = 2.0, oom: bool = False, **changes: Any) -> PublishedRun:
        measured = {"oom": oom, "peak_mem_gb": changes.pop("peak_mem_gb", None)}
        measured |= changes.pop("printed", {})
        std = {"iter_time_s": seconds, "mfu_bf16peak_causal": changes.pop("mfu", 0.5)}
        return read_run(as_line(measured=measured, std=std, **changes), "made.jsonl", 1)

    return make


@pytest.fixture
def line() -> Callable[..., str]:
    """Build a JSON line with some fields changed."""
    return as_line


@pytest.fixture
def off_by(make_run: Callable[..., PublishedRun]) -> Callable[..., PublishedRun]:
    """Build a row measured so that the prediction is off by a given relative error."""

    def make(error: float, **changes: Any) -> PublishedRun:
        seconds = predict(job_of(make_run(**changes))).step_seconds
        return make_run(seconds=seconds / (1 + error), **changes)

    return make


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
            other = with_coefficients(software, coefficients_of(software) | truth, "truth")
            seconds = step_seconds(found, other) * (1 + error)
            rows.append(predict(job_of(make_run(seconds=seconds, **settings))))
        return rows

    return make
