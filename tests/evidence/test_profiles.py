"""Frameworks as sources write them, and what a row ran without."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from planner.evidence.published_runs import PublishedRun
from planner.evidence.run_software import profile_of, software_of

MakeRun = Callable[..., PublishedRun]


@pytest.mark.parametrize(
    ("framework", "profile"),
    [
        ("Megatron-LM", "megatron-core"),
        ("megatron-lm core_r0.13 (TE 2.1)", "megatron-core"),
        ("Megatron-LM 2021", "megatron-2021"),
        ("OneFlow (2021)", "oneflow"),
        ("torchtitan (some later release)", "torchtitan"),
        ("MaxText / JAX", "jax-xla"),
        ("NeMo/Megatron-Core", "nemo"),
        ("Megatron-Bridge / Megatron-Core", "nemo"),
    ],
)
def test_frameworks(framework: str, profile: str) -> None:
    assert software_of(framework).name == profile


@pytest.mark.parametrize(
    ("notes", "eager"),
    [
        ("trial 1; fused RMSNorm kernel off; gradients", True),
        ("trial 2; fused RMSNorm kernel on; gradients", False),
        ("nothing of norms", False),
        (None, False),
    ],
)
def test_norm_kernels(make_run: MakeRun, notes: str | None, eager: bool) -> None:
    assert profile_of(make_run(notes=notes)).eager_norm is eager


@pytest.mark.parametrize(
    ("framework", "overlap", "profile"),
    [
        ("torchtitan (FSDP2)", {"torch_compile": False}, "torchtitan-eager"),
        ("torchtitan (FSDP2)", {"torch_compile": True}, "torchtitan"),
        ("torchtitan (FSDP2)", None, "torchtitan"),
        ("Megatron-LM", {"torch_compile": False}, "megatron-core"),  # it has its own kernels
    ],
)
def test_rows_that_were_not_compiled(
    make_run: MakeRun, framework: str, overlap: dict[str, bool] | None, profile: str
) -> None:
    run = make_run(framework=framework, overlap=overlap)
    assert profile_of(run).name == profile
