"""Layouts that break a rule: we refuse them all, also those that Megatron's own parser accepts."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

import planner
from planner.errors import IllegalLayoutError
from planner.frameworks.job import refusals
from planner.frameworks.megatron.write import megatron_settings
from planner.frameworks.target import target
from planner.frameworks.text import flag_lines
from planner.planning.export import launch_job
from planner.search.rules.legality import check
from tests.parsers.harness import ask, bash_words
from tests.parsers.plans import plan_of, scenario, table

CHOICES = (("llama3-8b", 32, 64, "bf16"), ("mixtral-8x7b", 32, 64, "bf16"))
CHANGES = {
    "tp": (3, 5, 6, 16, 64), "cp": (3, 5, 12), "pp": (3, 5, 64), "vp": (3, 5, 7, 20),
    "mbs": (3, 5, 7), "ep": (3, 5, 12, 16), "etp": (3, 5, 9), "sp": (True, False),
    "overlap": ("ep",), "dp_shard": (3, 7), "num_microbatches": (1, 3, 7), "zero_stage": (2, 3),
}  # fmt: skip


def illegal(count=120, seed=6):
    """(scenario, layout, rule broken): legal layouts of two models with one key changed."""
    draw, found = random.Random(seed), []
    while len(found) < count:
        given = CHOICES[len(found) % 2]
        ctx, rows = table(given, "megatron-core")
        key = draw.choice(list(CHANGES))
        layout = rows.row(draw.randrange(len(rows)))
        layout = replace(layout, **{key: draw.choice(CHANGES[key])})
        try:
            check(ctx, layout)
        except IllegalLayoutError as error:
            found.append((scenario(*given, "megatron-core"), layout, error.rule))
    return found


def test_every_one_is_refused_by_its_rule():
    found = illegal()
    for given, layout, rule in found:
        document = {k: v for k, v in layout.to_document().items() if k not in ("dp", "edp")}
        document["stage_layers"] = None
        with pytest.raises(IllegalLayoutError) as refused:
            planner.evaluate(given, document)
        assert refused.value.rule in (rule, "derived-keys-agree", "experts-need-moe")
    assert len(found) >= 50 and len({rule for *_, rule in found}) >= 10


LETS_THROUGH = {
    "batch-divides", "world-size",  # dp and micro-batches are no flags: it derives its own
    "chunks-have-layers", "sp-needs-tp", "vp-needs-pp",
    # their flag is written only where tokens travel to experts
    "ep-overlap-needs-ep", "ep-overlap-needs-virtual-stages",
}  # fmt: skip
"""Rules of ours that Megatron's parser and group construction do not enforce."""


@pytest.mark.parsers
def test_megatron_s_parser_lets_some_through_and_no_others():
    jobs, rules = [], []
    for given, layout, rule in illegal():
        job = launch_job(plan_of(given, layout, ("tp", "cp", "dp", "pp")))
        if refusals(job, target("megatron"), ("zero_stage",)):
            continue  # not even written
        settings = megatron_settings(job, "tp-cp-dp-pp")
        text = "\n".join(word for section in settings.values() for word in flag_lines(section))
        argv = bash_words(f"A=(\n{text}\n)", "A")
        jobs.append({"argv": argv, "world_size": given.num_accelerators, "ranks": [0]})
        rules.append(rule)
    answers = ask("megatron_driver.py", "megatron", jobs)
    passed = Counter(r for r, answer in zip(rules, answers, strict=True) if "error" not in answer)
    assert len(jobs) >= 50
    assert set(passed) <= LETS_THROUGH
    assert sum(passed.values()) >= 1


LET_THROUGH = {
    # changed flags on 32 ranks → the rule of ours that refuses it
    "sequence of 8190 with tp 4 and sp": (
        {"training.sequence_length": "8190"}, "tp=4,sp=true,mbs=1", "sp-divides-sequence",
    ),
    "ep 12 on 32": ({"model": "mixtral-8x7b"}, "tp=1,ep=12,mbs=1", "ep-divides-experts"),
    "fewer micro-batches than stages": (
        {"training.global_batch_size": "32"}, "pp=4,vp=2,mbs=2,dp=8", "interleaved-microbatches",
    ),
    "sp without tp": ({}, "sp=true,mbs=1", "sp-needs-tp"),
}  # fmt: skip


@pytest.mark.parametrize("case", LET_THROUGH)
def test_what_parsers_let_through_we_refuse(case):
    changes, layout, rule = LET_THROUGH[case]
    given = planner.load_scenario(
        "llama3-8b-h100x8",
        {"topology": "dgx-h100", "num_accelerators": "32", "training.global_batch_size": "64",
         **changes},
    )  # fmt: skip
    with pytest.raises(IllegalLayoutError) as refused:
        planner.evaluate(given, layout)
    assert refused.value.rule == rule
