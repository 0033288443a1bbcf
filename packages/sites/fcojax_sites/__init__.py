"""Sites and selection: tables of hospitals, regularisation paths, Flower."""

from fcojax_sites import flower, selection
from fcojax_sites.selection import path, select

__all__ = ["flower", "path", "select", "selection"]
__version__ = "0.4.0.dev0"
