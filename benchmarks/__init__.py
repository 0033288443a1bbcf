"""Benchmarks that compare the library with plain implementations of the same computation."""
