"""Parts by the names of measurements."""

from __future__ import annotations

import pytest

from planner.evidence.parts import accelerator_named


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("h100-sxm-80gb", "h100-sxm-80gb"),
        ("H100", "h100-sxm-80gb"),
        ("gb200 nvl72", "gb200"),
        ("A100-SXM-40GB", "a100-sxm-40gb"),
    ],
)
def test_names_and_aliases_in_any_case(name: str, part: str) -> None:
    found = accelerator_named(name)
    assert found is not None
    assert found.name == part


def test_a_part_of_a_name_is_not_enough() -> None:
    assert accelerator_named("h10") is None
    assert accelerator_named("h100 something") is None
