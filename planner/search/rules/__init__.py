"""The rules a layout must keep, each with an id, a sentence and a source."""
