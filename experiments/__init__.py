"""Experiments: a config in, rows and figures out."""
