"""Quantities against figures worked out by hand, and round trips."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import UnitError
from planner.inputs.units import ALLOWED_UNITS, exact_quantity, format_quantity, parse_quantity


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("3.35 TB/s", "B/s", 3.35e12),
        ("400 Gbit/s", "B/s", 50e9),
        ("100 Gbit/s", "B/s", 12.5e9),
        ("450 GB/s", "B/s", 450e9),
        ("8 bit/s", "B/s", 1.0),
        ("1 Tbit/s", "B/s", 125e9),
        ("3 kbit/s", "B/s", 375.0),
        ("1.5 GiB/s", "B/s", 1.5 * 2**30),
        ("80 GiB", "B", 85899345920.0),
        ("80 GB", "B", 80e9),
        ("228 KiB", "B", 233472.0),
        ("50 MiB", "B", 52428800.0),
        ("1 TiB", "B", 2.0**40),
        ("5 kB", "B", 5000.0),
        ("16 Mbit", "B", 2e6),
        ("989.5 TFLOP/s", "FLOP/s", 989.5e12),
        ("2.25 PFLOP/s", "FLOP/s", 2.25e15),
        ("312 GFLOP/s", "FLOP/s", 312e9),
        ("7 FLOP", "FLOP", 7.0),
        ("5 us", "s", 5e-6),
        ("6.6 us", "s", 6.6e-6),
        ("250 ns", "s", 2.5e-7),
        ("1.5 ms", "s", 1.5e-3),
        ("2 h", "s", 7200.0),
        ("1 hour", "s", 3600.0),
        ("2.5 USD/hour", "USD/hour", 2.5),
        ("2.5 USD/h", "USD/hour", 2.5),
        ("-4 GB", "B", -4e9),
        ("+4 GB", "B", 4e9),
        (".5 GB", "B", 5e8),
        ("5. GB", "B", 5e9),
        ("1e3 GB", "B", 1e12),
        ("1E-3 GB", "B", 1e6),
        ("  4GB ", "B", 4e9),
        ("1e-999999999 GB", "B", 0.0),
    ],
)
def test_parse(text: str, unit: str, value: float) -> None:
    assert parse_quantity(text, unit) == value


@pytest.mark.parametrize(
    ("text", "unit", "nearest"),
    [
        ("450 Gb/s", "B/s", "GB/s or Gbit/s"),
        ("450 Gbps", "B/s", "GB/s or Gbit/s"),
        ("10 Kbps", "B/s", "kB/s or kbit/s"),
        ("80 Gb", "B", "GB or Gbit"),
        ("80 G", "B", "GB or Gbit"),
        ("80 M", "B", "MB or Mbit"),
        ("450 G", "B/s", "GB/s or Gbit/s"),
        ("900 T", "FLOP/s", "TFLOP/s"),
        ("450 GBps", "B/s", "GB/s"),
        ("450 gb/s", "B/s", "GB/s"),
        ("450 GB/sec", "B/s", "GB/s"),
        ("400 Gbits/s", "B/s", "Gbit/s"),
        ("80 gib", "B", "GiB"),
        ("64 KB", "B", "kB"),
        ("989 TFLOPS", "FLOP/s", "TFLOP/s"),
        ("989 TFLOPs", "FLOP/s", "TFLOP/s"),
        ("989 TFLOPS/s", "FLOP/s", "TFLOP/s"),
        ("989 tflops", "FLOP/s", "TFLOP/s"),
        ("5 μs", "s", "us"),
        ("5 usec", "s", "us"),
        ("2 $/hour", "USD/hour", "USD/hour"),
        ("2 usd/hour", "USD/hour", "USD/hour"),
    ],
)
def test_unlisted_unit(text: str, unit: str, nearest: str | None) -> None:
    with pytest.raises(UnitError) as caught:
        parse_quantity(text, unit)
    assert "is not a unit known here" in caught.value.message
    assert caught.value.nearest == nearest
    assert all(name in str(caught.value.allowed) for name in ALLOWED_UNITS[unit])


@pytest.mark.parametrize(
    ("text", "unit", "says"),
    [
        ("3 TB/s", "FLOP/s", "does not fit here"),
        ("3 TFLOP/s", "B/s", "does not fit here"),
        ("3 GB", "B/s", "does not fit here"),
        ("3 GB/s", "B", "does not fit here"),
        ("3 s", "USD/hour", "does not fit here"),
        ("3", "B", "has no unit"),
        ("3 ", "B/s", "has no unit"),
        ("", "B", "does not start with a number"),
        ("GB", "B", "does not start with a number"),
        ("nan GB", "B", "does not start with a number"),
        ("inf GB", "B", "does not start with a number"),
        (".inf GB", "B", "does not start with a number"),
        ("1e400 GB", "B", "is not finite"),
        ("1e999999999 GB", "B", "is not finite"),
        ("-1e400 GB", "B", "is not finite"),
        ("1e300 TB", "B", "is not finite"),
        (f"{'9' * 400} GB", "B", "is not finite"),
        ("3 * 4 GB", "B", "is not a unit"),
        ("3 GB*s", "B", "is not a unit"),
        ("3 GB + 4 GB", "B", "is not a unit"),
        ("1,000 GB", "B", "is not a unit"),
        ("0x10 GB", "B", "is not a unit"),
        ("1_000 GB", "B", "is not a unit"),
    ],
)
def test_refused(text: str, unit: str, says: str) -> None:
    with pytest.raises(UnitError) as caught:
        parse_quantity(text, unit)
    assert says in str(caught.value)
    assert "allowed: a number with one of the units" in str(caught.value)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (3.35e12, "B/s", "3.35 TB/s"),
        (50e9, "B/s", "50 GB/s"),
        (999.96e9, "B", "1 TB"),
        (85899345920.0, "B", "85.9 GB"),
        (989.5e12, "FLOP/s", "989.5 TFLOP/s"),
        (2.25e15, "FLOP/s", "2250 TFLOP/s"),
        (6.6e-6, "s", "6.6 us"),
        (0.0123, "s", "12.3 ms"),
        (12.5, "s", "12.5 s"),
        (1e-12, "s", "0.001 ns"),
        (-5e9, "B", "-5 GB"),
        (0.0, "B/s", "0 B/s"),
        (2.5, "USD/hour", "2.5 USD/hour"),
    ],
)
def test_format(value: float, unit: str, text: str) -> None:
    assert format_quantity(value, unit) == text


units = st.sampled_from(sorted(ALLOWED_UNITS))
values = st.floats(min_value=1e-12, max_value=1e24)


@given(values, units)
def test_exact_round_trip(value: float, unit: str) -> None:
    assert parse_quantity(exact_quantity(value, unit), unit) == value


@given(values, units)
def test_readable_round_trip(value: float, unit: str) -> None:
    assert parse_quantity(format_quantity(value, unit), unit) == pytest.approx(value, rel=1e-3)


@given(
    values,
    st.sampled_from([(unit, name) for unit in ALLOWED_UNITS for name in ALLOWED_UNITS[unit]]),
)
def test_every_listed_unit_is_linear(value: float, pair: tuple[str, str]) -> None:
    unit, name = pair
    one = parse_quantity(f"1 {name}", unit)
    assert parse_quantity(f"{value!r} {name}", unit) == pytest.approx(value * one, rel=1e-14)


@given(st.text(max_size=20), units)
def test_any_text_is_a_float_or_a_unit_error(text: str, unit: str) -> None:
    try:
        assert isinstance(parse_quantity(text, unit), float)
    except UnitError as error:
        assert "\n" not in str(error)


def test_pint_is_imported_only_when_needed() -> None:
    code = (
        "import sys, planner.inputs.units, planner.problem.scenario;"
        "assert not {'pint', 'ruamel.yaml'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
