"""Signals, several processes, the setup of JAX, and exit codes."""
