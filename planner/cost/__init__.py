"""What things cost: pure numpy formulas, numbers or arrays in, the same out."""
