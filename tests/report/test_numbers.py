"""Numbers as people read them."""

import pytest

from planner.report.text.numbers import (
    compact,
    gigabytes,
    in_words,
    milliseconds,
    plural,
    seconds,
    signed_seconds,
)


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (5.1239, 4, "5.124 s"),
        (0.0341, 3, "34.1 ms"),
        (4.31e-5, 3, "43.1 us"),
        (0.0, 3, "0 s"),
        (1234.5, 3, "1,234 s"),
        (1e-9, 3, "0.00100 us"),
        (0.9999, 3, "1.00 s"),
    ],
)
def test_seconds(value, digits, text):
    assert seconds(value, digits) == text


def test_signs():
    assert signed_seconds(0.9) == "+900 ms"
    assert signed_seconds(-2.0) == "-2.00 s"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (295.2, "295"),
        (6013, "6,013"),
        (2.9e5, "2.9e5"),
        (9.99e5, "1.0e6"),
        (0, "0.0"),
        (0.02, "2.0e-2"),
    ],
)
def test_compact(value, text):
    assert compact(value) == text or (value == 0 and compact(value) == "0")


def test_large_numbers_in_words():
    assert in_words(405.85e9) == "405.9 billion"
    assert in_words(15e12) == "15.00 trillion"
    assert in_words(93213.4) == "93,213"
    assert in_words(2.5) == "2.50"


def test_columns():
    assert milliseconds(1.2345) == "1,234.5"
    assert milliseconds(0.00002) == "0.020"
    assert gigabytes(85.52e9) == "85.5"
    assert plural(1, "placement") == "1 placement"
    assert plural(4530, "layout") == "4,530 layouts"
