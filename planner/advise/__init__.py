"""Questions that need the costs or the search again: why this plan, and why not faster."""
