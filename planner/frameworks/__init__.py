"""Training frameworks: what each calls things, its launch files read and written, its rules."""
