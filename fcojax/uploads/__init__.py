"""What happens to an upload: chains of transforms, and compression.

A compressor encodes one array; ``compressed`` makes a transform from it, and ``ef14``, ``ef21`` and
their relatives make one with error feedback, for ``fcojax.Plan(uploads=chain(...))``.
"""

from fcojax.uploads.chain import chain
from fcojax.uploads.coding import compressed, facts
from fcojax.uploads.compressor import Compressor, compose, contractive
from fcojax.uploads.contract import At, Received
from fcojax.uploads.feedback import (
    diana,
    econtrol,
    ef14,
    ef21,
    ef21p,
    marina,
    momentum,
)
from fcojax.uploads.participation import inverse_probability
from fcojax.uploads.quantise import drive, half, modular_sum, natural, qsgd, sign
from fcojax.uploads.sparse import rand_k, top_k
from fcojax.uploads.transform import Facts, Opened, Sent, UploadTransform

__all__ = [
    # compressors
    "Compressor",
    "drive",
    "half",
    "natural",
    "qsgd",
    "rand_k",
    "sign",
    "top_k",
    # made of compressors
    "compose",
    "contractive",
    "facts",
    # transforms of uploads
    "At",
    "Facts",
    "Opened",
    "Received",
    "Sent",
    "UploadTransform",
    "chain",
    "compressed",
    "diana",
    "econtrol",
    "ef14",
    "ef21",
    "ef21p",
    "inverse_probability",
    "marina",
    "modular_sum",
    "momentum",
]
