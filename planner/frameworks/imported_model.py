"""A model read from a file of others: its count against the one stated, remarks, and its YAML."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from planner.errors import InputError
from planner.inputs.huggingface.config import Remark
from planner.inputs.quantities import Figure
from planner.inputs.values import Strict
from planner.problem.model import Model

CLOSE_FRACTION = 0.005
"""Up to here counts agree; shipped models must."""

WRONG_FRACTION = 0.02
"""From here on the file does not describe what the count is of, or was not understood."""

SUFFIXES = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "G": 10**9, "T": 10**12}

LAST_KEYS = ("published_parameters", "published_active_parameters", "source")
"""What a model file ends with."""


@dataclass(frozen=True, slots=True)
class Stated:
    """A number of parameters that somebody states, and who."""

    parameters: float
    source: str


@dataclass(frozen=True, slots=True)
class ImportedModel:
    """A model, and remarks on how it was read.

    form: what was read. notes: by subject, keys with a sentence. ignored: keys that change
    nothing, by why. text_only: whether a model of more than text was cut down to its text model.
    """

    model: Model
    path: str
    form: str
    notes: Mapping[str, tuple[Remark, ...]]
    ignored: Mapping[str, tuple[str, ...]]
    stated: Stated | None = None
    text_only: bool = False

    @property
    def unknown(self) -> tuple[Remark, ...]:
        """What was not understood."""
        return self.notes.get("unknown", ())

    @property
    def counted(self) -> int:
        """Parameters, with the prediction layers where the stated count is nearer to that."""
        return min(self._counts, key=lambda count: abs(count - self._expected))

    @property
    def with_prediction(self) -> bool:
        """Whether `counted` holds the prediction layers."""
        return self.counted != self.model.num_parameters

    @property
    def _expected(self) -> float:
        return self.stated.parameters if self.stated else self.model.num_parameters

    @property
    def _counts(self) -> tuple[int, int]:
        number = self.model.num_parameters
        return number, number + self.model.mtp_layers * self.model.num_prediction_parameters

    @property
    def difference_fraction(self) -> float | None:
        """By how much the count is above the stated one; None where nobody states one."""
        return None if self.stated is None else self.counted / self.stated.parameters - 1.0

    @property
    def agrees(self) -> bool:
        """Whether the count meets the stated one, or nobody states one."""
        return abs(self.difference_fraction or 0.0) <= CLOSE_FRACTION

    @property
    def is_wrong(self) -> bool:
        """Whether the count is so far off that something is wrong."""
        return abs(self.difference_fraction or 0.0) > WRONG_FRACTION

    @property
    def causes(self) -> tuple[str, ...]:
        """What could explain a difference; empty where there is none."""
        if self.agrees:
            return ()
        matching = tuple(
            text
            for text, count in self._other_counts()
            if abs(count / self._expected - 1.0) <= CLOSE_FRACTION
        )
        return matching or (
            "nothing simple explains it: look at the keys below that were not understood, "
            "vocab_size, tied_embeddings, biases and experts",
        )

    def _other_counts(self) -> Iterator[tuple[str, float]]:
        """What else could be counted, in words."""
        m = self.model
        head, table = m.vocab_size * m.hidden_size, m.num_embedding_parameters
        for count in set(self._counts):
            if m.tied_embeddings:
                yield (
                    "the stated count has a matrix of its own for the LM head (tied here)",
                    (count + head),
                )
            else:
                yield (
                    "the stated count has one matrix for embedding and LM head (two here)",
                    (count - head),
                )
            yield "the stated count leaves the embedding out", count - table
            tables = 1 if m.tied_embeddings else 2
            rows = (self._expected - count) / (tables * m.hidden_size)
            if rows == int(rows) and abs(rows) < m.vocab_size / 10:
                vocabulary = m.vocab_size + int(rows)
                yield f"a vocabulary of {vocabulary:,} (here {m.vocab_size:,})", self._expected
        if m.moe is not None:
            yield "the stated count is that of active parameters", m.num_active_parameters
        if self.text_only and self._expected > m.num_parameters:
            yield "the stated count has the parts left aside, beside the text model", self._expected

    def to_yaml(self) -> str:
        """The model file."""
        return model_yaml(self.model, self._head())

    def _head(self) -> Iterator[str]:
        yield f"{self.model.name}: imported from {self.model.source}."
        if self.stated is not None and not self.agrees:
            yield (
                f"{self.counted} parameters counted, {self.stated.parameters:.12g} stated by "
                f"{self.stated.source}."
            )
        for remark in (*self.notes.get("approximate", ()), *self.notes.get("aside", ())):
            yield f"{remark.key}: {remark.text}."
        if self.unknown:
            yield f"Not understood: {', '.join(remark.key for remark in self.unknown)}."

    def to_document(self) -> dict[str, Any]:
        """The model and all remarks on it, as JSON values."""
        return {
            "path": self.path,
            "form": self.form,
            "model": self.model.model_dump(mode="json"),
            "parameters": self.model.num_parameters,
            "active_parameters": self.model.num_active_parameters,
            "prediction_parameters": self.model.mtp_layers * self.model.num_prediction_parameters
            if self.model.mtp_layers
            else 0,
            "stated_parameters": self.stated and self.stated.parameters,
            "stated_source": self.stated and self.stated.source,
            "difference_fraction": self.difference_fraction,
            "causes": list(self.causes),
            "notes": {
                subject: [{"key": remark.key, "text": remark.text} for remark in remarks]
                for subject, remarks in self.notes.items()
            },
            "ignored": {why: list(keys) for why, keys in self.ignored.items()},
        }


def with_published_count(imported: ImportedModel) -> ImportedModel:
    """With the stated count in the model, where the count meets it."""
    stated = imported.stated
    if stated is None or not imported.agrees or imported.with_prediction:
        return imported
    figure = Figure(stated.parameters, stated.source, "datasheet")
    return replace(imported, model=imported.model.replace(published_parameters=figure))


def read_count(text: str) -> float:
    """A number of parameters as people write it: 8030261248, 8_030_261_248, 70.6B.

    Raises:
        InputError: something else.
    """
    match = re.fullmatch(
        r"([0-9]{1,3}(?:[_,][0-9]{3})+|[0-9]{1,18})(\.[0-9]{1,9})?\s*([KMBGT]?)", text.strip(),
        re.IGNORECASE,
    )  # fmt: skip
    number = 0.0
    if match is not None:
        digits = match.group(1).replace("_", "").replace(",", "") + (match.group(2) or "")
        number = float(Fraction(digits) * SUFFIXES[match.group(3).upper()])
    if not 1 <= number <= 1e18:
        raise InputError(
            f"{text!r} is no number of parameters", key="--parameters", value=text,
            allowed="an integer, or a number with K, M, B or T, such as 70.6B",
        )  # fmt: skip
    return number


# ---------------------------------------------------------------- as a model file


def model_yaml(model: Model, remarks: Iterable[str] = ()) -> str:
    """The model as YAML under comments; reads back to an equal value."""
    head = [
        "# " + "".join(c if c.isprintable() else "?" for c in " ".join(remark.split()))
        for remark in remarks
    ]
    return "\n".join([*head, *_yaml_lines(model, ""), ""])


def _yaml_lines(values: Strict, indent: str) -> list[str]:
    names = list(type(values).model_fields)
    last = [name for name in LAST_KEYS if name in names] if isinstance(values, Model) else []
    lines = []
    for name in [*(name for name in names if name not in last), *last]:
        value = getattr(values, name)
        if value == _default(values, name):
            continue
        if isinstance(value, Strict):
            lines += [f"{indent}{name}:", *_yaml_lines(value, f"{indent}  ")]
        else:
            lines.append(f"{indent}{name}: {_written(value)}")
    return lines


def _default(values: Strict, name: str) -> object:
    """What a key is where a file leaves it out; `...`, which equals no value, where it may not."""
    field = type(values).model_fields[name]
    if field.is_required() or _needs_head_dim(values, name):
        return ...
    given = {key: getattr(values, key) for key in type(values).model_fields}
    return field.get_default(call_default_factory=True, validated_data=given)


def _needs_head_dim(values: Strict, name: str) -> bool:
    """Whether the key is `head_dim`, of a model whose file must have it even if it is usual."""
    return (
        isinstance(values, Model)
        and name == "head_dim"
        and values.hidden_size % values.num_attention_heads != 0
    )


def _written(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Figure):
        source = json.dumps(value.source, ensure_ascii=False)
        number = int(value) if value.is_integer() else float(value)
        return f"{{value: {number}, source: {source}, status: {value.status}}}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(_written, value))}]"
    if isinstance(value, str):
        plain = re.fullmatch(r"[A-Za-z][A-Za-z0-9]*([_.-][A-Za-z0-9]+)*", value)
        words = ("true", "false", "null", "nan", "inf")
        return value if plain and value.lower() not in words else _quoted(value)
    return str(value)


def _quoted(text: str) -> str:
    """Text in double quotes, with escapes for what YAML does not take as it is."""
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}"
                   for c in json.dumps(text, ensure_ascii=False))  # fmt: skip
