#!/bin/bash
# Mixtral 8x7B
set -euxo pipefail
export CUDA_DEVICE_MAX_CONNECTIONS=1

CHECKPOINT_PATH=$1
TOKENIZER_MODEL=$2
DATA_PATH=$3

MODEL_ARGS=(
    --use-mcore-models --disable-bias-linear --seq-length 4096
    --max-position-embeddings 32768 --num-layers 32 --hidden-size 4096
    --ffn-hidden-size 14336 --num-attention-heads 32 --init-method-std 0.01
    --attention-dropout 0.0 --hidden-dropout 0.0 --normalization RMSNorm
    --position-embedding-type rope --swiglu --untie-embeddings-and-output-weights
    --group-query-attention --num-query-groups 8 --no-masked-softmax-fusion
)
MOE_ARGS=(
    --num-experts 8
    --moe-router-topk 2
    --moe-router-load-balancing-type aux_loss
    --moe-aux-loss-coeff 1e-2
    --moe-grouped-gemm
    --moe-token-dispatcher-type alltoall
)
TRAINING_ARGS=(--micro-batch-size 1 --global-batch-size 256 --lr 1e-4 --bf16)
PARALLEL=(
    --tensor-model-parallel-size 1
    --pipeline-model-parallel-size 4
    --num-layers-per-virtual-pipeline-stage 8
    --expert-model-parallel-size 8
    --use-distributed-optimizer
    --sequence-parallel
)

if [ -n "${WANDB_API_KEY:-}" ]; then
    LOGGING_ARGS=(--wandb-project ${WANDB_PROJECT:-"Mixtral"})
else
    LOGGING_ARGS=(--log-interval 1)
fi

torchrun --nproc_per_node 8 --nnodes 8 pretrain_gpt.py \
    "${MODEL_ARGS[@]}" "${MOE_ARGS[@]}" "${TRAINING_ARGS[@]}" "${PARALLEL[@]}" \
    "${LOGGING_ARGS[@]}" --data-path "$DATA_PATH" --tokenizer-model "$TOKENIZER_MODEL"
