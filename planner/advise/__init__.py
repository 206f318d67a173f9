"""Answers about plans: why this one, why not another, what would help, how runs compare."""
