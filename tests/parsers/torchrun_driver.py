"""torchrun's own argument parser: JSON lines {argv} in, {values} or {error} out."""

from __future__ import annotations

from answering import keep_stdout_for_answers, serve

keep_stdout_for_answers()

from torch.distributed.run import get_args_parser


def answer(job: dict) -> dict:
    return {"values": vars(get_args_parser().parse_args(job["argv"]))}


serve(answer)
