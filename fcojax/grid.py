"""Grids of hyperparameters for ``fcojax.sweep``: named tuples with a leading axis of points."""

from fcojax.engine.grid import log_spaced, product, zipped

__all__ = ["log_spaced", "product", "zipped"]
