"""Files of other programs, read into values."""
