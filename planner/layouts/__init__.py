"""What is decided: the keys of a layout, its grids, rank orders and schedules."""
