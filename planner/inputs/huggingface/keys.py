"""Keys of `config.json` that change nothing the planner counts, and those that it costs roughly.

A key that is neither here nor read by its architecture's table is reported as not understood.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

IGNORED: Mapping[str, frozenset[str]] = {
    "names and versions": frozenset({
        "architectures", "model_type", "_name_or_path", "name_or_path", "transformers_version",
        "auto_map", "torch_dtype", "dtype", "torchscript", "use_bfloat16", "task_specific_params",
        "problem_type", "finetuning_task", "custom_pipelines", "license", "_commit_hash",
        "unsloth_version", "unsloth_fixed", "base_model_type",
    }),
    "token ids, vocabulary": frozenset({
        "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "cls_token_id",
        "unk_token_id", "decoder_start_token_id", "forced_bos_token_id", "forced_eos_token_id",
        "tokenizer_class", "prefix", "suppress_tokens", "begin_suppress_tokens", "bad_words_ids",
    }),
    "initialization": frozenset({"initializer_range", "initializer_factor"}),
    "positions that need no parameters": frozenset({
        "max_position_embeddings", "rope_theta", "rope_scaling", "rope_parameters",
        "rope_local_base_freq", "rope_interleave", "rotary_emb_base", "rotary", "max_seq_len",
        "original_max_position_embeddings", "initial_context_length", "rope_pct",
    }),
    "constants and forms of element-wise work": frozenset({
        "rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_eps", "hidden_act",
        "hidden_activation", "activation_function", "activation", "swiglu_limit",
        "query_pre_attn_scalar", "scale_attn_weights", "scale_attn_by_inverse_layer_idx",
        "reorder_and_upcast_attn", "routed_scaling_factor", "scoring_func", "norm_topk_prob",
        "topk_method", "apply_residual_connection_post_layernorm", "force_use_exact_rope",
        "sliding_window_cache", "use_bidirectional_attention",
    }),
    "losses and regularisation of single tensors": frozenset({
        "router_aux_loss_coef", "output_router_logits", "aux_loss_alpha", "seq_aux",
        "router_jitter_noise", "input_jitter_noise", "embd_pdrop", "classifier_dropout",
        "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type",
        "summary_use_proj", "ep_size",
    }),
    "inference and outputs": frozenset({
        "use_cache", "cache_implementation", "pretraining_tp", "output_attentions",
        "output_hidden_states", "return_dict", "return_dict_in_generate", "output_scores",
        "chunk_size_feed_forward", "max_length", "min_length", "do_sample", "early_stopping",
        "num_beams", "num_beam_groups", "diversity_penalty", "temperature", "top_k", "top_p",
        "typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size",
        "encoder_no_repeat_ngram_size", "num_return_sequences", "exponential_decay_length_penalty",
        "remove_invalid_values", "id2label", "label2id", "num_labels", "pruned_heads",
        "tf_legacy_loss",
        "is_decoder", "cross_attention_hidden_size", "tie_encoder_decoder",
        "attn_implementation", "_attn_implementation", "_attn_implementation_autoset",
        "use_parallel_embedding", "keys_to_ignore_at_inference", "default_theta",
    }),
}  # fmt: skip
"""Why a key is left aside → the keys."""

REASONS: Mapping[str, str] = {key: why for why, keys in IGNORED.items() for key in keys}


def _given(value: object) -> bool:
    return value is not None and value is not False


def _below_one(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value != 1


def _above_one(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 1


_PARALLEL = "attention and the feed-forward block are costed one after the other, not side by side"
_ROTARY = "all elements of queries and keys are costed as rotated"
_GROUPS = "tokens choose experts of all groups: routing limited to some would move less data"
_CAPPING = "is element-wise work that is not costed"

APPROXIMATED: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "attn_logit_softcapping": (_given, f"the soft cap of scores {_CAPPING}"),
    "final_logit_softcapping": (_given, f"the soft cap of logits {_CAPPING}"),
    "partial_rotary_factor": (_below_one, _ROTARY),
    "rotary_pct": (_below_one, _ROTARY),
    "use_parallel_residual": (_given, _PARALLEL),
    "parallel_attn": (_given, _PARALLEL),
    "alibi": (_given, "ALiBi is costed as rotary positions"),
    "n_group": (_above_one, _GROUPS),
    "topk_group": (lambda _: False, _GROUPS),
    "quantization_config": (
        _given, "the checkpoint is quantised; the precision of training is the scenario's"
    ),
    "compression_config": (
        _given, "the checkpoint is quantised; the precision of training is the scenario's"
    ),
}  # fmt: skip
"""Keys that are costed roughly: from which values on, and how."""

REFUSED: Mapping[str, str] = {
    "is_encoder_decoder": "encoder-decoder models are not planned, one stack of layers is",
    "add_cross_attention": "cross attention cannot be planned",
}
"""Keys with which a model cannot be planned if they are true, in any architecture."""

_LAYERS = "its layers are of types that a model file cannot express"
_ENCODER = "it is an encoder: decoder-only language models are planned"
_PAIR = "it is an encoder with a decoder: decoder-only language models are planned"

OTHERS: Mapping[str, str] = {
    **dict.fromkeys(
        ("bert", "roberta", "xlm-roberta", "distilbert", "electra", "deberta", "deberta-v2",
         "albert", "modernbert", "vit", "clip", "siglip", "siglip_vision_model"), _ENCODER),
    **dict.fromkeys(("t5", "mt5", "umt5", "bart", "mbart", "pegasus", "whisper", "t5gemma"), _PAIR),
    **dict.fromkeys(
        ("mamba", "falcon_mamba", "rwkv", "recurrent_gemma", "qwen3_next", "kimi_linear", "jamba",
         "zamba", "zamba2", "bamba", "falcon_h1", "granitemoehybrid", "minimax", "lfm2"),
        f"{_LAYERS} (Mamba-1, gated linear attention, two mixers in one layer)"),
    **dict.fromkeys(("nemotron_h", "mamba2"),
                    "its pattern is not read: write layer_pattern and mamba by hand, as "
                    "models/nemotron-3-nano.yaml does"),
    **dict.fromkeys(("llama4", "llama4_text"),
                    "its chunked attention is not read: models/llama4-scout.yaml ships"),
}  # fmt: skip
"""Architectures that are known and not read, and what is missing for them."""
