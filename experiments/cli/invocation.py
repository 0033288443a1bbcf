"""Commands as the user types them: through ``fcojax`` or as modules."""

import pathlib
import re
import sys

from fcojax.__main__ import COMMANDS

# In an installed library the launcher has a folder of its own, and only ``fcojax`` finds it.
_PACKAGED = pathlib.Path(__file__).parents[2].name == "_launcher"
_MODULE = re.compile(
    r"python -m experiments\.(?:publishing\.)?(run|figures)((?: \\\n)? +)--config=(\S+)"
)


def command(name: str) -> list[str]:
    """Return the command line of this process; ``name`` is what follows ``fcojax``."""
    place = _place(name)
    if place is not None:
        return ["fcojax", *sys.orig_argv[place + 1 :]]
    typed = ["fcojax", name] if _PACKAGED else ["python", "-m", str(COMMANDS[name].module)]
    return [*typed, *sys.argv[1:]]


def through_fcojax(name: str) -> bool:
    """Return whether this process was started as ``fcojax name``."""
    return _PACKAGED or _place(name) is not None


def shortened(text: str) -> str:
    r"""Rewrite the commands in a text from modules to ``fcojax``.

    Example:
      >>> shortened("python -m experiments.run --config=configs/lasso.py --workdir=W")
      'fcojax run lasso --workdir=W'
    """

    def short(match: re.Match) -> str:
        path = pathlib.Path(match[3])
        name = path.stem if path.parent == pathlib.Path("configs") else match[3]
        return f"fcojax {match[1]}{match[2]}{name}"

    return _MODULE.sub(short, text)


def _place(name: str) -> int | None:
    """Return the place of ``fcojax`` with this name behind it in what was typed."""
    given = sys.orig_argv
    for place, word in enumerate(given[:-1]):
        if pathlib.Path(word).stem == "fcojax" and given[place + 1] == name:
            return place
    return None
