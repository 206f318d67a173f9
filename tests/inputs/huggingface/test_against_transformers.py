"""Counted parameters against those of transformers' own models, built without memory."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from planner.inputs.documents import from_plain
from planner.inputs.huggingface.convert import convert
from planner.inputs.values import from_tree
from planner.problem.model import Model
from tests.inputs.huggingface.configs import PUBLISHED, TYPES, published, random_config
from tests.parsers.harness import ask

pytestmark = pytest.mark.parsers

EACH = 25


def counted(config: dict[str, object]) -> int:
    return from_tree(convert(from_plain(config, "config.json")).tree, Model, {}).num_parameters


def test_random_configurations_have_the_parameters_of_transformers() -> None:
    rng = Random(8)
    configs = [random_config(rng, kind) for kind in TYPES for _ in range(EACH)]
    answers = ask("transformers_driver.py", "venv", [{"config": config} for config in configs])
    wrong = [
        (config, counted(config), answer)
        for config, answer in zip(configs, answers, strict=True)
        if counted(config) != answer.get("parameters")
    ]
    assert wrong == []


def test_published_configurations_have_the_parameters_of_transformers() -> None:
    names = [path.stem for path in sorted(Path(PUBLISHED).glob("*.json"))]
    names.remove("kimi-k2")  # whose code is not in transformers
    configs = [published(name) for name in names]
    jobs = [{"config": config.get("text_config", config)} for config in configs]
    for name, config, answer in zip(
        names, configs, ask("transformers_driver.py", "venv", jobs), strict=True
    ):
        assert counted(config) == answer.get("parameters"), (name, answer)
