"""Rows with the frequency of each voxel, and the numbers of voxels that are found often."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from experiments.report.rows import Row, Summary, column, select
from experiments.studies.fmri.problem import penalty, problem, voxel_grid
from experiments.study import Config
from fcojax.selection import stability

# What a draw leaves out half of.
HALVES = ("scans", "sessions")


def study(config: Config) -> Iterator[Row]:
    """Yield the largest frequency of each voxel over the strengths, for both kinds of halves."""
    scans, psi = problem(config), penalty(config)
    places, _ = voxel_grid(config)
    for halves in HALVES:
        found = stability(
            scans,
            psi,
            strengths=config.num_strengths,
            least=config.least,
            num_draws=config.num_draws,
            clients=halves == "sessions",
            key=jax.random.key(config.data_seed),
            tolerance=config.tolerance,
        )
        frequencies = np.asarray(found.largest["kernel"]).ravel()
        for voxel, (place, frequency) in enumerate(zip(places, frequencies, strict=True)):
            row = {"part": "voxel", "halves": halves, "voxel": voxel}
            yield row | {"place": place.tolist(), "frequency": float(frequency)}


def found(config: Config, rows: list[Row], halves: str) -> np.ndarray:
    """Return which voxels are found in at least the config's share of the halves."""
    return column(select(rows, part="voxel", halves=halves), "frequency") >= config.often


def summarise(config: Config, rows: list[Row]) -> Summary:
    """Return the number of voxels that are found often, and how many of those respond."""
    scans = problem(config)
    start = scans.init(jax.random.key(0))
    table = []
    for halves in HALVES:
        often = found(config, rows, halves)
        shown = start | {"kernel": jnp.asarray(often, jnp.float32).reshape(start["kernel"].shape)}
        measures = scans.measures(shown)
        entry = {
            "halves of the": halves,
            "voxels": often.size,
            f"found in {config.often:g} of the halves": int(often.sum()),
        }
        # Of real scans nobody knows which voxels respond.
        known = {
            name: float(measures[name]) for name in ("precision", "recall") if name in measures
        }
        table.append(entry | known)
    return {"stability": table}
