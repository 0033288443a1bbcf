"""Sites on top of fcojax: tables of hospitals, regularisation paths and selection, Flower."""

import importlib
from typing import TYPE_CHECKING, Any

from fcojax_sites import selection
from fcojax_sites.selection import path, select

if TYPE_CHECKING:
    from fcojax_sites import estimators, flower, safetensors

__version__ = "0.4.0"

__all__ = ["estimators", "flower", "path", "safetensors", "select", "selection"]


def __getattr__(name: str) -> Any:  # imported on first use
    if name in ("estimators", "flower", "safetensors"):
        return importlib.import_module(f"fcojax_sites.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
