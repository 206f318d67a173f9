"""Megatron-LM and Megatron-Bridge: their flags, written and read."""
