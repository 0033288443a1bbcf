"""What the README shows runs, and prints what it says."""

import pathlib
import re
import subprocess
import sys

README = (pathlib.Path(__file__).parent.parent / "README.md").read_text("utf-8")


def test_the_examples_run():
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == 2
    # A process of its own: the reader's JAX is in its default precision.
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == re.search(r"print\(.*\)  # (.*)", README)[1]
