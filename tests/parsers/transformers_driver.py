"""transformers' own model of a config.json, without memory: JSON lines {config} in."""

from __future__ import annotations

from answering import keep_stdout_for_answers, serve

keep_stdout_for_answers()

import torch
from transformers import AutoConfig, AutoModelForCausalLM


def answer(job: dict) -> dict:
    given = dict(job["config"])
    config = AutoConfig.for_model(given.pop("model_type"), **given)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    model.tie_weights()
    return {"parameters": sum(p.numel() for p in model.parameters())}


serve(answer)
