"""Rules of pipeline schedules: how many chunks, stages and micro-batches each needs."""

from __future__ import annotations

import numpy as np

from planner.frameworks.rule import DUALPIPE, TORCH, Rule, divides, runs
from planner.layouts.keys import SCHEDULES, V_SHAPED, WITHOUT_VIRTUAL_STAGES
from planner.layouts.numeric import Boolean, Integer
from planner.problem.software import Software


def chunks_allowed(schedule_index: Integer, chunks: Integer) -> Boolean:
    """Whether a rank of a schedule may have so many chunks: one, two of a V, several."""
    least, most = np.array([_chunks(name) for name in SCHEDULES]).T
    allowed: Boolean = (least[schedule_index] <= chunks) & (chunks <= most[schedule_index])
    return allowed


def _chunks(schedule: str) -> tuple[int, int]:
    if schedule in V_SHAPED:
        return 2, 2
    return (2, MAX_CHUNKS) if schedule in WITHOUT_VIRTUAL_STAGES else (1, 1)


MAX_CHUNKS = 1 << 30
"""More than any model has layers."""

SCHEDULE_RULES = (
    Rule(
        "schedule-chunks",
        "a rank has one chunk under 1f1b, zb-h1 and dualpipe, two under zb-v and dualpipev, "
        "several under interleaved and interleaved-zb",
        TORCH + "; " + DUALPIPE,
        ("vp", "schedule"),
        lambda ctx, x: chunks_allowed(x.schedule_index, np.asarray(x.vp)),
    ),
    Rule(
        "schedule-needs-pp",
        "schedules other than 1f1b need pp > 1",
        "definition",
        ("pp", "schedule"),
        lambda ctx, x: runs(x, "1f1b") | (np.asarray(x.pp) > 1),
    ),
    Rule(
        "dualpipe-even-stages",
        "dualpipe needs an even number of stages",
        DUALPIPE,
        ("pp", "schedule"),
        lambda ctx, x: ~runs(x, "dualpipe") | divides(2, np.asarray(x.pp)),
    ),
    Rule(
        "dualpipe-microbatches",
        "dualpipe and dualpipev need at least 2·pp micro-batches, dualpipe an even number",
        DUALPIPE,
        ("num_microbatches", "pp", "schedule"),
        lambda ctx, x: (
            ~runs(x, "dualpipe", "dualpipev")
            | (
                (x.num_microbatches >= 2 * np.asarray(x.pp))
                & (divides(2, x.num_microbatches) | ~runs(x, "dualpipe"))
            )
        ),
    ),
    Rule(
        "zb-v-microbatches",
        "zb-v fills its ranks with at least 2·pp − 1 micro-batches",
        TORCH,
        ("num_microbatches", "pp", "schedule"),
        lambda ctx, x: ~runs(x, "zb-v") | (x.num_microbatches >= 2 * np.asarray(x.pp) - 1),
    ),
)
"""Rules of software with other schedules than 1F1B and interleaved, which virtual stages tell
apart."""


MANY = 0
"""Key of the schedules of any number of chunks above one."""


def schedules_by_chunks(software: Software) -> dict[int, list[int]]:
    """Positions in SCHEDULES of what a rank of one, of two and of many chunks can run; where the
    software has none, of 1F1B or interleaved, which a rule then forbids."""
    able = [SCHEDULES.index(name) for name in software.schedules]
    plain, several = SCHEDULES.index("1f1b"), SCHEDULES.index("interleaved")

    def known(chunks: int) -> list[int]:
        return [code for code in able if chunks_allowed(code, chunks)]

    return {1: known(1) or [plain], 2: known(2) or [several], MANY: known(3) or [several]}
