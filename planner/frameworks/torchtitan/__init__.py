"""torchtitan: its flags and TOML, written and read."""
