"""The process itself: signals, several processes, the setup of JAX, exit codes."""
