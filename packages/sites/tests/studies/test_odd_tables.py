"""Odd values and tables: refused in a sentence that names what is wrong, or run right."""

import pathlib
import subprocess
import sys

import pytest

from tests.studies.odd_tables import cases, judged

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", [0])
def test_200_odd_commands_are_refused_by_name_or_begin_with_the_right_rows(seed):
    """In forks of a process of its own, because threads of JAX do not survive a fork."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.studies.odd_tables", str(seed), "200"],
        cwd=pathlib.Path(__file__).parent.parent.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stdout.splitlines()[-1:]
    assert last == ["0 raw, 0 silent, 0 unnamed, 0 needless"], done.stdout + done.stderr


def test_ten_odd_commands_are_refused_as_a_user_types_them(tmp_path: pathlib.Path):
    wrong = [case for case in cases(1, 20, tmp_path) if case.wrong][:10]
    for case in wrong:
        command = [sys.executable, "-m", "fcojax", "run", *case.arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        verdict = judged(case, done.returncode, done.stderr)
        assert not verdict.kind and not done.stdout, verdict
