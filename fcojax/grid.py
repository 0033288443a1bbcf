"""Grids of hyperparameters for ``fcojax.sweep``: named tuples with a leading axis of points."""

from fcojax.engine.grid import log_spaced, product, random_draws, zipped

__all__ = ["log_spaced", "product", "random_draws", "zipped"]
