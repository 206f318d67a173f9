"""The training job: batch, sequence, precision, optimizer."""

from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le
from pydantic import Field, model_validator

from planner.errors import InputError
from planner.inputs.quantities import Count
from planner.inputs.values import Strict
from planner.problem.batch import Amount, Band
from planner.problem.frozen import FROZEN
from planner.problem.hardware import AttentionBackend, Precision
from planner.problem.recipes import RECIPES, TrainingPrecision

CudaGraphs = Literal["none", "partial", "full"]


class Training(Strict):
    """One job; `global_batch_size` counts sequences of `sequence_length` tokens.

    Instead of it `global_batch_tokens` may be given; either may be a band, of which the planner
    chooses the batch of the least time per token.
    """

    not_planned = FROZEN

    sequence_length: Count
    batch: Annotated[int | Band | None, Amount("sequences")] = Field(
        alias="global_batch_size", default=None
    )
    global_batch_tokens: Annotated[int | Band | None, Amount("tokens", words=True)] = None
    precision: TrainingPrecision
    optimizer: Literal["adam"]
    # Documents packed into a sequence, tokens of each: attention stays inside a document. Taken as
    # alike; of unlike ones it is the length that the mean token sees, Σ length² / Σ length.
    mean_document_length: Count | None = None
    total_tokens: Annotated[float, Gt(0)] | None = None
    attention: Literal["auto"] | AttentionBackend = "auto"
    # Coefficient of variation of the tokens of a layer's experts. Balanced routing has 0; what
    # real routers leave unbalanced makes a step 8 to 20 % longer than runs with forced balance.
    # Among E experts of which a token chooses k it is at most √(E/k − 1).
    expert_load_variation: Annotated[float, Ge(0), Le(16)] = 0.2
    # What of a step is captured in CUDA graphs: nothing, all but the experts, everything.
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
        least, most = self.batch_range
        if least > most or least < 1:
            given, length = self.global_batch_tokens, self.sequence_length
            below = (given.at_least if isinstance(given, Band) else given or 0) // length * length
            raise InputError(
                f"no whole number of sequences of {length} tokens makes that batch",
                key="global_batch_tokens",
                value=given if isinstance(given, int) else None,
                allowed=f"a multiple of {length}, or a band that holds one",
                nearest=" or ".join(str(n) for n in (below, below + length) if n),
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
        """The least and the greatest batch that may be chosen, in sequences; mostly the same."""
        given, unit = self.batch, 1
        if given is None:
            given, unit = self.global_batch_tokens, self.sequence_length
        assert given is not None
        least, most = (given.at_least, given.at_most) if isinstance(given, Band) else (given, given)
        return -(-least // unit), most // unit

    @property
    def global_batch_size(self) -> int:
        """Sequences a step.

        Raises:
            InputError: the batch is a band, of which none is chosen yet.
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
        """Whether a batch of so many sequences (numbers or arrays) may be chosen."""
        least, most = self.batch_range
        return (least <= sequences) & (sequences <= most)

    def with_batch(self, sequences: int) -> "Training":
        """The job with a batch of so many sequences."""
        return self.replace(batch=sequences, global_batch_tokens=None)

    @property
    def document_length(self) -> int:
        """Tokens that attend to each other: of a document, of the whole sequence if not packed."""
        return self.mean_document_length or self.sequence_length

    @property
    def peak_key(self) -> Precision:
        """Which dense peak of the accelerator the main matmuls run against."""
        return RECIPES[self.precision].peak
