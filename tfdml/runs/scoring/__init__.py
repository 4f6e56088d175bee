"""Scores of exported models: a file for each task, with its settings."""
