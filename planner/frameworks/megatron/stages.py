"""How Megatron's arguments split layers over stages and virtual stages, written and read.

A split is a count of layers a chunk, counts for the first and last stage, or a layout text: E
embedding, t layer, m prediction layer, L loss, | between chunks, as in 'Et*7|t*8|t*7mL'.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

from planner.frameworks.job import Job
from planner.frameworks.megatron import rules
from planner.frameworks.megatron.flags import (
    CHUNKS_PER_STAGE,
    EMBEDDING_COUNTS,
    FIRST_STAGE,
    LAST_STAGE,
    LAYERS_PER_CHUNK,
    LOSS_COUNTS,
    STAGE_LAYOUT,
)
from planner.frameworks.script import Interpretation
from planner.frameworks.target import Settings

MAX_LETTERS = 65536
"""Of a layout text with its repeats written out; longer ones are not read."""


# ---------------------------------------------------------------- writing


def stage_settings(job: Job) -> Settings:
    """How a job's layers are split over stages; nothing for an even 1F1B pipeline."""
    text = job_layout_text(job)
    if text is not None:
        return {STAGE_LAYOUT: text}
    chunks = job.chunk_layers()
    assert chunks is not None
    return {LAYERS_PER_CHUNK: chunks[0]} if job.layout.vp > 1 else {}


def job_layout_text(job: Job) -> str | None:
    """The layout text of a job; None where all chunks have equally many layers of one kind."""
    chunks, predictions = job.chunk_layers(), job.scenario.model.mtp_layers
    assert chunks is not None
    uneven = len(set(chunks)) > 1 or predictions > 0
    return layout_text(chunks, predictions) if uneven else None


def layout_text(chunks: Sequence[int], predictions: int = 0) -> str:
    """Layers of every chunk as a layout text, repeats of chunks and layers written short."""
    texts = [f"t*{layers}" if layers > 1 else "t" * layers for layers in chunks]
    # the first and the last chunk hold embedding and loss, so that they repeat with no other
    middle = [(text, len(list(same))) for text, same in groupby(texts[1:-1])]
    repeated = (f"({text}|)*{n}" if n > 2 else f"{text}|" * n for text, n in middle)
    return f"E{texts[0]}|{''.join(repeated)}{texts[-1]}{'m' * predictions}L"


def _even_layout_text(num_layers: int, pp: int) -> str:
    """A layout text with the remainder in the middle: 'Et*7|t*8|t*8|t*7L'."""
    if num_layers < pp:
        return ""
    layers, more = divmod(num_layers, pp)
    start = (pp - more) // 2
    stages = [f"t*{layers + (start <= i < start + more)}" for i in range(pp)]
    return f"E{'|'.join(stages)}L"


# ---------------------------------------------------------------- reading


def read_stages(result: Interpretation, num_layers: int, pp: int) -> None:
    """State vp and stage_layers as Megatron derives them; refuse what it refuses."""
    script = result.script
    given = [
        name for name in (STAGE_LAYOUT, LAYERS_PER_CHUNK, CHUNKS_PER_STAGE) if script.has(name)
    ]
    ends = [n for n in (FIRST_STAGE, LAST_STAGE, EMBEDDING_COUNTS, LOSS_COUNTS) if script.has(n)]
    # a layout says all; layers a chunk exclude stages of their own size, which a count allows
    if STAGE_LAYOUT in given or (
        LAYERS_PER_CHUNK in given and {FIRST_STAGE, LAST_STAGE} & set(ends)
    ):
        given += ends
    if len(given) > 1:
        result.refuse(
            rules.ONE_STAGE_SPLIT, " and ".join(given), [f"{name} alone" for name in given]
        )
    elif given and given[0] == STAGE_LAYOUT:
        _read_layout_text(result, num_layers, pp)
    else:
        _read_counts(result, num_layers, pp)


def _read_layout_text(result: Interpretation, num_layers: int, pp: int) -> None:
    text = result.script.text(STAGE_LAYOUT)
    chunks = layout_chunks(text)
    if chunks is None:
        result.refuse(rules.STAGE_LAYOUT_TEXT, f"{STAGE_LAYOUT} {text}")
        return
    layers = [chunk.count("t") for chunk in chunks]
    if len(chunks) % pp:
        value = f"{STAGE_LAYOUT} of {len(chunks)} chunks, pp={pp}"
        result.refuse(rules.STAGE_LAYOUT_CHUNKS, value, _nearest_pp(pp, len(chunks)))
        return
    result.state("vp", len(chunks) // pp, STAGE_LAYOUT)
    if sum(layers) != num_layers:
        value = f"{STAGE_LAYOUT} of {sum(layers)} layers"
        result.refuse(rules.STAGE_LAYOUT_LAYERS, value, num_layers=num_layers)
        return
    if pp > 1:
        # chunks i, i+pp, i+2·pp, … are stage i's; where they are alike the stage's sum is enough
        alike = all(len(set(layers[i::pp])) == 1 for i in range(pp))
        stages = [sum(layers[i::pp]) for i in range(pp)]
        result.state("stage_layers", stages if alike else layers, STAGE_LAYOUT)


def layout_chunks(text: str) -> list[str] | None:
    """Chunks of a layout text: 'Et*2|(t*3|)*2L' → ['Ett', 'ttt', 'ttt', 'L']; None: not one."""
    bare = text.replace(" ", "").replace(",", "")
    for _ in range(64):  # repeats of groups, innermost first; a chunk's letters stay
        group = re.search(r"\(([EtmL|]*(?:[EtmL]\*\d{1,4}[EtmL|]*)*)\)\*(\d{1,4})", bare)
        if group is None:
            break
        bare = bare[: group.start()] + group[1] * int(group[2]) + bare[group.end() :]
        if len(bare) > MAX_LETTERS:
            return None
    bare = re.sub(r"([EtmL])\*(\d{1,4})", lambda repeat: repeat[1] * int(repeat[2]), bare)
    if not re.fullmatch(r"[EtmL|]+", bare) or len(bare) > MAX_LETTERS:
        return None
    return bare.split("|")


def _read_counts(result: Interpretation, num_layers: int, pp: int) -> None:
    """Read even splits, counts of the first and last stage, embedding and loss as layers."""
    script = result.script
    first, last = script.integer(FIRST_STAGE), script.integer(LAST_STAGE)
    ends_given = first is not None or last is not None
    # embedding and loss, where they count, take the place of a layer each
    counted = num_layers + script.is_on(EMBEDDING_COUNTS) + script.is_on(LOSS_COUNTS)
    if ends_given:
        split = _split_beside_ends(num_layers, pp, first, last)
        if split is None:
            value = f"{FIRST_STAGE} {first}, {LAST_STAGE} {last}, pp={pp}"
            result.refuse(rules.END_STAGES_LEAVE_EVEN, value, num_layers=num_layers)
            return
    elif counted % pp:
        nearest = [*_nearest_pp(pp, counted), f"{STAGE_LAYOUT} {_even_layout_text(num_layers, pp)}"]
        result.refuse(rules.STAGES_EVEN, f"num_layers={num_layers}, pp={pp}", nearest)
        return
    else:
        split = [counted // pp] * pp if pp > 1 else []
        if split:
            split[0] -= script.is_on(EMBEDDING_COUNTS)
            split[-1] -= script.is_on(LOSS_COUNTS)
    vp = _read_vp(result, counted // pp, may_divide=not ends_given)
    if vp is None:
        return
    result.state("vp", vp, LAYERS_PER_CHUNK, CHUNKS_PER_STAGE)
    if split:
        result.state("stage_layers", split, FIRST_STAGE, LAST_STAGE, EMBEDDING_COUNTS, LOSS_COUNTS)


def _split_beside_ends(
    num_layers: int, pp: int, first: int | None, last: int | None
) -> list[int] | None:
    """Layers of every stage where the first or last has its own; None: the rest is not even."""
    between = pp - (first is not None) - (last is not None)
    rest = num_layers - (first or 0) - (last or 0)
    if pp == 1 or rest < between or (rest % between if between else rest):
        return None
    middle = [rest // between] * between if between else []
    return [*([first] if first else []), *middle, *([last] if last else [])]


def _read_vp(result: Interpretation, stage_layers: int, may_divide: bool) -> int | None:
    """Virtual stages of a rank; None where a stage's layers do not fall into them.

    may_divide: whether a count of virtual stages must divide the layers of a stage.
    """
    script = result.script
    vp, per_chunk = script.degree(CHUNKS_PER_STAGE), script.integer(LAYERS_PER_CHUNK)
    setting, number = (CHUNKS_PER_STAGE, vp) if per_chunk is None else (LAYERS_PER_CHUNK, per_chunk)
    if (per_chunk is not None or may_divide) and stage_layers % number:
        nearest = [f"{setting} {value}" for value in _divisors(stage_layers)]
        result.refuse(rules.CHUNKS_EVEN, f"{setting} {number}", nearest, stage_layers=stage_layers)
        return None
    return vp if per_chunk is None else stage_layers // per_chunk


def _nearest_pp(pp: int, chunks: int) -> list[str]:
    """The nearest smaller and greater pp that divides a number of chunks."""
    fits = [v for v in range(1, chunks + 1) if chunks % v == 0]
    below = [v for v in fits if v < pp][-1:]
    return [f"pp={v}" for v in below + [v for v in fits if v > pp][:1]]


def _divisors(number: int) -> list[int]:
    return [value for value in range(1, number + 1) if number % value == 0][:8]
