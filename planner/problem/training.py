"""The training job: batch, sequence, precision, optimizer; every parameter is trained."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le
from pydantic import Field, model_validator

from planner.errors import InputError
from planner.inputs.quantities import Count
from planner.inputs.values import Strict
from planner.problem.batch import Band, BatchSize
from planner.problem.hardware import AttentionBackend
from planner.problem.precision import RECIPES, Precision, TrainingPrecision

CudaGraphs = Literal["none", "partial", "full"]
"""What of a step is captured in CUDA graphs: nothing, all but the experts, everything."""

_FULL_TRAINING = (
    "adapters and frozen parameters are not planned: every parameter is taken to have a gradient "
    "and optimizer states (fine-tuning of all of them is planned as it is, without this key)"
)

FROZEN_PARAMETERS: Mapping[str, str] = dict.fromkeys(
    (
        "lora", "qlora", "dora", "peft", "adapter", "sft", "frozen", "freeze", "trainable",
        "finetun", "fine",
    ),
    _FULL_TRAINING,
)  # fmt: skip
"""Beginnings of words in keys with which users train only some parameters (Hugging Face peft,
NeMo, torchtune, LLaMA-Factory, ms-swift), and the answer that this is not planned."""


class Training(Strict):
    """One job; `global_batch_size` counts sequences of `sequence_length` tokens.

    Instead of it `global_batch_tokens` may be given; either may be a band, in which the planner
    chooses the batch with the lowest time per token.
    """

    not_planned = FROZEN_PARAMETERS

    sequence_length: Count
    batch: Annotated[int | Band | None, BatchSize("sequences")] = Field(
        alias="global_batch_size", default=None
    )
    global_batch_tokens: Annotated[int | Band | None, BatchSize("tokens", suffixes=True)] = None
    precision: TrainingPrecision
    optimizer: Literal["adam"]
    # Tokens of each document packed into a sequence: attention stays inside a document. Documents
    # of different lengths count as the length around the mean token, Σ length² / Σ length.
    mean_document_length: Count | None = None
    total_tokens: Annotated[float, Gt(0)] | None = None
    # auto: by the kernels that the software runs by default (`attention` of its profile).
    attention: Literal["auto"] | AttentionBackend = "auto"
    # Coefficient of variation of the tokens of a layer's experts. Balanced routing has 0; the
    # imbalance that real routers leave makes a step 8 to 20 % longer than forced balance.
    # Among E experts of which a token chooses k it is at most √(E/k − 1).
    expert_load_variation: Annotated[float, Ge(0), Le(16)] = 0.2
    cuda_graphs: CudaGraphs = "none"

    @model_validator(mode="after")
    def _one_batch(self) -> "Training":
        if (self.batch is None) == (self.global_batch_tokens is None):
            missing = self.batch is None
            raise InputError(
                "this key is missing" if missing else "the batch is given twice",
                key="global_batch_size" if missing else "global_batch_tokens",
                allowed="either global_batch_size (sequences) or global_batch_tokens",
            )
        return self

    @model_validator(mode="after")
    def _batch_has_whole_sequences(self) -> "Training":
        least, most = self.batch_range
        if least > most or least < 1:
            tokens, length = self.global_batch_tokens, self.sequence_length
            below = (tokens.at_least if isinstance(tokens, Band) else tokens or 0) // length
            multiples = (below * length, (below + 1) * length)
            raise InputError(
                f"no whole number of sequences of {length} tokens makes that batch",
                key="global_batch_tokens",
                value=tokens if isinstance(tokens, int) else None,
                allowed=f"a multiple of {length}, or a band that contains one",
                nearest=" or ".join(str(multiple) for multiple in multiples if multiple),
            )
        return self

    @model_validator(mode="after")
    def _documents_fit(self) -> "Training":
        if self.document_length > self.sequence_length:
            raise InputError(
                f"documents of {self.mean_document_length} tokens are longer than a sequence of "
                f"{self.sequence_length}; packing cuts them at its end",
                key="mean_document_length",
                value=self.mean_document_length,
                allowed=f"an integer from 1 to {self.sequence_length}",
                nearest=str(self.sequence_length),
            )
        return self

    @property
    def batch_range(self) -> tuple[int, int]:
        """The smallest and the largest batch that may be chosen, in sequences; mostly the same."""
        batch, unit = self.batch, 1
        if batch is None:
            batch, unit = self.global_batch_tokens, self.sequence_length
        assert batch is not None
        least, most = (batch.at_least, batch.at_most) if isinstance(batch, Band) else (batch, batch)
        return -(-least // unit), most // unit

    @property
    def global_batch_size(self) -> int:
        """Sequences per step.

        Raises:
            InputError: the batch is a band, in which none has been chosen yet.
        """
        least, most = self.batch_range
        if least != most:
            raise InputError(
                f"the batch is a band, {least} to {most} sequences, where one must be known",
                key="training.global_batch_size",
                allowed=f"an integer from {least} to {most} (--set training.global_batch_size=...)",
            )
        return least

    def allows_batch(self, sequences: Any) -> Any:
        """Whether a batch of so many sequences may be chosen; a number or an array of any shape."""
        least, most = self.batch_range
        return (least <= sequences) & (sequences <= most)

    def with_batch(self, sequences: int) -> "Training":
        """Return the job with a batch of so many sequences."""
        return self.replace(batch=sequences, global_batch_tokens=None)

    @property
    def document_length(self) -> int:
        """Tokens that attend to each other: a document, or the sequence where none are packed."""
        return self.mean_document_length or self.sequence_length

    @property
    def peak_key(self) -> Precision:
        """The precision whose dense peak the main matmuls run against."""
        return RECIPES[self.precision].peak
