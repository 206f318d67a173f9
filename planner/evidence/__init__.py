"""Measurements: published runs against predictions."""
