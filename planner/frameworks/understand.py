"""A script's settings in the planner's words, whatever the framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from planner.frameworks.config_launch import understand_accelerate, understand_deepspeed
from planner.frameworks.launch import Launch, Understood
from planner.frameworks.megatron.read import understand_megatron
from planner.frameworks.torchtitan.read import understand_torchtitan
from planner.problem.scenario import Scenario

UNDERSTAND: Mapping[str, Callable[[Launch, Scenario], Understood]] = {
    "megatron": understand_megatron,
    "torchtitan": understand_torchtitan,
    "torchtitan-toml": understand_torchtitan,
    "deepspeed": understand_deepspeed,
    "accelerate": understand_accelerate,
}


def understand(launch: Launch, scenario: Scenario) -> Understood:
    """What the settings mean on as many accelerators as the scenario has.

    Raises:
        InputError: a value is of the wrong kind.
    """
    return UNDERSTAND[launch.target](launch, scenario)
