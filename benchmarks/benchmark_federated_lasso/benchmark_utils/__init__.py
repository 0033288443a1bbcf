"""Code that the solvers and the objective share; Benchopt requires this name."""
