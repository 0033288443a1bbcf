"""A compressor that changes nothing and saves nothing."""

from fcojax.uploads import Compressor

IDENTITY = Compressor(
    "identity",
    encode=lambda hparams, x, key: x,
    decode=lambda hparams, encoded, key, like: encoded,
    variance=lambda hparams, like: 0.0,
    contraction=lambda hparams, like: 1.0,
)
