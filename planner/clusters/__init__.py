"""What Slurm, nvidia-smi, NCCL, ibnetdiscover and Kubernetes print, as values."""
