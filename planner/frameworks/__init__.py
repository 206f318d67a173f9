"""Training frameworks: what each calls things, its launch files written and read, its rules.

A framework has a folder, or a module with its table: megatron/, torchtitan/, deepspeed, accelerate,
and launchers/ for Slurm, torchrun and the table of ranks. `write` and `read` choose among them.
Shared are target (tables), job and text (to write), script and arguments (to read), rule and
layout_rules, import_model.
"""
