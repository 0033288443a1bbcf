"""Write the table of docs/algorithms.md: what is checked and measured of each algorithm.

    python -m experiments.studies.compare.choosing [--compare=runs/compare] [--page=FILE]

Limits, states and proxes come from ``fcojax.check``; rounds and floats from a finished run of
``configs/compare.py``. This takes ten minutes on two cores.
"""

import json
import pathlib
from typing import Any, NamedTuple

import jax
from absl import app, flags

from experiments.studies.compare.methods import METHODS
from fcojax import algorithms, everyone, uniform_cohort
from fcojax.algorithms import takes
from fcojax.algorithms.base import Factory
from fcojax.check.facts import facts
from fcojax.check.limits import limit
from fcojax.check.subject import subject_of

FLAGS = flags.FLAGS
_ROUNDS = 6000


class Line(NamedTuple):
    """A row of the table.

    Attributes:
      factory: the algorithm's factory.
      name: the call, as written in the table.
      method: its name in ``configs/compare.py``; empty if it is not compared there.
      numbers: hyperparameters for the check that differ from the defaults.
    """

    factory: Factory
    name: str
    method: str = ""
    numbers: tuple[tuple[str, float], ...] = ()


def _variant(name: str, **options: Any) -> Factory:
    factory = getattr(algorithms, name)
    return takes(factory.Hparams, *factory.geometry)(
        lambda loss, *geometry: factory(loss, *geometry, **options)
    )


_LINES = (
    Line(algorithms.fed_avg, "fed_avg"),
    Line(algorithms.fed_avg_subgradient, "fed_avg_subgradient", "subgradient"),
    Line(algorithms.fed_mid, "fed_mid", "fed_mid"),
    Line(algorithms.fed_mid_osp, "fed_mid_osp", "fed_mid_osp"),
    Line(algorithms.fed_dual_avg, "fed_dual_avg", "fed_dual_avg"),
    Line(algorithms.fed_dual_avg_osp, "fed_dual_avg_osp", "osp"),
    Line(algorithms.fed_dual_avg_tracking, "fed_dual_avg_tracking", "dual_tracking"),
    Line(algorithms.fast_fed_dual_avg, "fast_fed_dual_avg", "fast"),
    Line(algorithms.composite_fl, "composite_fl", "composite_fl"),
    Line(algorithms.scaffold, "scaffold", "scaffold"),
    Line(_variant("scaffold", prox="feedback"), 'scaffold(prox="feedback")', "feedback"),
    Line(algorithms.fast_scaffold, "fast_scaffold", "fast_scaffold"),
    Line(algorithms.mime, "mime", "mime"),
    Line(algorithms.prox_skip, "prox_skip", "prox_skip"),
    Line(algorithms.fed_normal_map, "fed_normal_map", "normal_map"),
    Line(algorithms.fed_dr, "fed_dr", "fed_dr_gd", (("relaxation", 1.0),)),
    Line(algorithms.fed_admm, "fed_admm", "fed_admm"),
    Line(algorithms.fed_pd, "fed_pd", "fed_pd_gd"),
    Line(algorithms.fed_dyn, "fed_dyn", "fed_dyn"),
    Line(algorithms.fed_split, "fed_split"),
)


def row(line: Line, tables: dict[str, Any]) -> dict[str, str]:
    """Return the cells of one algorithm."""
    subject = subject_of(line.factory, **dict(line.numbers))
    known = facts(subject)
    cells = {
        "`fcojax.algorithms`": f"`{line.name}`",
        "minimises": "F + psi" if subject.composite else "F",
        "limit": limit(subject, num_rounds=_ROUNDS).word,
    }
    for heading, cohort, lost in (
        ("half the clients", uniform_cohort(cohort_size=4), 0.0),
        ("30 % lost", everyone(), 0.3),
    ):
        if known.needs_everyone:
            cells[heading] = "refused"
        else:
            found = limit(subject, cohort, lost=lost, num_rounds=_ROUNDS)
            cells[heading] = "exact" if found.word == "exact" else "not exact"
    cells |= {"client state": known.state, "proxes, client": str(known.client_proxes)}
    cells["server"] = str(known.server_proxes)
    for problem, heading in (("own", "unlike Hessians"), ("shared", "shared Hessians")):
        found = tables[problem]["methods"][METHODS[line.method].text] if line.method else {}
        cells[heading] = _tuned(found)
    return cells


def _tuned(found: dict[str, Any]) -> str:
    if not found:
        return ""
    if found["rounds"] is None:
        return "never"
    up, down = (found[f"floats_{way}"] / 1000 for way in ("up", "down"))
    return f"{found['rounds']:.0f}; {up:.1f}, {down:.1f}"


def main(argv: list[str]) -> None:
    """Check every algorithm, add the measured rounds, and write the page."""
    del argv
    jax.config.update("jax_enable_x64", True)
    summary = pathlib.Path(FLAGS.compare) / "summary.json"
    if not summary.exists():
        raise SystemExit(
            f"choosing: there is no {summary}; run configs/compare.py with "
            f"--workdir={FLAGS.compare} first."
        )
    tables = json.loads(summary.read_text("utf-8"))
    rows = []
    for line in _LINES:
        rows.append(row(line, tables))
        print(" | ".join(rows[-1].values()), flush=True)
    headings = list(rows[0])
    table = [headings, ["---"] * len(headings), *([*cells.values()] for cells in rows)]
    lines = "\n".join(f"| {' | '.join(cells)} |" for cells in table)
    central = {
        problem: tables[problem]["methods"][METHODS["prox_gd"].text]["rounds"]
        for problem in ("own", "shared")
    }
    introduction = _INTRODUCTION.format(**central)
    page = pathlib.Path(FLAGS.page)
    above, _, _ = page.read_text("utf-8").partition(_HEADING)
    page.write_text(f"{above}{introduction}\n{lines}\n", "utf-8")


_HEADING = "## Checked and measured\n"
_INTRODUCTION = f"""{_HEADING}
- *limit*: the end point after {_ROUNDS:,} rounds of ten full local steps of 1 / (10 L) on eight \
heterogeneous clients (`fcojax.check`).
  *exact*: within 1e-10 of the minimiser.
  *neighbourhood*: at a distance that halves with the step.
  *approaching*: not yet converged.
  *elsewhere*: none of these.
- *half the clients*, *30 % lost*: whether the method is exact with half of the clients in each \
round, and with 30 per cent of the uploads lost.
- *client state*: numbers stored by a client, for a model of d numbers.
- *proxes*: evaluations of the prox or of the mirror map in a round of ten local steps, on a \
client and on the server.
- *unlike* and *shared Hessians*: exchanges to a relative distance of 1e-6 with tuned steps; \
then thousands of floats sent up and down until that point (`configs/compare.py`).
  Proximal gradient descent on the pooled problem needs {{own:,.0f}} and {{shared:,.0f}} exchanges.
"""


if __name__ == "__main__":
    flags.DEFINE_string("compare", "runs/compare", "A finished run of configs/compare.py.")
    flags.DEFINE_string("page", "docs/algorithms.md", "The page whose table is written.")
    app.run(main)
