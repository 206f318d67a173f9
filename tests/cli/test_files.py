"""`planner list` and `planner schema`: what ships, and what files may hold."""

from __future__ import annotations

import json

import pytest

from tests.cli.running import run


@pytest.mark.parametrize(
    "kind",
    ["topologies", "inventories", "models", "scenarios", "software", "accelerators", "targets"],
)
def test_list(kind):
    text = run("list", kind).stdout
    names = [item["name"] for item in json.loads(run("list", kind, "--json").stdout)[kind]]
    assert names and all(name in text for name in names)


def test_list_models_gives_experts_and_parameters():
    found = {
        item["name"]: item for item in json.loads(run("list", "models", "--json").stdout)["models"]
    }
    assert found["mixtral-8x7b"]["parameters"] == "46.70 billion"
    assert found["mixtral-8x7b"]["experts"] == "8, 2 chosen"
    assert found["llama3-8b"]["experts"] == "·"
    assert found["llama3-8b"]["layers"] == "32"
    assert found["nemotron-3-nano"]["layers"] == "52: 23 M, 6 *, 23 E"


@pytest.mark.parametrize("kind", ["scenario", "topology", "model"])
def test_schema_is_json_schema(kind):
    schema = json.loads(run("schema", kind).stdout)
    assert schema["type"] == "object" and schema["properties"]
