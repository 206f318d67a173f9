"""The table of row keys against the shipped rows, and the row against its table."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from planner.evidence.published_runs import PUBLISHED_RUNS, PublishedRun, UnscorableError
from planner.evidence.row_jobs import job_of
from planner.evidence.row_keys import (
    DISPATCHER_FLAGS,
    OVERLAP_FLAGS,
    ROW_KEYS,
    Unknown,
    Use,
)
from planner.inputs.files import data_root

MakeRun = Callable[..., PublishedRun]

KEYS = {key.name: key for key in ROW_KEYS}
NESTED = ("moe", "moe.mla", "overlap", "overlap.preset_facts", "measured", "std")


def keys_of(row: Mapping[str, Any], inside: str = "") -> Iterator[str]:
    """Dotted names of all keys of a row."""
    for key, value in row.items():
        name = f"{inside}{key}"
        yield name
        if name in NESTED and isinstance(value, dict):
            yield from keys_of(value, f"{name}.")


NOT_SHIPPED = {
    "overlap.pp", "overlap.zero1", "overlap.cpu_offloading_num_layers",
    "overlap.preset_facts.cpu_offloading_num_layers",
    *(
        f"overlap.{inside}{key}"
        for inside in ("", "preset_facts.")
        for key in ("grad_reduce_in_bf16", "fp8_param_gather", "optimizer_bytes")
    ),
}  # fmt: skip
"""Keys that are read and that no shipped row has: rows of users may."""


def test_the_table_has_every_key_of_the_shipped_rows_once() -> None:
    lines = (data_root() / PUBLISHED_RUNS).read_text("utf-8").splitlines()
    shipped = {name for line in lines for name in keys_of(json.loads(line))}
    assert shipped == set(KEYS) - NOT_SHIPPED
    assert not [name for name, count in Counter(k.name for k in ROW_KEYS).items() if count > 1]


def test_what_is_read_is_a_field_and_what_is_ignored_is_not() -> None:
    """Of the top level, and of the measurements; the rest stays a mapping."""
    read = {name for name, key in KEYS.items() if key.use is not Use.IGNORED}
    fields = set(PublishedRun.model_fields)
    for inside in ("measured", "std"):
        nested = PublishedRun.model_fields[inside].annotation
        assert nested is not None
        fields |= {f"{inside}.{name}" for name in nested.model_fields}
    mappings = ("moe.", "overlap.")
    assert fields == {name for name in read if not name.startswith(mappings)}


def test_what_is_ignored_says_why() -> None:
    assert all(key.note for key in ROW_KEYS if key.use is Use.IGNORED)


def test_flags_that_are_read_are_in_the_table() -> None:
    flags = {flag for names in OVERLAP_FLAGS.values() for flag in names} | set(DISPATCHER_FLAGS)
    for flag in flags:
        named = [KEYS.get(f"overlap.{flag}"), KEYS.get(f"overlap.preset_facts.{flag}")]
        assert {key.use for key in named if key} == {Use.LAYOUT}, flag


EXPERTS = {"n_experts": 8, "topk": 2, "expert_ffn": 1024}
LATENT = {"q_lora": 1536, "kv_lora": 512, "nope": 128, "rope": 64, "v": 128}


def without(name: str) -> dict[str, Any]:
    """Changes that make a key of the row null; the model has experts and latent attention."""
    row: dict[str, Any] = {"ep": 1, "moe": EXPERTS | {"mla": LATENT}}
    *inside, key = name.split(".")
    place = row
    for part in inside:
        place[part] = dict(place[part])
        place = place[part]
    place[key] = None
    return row


@pytest.mark.parametrize(
    "name", [key.name for key in ROW_KEYS if key.unknown is Unknown.REFUSES]
)  # fmt: skip
def test_a_row_that_needs_an_unknown_key_is_refused(make_run: MakeRun, name: str) -> None:
    with pytest.raises(UnscorableError, match="unknown"):
        job_of(make_run(**without(name)))


OPTIONAL = [
    key.name for key in ROW_KEYS
    if key.unknown is Unknown.ALLOWED and key.use not in (Use.IGNORED, Use.GROUPING, Use.MEASURED)
    and "null is refused" not in key.note and not key.name.startswith(("overlap.", "measured."))
    and key.name != "model_name"
]  # fmt: skip


@pytest.mark.parametrize("name", OPTIONAL)
def test_a_row_is_costed_without_a_key_that_may_be_unknown(make_run: MakeRun, name: str) -> None:
    assert job_of(make_run(**without(name))).scenario.num_accelerators == 16


@pytest.mark.parametrize("name", ["sp", "vp", "ep"])
def test_a_key_that_the_degrees_make_necessary_is_refused(make_run: MakeRun, name: str) -> None:
    assert "null is refused" in KEYS[name].note
    with pytest.raises(UnscorableError, match=f"{name} unknown"):
        job_of(make_run(**without(name)))
