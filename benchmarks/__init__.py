"""Timings, against the plain way of doing the same."""
