"""The keys of a layout, one row each: what is read, searched, restricted, shown and exported.

Everything that is the same for all keys reads this table: `--layout` and layout tables, the
`search:` section of a scenario and its JSON Schema, the choices that the search tries beyond the
degrees, plan files, labels and reports, what a launch target must be able to express, and the
reference in the docs. What a key costs is in `planner.cost`, what forbids a value in
`planner.search.rules`, and what a framework calls it in that framework's table of settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, get_args

from planner.errors import InputError, nearest_of
from planner.inputs.text import counted_runs, natural_number

Recompute = Literal[
    "none", "selective", "operators", "alternate", "full", "mla_up_proj", "act", "act_norm", "moe"
]
"""What is recomputed in the backward pass: nothing; the attention core; every operator but half of
the matmul outputs (torchtitan's per-operator checkpointing); every second layer; every layer; and,
by module: latent attention's up-projections, activation functions, these and the norms, routed
experts with dispatch and combine."""

ContextParallelKind = Literal["ring", "all_gather", "a2a", "hierarchical"]
"""How context-parallel ranks share attention: keys and values sent from rank to rank behind it; or
all-gathered before it; heads traded for tokens by all-to-all (Ulysses); all-to-all among `cp_a2a`
neighbouring ranks and a ring over those groups (Megatron's a2a+p2p)."""

Dispatcher = Literal["alltoall", "flex", "allgather"]
"""How tokens travel to experts: a copy for every expert chosen (NCCL's all-to-all); one copy to a
domain and one to a rank, however many of its experts are chosen (DeepEP, HybridEP); all tokens to
all ranks."""

Offload = Literal["none", "optimizer", "activations", "optimizer+activations"]
"""What lives in the host's memory: optimizer states, which its processors step; what layers keep
for their backward pass, all but two layers'."""

Schedule = Literal[
    "1f1b", "interleaved", "zb-h1", "interleaved-zb", "zb-v", "dualpipe", "dualpipev"
]
"""Pipeline schedules; `planner.layouts.schedules` simulates them. With virtual stages 1f1b is
interleaved and zb-h1 is interleaved-zb."""

Overlap = Literal["tp", "dp", "pp", "ep"]
"""Axes whose communication can run beside computation."""

RECOMPUTE: tuple[Recompute, ...] = get_args(Recompute)
CP_KINDS: tuple[ContextParallelKind, ...] = get_args(ContextParallelKind)
DISPATCHERS: tuple[Dispatcher, ...] = get_args(Dispatcher)
OFFLOADS: tuple[Offload, ...] = get_args(Offload)
SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)
OVERLAPS: tuple[Overlap, ...] = get_args(Overlap)

WITH_VIRTUAL_STAGES: Mapping[str, str] = {"1f1b": "interleaved", "zb-h1": "interleaved-zb"}
WITHOUT_VIRTUAL_STAGES = {name: plain for plain, name in WITH_VIRTUAL_STAGES.items()}

V_SHAPED = ("zb-v", "dualpipev")
"""Schedules of two chunks a rank, the second on the way back: the last rank turns, and the first
holds the first and the last chunk."""

MAX_NUMBER = 10**9
"""The largest number that is read: greater ones are slips."""


class Form(Enum):
    """How the value of a key is written."""

    DEGREE = "an integer >= 1"
    COUNT = "an integer >= 0"
    FLAG = "true or false"
    CHOICE = "one of its names"
    AXES = "none, or axes joined by +"
    LAYERS = "layers per stage (or chunk) joined by +"


class Choice(Enum):
    """What the search does with a key for which `search:` lists no values.

    SEARCHED: it searches all legal values, or the key follows from others. DEFAULT: it takes the
    default. GIVEN: `search:` cannot list values; `search.stages` says whether splits are searched.
    """

    SEARCHED = "searched"
    DEFAULT = "default"
    GIVEN = "stages"


Document = Mapping[str, Any]
"""A layout as JSON values: key → value."""


def _always(layout: Document) -> bool:
    return True


def _never(layout: Document) -> bool:
    return False


def _nothing(layout: Document) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class LayoutKey:
    """One key of a layout.

    meaning: what it says, in one clause. values: those of a choice, in the order of their codes in
    tables. most: the largest number there is. derived: it follows from other keys, and may be given
    if it agrees. null_unless: where its value means nothing, plan files have null. expressed: where
    a launch target must have a word for its value. phrase: what a report says of it; empty for
    nothing. usually: what `--layout` takes where it is not given, if that is not the default.
    """

    name: str
    form: Form
    default: Any
    meaning: str
    values: tuple[str, ...] = ()
    choice: Choice = Choice.SEARCHED
    most: int | None = None
    derived: bool = False
    null_unless: Callable[[Document], bool] = _always
    expressed: Callable[[Document], bool] = _never
    phrase: Callable[[Document], str] = _nothing
    usually: str = ""

    @property
    def column(self) -> str:
        """The name of its integer column in a table of layouts."""
        return f"{self.name}_index" if self.form is Form.CHOICE else self.name

    @property
    def restricted(self) -> bool:
        """Whether `search:` may list values of it."""
        return self.choice is not Choice.GIVEN

    @property
    def allowed(self) -> str:
        """What may be written, in words."""
        if self.form is Form.CHOICE:
            return ", ".join(self.values)
        if self.form is Form.AXES:
            return f"none, or some of {', '.join(OVERLAPS)} joined by +"
        if self.form is Form.LAYERS:
            return "layers per stage (or chunk) joined by +, such as 10+11+11+10"
        return str(self.form.value) + ("" if self.most is None else f" and <= {self.most}")

    @property
    def without(self) -> str:
        """What `--layout` takes where the key is not given, in words."""
        return self.usually or f"default {str(self.default).lower()}"

    def code(self, value: Any) -> int:
        """The integer that stands for a value in a table of layouts."""
        return self.values.index(value) if self.form is Form.CHOICE else int(value)

    def value_of(self, code: int) -> Any:
        """The value that such an integer stands for."""
        if self.form is Form.CHOICE:
            return self.values[code]
        return bool(code) if self.form is Form.FLAG else code

    def parse(self, value: Any, path: str = "--layout") -> Any:
        """A value as a layout holds it, from text or from JSON.

        Raises:
            InputError: it is not of the key's form.
        """
        try:
            return _PARSERS[self.form](self, value)
        except ValueError:
            text = str(value).strip()
            raise InputError(
                f"{value!s} is none of its values", path=path, key=self.name, value=value,
                allowed=self.allowed,
                nearest=nearest_of(text, self.values) if self.values else None,
            ) from None  # fmt: skip


def _number(key: LayoutKey, value: Any) -> int:
    number = natural_number(str(value).strip())
    least = 1 if key.form is Form.DEGREE else 0
    if number is None or not least <= number <= (key.most or MAX_NUMBER):
        raise ValueError
    return number


def _flag(key: LayoutKey, value: Any) -> bool:
    text = str(value).strip().lower()
    if text not in ("true", "false", "1", "0"):
        raise ValueError
    return text in ("true", "1")


def _choice(key: LayoutKey, value: Any) -> str:
    text = str(value).strip()
    if text not in key.values:
        raise ValueError
    return text


def _axes(key: LayoutKey, value: Any) -> str:
    return axes_text(str(value).strip())


def _layers(key: LayoutKey, value: Any) -> tuple[int, ...]:
    parts = value if isinstance(value, list | tuple) else str(value).replace(" ", "").split("+")
    layers = [natural_number(str(part)) for part in parts]
    if None in layers:
        raise ValueError
    return tuple(number for number in layers if number is not None)


_PARSERS: Mapping[Form, Callable[[LayoutKey, Any], Any]] = {
    Form.DEGREE: _number,
    Form.COUNT: _number,
    Form.FLAG: _flag,
    Form.CHOICE: _choice,
    Form.AXES: _axes,
    Form.LAYERS: _layers,
}


def axes_text(text: str) -> str:
    """Axes joined by +, in their usual order, or none.

    Raises:
        ValueError: an axis that cannot overlap.
    """
    names = [] if text == "none" else text.split("+")
    if not set(names) <= set(OVERLAPS):
        raise ValueError(text)
    return "+".join(name for name in OVERLAPS if name in names) or "none"


# --- what reports say -----------------------------------------------------------------------------

SCHEDULE_WORDS: Mapping[str, str] = {
    "1f1b": "1F1B",
    "interleaved": "interleaved 1F1B",
    "zb-h1": "zero-bubble H1",
    "interleaved-zb": "interleaved zero-bubble",
    "zb-v": "zero-bubble V",
    "dualpipe": "DualPipe, two stages a rank",
    "dualpipev": "DualPipeV",
}


def _microbatches(d: Document) -> str:
    number = d["num_microbatches"]
    return f"{number} micro-batch{'es' if number > 1 else ''} of {d['mbs']}"


def _zero(d: Document) -> str:
    states = d["dp_shard"] * d["cp"]
    return f"ZeRO-{d['zero_stage']}" + (f" over {states}" if d["zero_stage"] else "")


def recompute_in_words(d: Document) -> str:
    """What is recomputed: 'full recompute of the first 3 layers of a stage'."""
    if d["recompute"] == "none":
        return "no recompute"
    layers = d.get("recompute_layers")
    if not layers:
        return f"{d['recompute']} recompute"
    first = "the first layer" if layers == 1 else f"the first {layers} layers"
    return f"{d['recompute']} recompute of {first} of a {'chunk' if d['vp'] > 1 else 'stage'}"


def _offload(d: Document) -> str:
    where = d.get("offload", "none")
    return "" if where == "none" else f"{where.replace('+', ' and ')} on host"


def _loss_chunks(d: Document) -> str:
    chunks = d.get("loss_chunks") or 1
    return "" if chunks == 1 else f"loss in {chunks} chunks"


def _overlap(d: Document) -> str:
    if d["overlap"] == "none":
        return "no overlap"
    return f"overlap of {d['overlap'].replace('+', ', ')}"


def _stage_split(d: Document) -> str:
    split: Sequence[int] = d.get("stage_layers") or []
    if len(set(split)) <= 1:
        return ""
    return f"layers by {'stage' if len(split) == d['pp'] else 'chunk'} {counted_runs(split)}"


# --- the table ------------------------------------------------------------------------------------

DEGREE, COUNT, FLAG, CHOICE = Form.DEGREE, Form.COUNT, Form.FLAG, Form.CHOICE

_ROWS = (
    LayoutKey("tp", DEGREE, 1, "tensor parallelism"),
    LayoutKey("cp", DEGREE, 1, "context parallelism"),
    LayoutKey("pp", DEGREE, 1, "pipeline parallelism"),
    LayoutKey("ep", DEGREE, 1, "expert parallelism"),
    LayoutKey("etp", DEGREE, 1, "tensor parallelism of experts"),
    LayoutKey(
        "edp", DEGREE, 1, "data parallelism of experts, tp·cp·dp / (etp·ep)",
        derived=True, usually="follows from the others",
    ),
    LayoutKey(
        "dp", DEGREE, 1, "data parallelism, dp_shard·dp_replicate",
        derived=True, usually="follows from the others",
    ),
    LayoutKey(
        "dp_shard", DEGREE, 1, "data-parallel ranks that shard states",
        usually="the accelerators that are left",
    ),
    LayoutKey("dp_replicate", DEGREE, 1, "copies of the sharded states", usually="dp / dp_shard"),
    LayoutKey(
        "vp", DEGREE, 1, "virtual stages (chunks) of each pipeline stage",
        usually="default 1, and 2 with zb-v and dualpipev",
    ),
    LayoutKey("mbs", DEGREE, 1, "sequences in a micro-batch"),
    LayoutKey(
        "num_microbatches", DEGREE, 1, "micro-batches a step",
        usually="follows from the batch", phrase=_microbatches,
    ),
    LayoutKey(
        "schedule", CHOICE, "1f1b", "the pipeline's order of passes", SCHEDULES,
        phrase=lambda d: SCHEDULE_WORDS[d["schedule"]] if d["pp"] > 1 else "",
    ),
    LayoutKey(
        "zero_stage", COUNT, 1,
        "what is sharded: 1 optimizer states, 2 and gradients, 3 and parameters",
        most=3, expressed=_always, phrase=_zero,
        usually="default 1, or the highest of software without it",
    ),
    LayoutKey(
        "recompute", CHOICE, "none", "what is recomputed in the backward pass", RECOMPUTE,
        expressed=_always, phrase=recompute_in_words,
    ),
    LayoutKey(
        "recompute_layers", COUNT, 0, "of every chunk recompute only the first n layers; all if 0",
        null_unless=lambda d: d["recompute"] == "full",
        expressed=lambda d: bool(d["recompute_layers"]),
    ),
    LayoutKey(
        "sp", FLAG, False, "sequence parallelism: norms and residuals sharded over tp",
        expressed=lambda d: d["tp"] > 1, usually="on with tp where the software always has it",
    ),
    LayoutKey(
        "cp_kind", CHOICE, "ring", "how context-parallel ranks share attention", CP_KINDS,
        expressed=lambda d: d["cp"] > 1, usually="the software's first",
    ),
    LayoutKey(
        "cp_a2a", DEGREE, 1, "inner degree of hierarchical context parallelism",
        null_unless=lambda d: d["cp_kind"] == "hierarchical",
        usually="the largest that heads allow",
    ),
    LayoutKey(
        "dispatcher", CHOICE, "alltoall", "how tokens travel to experts", DISPATCHERS,
        null_unless=lambda d: d["etp"] * d["ep"] > 1,
        expressed=lambda d: d["ep"] > 1, usually="the software's first that runs there",
    ),
    LayoutKey(
        "offload", CHOICE, "none", "what lives in the host's memory", OFFLOADS, Choice.DEFAULT,
        expressed=lambda d: d["offload"] != "none", phrase=_offload,
    ),
    LayoutKey(
        "loss_chunks", DEGREE, 1, "chunks of the sequence that pass LM head and loss in turn",
        choice=Choice.DEFAULT,
        expressed=lambda d: d["loss_chunks"] > 1, phrase=_loss_chunks,
    ),
    LayoutKey(
        "overlap", Form.AXES, "none", "axes whose communication runs beside computation",
        phrase=_overlap, usually="what the software overlaps",
    ),
    LayoutKey(
        "stage_layers", Form.LAYERS, None, "layers of each stage or chunk, where they are uneven",
        choice=Choice.GIVEN, phrase=_stage_split, usually="an even split",
    ),
)  # fmt: skip

KEYS: Mapping[str, LayoutKey] = {row.name: row for row in _ROWS}
"""Name → row, in the order of plan files."""


def layout_key(name: str, path: str = "--layout", value: Any = None) -> LayoutKey:
    """The row of a key.

    Raises:
        InputError: there is no such key.
    """
    if name not in KEYS:
        raise InputError(
            "no such layout key", path=path, key=name, value=value,
            allowed=", ".join(KEYS), nearest=nearest_of(name, KEYS),
        )  # fmt: skip
    return KEYS[name]
