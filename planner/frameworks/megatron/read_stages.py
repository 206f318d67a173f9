"""How Megatron's arguments split layers over stages and virtual stages."""

from __future__ import annotations

import re
from collections.abc import Sequence

from planner.frameworks.launch import Launch, Understood

SOURCE = "megatron-core 0.19.2 arguments.py; NVIDIA/Megatron-LM#1304"
LAYOUT = "--pipeline-model-parallel-layout"
PER_CHUNK = "--num-layers-per-virtual-pipeline-stage"
CHUNKS = "--num-virtual-stages-per-pipeline-rank"
FIRST = "--decoder-first-pipeline-num-layers"
LAST = "--decoder-last-pipeline-num-layers"
EMBEDDING = "--account-for-embedding-in-pipeline-split"
LOSS = "--account-for-loss-in-pipeline-split"

MOST_CHUNKS = 65536


def read_stages(launch: Launch, num_layers: int, pp: int, found: Understood) -> None:
    """vp and stage_layers, as Megatron derives them; refusals where it does."""
    given = [name for name in (LAYOUT, PER_CHUNK, CHUNKS) if launch.has(name)]
    ends = [name for name in (FIRST, LAST, EMBEDDING, LOSS) if launch.has(name)]
    if LAYOUT in given or (PER_CHUNK in given and {FIRST, LAST} & set(ends)):
        given += ends
    if len(given) > 1:
        found.refuse(
            "one-pipeline-split",
            SOURCE,
            " and ".join(given),
            "these exclude each other",
            tuple(f"{name} alone" for name in given),
        )
    elif given and given[0] == LAYOUT:
        _written(launch, num_layers, pp, found)
    else:
        _counted(launch, num_layers, pp, found)


def _written(launch: Launch, num_layers: int, pp: int, found: Understood) -> None:
    text = launch.text(LAYOUT)
    chunks = pipeline_chunks(text)
    if chunks is None:
        found.refuse("pipeline-layout", SOURCE, f"{LAYOUT} {text}",
                     "a layout has E, t, m, L, |, and (…)*n or x*n for repeats")  # fmt: skip
        return
    layers = [chunk.count("t") for chunk in chunks]
    if len(chunks) % pp:
        found.refuse("pipeline-layout", SOURCE, f"{LAYOUT} of {len(chunks)} chunks, pp={pp}",
                     "the chunks of the layout are a multiple of pp",
                     _near(pp, len(chunks)))  # fmt: skip
        return
    vp = len(chunks) // pp
    found.say(launch, "vp", vp, LAYOUT)
    if sum(layers) != num_layers:
        found.refuse("stage-layers", SOURCE, f"{LAYOUT} of {sum(layers)} layers",
                     f"the layout holds the model's {num_layers} layers")  # fmt: skip
        return
    if pp > 1:
        even = all(len(set(layers[i::pp])) == 1 for i in range(pp))
        stages = [sum(layers[i::pp]) for i in range(pp)]
        found.say(launch, "stage_layers", stages if even else layers, LAYOUT)


def _near(pp: int, chunks: int) -> tuple[str, ...]:
    fits = [v for v in range(1, chunks + 1) if chunks % v == 0]
    below = [v for v in fits if v < pp][-1:]
    return tuple(f"pp={v}" for v in below + [v for v in fits if v > pp][:1])


def pipeline_chunks(text: str) -> list[str] | None:
    """Chunks of a layout text: 'Et*2|(t*3|)*2L' → ['Ett', 'ttt', 'ttt', 'L']; None: not one."""
    bare = text.replace(" ", "").replace(",", "")
    for _ in range(64):  # repeats of groups, innermost first; a chunk's letters stay
        group = re.search(r"\(([EtmL|]*(?:[EtmL]\*\d{1,4}[EtmL|]*)*)\)\*(\d{1,4})", bare)
        if group is None:
            break
        bare = bare[: group.start()] + group[1] * int(group[2]) + bare[group.end() :]
        if len(bare) > MOST_CHUNKS:
            return None
    bare = re.sub(r"([EtmL])\*(\d{1,4})", lambda repeat: repeat[1] * int(repeat[2]), bare)
    if not re.fullmatch(r"[EtmL|]+", bare) or len(bare) > MOST_CHUNKS:
        return None
    return bare.split("|")


def _counted(launch: Launch, num_layers: int, pp: int, found: Understood) -> None:
    """Even splits, first and last counts, embedding and loss that count as layers."""
    first, last = launch.whole(FIRST), launch.whole(LAST)
    ends = (launch.on(EMBEDDING), launch.on(LOSS))
    counted = num_layers + sum(ends)
    split: Sequence[int] = ()
    if first is not None or last is not None:
        between = pp - (first is not None) - (last is not None)
        rest = num_layers - (first or 0) - (last or 0)
        if pp == 1 or rest < between or (rest % between if between else rest):
            found.refuse(
                "stage-layers", SOURCE, f"{FIRST} {first}, {LAST} {last}, pp={pp}",
                f"the other stages share the rest of the {num_layers} layers evenly",
            )  # fmt: skip
            return
        head, tail = ([first] if first else []), ([last] if last else [])
        split = [*head, *([rest // between] * between if between else []), *tail]
    elif counted % pp:
        found.refuse("stages-even", SOURCE, f"num_layers={num_layers}, pp={pp}",
                     "without a layout the layers are a multiple of pp",
                     (*_near(pp, counted), f"{LAYOUT} {_even(num_layers, pp)}"))  # fmt: skip
        return
    elif pp > 1:
        split = [counted // pp] * pp
        split[0] -= ends[0]
        split[-1] -= ends[1]
    vp = launch.whole(CHUNKS, 1) or 1
    per_chunk = launch.whole(PER_CHUNK)
    if per_chunk is not None:
        if counted // pp % per_chunk:
            found.refuse(
                "stages-even",
                SOURCE,
                f"{PER_CHUNK} {per_chunk}",
                f"a stage's {counted // pp} layers are a multiple of it",
                tuple(f"{PER_CHUNK} {value}" for value in _divisors(counted // pp)),
            )
            return  # fmt: skip
        vp = counted // pp // per_chunk
    elif not (first or last) and counted // pp % vp:
        found.refuse(
            "stages-even",
            SOURCE,
            f"{CHUNKS} {vp}",
            f"a stage's {counted // pp} layers are a multiple of it",
            tuple(f"{CHUNKS} {value}" for value in _divisors(counted // pp)),
        )
        return  # fmt: skip
    found.say(launch, "vp", vp, PER_CHUNK, CHUNKS)
    if split:
        found.say(launch, "stage_layers", [int(layers) for layers in split],
                  FIRST, LAST, EMBEDDING, LOSS)  # fmt: skip


def _divisors(number: int) -> list[int]:
    return [value for value in range(1, number + 1) if number % value == 0][:8]


def _even(num_layers: int, pp: int) -> str:
    """A layout with the remainder in the middle: 'Et*7|t*8|t*8|t*7L'."""
    if num_layers < pp:
        return ""
    layers, more = divmod(num_layers, pp)
    start = (pp - more) // 2
    stages = [f"t*{layers + (start <= i < start + more)}" for i in range(pp)]
    return f"E{'|'.join(stages)}L"
