"""Overheads of a cluster: defaults, ranges, and what a file of them may say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InputError, UnknownNameError
from planner.inputs.files import names
from planner.inputs.values import load, parse
from planner.problem.overheads import Overheads
from planner.problem.topology import Topology
from tests.scenarios import figures

FIGURE = "source: test, status: assumed}"
GIVEN = f"""\
name: ours
description: test
collective_latency: {{value: 30 us, {FIGURE}
straggler_fraction_per_doubling: {{value: 0.01, {FIGURE}
"""
RANGED = f"""\
{GIVEN}\
collective_latency_low: {{value: 10 us, {FIGURE}
straggler_fraction_per_doubling_high: {{value: 0.04, {FIGURE}
"""


def read(text: str) -> Overheads:
    return parse(text, "overheads.yaml", Overheads)


def of(**values: Any) -> Overheads:
    return Overheads.of(name="ours", description="test", **figures(values))


# ---------------------------------------------------------------- numbers


def test_numbers_are_si() -> None:
    found = read(GIVEN)
    assert found.collective_seconds == pytest.approx(30e-6)
    assert found.straggler_fraction_per_doubling == 0.01


def test_number_without_a_range_is_its_own_ends() -> None:
    found = read(GIVEN)
    for end in ("low", "high"):
        assert found.at_end(end).collective_seconds == found.collective_seconds
        assert found.at_end(end).straggler_fraction_per_doubling == 0.01


def test_ends_of_ranges() -> None:
    found = read(RANGED)
    low, high = found.at_end("low"), found.at_end("high")
    assert (low.collective_seconds, low.straggler_fraction_per_doubling) == (1e-5, 0.01)
    assert high.collective_seconds == pytest.approx(30e-6)
    assert high.straggler_fraction_per_doubling == 0.04


number = st.floats(0.0, 1.0)


@given(number, number, number)
def test_range_must_hold_its_number(low: float, usual: float, high: float) -> None:
    values = {
        "collective_seconds": 1e-5,
        "straggler_fraction_per_doubling": usual,
        "straggler_fraction_per_doubling_low": low,
        "straggler_fraction_per_doubling_high": high,
    }
    if low <= usual <= high:
        found = of(**values)
        assert found.at_end("low").straggler_fraction_per_doubling == low
        assert found.at_end("high").straggler_fraction_per_doubling == high
    else:
        with pytest.raises(InputError, match="outside its range"):
            of(**values)


@pytest.mark.parametrize("name", names("overheads"))
def test_shipped_overheads_load(name: str) -> None:
    assert load(name, "overheads", Overheads).name == name


# ---------------------------------------------------------------- in a topology


def topology(folder: Path, line: str = "") -> Topology:
    path = folder / "topology.yaml"
    path.write_text(path.read_text() + line)
    return load(str(path), "topology", Topology)


def test_topology_without_overheads_has_the_usual_ones(folder: Path) -> None:
    assert topology(folder).overheads == load("usual", "overheads", Overheads)


def test_topology_names_overheads_or_gives_its_own(folder: Path) -> None:
    (folder / "ours.yaml").write_text(RANGED)
    assert topology(folder, "overheads: ./ours.yaml\n").overheads == read(RANGED)


def test_overheads_may_stand_in_the_topology(folder: Path) -> None:
    inside = "".join(f"  {line}\n" for line in RANGED.splitlines())
    assert topology(folder, f"overheads:\n{inside}").overheads == read(RANGED)


def test_unknown_overheads_have_a_near_match_and_a_place(folder: Path) -> None:
    lines = (folder / "topology.yaml").read_text().count("\n")
    with pytest.raises(UnknownNameError) as caught:
        topology(folder, "overheads: usaul\n")
    error = caught.value
    assert (error.nearest, error.key, error.line) == ("usual", "overheads", lines + 1)
    assert str(error.path).endswith("topology.yaml")


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("old", "new", "line", "key", "says", "nearest"),
    [
        ("collective_latency:", "colective_latency:", 3, "colective_latency", "unknown",
         "collective_latency"),
        ("30 us", "30", 3, "collective_latency.value", "unit", None),
        ("30 us", "30 GB", 3, "collective_latency.value", "does not fit here", None),
        ("30 us", "-30 us", 3, "collective_latency.value", "value", None),
        ("0.01", "1.5", 4, "straggler_fraction_per_doubling.value", "value", None),
        ("0.01", "-0.1", 4, "straggler_fraction_per_doubling.value", "value", None),
        ("10 us", "40 us", None, "collective_latency", "outside its range of 4e-05 to 3e-05", None),
        ("0.04", "0.002", None, "straggler_fraction_per_doubling", "outside its range", None),
    ],
)  # fmt: skip
def test_mistakes_have_their_place(
    old: str, new: str, line: int | None, key: str, says: str, nearest: str | None
) -> None:
    with pytest.raises(InputError) as caught:
        read(RANGED.replace(old, new))
    error = caught.value
    assert str(error.path).endswith("overheads.yaml")
    assert error.key == key
    assert line is None or error.line == line
    assert error.line is not None
    assert says in str(error)
    assert error.nearest == nearest


@pytest.mark.parametrize("key", ["name", "collective_latency", "straggler_fraction_per_doubling"])
def test_nothing_but_ranges_may_be_left_out(key: str) -> None:
    text = "".join(line for line in GIVEN.splitlines(True) if not line.startswith(key))
    with pytest.raises(InputError, match=key):
        read(text)
