"""Pictures, one subject a file."""
