"""Clocks that an accelerator type keeps through a step, one for all precisions or one for each."""

from __future__ import annotations

import pytest

from planner.cost.context import CostContext
from planner.cost.prediction_intervals import is_known
from planner.cost.step import evaluate
from planner.errors import InputError
from planner.inputs.values import parse
from planner.layouts.layout import Layout
from planner.problem.hardware import Accelerator
from tests.oracles import innermost_splits
from tests.scenarios import accelerator, context, figures, model, topology, training

ONE = 'sustained: {value: 0.95, source: "test", status: assumed}\n'
EACH = """\
sustained:
  bf16: {value: 0.7, source: test, status: fitted}
  fp8: {value: 0.9, source: test, status: assumed}
"""


def read(texts: dict[str, str], clocks: str) -> Accelerator:
    text = texts["accelerator.yaml"]
    assert ONE in text
    return parse(text.replace(ONE, clocks), "accelerator.yaml", Accelerator)


def test_one_figure_is_for_every_precision(texts: dict[str, str]) -> None:
    assert read(texts, ONE).sustained_fraction == {"bf16": 0.95, "fp8": 0.95}


def test_each_precision_has_its_own(texts: dict[str, str]) -> None:
    assert read(texts, EACH).sustained_fraction == {"bf16": 0.7, "fp8": 0.9}


def test_intervals_know_clocks_of_the_precision_that_was_fitted(texts: dict[str, str]) -> None:
    part = read(texts, EACH)
    assert is_known(part, "bf16")
    assert not is_known(part, "fp8")


@pytest.mark.parametrize(
    ("clocks", "says", "key"),
    [
        ("sustained:\n  fp8: {value: 0.9, source: test, status: assumed}\n",
         "no sustained share for bf16", "sustained"),
        ("sustained: {}\n", "", "sustained"),
        ("sustained:\n  bf61: {value: 0.9, source: test, status: assumed}\n", "bf61", None),
        ("sustained: {value: 1.2, source: test, status: assumed}\n", "1.2", None),
        ("sustained: {value: 0, source: test, status: assumed}\n", "0", None),
        ("sustained: 0.9\n", "", None),  # no source
        ("sustained: {value: 0.9, status: assumed}\n", "source", None),
        ("sustained:\n  bf16: {value: 1.2, source: test, status: assumed}\n", "1.2",
         "sustained.bf16.value"),
        ("", "sustained", None),
    ],
)  # fmt: skip
def test_wrong_clocks_are_refused_with_their_place(
    texts: dict[str, str], clocks: str, says: str, key: str | None
) -> None:
    with pytest.raises(InputError) as caught:
        read(texts, clocks)
    error = caught.value
    assert str(error.path).endswith("accelerator.yaml") and error.line is not None
    assert "sustained" in str(error) and says in str(error)
    assert key is None or error.key == key


# ---------------------------------------------------------------- in a step


def clocked(precision: str, bf16: float, fp8: float) -> CostContext:
    part = accelerator(sustained_fraction=figures({"bf16": bf16, "fp8": fp8}))
    return context(
        topology=topology(accelerator=part),
        model=model(vocab_size=1),
        training=training(precision=precision),
    )


@pytest.mark.parametrize(("precision", "peak", "clock"), [("bf16", 1e12, 0.5), ("fp8", 2e12, 0.8)])
def test_a_step_runs_at_the_clock_of_its_main_matmuls(
    precision: str, peak: float, clock: float
) -> None:
    """Attention too, in 16 bits: there is one clock at a time."""
    ctx = clocked(precision, 0.5, 0.8)
    assert ctx.sustained_flops == pytest.approx(clock * peak)
    assert ctx.sustained_16_flops == pytest.approx(clock * 1e12)
    full, slow = (
        float(evaluate(c, Layout(), innermost_splits(Layout())).total)
        for c in (clocked(precision, 1.0, 1.0), ctx)
    )
    assert full / slow == pytest.approx(clock, rel=1e-9)


@pytest.mark.parametrize(("precision", "other"), [("bf16", (0.5, 0.1)), ("fp8", (0.1, 0.5))])
def test_the_clock_of_another_precision_changes_nothing(
    precision: str, other: tuple[float, float]
) -> None:
    one, same = clocked(precision, 0.5, 0.5), clocked(precision, *other)
    assert (one.sustained_flops, one.sustained_16_flops) == (
        same.sustained_flops, same.sustained_16_flops,
    )  # fmt: skip


def test_the_schema_allows_one_figure_or_one_for_each_precision() -> None:
    (one, each) = Accelerator.model_json_schema(by_alias=True)["properties"]["sustained"]["anyOf"]
    assert each["type"] == "object" and each["additionalProperties"] == one
