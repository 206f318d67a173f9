"""The rules of frameworks on layouts, which software profiles switch on by id.

What holds under all software is in `planner.search.rules`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from planner.errors import InputError, nearest_of
from planner.frameworks import deepspeed
from planner.frameworks.megatron import rules as megatron
from planner.frameworks.rule import Rule
from planner.frameworks.torchtitan import rules as torchtitan
from planner.problem.software import Software

OTHERS = (
    Rule(
        "data-parallel-only",
        "the framework has no tensor, context or pipeline parallelism",
        "mosaicml/llm-foundry (FSDP)",
        ("tp", "cp", "pp"),
        lambda ctx, x: (np.asarray(x.tp) == 1) & (np.asarray(x.cp) == 1) & (np.asarray(x.pp) == 1),
    ),
)
"""Rules of frameworks whose launch files are neither written nor read."""

FRAMEWORK_RULES: Mapping[str, Rule] = {
    rule.id: rule
    for rules in (
        megatron.LAYOUT_RULES, torchtitan.LAYOUT_RULES, deepspeed.LAYOUT_RULES, OTHERS,
    )
    for rule in rules
}  # fmt: skip
"""Every such rule by its id."""


def rules_named(software: Software) -> tuple[Rule, ...]:
    """The rules that a profile names, in its order.

    Raises:
        InputError: it names a rule there is not.
    """
    for name in software.rules:
        if name not in FRAMEWORK_RULES:
            raise InputError(
                "no such rule",
                path=f"software profile {software.name}",
                key="rules",
                value=name,
                allowed=", ".join(FRAMEWORK_RULES),
                nearest=nearest_of(name, FRAMEWORK_RULES),
            )
    return tuple(FRAMEWORK_RULES[name] for name in software.rules)
