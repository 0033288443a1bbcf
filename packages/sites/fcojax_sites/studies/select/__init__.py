"""A sparse model from a file; the study itself is imported on first use, since no site needs it."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fcojax_sites.studies.select.study import EXPERIMENT

__all__ = ["EXPERIMENT"]


def __getattr__(name: str) -> Any:
    if name == "EXPERIMENT":
        from fcojax_sites.studies.select import study

        return study.EXPERIMENT
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
