"""What the README shows runs, and prints what it says."""

import pathlib
import re
import subprocess
import sys

README = (pathlib.Path(__file__).parent.parent / "README.md").read_text("utf-8")


def test_the_examples_run():
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == 3
    # A process of its own: the reader's JAX is in its default precision.
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    printed = re.findall(r"^print\(.*\)  # (.*)$", README, re.MULTILINE)
    assert len(printed) == 2 and done.stdout.split("\n")[:-1] == printed
