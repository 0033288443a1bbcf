"""The table of methods: as the page prints it, and its claims of exactness, which limits test."""

import pathlib
import re
import runpy

import pytest

from fcojax import check
from fcojax.check import methods

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "algorithms.md"
# One of each kind: exact with everyone only, with any cohort, and not at all.
QUICK = ("scaffold", "fed_dyn", "fed_mid_osp", "r_fed_svrg")


def test_the_page_of_algorithms_opens_with_the_table(capsys):
    runpy.run_path(methods.__file__, run_name="__main__")
    printed = capsys.readouterr().out.partition("\n\n")[0].splitlines()
    page = re.sub(r"\[`(\w+)`\]\(#fcojax\.algorithms\.\1\)", r"\1", PAGE.read_text("utf-8"))
    lines = [line for line in page.partition("\n## ")[0].splitlines() if line[:1] == "|"]
    shown = [[*filter(None, map(str.strip, line.split("|")))] for line in lines]
    assert [shown[0], *shown[2:]] == [re.split("  +", line) for line in printed]
    assert max(map(len, printed)) <= 120


NAMES = [check.subject_of(factory).name for factory in methods.factories()]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.gate if name in QUICK else ()) for name in NAMES]
)
def test_a_method_is_exact_where_it_says_so(name):
    """With its defaults, on the heterogeneous lasso, or on least squares without a penalty."""
    subject = check.subject_of(getattr(methods.algorithms, name))
    found = check.limit(subject)
    assert (found.word == "exact") == subject.build(None).facts.exact, found
