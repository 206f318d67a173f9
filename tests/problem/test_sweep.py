"""The sweep file: what it may hold, and where its mistakes stand."""

from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InputError
from planner.inputs.files import names
from planner.inputs.values import load, parse
from planner.problem.sweep import AxisValues, FileGlob, SweepFile, keys_of

BASE = "base: llama3-8b-h100x8\n"


def read(text: str) -> SweepFile:
    return parse(text, "sweep.yaml", SweepFile)


def test_a_whole_file() -> None:
    found = read(
        BASE + "axes:\n"
        "  num_accelerators: {from: 8, to: 64, times: 2}\n"
        "  training.sequence_length, training.global_batch_size: [[8192, 64], [16384, 32]]\n"
        "  topology: {files: 'clusters/*.yaml'}\n"
        "filters:\n- drop: {num_accelerators: 8}\ntop_k: 2\ntime_limit: 60 s\n"
    )
    assert found.axes["num_accelerators"] == (8, 16, 32, 64)
    assert found.axes["topology"] == FileGlob("clusters/*.yaml")
    assert keys_of(list(found.axes)[1]) == (
        "training.sequence_length",
        "training.global_batch_size",
    )
    assert (found.top_k, found.time_limit_seconds) == (2, 60.0)


def test_a_base_may_leave_out_what_axes_give() -> None:
    found = read("base: {model: llama3-8b}\naxes: {num_accelerators: [8]}")
    assert found.top_k == 5 and found.time_limit_seconds is None


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("{from: 1, to: 7, step: 3}", (1, 4, 7)),
        ("{from: 5, to: 5, step: 1}", (5,)),
        ("{from: 0.1, to: 0.3, step: 0.1}", (0.1, 0.2, 0.3)),
        ("{from: 3, to: 48, times: 4}", (3, 12, 48)),
        ("{from: 1, to: 2.25, times: 1.5}", (1.0, 1.5, 2.25)),
        ("{from: -2, to: 2, step: 2}", (-2, 0, 2)),
    ],
)
def test_ranges(text: str, numbers: tuple[float, ...]) -> None:
    found = read(f"{BASE}axes:\n  training.mean_document_length: {text}\n")
    written = found.axes["training.mean_document_length"]
    assert written == numbers
    assert [type(n) for n in written] == [type(n) for n in numbers]


@given(st.integers(0, 50), st.integers(0, 40), st.integers(1, 9), st.sampled_from([1, 10, 100]))
def test_ranges_are_python_ranges(first: int, count: int, step: int, scale: int) -> None:
    last = first + count * step
    whole = AxisValues().read({"from": first, "to": last, "step": step})
    assert whole == tuple(range(first, last + 1, step))
    parts = [float(Decimal(n) / scale) for n in (first, last, step)]
    cut = AxisValues().read(dict(zip(("from", "to", "step"), parts, strict=True)))
    assert cut == tuple(float(Decimal(n) / scale) for n in range(first, last + 1, step))


@pytest.mark.parametrize(
    ("rest", "line", "key", "says"),
    [
        ("", 1, "axes", "missing"),
        ("axes: {}\n", 2, "axes", "allowed: a mapping of one or more dotted keys"),
        ("axes:\n  num_accelerators: 3\n", 3, "num_accelerators", "not a list"),
        ("axes:\n  num_accelerators: []\n", 3, "num_accelerators", "the list is empty"),
        ("axes:\n  a: {from: 1, to: 9, stp: 2}\n", 3, "a.stp", "did you mean 'step'"),
        ("axes:\n  a: {from: 1, to: 9}\n", 3, "a", "either 'step' or 'times'"),
        ("axes:\n  a: {from: 1, to: 9, step: 2, times: 2}\n", 3, "a", "either 'step' or 'times'"),
        ("axes:\n  a:\n    from: 1\n    to: 9\n    step: 3\n", 5, "a.to", "'7' or '10'"),
        ("axes:\n  a: {from: 1, to: 9, times: 2}\n", 3, "a.to", "did you mean '8' or '16'"),
        ("axes:\n  a: {from: 1, to: 9, step: 0}\n", 3, "a.step", "no end"),
        ("axes:\n  a: {from: 1, to: 9, times: 1}\n", 3, "a.times", "no end"),
        ("axes:\n  a: {from: 9, to: 1, step: 1}\n", 3, "a.to", "empty"),
        ("axes:\n  a: {from: 1, to: nine, step: 1}\n", 3, "a.to", "'nine' is not a number"),
        ("axes:\n  a: {from: 1, to: 1000000, step: 1}\n", 3, "a.to", "more than 100,000"),
        ("axes:\n  a: {files: 3}\n", 3, "a.files", "3 is not text"),
        ("axes:\n  a, b: [1]\n", 3, "a, b.0", "1 does not give a, b a value each"),
        ("axes:\n  a, b: [[1, 2, 3]]\n", 3, "a, b.0", "lists of 2 values"),
        ("axes:\n  a, b: {files: '*'}\n", 3, "a, b", "lists of 2 values"),
        ("axes:\n  a, b: [[1, 2]]\n  b: [1]\n", 4, "b", "each key once"),
        ("axes:\n  a,: [[1, 2]]\n", 3, "a,", "names no key"),
        ("axes: {a: [1]}\nfilters:\n- {}\n", 4, "filters.0", "either 'keep' or 'drop'"),
        ("axes: {a: [1]}\nfilters:\n- drop: {}\n", 4, "drop", "no conditions are given"),
        ("axes: {a: [1]}\nfilters:\n- drop: {a: {abov: 1}}\n", 4, "abov", "did you mean 'above'"),
        ("axes: {a: [1]}\nfilters:\n- drop: {a: {above: [1]}}\n", 4, "above", "not a number or"),
        ("axes: {a: [1]}\ntop_k: 0\n", 3, "top_k", "too small"),
        ("axes: {a: [1]}\ntime_limit: 5\n", 3, "time_limit", "has no unit"),
        ("axis: {a: [1]}\n", 2, "axis", "did you mean 'axes'"),
    ],
)  # fmt: skip
def test_mistakes(rest: str, line: int, key: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        read(BASE + rest)
    error = caught.value
    assert (error.path, error.line) == ("sweep.yaml", line)
    assert str(error.key).endswith(key)
    assert says in str(error)


def test_an_unknown_base_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'llama3-8b-h100x8'"):
        read("base: llama3-8b-h100x9\naxes: {num_accelerators: [8]}")


@pytest.mark.parametrize("name", names("sweep"))
def test_what_ships_says_what_it_is_for(name: str) -> None:
    load(name, "sweep", SweepFile)
    path = Path(__file__).parents[2] / "scenarios" / "sweeps" / f"{name}.yaml"
    assert path.read_text("utf-8").startswith("# ")
