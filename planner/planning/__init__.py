"""A scenario planned: layouts searched, choices made, nodes named, the answer assessed."""
