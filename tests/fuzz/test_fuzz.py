"""Damaged files, thousands of them: a value or one of our errors, soon, and nothing else.

    python3 -m pytest -m fuzz -n auto

Inputs follow from the seed that hypothesis derives from each test, so a run can be repeated. What
is accepted must write itself so that it reads back equal, and a file that says something else must
be refused or give another value.
"""

from __future__ import annotations

import json
from contextlib import suppress
from functools import cache
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.errors import PlannerError
from planner.inputs.yaml_text import read_yaml
from tests.fuzz.guard import guarded
from tests.fuzz.mutate import changed, damaged, with_twin_key
from tests.fuzz.readers import READERS, Reader

pytestmark = pytest.mark.fuzz

INPUTS = 300
"""Of each reader and kind of damage."""

SEEDS = st.integers(0, 2**32)
TREES = [reader for reader in READERS if reader.written]


def every(readers: Any) -> Any:
    return pytest.mark.parametrize("reader", readers, ids=lambda reader: reader.name)


def many(test: Any) -> Any:
    return settings(
        max_examples=INPUTS, deadline=None, derandomize=True, database=None,
        suppress_health_check=list(HealthCheck),
    )(given(seed=SEEDS)(test))  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty current folder; what a file names is sought in it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def outcome(reader: Reader, raw: bytes, folder: Any, name: str) -> Any:
    """The value of an input, or None where it is refused as it should be."""
    _warm(reader)
    path = folder / name
    path.write_bytes(raw)
    with guarded(folder):
        try:
            value = reader.read(path)
        except PlannerError as error:
            said = str(error)
            assert said and "\n" not in said and len(said) < 4000, said[:200]
            return None
        except RecursionError:
            raise AssertionError("RecursionError") from None
    assert value is not None
    return value


@cache
def _warm(reader: Reader) -> None:
    """Load what the reader loads when it is first used."""
    for sample in reader.samples:
        with suppress(PlannerError):  # a script may leave something open
            reader.read(sample)


@every(READERS)
@many
def test_damaged_text(reader, folder, seed):
    random = Random(seed)
    sample = random.choice(reader.samples)
    raw = damaged(sample.read_bytes().decode("utf-8", "surrogateescape"), random)
    value = outcome(reader, raw, folder, sample.name)
    if value is not None and reader.written is not None:
        document(reader, value)


def document(reader: Reader, value: Any) -> Any:
    """What the value writes itself as, which reads back to it."""
    assert reader.written is not None and reader.again is not None
    written = json.loads(json.dumps(reader.written(value), allow_nan=False))
    again = reader.again(written)
    assert again == value
    assert json.loads(json.dumps(reader.written(again))) == written
    return written


@cache
def plain(sample: Any) -> Any:
    tree = read_yaml(sample.read_text("utf-8"), sample.name).plain()
    return json.loads(json.dumps(tree))


@every(TREES)
@many
def test_a_changed_meaning_is_refused_or_changes_the_value(reader, folder, seed):
    random = Random(seed)
    sample = random.choice(reader.samples)
    said = changed(plain(sample), random)
    if said is None:
        return
    tree, change = said
    value = outcome(reader, json.dumps(tree).encode(), folder, sample.name)
    if value is not None and all(tree[key] == plain(sample)[key] for key in reader.aside):
        assert document(reader, value) != original(reader, sample), change


@cache
def original(reader: Reader, sample: Any) -> Any:
    return document(reader, reader.read(sample))


@every(TREES)
@many
def test_a_key_given_twice_is_refused(reader, folder, seed):
    random = Random(seed)
    sample = random.choice(reader.samples)
    raw = with_twin_key(json.dumps(plain(sample)), random)
    if raw is not None:
        assert outcome(reader, raw.encode(), folder, sample.name) is None
