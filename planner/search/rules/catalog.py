"""All rules that hold for a scenario, in the order in which they are judged."""

from __future__ import annotations

from collections.abc import Iterable

from planner.cost.context import CostContext
from planner.frameworks.layout_rules import rules_named
from planner.frameworks.rule import Rule
from planner.problem.software import Software
from planner.search.rules.experts import EXPERT_OVERLAP_RULES, EXPERT_RULES
from planner.search.rules.model import PATTERN_RULES
from planner.search.rules.profile import profile_rules
from planner.search.rules.schedules import SCHEDULE_RULES
from planner.search.rules.structural import STRUCTURAL_RULES


def rules_for(ctx: CostContext) -> tuple[Rule, ...]:
    """All rules that hold for a scenario: of its software and of what its model has.

    Raises:
        InputError: the software profile names a rule there is not.
    """
    of_patterns = PATTERN_RULES if ctx.model.layer_pattern is not None else ()
    of_software = rules_of(ctx.software, ctx.model.moe is not None)
    return (*of_software, *EXPERT_OVERLAP_RULES, *of_patterns)


def rules_of(software: Software, experts: bool = False) -> tuple[Rule, ...]:
    """All rules that hold under a software profile, for models with experts or without.

    Raises:
        InputError: the profile names a rule there is not.
    """
    named = rules_named(software)
    of_schedules = () if software.only_1f1b else SCHEDULE_RULES
    of_experts = EXPERT_RULES if experts else ()
    return (*STRUCTURAL_RULES, *of_schedules, *of_experts, *profile_rules(software), *named)


def rule_sentences(rules: Iterable[Rule]) -> dict[str, str]:
    """Id → sentence."""
    return {rule.id: rule.sentence for rule in rules}
