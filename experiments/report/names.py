"""Words and symbols for quantities in figures and tables, instead of identifiers."""

import html
import re

_SYMBOLS = {
    "client_lr": ("client rate", r"\eta_c"),
    "server_lr": ("server rate", r"\eta_s"),
    "penalty_scale": ("strength", r"\lambda"),
    "prox_step": ("prox step", r"\eta"),
    "alpha": ("regularisation", r"\alpha"),
}
_WORDS = {
    "f1": "F1 score",
    "r2": "R2",
    "error_fro": "Frobenius error",
    "rmse": "root mean squared error",
    "validation_loss": "validation loss",
    "violation": "KKT violation",
    "suboptimality": r"$\Phi - \Phi^*$",
    "bytes_up": "bytes sent up",
    "bytes_down": "bytes sent down",
    "hours": "simulated hours",
}


def symbol(name: str) -> str:
    """Return the symbol of a hyperparameter between dollars, or its name in words."""
    return f"${_SYMBOLS[name][1]}$" if name in _SYMBOLS else words(name)


def words(name: str) -> str:
    """Return the name of a column in words.

    Example:
      >>> words("client_lr"), words("f1"), words("sync_prob")
      ('client rate', 'F1 score', 'sync prob')
    """
    if name in _SYMBOLS:
        return _SYMBOLS[name][0]
    return _WORDS.get(name, name.replace("_", " "))


def without_math(label: str) -> str:
    r"""Return a label of a figure as plain text, with Greek letters instead of mathematics.

    Example:
      >>> without_math(r"$\Phi - \Phi^*$"), without_math("cost in $")
      ('Φ - Φ*', 'cost in $')
    """

    def letters(found: re.Match) -> str:
        named = re.sub(r"\\(\w+)", lambda letter: html.unescape(f"&{letter[1]};"), found[1])
        return named.replace("^*", "*")

    return re.sub(r"\$([^$]*\\[^$]*)\$", letters, label)
