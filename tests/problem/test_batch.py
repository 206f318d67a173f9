"""The global batch as a number, tokens or a band, and what of it is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import api
from planner.errors import InputError
from planner.problem.batch import Band
from planner.problem.scenario import scenario_from_document, scenario_to_document
from planner.problem.training import Training
from tests.scenarios import training

LENGTH = 64


@pytest.mark.parametrize(
    ("given_", "range_"),
    [
        ({"global_batch_size": 8}, (8, 8)),
        ({"global_batch_size": Band(2592, 3168)}, (2592, 3168)),
        ({"global_batch_size": {"at_least": 2592, "at_most": 3168}}, (2592, 3168)),
        ({"global_batch_size": {"about": 2880, "tolerance": 0.1}}, (2592, 3168)),
        ({"global_batch_size": {"about": 10, "tolerance": 0.25}}, (8, 12)),
        ({"global_batch_size": {"at_least": 7, "at_most": 7}}, (7, 7)),
        ({"global_batch_tokens": 4 * LENGTH}, (4, 4)),
        ({"global_batch_tokens": "4Ki"}, (64, 64)),
        ({"global_batch_tokens": "64k"}, (1000, 1000)),
        ({"global_batch_tokens": {"about": "1M", "tolerance": 0.001}}, (15610, 15640)),
        ({"global_batch_tokens": {"at_least": 100, "at_most": 200}}, (2, 3)),
    ],
)
def test_what_may_be_chosen(given_: dict[str, Any], range_: tuple[int, int]) -> None:
    batch = {"global_batch_size": None} if "global_batch_tokens" in given_ else {}
    found = training(**batch, **given_)
    assert found.batch_range == range_
    if range_[0] == range_[1]:
        assert found.global_batch_size == range_[0]
    else:
        with pytest.raises(InputError, match="band"):
            _ = found.global_batch_size
        assert found.with_batch(range_[0]).global_batch_size == range_[0]
    assert found.allows_batch(range_[1]) and not found.allows_batch(range_[1] + 1)


@pytest.mark.parametrize(
    ("given_", "words"),
    [
        ({"global_batch_size": 0}, "too small"),
        ({"global_batch_size": "8"}, "no whole number"),
        ({"global_batch_size": 8.0}, "no whole number"),
        ({"global_batch_size": True}, "no whole number"),
        ({"global_batch_size": {"at_least": 9, "at_most": 8}}, "is empty"),
        ({"global_batch_size": {"at_least": 9}}, "at_most: this key is missing"),
        ({"global_batch_size": {"at_least": 9, "tolerance": 0.1}}, "no band"),
        ({"global_batch_size": {"at_lest": 9, "at_most": 8}}, "unknown key"),
        ({"global_batch_size": {"about": 9, "tolerance": 1.5}}, "no fraction"),
        ({"global_batch_size": None, "global_batch_tokens": 100}, "no whole number of sequences"),
        ({"global_batch_size": None, "global_batch_tokens": "4Q"}, "no whole number of tokens"),
        ({"global_batch_size": None}, "missing"),
        ({"global_batch_size": 8, "global_batch_tokens": 512}, "twice"),
    ],
)
def test_what_is_refused(given_: dict[str, Any], words: str) -> None:
    with pytest.raises((InputError, ValueError), match=words):
        training(**given_)


def test_the_place_of_the_mistake_is_told() -> None:
    with pytest.raises(InputError) as caught:
        api.load_scenario(
            "llama3-70b-h100x1024",
            {"training.global_batch_size": "{at_least: 5, at_most: 4}"},
        )
    assert caught.value.key == "training.global_batch_size.at_most"
    with pytest.raises(InputError) as caught:
        api.load_scenario(
            "llama3-70b-h100x1024",
            {"training.global_batch_size": "null", "training.global_batch_tokens": "4M"},
        )
    assert caught.value.nearest == "3997696 or 4005888"


@given(least=st.integers(1, 10**6), width=st.integers(0, 10**6))
def test_bands_survive_their_document(least: int, width: int) -> None:
    found = training(global_batch_size={"at_least": least, "at_most": least + width})
    text = json.dumps(found.model_dump(mode="json", by_alias=True))
    assert Training.model_validate(json.loads(text)) == found


def test_scenarios_with_open_choices_survive_their_document() -> None:
    scenario = api.load_scenario(
        "llama3-70b-h100x1024",
        {
            "training.global_batch_size": "{about: 1024, tolerance: 0.1}",
            "training.total_tokens": "15e12",
            "search.num_accelerators": "[512, 1024]",
            "search.precision": "[bf16, fp8]",
            "search.overlap": "[dp+tp, none]",
            "search.objective": "fewest_for_deadline",
            "search.deadline": "30 days",
        },
    )
    assert scenario.search.deadline == 30 * 86400.0
    assert scenario.search.overlap == ("tp+dp", "none")
    document = json.loads(json.dumps(scenario_to_document(scenario)))
    assert scenario_from_document(document) == scenario
