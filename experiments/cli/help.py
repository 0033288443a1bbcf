"""The text of ``--help``: every key of the config with its value and meaning, and the flags."""

import ast
import io
import pathlib
import textwrap
import tokenize
from collections.abc import Iterator
from typing import Any

from absl import flags
from ml_collections import ConfigDict

from experiments.config import config_file
from experiments.config.keys import MEANINGS, SHARED
from experiments.process import invocation

_USAGE = "usage: {} --workdir=DIR [--config.KEY=VALUE ...] [flags]\n"
_TYPED = ("python -m experiments.run --config=FILE.py", "fcojax run NAME|FILE.py|FILE.csv")


def manual(path: str | None, module: str) -> str:
    """Return the help for a config with its docstring, or for the shared keys without one.

    Args:
      path: the config file.
      module: the name of the module that defines the flags.
    """
    about, own = [], []
    if path is None:
        shared = [(key, "", meaning) for key, meaning in MEANINGS.items()]
    else:
        file = pathlib.Path(path)
        about = [ast.get_docstring(ast.parse(file.read_text("utf-8"))) or "", ""]
        config = config_file.load(path).get_config()
        own, shared = [], []
        comments = _comments(file.read_text("utf-8"))
        for key, value, meaning in documented(config, file):
            unset = key not in comments and key in SHARED and value == SHARED[key]
            (shared if unset else own).append((key, value, meaning))
        about += [f"config keys of {path}", *_lines(own), ""]
    known = flags.FLAGS.flags_by_module_dict()[module]
    shown = [(f"--{flag.name}", flag.default, flag.help) for flag in known if flag.name != "config"]
    usage = _USAGE.format(_TYPED[invocation.through_fcojax("run")])
    rest = ["config keys that all sweeps share", *_lines(shared), ""] if shared else []
    return "\n".join([usage, *about, *rest, "flags", *_lines(shown)])


def documented(config: ConfigDict, path: pathlib.Path) -> Iterator[tuple[str, Any, str]]:
    """Yield each key with its value and its comment, or its shared meaning."""
    comments = _comments(path.read_text("utf-8"))
    for key in config:
        value = config.get(key)
        if isinstance(value, ConfigDict):
            value = value.to_dict()
        yield key, value, comments.get(key) or MEANINGS.get(key, "")


def _comments(text: str) -> dict[str, str]:
    """Return the first comment after ``key=value,`` or ``config.key = value`` for each key."""
    found: dict[str, str] = {}
    names: dict[int, str] = {}
    before = None
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        line = token.start[0]
        if token.string == "=" and before is not None and before.type == tokenize.NAME:
            names.setdefault(line, before.string)
        elif token.type == tokenize.COMMENT and line in names:
            found.setdefault(names[line], token.string.lstrip("# "))
        before = token
    return found


def _lines(entries: list[tuple[str, Any, str]]) -> Iterator[str]:
    for name, value, meaning in entries:
        if isinstance(value, tuple | list):
            value = ",".join(map(str, value))  # the form that is typed
        shown = "" if value in (None, "", {}) else f" ({value})"
        line = f"  {name:20}  {meaning}{shown}"
        yield textwrap.fill(line, 100, subsequent_indent=" " * 24, break_long_words=False)
