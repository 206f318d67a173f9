"""Hugging Face `config.json` files as model files of the planner: trees to trees, before checks."""
