torchrun --nnodes=2 --nproc-per-node=8 pretrain_gpt.py \
  --pipeline-model-parallel-size 4 --tensor-model-parallel-size 2 --sequence-parallel \
  --pipeline-model-parallel-layout "Et*7|(t*9|)*2t*7L" \
  --micro-batch-size 1 --global-batch-size 32 --bf16 --use-distributed-optimizer \
  --use-tp-pp-dp-mapping
