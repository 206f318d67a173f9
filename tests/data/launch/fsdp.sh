#!/bin/bash
unset CUDA_DEVICE_MAX_CONNECTIONS
torchrun --nproc_per_node=8 --nnodes="${NNODES:-2}" pretrain_gpt.py \
  --use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params \
  --ckpt-format fsdp_dtensor --overlap-grad-reduce --overlap-param-gather \
  --micro-batch-size 1 --global-batch-size 32 --bf16 \
  --recompute-activations
