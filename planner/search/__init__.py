"""Choosing: legal layouts, their placements, the search with its proof, and the check of it."""
