"""The laws on an algorithm, in plain words.

    python -m fcojax.check my_module:my_algorithm [--FIELD=NUMBER ...] [--rounds=6000] [--laws]

FIELD is a hyperparameter of the algorithm, checked at this number; ``--laws`` leaves out where it
ends up, which takes most of the time. The exit code is 1 if a law does not hold.
"""

import os
import sys

import jax

from fcojax.check.facts import Facts, facts
from fcojax.check.laws import LAWS, contract
from fcojax.check.limits import limits
from fcojax.check.subject import (
    Finding,
    Subject,
    found_factory,
    located,
    refuse_what_cannot_be_built,
    subject_of,
)

_MARKS = {True: "holds", False: "FAILS", None: "-"}


def main(arguments: list[str]) -> int:
    """Checks what the arguments name; returns the exit code."""
    names = [argument for argument in arguments if not argument.startswith("--")]
    if len(names) != 1 or "--help" in arguments:
        print(__doc__)
        return 2
    try:
        numbers = _numbers(arguments)
        num_rounds = _even(numbers.pop("rounds", 6000.0))
        subject = subject_of(found_factory(names[0]), **numbers)
        refuse_what_cannot_be_built(subject)
    except ValueError as error:
        print(error)
        return 2
    failed = 0
    print(f"{names[0]} at {_shown(subject)}\n")
    for name, law in LAWS.items():
        try:
            found, raised = law(subject), False
        except Exception as error:  # whatever a stranger's code raises
            found, raised = Finding(False, located(error)), True
        failed += found.holds is False
        print(f"  {_MARKS[found.holds]:7}{name:19}{found.sentence}", flush=True)
        if raised and law is contract:
            print("\nWithout the contract the other laws cannot be asked.")
            return 1
    if failed:
        print(f"\n{failed} of {len(LAWS)} laws do not hold.")
    print("\nWhat it is:\n")
    try:
        if "--laws" not in arguments:
            for name, found in limits(subject, num_rounds=num_rounds).items():
                print(f"  {name:18}{found.sentence}", flush=True)
        for name, sentence in told(facts(subject)).items():
            print(f"  {name:18}{sentence}")
    except Exception as error:
        if not failed:
            raise
        print(f"  cannot be told: {located(error)}")
    return int(failed > 0)


def told(found: Facts) -> dict[str, str]:
    """The facts for a reader."""
    return {
        "sent down": f"{found.down} numbers a client and round",
        "sent up": f"{found.up} numbers a client and round",
        "client state": f"{found.state} numbers",
        "prox evaluations": f"{found.client_proxes} a client of ten steps, "
        f"{found.server_proxes} the server with its model",
        "sampling": "needs every client in every round" if found.needs_everyone else "any cohort",
    }


def _numbers(arguments: list[str]) -> dict[str, float]:
    """The numbers of ``--NAME=NUMBER``, by name; raises at any other flag."""
    found = {}
    for argument in arguments:
        if not argument.startswith("--") or argument == "--laws":
            continue
        name, equals, value = argument[2:].partition("=")
        if not equals:
            raise ValueError(
                f"there is no flag --{name}; there are --laws, --rounds=NUMBER and --FIELD=NUMBER."
            )
        try:
            found[name] = float(value)
        except ValueError:
            raise ValueError(f"--{name} is {value!r}; pass a number.") from None
    return found


def _even(number: float) -> int:
    """Rounds with a look halfway."""
    if not (number >= 2 and number % 2 == 0):
        raise ValueError(f"--rounds is {number:g}; pass an even number, at least 2.")
    return int(number)


def _shown(subject: Subject) -> str:
    pairs = subject.hparams(client_lr=0.05)._asdict().items()
    return ", ".join(f"{name} {value:g}" for name, value in pairs)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    try:
        code = main(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    sys.exit(code)
