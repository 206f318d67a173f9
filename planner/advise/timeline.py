"""The pipeline of a plan, played out."""

from __future__ import annotations

from planner.advise.baseline import Baseline
from planner.cost.chunks import chunk_passes, pipeline_of, shortened
from planner.layouts.timeline import Timeline, play
from planner.planning.plan import Plan
from planner.problem.scenario import Scenario

ROUNDS = 6
"""Micro-batches played over a pipeline's chunks: its ends, and steady state between them."""


def timeline(scenario: Scenario, plan: Plan) -> Timeline:
    """When every rank of a plan's pipeline runs what, with no more micro-batches than its ends and
    some steady state need. Communication is part of passes as far as it is exposed.

    Raises:
        InputError: the plan holds no layout.
    """
    base = Baseline.of(scenario, plan)
    passes = chunk_passes(base.ctx, base.layout, base.splits)
    whole = pipeline_of(base.layout, base.layout.num_microbatches)
    return play(shortened(whole, ROUNDS), passes)
