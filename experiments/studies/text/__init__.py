"""Prediction of the next character, with each text as a client."""

import pathlib
from typing import Any, Literal

import numpy as np

import fcojax
from experiments.report.plots import Panel
from experiments.study import Config, Sweep
from fcojax.problems import Problem
from fcojax.transforms import l1, on_subtree
from fcojax.types import Count

_PADDING = 0
_VALIDATION = 5  # every fifth sequence is for validation


def problem(config: Config) -> Problem:
    """Return the problem of a recurrent network, or a transformer, on the texts."""
    from fcojax import networks

    texts = _texts(config)
    letters = sorted(set("".join(texts.values())))
    number = {letter: place for place, letter in enumerate(letters, 1)}
    parts: dict[bool, dict[str, np.ndarray]] = {True: {}, False: {}}
    for name, text in texts.items():
        tokens = np.array([number[letter] for letter in text], np.int32)
        # One character more than the length: targets are the inputs shifted by one.
        rows = tokens[: len(tokens) // (config.length + 1) * (config.length + 1)]
        rows = rows.reshape(-1, config.length + 1)
        held = np.arange(len(rows)) % _VALIDATION == _VALIDATION - 1
        if not held.any():
            raise ValueError(
                f"the text {name} has {len(text)} characters, fewer than {_VALIDATION} sequences "
                f"of {config.length + 1}; leave it out, or pass a smaller --config.length."
            )
        parts[False][name], parts[True][name] = rows[~held], rows[held]
    train, validation = (
        fcojax.from_clients(
            [{"x": rows[:, :-1], "y": rows[:, 1:]} for rows in parts[held].values()],
            "examples",
            ids=list(parts[held]),
        )
        for held in (False, True)
    )
    options: dict[str, Any] = {"num_units": config.num_units, "num_layers": 1}
    if config.network == "transformer":
        model = networks.transformer(len(letters) + 1, config.length, num_heads=1, **options)
    else:
        build = {"char_gru": networks.char_gru, "char_lstm": networks.char_lstm}[config.network]
        model = build(len(letters) + 1, **options)
    return networks.language_model(
        model, train, validation, num_tokens=len(letters) + 1, padding=_PADDING
    )


def _texts(config: Config) -> dict[str, str]:
    """Return each client's text by name, from files or drawn from a Markov chain."""
    if config.data_dir:
        found = sorted(pathlib.Path(config.data_dir).glob("*.txt"))
        if not found:
            raise ValueError(
                f"{config.data_dir} has no .txt file; pass a folder with one file per client."
            )
        return {path.stem: path.read_text("utf-8") for path in found}
    rng = np.random.default_rng(config.data_seed)
    num = config.num_letters
    common = rng.dirichlet(np.full(num, 0.2), size=num)
    drawn = {}
    for client in range(config.num_clients):
        chain = (common + rng.dirichlet(np.full(num, 0.2), size=num)) / 2
        bounds, tokens = np.cumsum(chain, axis=1), [0]
        for chance in rng.random(config.num_characters - 1):
            tokens.append(min(int(np.searchsorted(bounds[tokens[-1]], chance)), num - 1))
        drawn[f"client {client:03}"] = "".join(chr(97 + token) for token in tokens)
    return drawn


def _penalty(config: Config):
    from fcojax.networks import dense_kernels

    return on_subtree(l1(), dense_kernels)


EXPERIMENT = Sweep(
    title="The next character of a text",
    problem=problem,
    penalty=_penalty,
    panels=(
        Panel("validation_loss", "cross entropy on validation"),
        Panel("accuracy", "share of characters that are predicted"),
    ),
    keys={
        str: "data_dir",
        Literal["char_gru", "char_lstm", "transformer"]: "network",
        Count: "num_units length num_clients num_characters num_letters",
    },
    solve_optimum=False,  # not convex
)
