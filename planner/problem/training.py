"""The training job: batch, sequence, precision, optimizer."""

from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le
from pydantic import model_validator

from planner.errors import InputError
from planner.files import Strict
from planner.problem.frozen import FROZEN
from planner.problem.hardware import AttentionBackend, Precision
from planner.problem.quantities import Count
from planner.problem.recipes import RECIPES, TrainingPrecision

CudaGraphs = Literal["none", "partial", "full"]


class Training(Strict):
    """One job; `global_batch_size` counts sequences of `sequence_length` tokens."""

    not_planned = FROZEN

    sequence_length: Count
    global_batch_size: Count
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
    def document_length(self) -> int:
        """Tokens that attend to each other: of a document, of the whole sequence if not packed."""
        return self.mean_document_length or self.sequence_length

    @property
    def peak_key(self) -> Precision:
        """Which dense peak of the accelerator the main matmuls run against."""
        return RECIPES[self.precision].peak
