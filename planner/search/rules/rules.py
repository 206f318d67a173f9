"""Rules a layout must keep, as named data with sources, cited in every rejection.

Structural rules hold for all software; the others are switched on by id in a software profile.
Predicates take one layout or a table: the same rule judges both.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd

import numpy as np

from planner.cost.context import CostContext
from planner.cost.layers import shared_ffn
from planner.cost.offload import offloads_activations, offloads_optimizer
from planner.errors import InputError, nearest_of
from planner.frameworks.rule import DUALPIPE, MEGATRON, TITAN, TORCH, Rule, divides, most_chunks
from planner.layouts.layout import CP_KINDS, DISPATCHERS, OFFLOADS, RECOMPUTE, LayoutLike
from planner.layouts.numeric import Boolean, Mask
from planner.problem.software import Software
from planner.search.rules.context import CONTEXT
from planner.search.rules.recompute import RECOMPUTE_RULES
from planner.search.rules.schedules import SCHEDULE_RULES, runs


def _cuts_feed_forward(ctx: CostContext, x: LayoutLike) -> Boolean:
    widths = [shared_ffn(ctx.model, kind.blocks) for kind in ctx.layer_kinds]
    return divides(x.tp, gcd(ctx.model.ffn_hidden_size * (not ctx.model.layer_pattern), *widths))


STRUCTURAL = (
    Rule(
        "tp-divides-heads",
        "attention heads are a multiple of tp",
        MEGATRON + "; deepspeedai/DeepSpeed#3634",
        ("tp",),
        lambda ctx, x: (
            not ctx.model.num_attention_layers or divides(x.tp, ctx.model.num_attention_heads)
        ),
    ),
    Rule(
        "tp-divides-ffn",
        "the feed-forward size is a multiple of tp",
        MEGATRON,
        ("tp",),
        _cuts_feed_forward,
    ),
    Rule(
        "world-size",
        "tp·cp·pp·dp is the number of accelerators",
        "definition",
        ("dp", "tp", "cp", "pp"),
        lambda ctx, x: x.tp * x.cp * x.pp * x.dp_shard * x.dp_replicate == ctx.num_accelerators,
    ),
    Rule(
        "batch-divides",
        "the global batch is a multiple of mbs·dp",
        MEGATRON + "; verl-project/verl#1811",
        ("mbs", "dp"),
        lambda ctx, x: ctx.training.allows_batch(
            x.mbs * x.dp_shard * x.dp_replicate * x.num_microbatches
        ),
    ),
    Rule(
        "sp-divides-sequence",
        "sequence parallelism needs sequence_length/cp to be a multiple of tp",
        MEGATRON,
        ("sp", "tp", "cp"),
        lambda ctx, x: (np.asarray(x.sp) == 0) | divides(x.tp * x.cp, ctx.training.sequence_length),
    ),
    Rule(
        "sp-needs-tp",
        "sequence parallelism needs tp > 1",
        "NVIDIA-NeMo/Megatron-Bridge parallelism guide",
        ("sp", "tp"),
        lambda ctx, x: (np.asarray(x.sp) == 0) | (np.asarray(x.tp) > 1),
    ),
    Rule(
        "cp-divides-sequence",
        "sequence_length is a multiple of 2·cp, so that the causal mask balances",
        MEGATRON,
        ("cp",),
        lambda ctx, x: (np.asarray(x.cp) == 1) | divides(2 * x.cp, ctx.training.sequence_length),
    ),
    *CONTEXT,
    *RECOMPUTE_RULES,
    Rule(
        "offload-needs-host",
        "offloading needs the accelerator's host: its link and memory",
        "definition",
        ("offload",),
        lambda ctx, x: (np.asarray(x.offload_index) == 0) | (ctx.accelerator.host is not None),
    ),
    Rule(
        "optimizer-offload-needs-zero",
        "offloading optimizer states needs them sharded, zero_stage 1 or more",
        "DeepSpeed 0.19 runtime/zero/config.py (offload_optimizer); Megatron-LM arguments.py "
        "(optimizer_cpu_offload needs the precision-aware, so the distributed optimizer)",
        ("zero_stage", "offload"),
        lambda ctx, x: ~offloads_optimizer(x) | (np.asarray(x.zero_stage) >= 1),
    ),
    Rule(
        "chunks-have-layers",
        "every one of the pp·vp chunks has a layer; with vp > 2 the first and the last need none, "
        "where software builds embedding, head and loss alone",
        "definition",
        ("pp", "vp"),
        lambda ctx, x: x.pp * x.vp <= most_chunks(ctx, x.vp),
    ),
    Rule(
        "vp-needs-pp",
        "virtual stages need pp > 1",
        MEGATRON,
        ("vp", "pp"),
        lambda ctx, x: (np.asarray(x.vp) == 1) | (np.asarray(x.pp) > 1),
    ),
)


def _alternates_chunks(x: LayoutLike) -> Mask:
    alternates: Mask = (np.asarray(x.pp) == 1) | runs(x, "interleaved", "dualpipe", "dualpipev")
    return alternates


def _has_another_microbatch(x: LayoutLike) -> Mask:
    return np.asarray(x.num_microbatches) > 1


def _runs_experts_once(x: LayoutLike) -> Mask:
    return ~np.isin(x.recompute_index, [RECOMPUTE.index("moe"), RECOMPUTE.index("full")])


def can_overlap_exchanges(ctx: CostContext, x: LayoutLike) -> Mask:
    """Whether experts' exchanges travel and the rules let them run beside another micro-batch."""
    possible = ctx.model.moe is not None and ctx.model.layer_pattern is None
    travel = (np.asarray(x.ep) > 1) & possible
    return travel & _alternates_chunks(x) & _has_another_microbatch(x) & _runs_experts_once(x)


EXPERTS = (
    Rule(
        "ep-divides-experts",
        "the number of experts is a multiple of ep",
        MEGATRON + "; pytorch/torchtitan#4831",
        ("ep",),
        lambda ctx, x: ctx.model.moe is None or divides(x.ep, ctx.model.moe.num_experts),
    ),
    Rule(
        "etp-divides-expert-ffn",
        "the experts' feed-forward size is a multiple of etp",
        MEGATRON,
        ("etp",),
        lambda ctx, x: (
            ctx.model.moe is None or divides(x.etp, ctx.model.moe.expert_ffn_hidden_size)
        ),
    ),
    Rule(
        "experts-fit-ranks",
        "etp·ep divides tp·cp·dp_shard: experts live on the ranks of one pipeline stage, so "
        "pp·lcm(tp·cp, etp·ep) accelerators are needed at least",
        MEGATRON + "; NVIDIA-NeMo/Megatron-Bridge#6054; pytorch/torchtitan#4831",
        ("ep", "etp", "tp", "cp", "dp_shard"),
        lambda ctx, x: divides(x.etp * x.ep, x.tp * x.cp * x.dp_shard),
    ),
    Rule(
        "experts-need-sp",
        "experts under tp > 1 need sequence parallelism",
        MEGATRON,
        ("sp", "tp"),
        lambda ctx, x: (np.asarray(x.tp) == 1) | (np.asarray(x.sp) > 0),
    ),
    Rule(
        "ep-overlap-needs-virtual-stages",
        "overlapping experts' exchanges with pp > 1 needs virtual stages, interleaved, or dualpipe "
        "or dualpipev",
        "NVIDIA-NeMo/Megatron-Bridge parallelism guide; " + DUALPIPE,
        ("overlap", "vp", "pp", "schedule"),
        lambda ctx, x: (np.asarray(x.overlap_ep) == 0) | _alternates_chunks(x),
    ),
    Rule(
        "ep-overlap-needs-microbatches",
        "overlapping experts' exchanges needs another micro-batch to run beside",
        "definition",
        ("overlap", "num_microbatches"),
        lambda ctx, x: (np.asarray(x.overlap_ep) == 0) | _has_another_microbatch(x),
    ),
    Rule(
        "ep-overlap-excludes-moe-recompute",
        "overlapping experts' exchanges excludes running whole experts again",
        "NVIDIA-NeMo/Megatron-Bridge parallelism guide",
        ("recompute", "overlap"),
        lambda ctx, x: (np.asarray(x.overlap_ep) == 0) | _runs_experts_once(x),
    ),
)
"""Rules of models with experts, under all software."""

BY_SOFTWARE = (
    Rule(
        "kv-heads-replicate",
        "key/value heads are a multiple or a divisor of tp",
        "Megatron-LM core 0.16 and later; modelscope/ms-swift#8219",
        ("tp",),
        lambda ctx, x: (
            divides(x.tp, ctx.model.num_key_value_heads)
            | divides(ctx.model.num_key_value_heads, np.asarray(x.tp))
        ),
    ),
    Rule(
        "tp-divides-kv-heads",
        "key/value heads are a multiple of tp",
        "Megatron-LM core 0.15 and earlier; torchtitan models' parallelize.py",
        ("tp",),
        lambda ctx, x: divides(x.tp, ctx.model.num_key_value_heads),
    ),
    Rule(
        "interleaved-microbatches",
        "interleaved, the micro-batches are a multiple of pp",
        MEGATRON + "; " + TORCH,
        ("num_microbatches", "vp", "pp", "schedule"),
        lambda ctx, x: (
            ~runs(x, "interleaved", "interleaved-zb") | divides(x.pp, x.num_microbatches)
        ),
    ),
    Rule(
        "microbatches-fill-pipeline",
        "a pipeline needs at least pp micro-batches",
        TITAN,
        ("num_microbatches", "pp"),
        lambda ctx, x: x.num_microbatches >= np.asarray(x.pp),
    ),
    Rule(
        "stages-even",
        "the layers are a multiple of pp·vp",
        "Megatron-LM 2021 arguments.py; NVIDIA/Megatron-LM#1304",
        ("pp", "vp"),
        lambda ctx, x: divides(x.pp * x.vp, ctx.model.num_layers),
    ),
    Rule(
        "zero2-excludes-pipeline",
        "ZeRO stages 2 and 3 exclude a pipeline",
        "DeepSpeed runtime/pipe/engine.py",
        ("zero_stage", "pp"),
        lambda ctx, x: (np.asarray(x.zero_stage) < 2) | (np.asarray(x.pp) == 1),
    ),
    Rule(
        "activation-offload-excludes-pipeline",
        "offloading whole layers' activations excludes a pipeline",
        "NVIDIA-NeMo/Megatron-Bridge parallelism guide (cpu_offloading needs pp=1)",
        ("pp", "offload"),
        lambda ctx, x: ~offloads_activations(x) | (np.asarray(x.pp) == 1),
    ),
    Rule(
        "activation-offload-excludes-recompute",
        "offloading whole layers' activations excludes recomputing any",
        "Megatron-LM core 0.16 transformer_config.py (cpu_offloading)",
        ("recompute", "offload"),
        lambda ctx, x: ~offloads_activations(x) | (np.asarray(x.recompute_index) == 0),
    ),
    Rule(
        "data-parallel-only",
        "the framework has no tensor, context or pipeline parallelism",
        "mosaicml/llm-foundry (FSDP)",
        ("tp", "cp", "pp"),
        lambda ctx, x: (np.asarray(x.tp) == 1) & (np.asarray(x.cp) == 1) & (np.asarray(x.pp) == 1),
    ),
    Rule(
        "no-context-parallelism",
        "the framework has no context parallelism",
        "Megatron-LM before core 0.5; Megatron-DeepSpeed",
        ("cp",),
        lambda ctx, x: np.asarray(x.cp) == 1,
    ),
)


def _profile_rules(software: Software) -> tuple[Rule, ...]:
    """Rules that are lists in the profile rather than named rules."""
    where = f"software profile {software.name}"
    zero = np.array(software.zero_stages)
    sp = software.sequence_parallel
    rules = [
        Rule(
            "zero-stage",
            f"zero_stage is one of {', '.join(map(str, software.zero_stages))}",
            where,
            ("zero_stage",),
            lambda ctx, x: np.isin(x.zero_stage, zero),
        ),
        Rule(
            "schedule",
            f"the schedule is one of {', '.join(software.schedules)}",
            where,
            ("vp", "pp", "schedule"),
            lambda ctx, x: (
                ((np.asarray(x.pp) == 1) & runs(x, "1f1b")) | runs(x, *software.schedules)
            ),
        ),
    ]
    kinds = [CP_KINDS.index(name) for name in software.cp_kinds]
    rules.append(
        Rule(
            "cp-kind",
            f"cp_kind is one of {', '.join(software.cp_kinds)}",
            where,
            ("cp_kind", "cp"),
            lambda ctx, x: (np.asarray(x.cp) == 1) | np.isin(x.cp_kind_index, kinds),
        )
    )
    places = [OFFLOADS.index(name) for name in ("none", *software.offloads)]
    rules.append(
        Rule(
            "offload",
            f"offload is one of {', '.join(('none', *software.offloads))}",
            where,
            ("offload",),
            lambda ctx, x: np.isin(x.offload_index, places),
        )
    )
    if software.shard_groups == "full":
        rules.append(
            Rule(
                "shard-group",
                "states shard over the whole data-parallel group",
                where,
                ("dp_replicate",),
                lambda ctx, x: (np.asarray(x.dp_replicate) == 1) | (np.asarray(x.zero_stage) == 0),
            )
        )
    if software.dispatchers:
        known = [DISPATCHERS.index(name) for name in software.dispatchers]
        rules.append(
            Rule(
                "dispatcher",
                f"the dispatcher is one of {', '.join(software.dispatchers)}",
                where,
                ("dispatcher", "ep"),
                lambda ctx, x: (np.asarray(x.ep) == 1) | np.isin(x.dispatcher_index, known),
            )
        )
    else:
        rules.append(
            Rule(
                "no-expert-parallelism",
                "the framework has no expert parallelism",
                where,
                ("ep", "etp"),
                lambda ctx, x: (np.asarray(x.ep) == 1) & (np.asarray(x.etp) == 1),
            )
        )
    if not software.recompute_counts:
        rules.append(
            Rule(
                "recompute-counts",
                "the framework runs layers again in all chunks alike, not the first of each",
                where,
                ("recompute_layers",),
                lambda ctx, x: np.asarray(x.recompute_layers) == 0,
            )
        )
    if sp != "optional":
        rules.append(
            Rule(
                f"sp-{sp}",
                f"sequence parallelism is {'on wherever tp > 1' if sp == 'always' else 'off'}",
                where,
                ("sp", "tp"),
                lambda ctx, x: (
                    (np.asarray(x.sp) > 0) == ((np.asarray(x.tp) > 1) & (sp == "always"))
                ),
            )
        )
    return tuple(rules)


def rules_of(software: Software, experts: bool = False) -> tuple[Rule, ...]:
    """All rules that hold under a software profile, for models with experts or without.

    Raises:
        InputError: the profile names a rule there is not.
    """
    known = {rule.id: rule for rule in BY_SOFTWARE}
    for name in software.rules:
        if name not in known:
            raise InputError(
                "no such rule",
                path=f"software profile {software.name}",
                key="rules",
                value=name,
                allowed=", ".join(known),
                nearest=nearest_of(name, known),
            )
    of_experts = EXPERTS if experts else ()
    chosen = (known[name] for name in software.rules)
    of_schedules = () if software.only_1f1b else SCHEDULE_RULES
    return (*STRUCTURAL, *of_schedules, *of_experts, *_profile_rules(software), *chosen)


def rule_sentences(rules: Iterable[Rule]) -> dict[str, str]:
    """Id → sentence."""
    return {rule.id: rule.sentence for rule in rules}
