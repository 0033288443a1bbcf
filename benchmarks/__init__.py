"""Benchmarks of the library beside plain implementations of the same computation."""
