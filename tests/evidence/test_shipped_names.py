"""Accelerators and frameworks as sources write them."""

from __future__ import annotations

import pytest

from planner.evidence.shipped_names import accelerator_named, software_named


@pytest.mark.parametrize(
    ("name", "accelerator"),
    [
        ("h100-sxm-80gb", "h100-sxm-80gb"),
        ("H100", "h100-sxm-80gb"),
        ("gb200 nvl72", "gb200"),
        ("A100-SXM-40GB", "a100-sxm-40gb"),
    ],
)
def test_names_and_aliases_in_any_case(name: str, accelerator: str) -> None:
    shipped = accelerator_named(name)
    assert shipped is not None
    assert shipped.name == accelerator


def test_the_beginning_of_a_name_is_not_enough() -> None:
    assert accelerator_named("h10") is None
    assert accelerator_named("h100 something") is None


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
    software = software_named(framework)
    assert software is not None
    assert software.name == profile


def test_an_unknown_framework_has_no_profile() -> None:
    assert software_named("Homemade 1.0") is None
    assert software_named("fallback") is None
