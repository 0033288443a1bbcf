"""Grids of hyperparameters for ``fcojax.sweep``: named tuples with a leading axis of points."""

from fcojax.engine.hparams import product, zipped

__all__ = ["product", "zipped"]
