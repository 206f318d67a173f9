"""Jobs that train a part of the parameters: how users write them, and that they are refused."""

from collections.abc import Mapping

FULL_TRAINING = (
    "adapters and frozen parameters are not planned: every parameter is taken to have a gradient "
    "and optimizer states (fine-tuning of all of them is planned as it is, without this key)"
)

FROZEN: Mapping[str, str] = dict.fromkeys(
    (
        "lora", "qlora", "dora", "peft", "adapter", "sft", "frozen", "freeze", "trainable",
        "finetun", "fine",
    ),
    FULL_TRAINING,
)  # fmt: skip
"""Beginnings of words in keys that ask for it (Hugging Face peft, NeMo, torchtune, LLaMA-Factory,
ms-swift)."""
