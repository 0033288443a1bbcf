"""The laws of compressors detect wrong statements; tests/laws has the library's compressors."""

import pathlib

import jax.numpy as jnp
import numpy as np
import pytest

from fcojax import check, uploads
from fcojax.check.__main__ import main

SIZE = 64
RANDOM, TOP, SIGNS = uploads.rand_k(4), uploads.top_k(4), uploads.sign()


def failed(compressor, size=SIZE):
    found = check.piece_laws(compressor, np.zeros(size))
    return [name for name, finding in found.items() if finding.holds is False]


def decoded_times(compressor, factor):
    def decode(hparams, encoded, key, like):
        return (factor * compressor.decode(hparams, encoded, key, like)).astype(like.dtype)

    return compressor._replace(decode=decode)


def with_bits_of_the_vector(compressor):
    """A decoder may use only the shape of the vector, not its values."""
    return compressor._replace(decode=lambda hparams, encoded, key, like: 1.0 * like)


def stating(compressor, **numbers):
    functions = {name: lambda hparams, like, n=n: n for name, n in numbers.items()}
    return compressor._replace(**functions)


def draws_outside_of_the_key(compressor):
    rng = np.random.default_rng(0)

    def decode(hparams, encoded, key, like):
        return (1 + rng.uniform(0, 1e-3)) * compressor.decode(hparams, encoded, key, like)

    return compressor._replace(decode=decode)


WRONG = {
    "a shape": (TOP._replace(decode=lambda h, encoded, key, like: encoded.values), ["form"]),
    "a dtype": (TOP._replace(decode=lambda *given: TOP.decode(*given).astype(float)), ["form"]),
    "the vector itself": (with_bits_of_the_vector(TOP), ["form"]),
    "no arrays": (TOP._replace(encode=lambda h, x, key: 1.0), ["form"]),
    "zeros": (TOP._replace(decode=lambda *given: 1 + TOP.decode(*given)), ["form"]),
    "zeros over zeros": (
        SIGNS._replace(encode=lambda h, x, key: SIGNS.encode(h, x / jnp.abs(x).max(), key)),
        ["form"],
    ),
    "other draws": (draws_outside_of_the_key(SIGNS), ["compiled"]),
    "a little bias": (decoded_times(RANDOM, 0.99), ["unbiased"]),
    "bias": (stating(TOP, variance=1.0), ["unbiased"]),
    "too small a variance": (stating(RANDOM, variance=10.0), ["variance"]),
    "too large a contraction": (stating(TOP, contraction=0.2), ["contraction"]),
    "a contraction of zero": (stating(TOP, contraction=0.0), ["contraction"]),
    "more bytes than the vector": (
        SIGNS._replace(
            encode=lambda h, x, key: (SIGNS.encode(h, x, key), x),
            decode=lambda h, encoded, key, like: SIGNS.decode(h, encoded[0], key, like),
        ),
        ["bytes"],
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrongly_stated_compressor_is_detected(what):
    compressor, laws = WRONG[what]
    assert failed(compressor) == laws


def test_a_factor_of_equal_entries_is_detected_where_the_deviation_is_larger():
    """One of 64 entries times 64 deviates by eight norms, but its mean is exact."""
    found = check.piece_laws(decoded_times(uploads.rand_k(1), 0.9))["unbiased"]
    assert found.holds is False


@pytest.mark.slow
def test_the_compressor_of_the_documentation_is_checked_as_it_says(tmp_path, monkeypatch, capsys):
    """It has under 30 lines, and its report is that of the page."""
    page = (pathlib.Path(__file__).parents[2] / "docs" / "extend.md").read_text("utf-8")
    own = page.split("## A compressor\n")[1]
    code = own.split("```python\n")[1].split("\nprint(")[0]
    assert code.count("\n") < 30
    before = "import jax.numpy as jnp\nfrom fcojax import uploads\n"
    (tmp_path / "mine.py").write_text(before + code)
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["mine:one_of_ten", "--shape=200"]) == 0
    report = own.split("```text\n")[1].split("```")[0]
    assert capsys.readouterr().out.split() == ["mine:one_of_ten", *report.split()]
