"""transformers' own model of a config.json, without memory: JSON lines {config} in."""

from __future__ import annotations

import os
import warnings

warnings.simplefilter("ignore")
ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

import torch
from answering import serve
from transformers import AutoConfig, AutoModelForCausalLM


def answer(job: dict) -> dict:
    given = dict(job["config"])
    config = AutoConfig.for_model(given.pop("model_type"), **given)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    model.tie_weights()
    return {"parameters": sum(p.numel() for p in model.parameters())}


serve(answer, ANSWERS)
