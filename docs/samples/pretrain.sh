#!/bin/bash
# Megatron-LM arguments of a 7B with biases of queries, keys and values.
MODEL_ARGS=(
  --num-layers 28 --hidden-size 3584 --ffn-hidden-size 18944
  --num-attention-heads 28 --group-query-attention --num-query-groups 4
  --swiglu --normalization RMSNorm --disable-bias-linear --add-qkv-bias
  --untie-embeddings-and-output-weights --position-embedding-type rope
  --attention-dropout 0 --hidden-dropout 0 --seq-length 4096
)
torchrun --nproc-per-node 8 pretrain_gpt.py "${MODEL_ARGS[@]}" \
  --tensor-model-parallel-size 4 --micro-batch-size 1 --global-batch-size 256 --bf16 --lr 1e-4
