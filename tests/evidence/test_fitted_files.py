"""Profiles written with fitted numbers: equal when read back, remarks and all else kept."""

import re

import pytest

from planner.evidence.fitted_files import profile_yaml
from planner.evidence.metrics import TimeErrors
from planner.evidence.profile_fit import ProfileFit, coefficients_of, with_coefficients
from planner.inputs.files import data_root, names
from planner.inputs.values import load, parse
from planner.problem.software import Software

CHANGED = {
    "tp_overlap_fraction": 0.3125,
    "unexplained_seconds": 0.01234,
    "host_seconds_per_kernel": 7e-6,
}


def fitted(name: str) -> ProfileFit:
    software = load(name, "software", Software)
    return ProfileFit(
        software=software,
        coefficients=coefficients_of(software) | CHANGED,
        determined=tuple(CHANGED),
        sources={'a "b"/c': 3, "d/e": 4},
        before=TimeErrors.of([0.1]),
        after=TimeErrors.of([0.1]),
    )


@pytest.mark.parametrize("name", names("software"))
def test_the_text_reads_back_to_the_fitted_profile(name: str) -> None:
    found = fitted(name)
    back = parse(profile_yaml(found, "my cluster"), "mine.yaml", Software)
    expected = with_coefficients(found.software, CHANGED, found.source)
    assert back == expected.replace(name="my cluster")
    assert back.coefficients.tp_overlap_fraction.status == "fitted"
    assert back.coefficients.tp_overlap_fraction.source == found.source
    assert "7 measured runs" in found.source


def test_nothing_else_changes() -> None:
    shipped = (data_root() / "software/torchtitan.yaml").read_text("utf-8").splitlines()
    made = profile_yaml(fitted("torchtitan")).splitlines()
    different = [a for a, b in zip(shipped, made, strict=True) if a != b]
    assert len(different) == len(CHANGED)
    assert all(re.match(r"  (tp_overlap|unexplained|host_seconds)", line) for line in different)
