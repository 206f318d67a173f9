"""What answers are: plans, advice, checks, outlooks, as values that render and are written."""
