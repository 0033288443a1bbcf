"""The two apps of Flower for a study over sites, from the config beside them."""

import functools
import json
import logging
import os
import pathlib
from typing import Any

import jax

from fcojax_sites import flower
from fcojax_sites.flower.answers import LOG
from fcojax_sites.studies.select.files import names_in
from fcojax_sites.studies.select.sites import (
    DONE,
    PROGRESS,
    federation_of,
    site_file,
    study_of,
)


def _set_up() -> None:
    """Compute in double precision, and keep programs: each message starts a new process."""
    jax.config.update("jax_enable_x64", True)
    if not jax.config.values["jax_compilation_cache_dir"]:
        cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser()
        jax.config.update("jax_compilation_cache_dir", os.fspath(cache / "fcojax" / "jax"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def client_app(file: str) -> Any:
    """Return the ClientApp of a site, whose node config has its ``site``, ``file`` and limits."""
    _set_up()
    config, names = study_of(file)
    return flower.client_app(
        federation_of(config, names), functools.partial(site_file, config=config)
    )


def server_app(file: str) -> Any:
    """Return the ServerApp, which writes the rows of the study for the launcher."""
    from flwr.serverapp import ServerApp  # pyright: ignore[reportMissingImports]

    from fcojax.experiments import plain  # with matplotlib, which no site needs
    from fcojax_sites.studies.select.rows import by_sums

    _set_up()
    config, names = study_of(file)
    app = ServerApp()

    @app.main()
    def main(grid: Any, context: Any) -> None:
        federation = federation_of(config, names)
        sites = names_in(config.sites)
        folder = pathlib.Path(context.run_config["folder"])
        LOG.addHandler(logging.FileHandler(folder / PROGRESS, encoding="utf-8"))
        LOG.setLevel(logging.INFO)  # with the faults of sites, which are warnings
        transport = flower.over_grid(grid, len(sites), float(config.timeout))
        rows = [plain(row) for row in by_sums(config, federation, transport, names, LOG.info)]
        beside = folder / "unfinished"
        beside.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
        beside.replace(folder / DONE)

    return app
