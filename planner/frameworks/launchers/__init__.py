"""What starts processes and puts ranks on hosts: Slurm, torchrun, a table of ranks."""
