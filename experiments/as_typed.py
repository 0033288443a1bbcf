"""Commands as the user types them: through ``fcojax`` or as modules."""

import pathlib
import re
import sys

# Within an installed library the launcher is in a folder of its own and has a command.
_PACKAGED = pathlib.Path(__file__).parent.parent.name == "_launcher"
_MODULE = re.compile(r"python -m experiments\.(run|figures)((?: \\\n)? +)--config=(\S+)")


def command(name: str) -> list[str]:
    """The command of this process, where ``name`` is what follows ``fcojax``."""
    place = _place(name)
    if place is not None:
        return ["fcojax", *sys.orig_argv[place + 1 :]]
    return [*(["fcojax", name] if _PACKAGED else ["python", "-m", f"experiments.{name}"]),
            *sys.argv[1:]]  # fmt: skip


def through_fcojax(name: str) -> bool:
    """Whether this process was begun as ``fcojax name``."""
    return _PACKAGED or _place(name) is not None


def shortened(text: str) -> str:
    r"""A text whose commands name modules, with the same commands through ``fcojax``.

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
    """Where ``fcojax`` stands in what was typed, with the name behind it."""
    given = sys.orig_argv
    for place, word in enumerate(given[:-1]):
        if pathlib.Path(word).stem == "fcojax" and given[place + 1] == name:
            return place
    return None
