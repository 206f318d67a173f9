"""Why nothing fits: minimal reasons, the nearest miss, and what would make it fit."""
