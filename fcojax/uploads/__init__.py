"""Compression of uploads: what is sent, what it costs, and what keeps the method exact.

A compressor encodes one array; ``compressed`` makes a codec from it, for ``fcojax.Plan``.
"""

from fcojax.uploads.broadcast import compressed_broadcast
from fcojax.uploads.coding import Facts, compressed, facts
from fcojax.uploads.compressor import Compressor, compose, contractive, identity, leafwise
from fcojax.uploads.feedback import diana, econtrol, ef14, ef21, ef21_sgdm, marina
from fcojax.uploads.low_rank import power
from fcojax.uploads.modular import ModularGrid, modular_sum
from fcojax.uploads.quantise import half, natural, qsgd, sign, terngrad
from fcojax.uploads.rotation import drive, eden
from fcojax.uploads.sparse import rand_k, top_k
from fcojax.uploads.text import compressor_from_text, from_text

__all__ = [
    # compressors
    "Compressor",
    "drive",
    "eden",
    "half",
    "identity",
    "natural",
    "power",
    "qsgd",
    "rand_k",
    "sign",
    "terngrad",
    "top_k",
    # made of compressors
    "compose",
    "contractive",
    "leafwise",
    # constants of a compressor
    "Facts",
    "facts",
    # codecs, some with the aggregator that they need
    "compressed",
    "compressed_broadcast",
    "diana",
    "econtrol",
    "ef14",
    "ef21",
    "ef21_sgdm",
    "compressor_from_text",
    "from_text",
    "marina",
    "modular_sum",
    # for private sums
    "ModularGrid",
]
