"""Launch scripts of others: recognised, read, and put in the planner's words, by framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from planner.errors import IllegalLayoutError, InputError, UnknownNameError, nearest_of
from planner.frameworks.accelerate import interpret_accelerate
from planner.frameworks.arguments import (
    read_json_settings,
    read_shell_settings,
    read_toml_settings,
    read_yaml_settings,
)
from planner.frameworks.deepspeed import interpret_deepspeed
from planner.frameworks.job import Job, Refusal, reasons_of
from planner.frameworks.megatron.read import interpret_megatron
from planner.frameworks.megatron.rules import CORE_REFUSALS
from planner.frameworks.script import Interpretation, LaunchScript
from planner.frameworks.target import target
from planner.frameworks.torchtitan.read import interpret_torchtitan
from planner.inputs.text import MAX_DOCUMENT_BYTES
from planner.problem.scenario import Scenario

INTERPRETERS: Mapping[str, Callable[[LaunchScript, Scenario], Interpretation]] = {
    "megatron": interpret_megatron,
    "torchtitan": interpret_torchtitan,
    "torchtitan-toml": interpret_torchtitan,
    "deepspeed": interpret_deepspeed,
    "accelerate": interpret_accelerate,
}
"""Targets whose files are read back, and what puts their settings in the planner's words."""

RUNTIME_REFUSALS: Mapping[str, tuple[str, tuple[Refusal, ...]]] = {
    "megatron": ("megatron-core", CORE_REFUSALS),
}
"""What a target does not run though no rule of layouts forbids it, and the id it is cited by."""


def read_launch_script(
    text: str,
    path: str = "SCRIPT",
    target_name: str | None = None,
    variables: Mapping[str, str] | None = None,
) -> LaunchScript:
    """The settings of a script, with their lines; the script is read, never run.

    target_name: of INTERPRETERS; without it the content tells. variables: values of shell variables
    from outside.

    Raises:
        UnknownNameError: no such target is read.
        InputError: not readable, nothing in it is known, or it starts different jobs.
    """
    if len(text) > MAX_DOCUMENT_BYTES:
        raise InputError(
            "is too long", path=path, allowed=f"at most {MAX_DOCUMENT_BYTES} characters"
        )
    if target_name is not None and target_name not in INTERPRETERS:
        raise UnknownNameError(
            f"scripts of '{target_name}' are not read", key="--target", value=target_name,
            allowed=", ".join(INTERPRETERS), nearest=nearest_of(target_name, INTERPRETERS),
        )  # fmt: skip
    text = text.removeprefix("\ufeff")  # editors on Windows put a byte-order mark first
    # each reader tells by the content whether the text is its own; what is none is a shell script
    for read in (read_json_settings, read_toml_settings, read_yaml_settings):
        script = read(text, path, target_name)
        if script is not None:
            return script
    return read_shell_settings(text, path, target_name, variables or {})


def interpret(script: LaunchScript, scenario: Scenario) -> Interpretation:
    """What the settings mean on as many accelerators as the scenario has.

    Raises:
        InputError: a value is of the wrong kind.
    """
    return INTERPRETERS[script.target](script, scenario)


def runtime_refusals(target_name: str, job: Job) -> list[IllegalLayoutError]:
    """What a target refuses to run of a job whose layout keeps all rules."""
    if target_name not in RUNTIME_REFUSALS:
        return []
    rule, refusals = RUNTIME_REFUSALS[target_name]
    source, label = target(target_name).version, job.layout.label()
    return [IllegalLayoutError(rule, source, label, text) for text in reasons_of(refusals, job)]
