"""Answers as words and tables for the terminal."""
