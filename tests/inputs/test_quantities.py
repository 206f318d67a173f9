"""Figures: floats with provenance, in files and in Python."""

import copy
import pickle
from typing import Annotated

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InputError
from planner.inputs.quantities import Bytes, BytesPerSecond, Figure, NotNegative, Quantity, Status
from planner.inputs.values import Strict, from_document, parse


class Link(Strict):
    rate: BytesPerSecond
    share: NotNegative
    spare: Bytes | None = None
    price: Annotated[float, Quantity("USD/hour")] = 1.0


RATE = Figure(3.35e12, "sheet", "datasheet")
LINK = Link(rate=RATE, share=Figure(0.25, "test", "measured"))


def test_figure_is_a_float_that_knows_its_source() -> None:
    assert RATE == 3.35e12
    assert (RATE.source, RATE.status) == ("sheet", "datasheet")
    assert type(RATE * 2) is float
    assert np.asarray([RATE, RATE]).dtype == np.float64


@pytest.mark.parametrize(
    "clone", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_figure_survives_copies(clone: object) -> None:
    other = clone(RATE)  # type: ignore[operator]
    assert (other, other.source, other.status) == (RATE, "sheet", "datasheet")


def test_read_and_written_form() -> None:
    text = (
        "rate: {value: 3.35 TB/s, source: sheet, status: datasheet}\n"
        "share: {value: 0.25, source: test, status: measured}\n"
        "price: 2 USD/h\n"
    )
    link = parse(text, "link.yaml", Link)
    assert link == LINK.replace(price=2.0)
    assert link.rate.source == "sheet"
    assert link.model_dump(mode="json") == {
        "rate": {"value": "3350000000000.0 B/s", "source": "sheet", "status": "datasheet"},
        "share": {"value": 0.25, "source": "test", "status": "measured"},
        "spare": None,
        "price": "2.0 USD/hour",
    }


@given(
    st.floats(min_value=1e-300, max_value=1e300),
    st.floats(min_value=0, max_value=1e300),
    st.text(min_size=1).filter(str.strip),
    st.sampled_from(["datasheet", "measured", "fitted", "assumed"]),
)
def test_dump_loads_equal(rate: float, share: float, source: str, status: Status) -> None:
    link = Link(rate=Figure(rate, source, status), share=Figure(share, source, status))
    again = from_document(link.model_dump(mode="json"), "x", Link)
    assert again == link
    assert (again.rate.source, again.rate.status) == (source, status)


@pytest.mark.parametrize("number", [0.0, -1.0, float("nan"), float("inf")])
def test_bounds_hold_in_python_too(number: float) -> None:
    with pytest.raises(InputError, match="rate"):
        LINK.replace(rate=Figure(number, "test", "assumed"))


@pytest.mark.parametrize("value", [3.35e12, "3.35 TB/s"])
def test_bare_values_have_no_provenance(value: object) -> None:
    with pytest.raises(InputError, match="no source and status"):
        LINK.replace(rate=value)


def test_figure_is_not_read_from_a_unit_text_of_a_number() -> None:
    with pytest.raises(InputError, match=r"rate.value: 3 has no unit"):
        from_document({"rate": {"value": 3, "source": "s", "status": "fitted"}}, "x", Link)


def test_json_schema_tells_units() -> None:
    schema = Link.model_json_schema()["properties"]
    assert schema["rate"]["required"] == ["value", "source", "status"]
    assert "TB/s" in schema["rate"]["properties"]["value"]["description"]
    assert schema["share"]["properties"]["value"]["type"] == "number"
