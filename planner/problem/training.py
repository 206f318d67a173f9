"""The training job: batch, sequence, precision, optimizer."""

from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

from planner.files import Strict
from planner.problem.hardware import AttentionBackend, Precision
from planner.problem.quantities import Count

TrainingPrecision = Literal["bf16", "fp16", "fp8", "fp8-rowwise", "mxfp8", "fp8-blockwise", "nvfp4"]

CudaGraphs = Literal["none", "partial", "full"]

_PEAK_KEYS: dict[TrainingPrecision, Precision] = {
    "bf16": "bf16",
    "fp16": "fp16",
    "fp8": "fp8",
    "fp8-rowwise": "fp8",
    "mxfp8": "fp8",
    "fp8-blockwise": "fp8",
    "nvfp4": "fp4",
}


class Training(Strict):
    """One job; `global_batch_size` counts sequences of `sequence_length` tokens."""

    sequence_length: Count
    global_batch_size: Count
    precision: TrainingPrecision
    optimizer: Literal["adam"]
    total_tokens: Annotated[float, Gt(0)] | None = None
    attention: Literal["auto"] | AttentionBackend = "auto"
    # Coefficient of variation of the tokens of a layer's experts. Balanced routing has 0; what
    # real routers leave unbalanced makes a step 8 to 20 % longer than runs with forced balance.
    # Among E experts of which a token chooses k it is at most √(E/k − 1).
    expert_load_variation: Annotated[float, Ge(0), Le(16)] = 0.2
    # What of a step is captured in CUDA graphs: nothing, all but the experts, everything.
    cuda_graphs: CudaGraphs = "none"

    @property
    def peak_key(self) -> Precision:
        """Which dense peak of the accelerator the main matmuls run against."""
        return _PEAK_KEYS[self.precision]
