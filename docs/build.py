"""Builds the site of this version beside those of other versions.

    python docs/build.py build/site [--unrun]

A commit with a tag vX.Y.Z goes into the folder X.Y.Z, any other into ``dev``.
The folders that are there already stay, so that building each tag in turn, or
adding one to what was published, makes the whole site; ``index.html`` lists
them, newest first. Nothing loads over the network.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

DOCS = pathlib.Path(__file__).parent
_PAGE = """<!doctype html>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>fcojax</title>
<body style="font-family: sans-serif; margin: 2rem">
<h1>fcojax</h1>
<p>Documentation of each version:</p>
<ul>
{items}
</ul>
"""


def version() -> str:
    """Return X.Y.Z of a commit with the tag vX.Y.Z, else ``dev``."""
    command = ["git", "tag", "--points-at", "HEAD"]
    tags = subprocess.run(
        command, cwd=DOCS, capture_output=True, text=True, check=True
    ).stdout.split()
    found = [tag[1:] for tag in tags if re.fullmatch(r"v\d+\.\d+\.\d+", tag)]
    return max(found, key=_order) if found else "dev"


def _order(name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", name))


def index(folder: pathlib.Path) -> str:
    """Return the page that lists the versions in a folder, newest first."""
    names = [path.parent.name for path in folder.glob("*/index.html")]
    names.sort(key=_order, reverse=True)  # dev has no number and comes last
    items = [f'<li><a href="{name}/index.html">{name}</a>' for name in names]
    return _PAGE.format(items="\n".join(items))


def main() -> None:
    """Build this version, and list all."""
    parser = argparse.ArgumentParser(prog="python docs/build.py")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument(
        "--unrun", action="store_true", help="notebooks without their outputs"
    )
    options = parser.parse_args()
    command = [sys.executable, "-m", "sphinx", "-q", "-W"]
    if options.unrun:
        command += ["-D", "nb_execution_mode=off"]
        command += ["-D", "suppress_warnings=myst-nb.lexer"]
    command += [str(DOCS), str(options.folder / version())]
    subprocess.run(
        command, check=True, env=os.environ | {"FCOJAX_VERSIONS": "1"}
    )
    # What myst-nb leaves beside its output is no part of the site.
    shutil.rmtree(options.folder / "jupyter_execute", ignore_errors=True)
    text = index(options.folder)
    (options.folder / "index.html").write_text(text, "utf-8")


if __name__ == "__main__":
    main()
