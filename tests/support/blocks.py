"""Run the Python blocks of a page as a reader would: in one process, in order.

``python tests/support/blocks.py PAGE...`` runs each page in its own namespace, in an empty folder
with the tables beside the page.
"""

import contextlib
import io
import os
import pathlib
import re
import shutil
import sys
import tempfile
import time
import traceback

_BLOCK = re.compile(r"^```(?:python|\{code-cell\}[^\n]*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_PRINT = re.compile(r"^print\((?:\n(?: .*\n)+|.*?)\)?(?:  # (.*))?$\n((?:# .*\n)*)", re.MULTILINE)


def blocks(text):
    """The Python code of a page, without the options of its cells."""
    return [re.sub(r"^:.*\n", "", block, flags=re.MULTILINE) for block in _BLOCK.findall(text)]


def promised(code):
    """Return the expected output, from comments after a print or below it."""
    lines = []
    for behind, below in _PRINT.findall(code):
        lines += [line[2:] for line in below.splitlines()] or ([behind] if behind else [])
    return lines


def run(path):
    """Run a page; raise an error if its code does, or if it prints something else."""
    code = "\n".join(blocks(path.read_text("utf-8")))
    if not code:
        raise AssertionError(f"{path} has no code")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, path, "exec"), {"__name__": "page"})
    if (want := promised(code)) and out.getvalue().splitlines() != want:
        raise AssertionError(f"{path} prints {out.getvalue()!r} and says {want}")


if __name__ == "__main__":
    os.environ["MPLBACKEND"] = "Agg"
    pages = [pathlib.Path(page).resolve() for page in sys.argv[1:]]
    os.chdir(tempfile.mkdtemp())
    failed = 0
    for page in pages:
        began, done = time.process_time(), "ran"
        for table in page.parent.glob("*.csv"):
            shutil.copy(table, ".")
        try:
            run(page)
        except Exception:
            failed, done = 1, traceback.format_exc()
        print(f"{page.name}: {time.process_time() - began:.1f} s, {done}", flush=True)
    sys.exit(failed)
