"""Check the laws on an algorithm and report its limit and costs, or check the laws of a piece.

    fcojax check my_module:my_algorithm [--FIELD=NUMBER ...] [--rounds=6000] [--laws]
    fcojax check my_module:my_piece [--shape=8]

FIELD is a hyperparameter of the algorithm, and NUMBER its value; --laws leaves out the limit, which
takes most of the time. Pieces are penalties, mirror maps, manifolds, samplers and compressors, or
functions without arguments that return one; they are checked on arrays of --shape, such as 4,3, and
a compressor on vectors, of 64 entries by default. The exit code is 1 if a law does not hold.
"""

import os
import sys
from typing import Any

import jax
import numpy as np
from absl import flags

from fcojax.arguments import checked_value
from fcojax.check.facts import Costs, facts
from fcojax.check.laws import LAWS, contract
from fcojax.check.limits import limits
from fcojax.check.pieces import piece_laws
from fcojax.check.subject import (
    PIECES,
    Finding,
    Subject,
    check_buildable,
    found_piece,
    located,
    subject_of,
)
from fcojax.types import Count
from fcojax.uploads import Compressor

_MOST = 2**31 - 1  # numbers are counted in int32
_MARKS = {True: "holds", False: "FAILS", None: "-"}


def main(arguments: list[str]) -> int:
    """Check the algorithm that the arguments name; return the exit code."""
    if {"--help", "-h"} & set(arguments):
        print(__doc__)
        return 0
    try:
        name, piece, given = _parse(arguments)
        if not isinstance(piece, Subject):
            sizes = checked_value("--shape", list(map(int, given.shape)), tuple[Count, ...])
            print(f"{name}\n")
            found = piece_laws(piece, np.zeros(sizes))
            for law_name, finding in found.items():
                print(f"  {_MARKS[finding.holds]:7}{law_name:19}{finding.sentence}")
            return int(any(finding.holds is False for finding in found.values()))
        if given.rounds % 2:
            raise ValueError(f"--rounds is {given.rounds}; pass an even number.")
        check_buildable(subject := piece)
    except (ValueError, flags.Error) as error:
        sys.stderr.write(f"fcojax check: {error}\n")
        return 2
    failed = 0
    pairs = subject.hparams(client_lr=0.05)._asdict().items()
    print(f"{name} at {', '.join(f'{field} {value:g}' for field, value in pairs)}\n")
    for law_name, law in LAWS.items():
        try:
            found, raised = law(subject), False
        except Exception as error:  # code of the user may raise anything
            found, raised = Finding(False, located(error)), True
        failed += found.holds is False
        print(f"  {_MARKS[found.holds]:7}{law_name:19}{found.sentence}", flush=True)
        if raised and law is contract:
            print("\nWithout the contract the other laws cannot be checked.")
            return 1
    if failed:
        print(f"\n{failed} of {len(LAWS)} laws do not hold.")
    print("\nProperties:\n")
    try:
        if not given.laws:
            for name, found in limits(subject, num_rounds=given.rounds).items():
                print(f"  {name:18}{found.sentence}", flush=True)
        for name, sentence in sentences(facts(subject)).items():
            print(f"  {name:18}{sentence}")
    except Exception as error:
        if not failed:
            raise
        print(f"  unknown: {located(error)}")
    return int(failed > 0)


def sentences(found: Costs) -> dict[str, str]:
    """Return the costs in words."""
    return {
        "sent down": f"{found.down} numbers a client and round",
        "sent up": f"{found.up} numbers a client and round",
        "client state": f"{found.state} numbers",
        "prox evaluations": f"{found.client_proxes} a client of ten steps, "
        f"{found.server_proxes} the server with its model",
        "sampling": "needs every client in every round" if found.needs_everyone else "any cohort",
    }


def _parse(arguments: list[str]) -> tuple[str, Any, flags.FlagValues]:
    """Return the name that was passed, its subject or piece, and the flags."""
    given = flags.FlagValues()
    flags.DEFINE_bool("laws", False, "Leave out the limit.", flag_values=given)
    flags.DEFINE_integer("rounds", 6000, "Rounds to the limit.", 2, _MOST, flag_values=given)
    words = given(["check", *arguments], known_only=True)[1:]
    names = [word for word in words if not word.startswith("-")]
    if len(names) != 1:
        raise ValueError(f"pass one MODULE:FACTORY, not {len(names)}; --help shows how.")
    if isinstance(piece := found_piece(names[0]), PIECES):
        sizes = ["64" if isinstance(piece, Compressor) else "8"]
        flags.DEFINE_list("shape", sizes, "Of the arrays.", flag_values=given)
        given(["check", *arguments])
        return names[0], piece, given
    fields = piece.Hparams._fields
    for field in fields:
        flags.DEFINE_float(field, None, "A hyperparameter.", flag_values=given)
    try:
        given(["check", *arguments])
    except flags.UnrecognizedFlagError as error:
        known = ", ".join(f"--{flag}" for flag in (*fields, "laws", "rounds"))
        raise ValueError(f"there is no flag --{error.flagname}; pass some of {known}.") from None
    numbers: Any = {field: given[field].value for field in fields if given[field].present}
    return names[0], subject_of(piece, **numbers), given


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    try:
        code = main(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:  # as in fcojax check fed_avg | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    sys.exit(code)
