"""What a compiled program launches, read from the text that XLA's compiler returns for it.

Loops are multiplied out. A launch is an instruction that reads or writes memory: a fusion, a copy,
a call of a library. Its bytes are those of its operands and results, but of an operand of which a
kernel only reads or writes slices those of the slices.
"""

import collections
import math
import re
from typing import NamedTuple

# Instructions that run nothing: names for buffers, and control flow, whose bodies are counted.
_FREE = re.compile(
    r"parameter|constant|tuple|get-tuple-element|bitcast|after-all|optimization-barrier"
    r"|(partition|replica)-id|add-dependency|domain|iota|[\w-]+-done|async-update"
)
_HOST = re.compile(r"send|recv|infeed|outfeed")
_CROSSING = re.compile(r"all-|reduce-scatter|collective|ragged-all")
_SLICES = ("dynamic-slice", "gather", "slice")
_SIZES = {"pred": 1, "bf16": 2, "f8e4m3fn": 1, "f8e5m2": 1, "s4": 1, "u4": 1, "token": 0}
_SHAPE = re.compile(r"\b(pred|token|[a-z]+\d+\w*)\[([\d,<= ]*)\]")


class Instruction(NamedTuple):
    """One line of a computation: its name, type, operation, operands and attributes."""

    name: str
    type: str
    op: str
    operands: tuple[str, ...]
    rest: str
    root: bool


class Launches(NamedTuple):
    """Totals of a program, or of a part of it.

    Attributes:
      kernels: launches of every kind.
      bytes: read and written by them.
      calls: launches that are calls of libraries, by name.
      crossing: bytes that cross devices, by operation.
      waits: conditions that depend on data, for which the host may wait.
      host: transfers from and to the host's memory, and calls of it.
    """

    kernels: float = 0
    bytes: float = 0
    calls: collections.Counter = collections.Counter()
    crossing: collections.Counter = collections.Counter()
    waits: float = 0
    host: float = 0

    def plus(self, other: "Launches", times: float = 1) -> "Launches":
        """Return the sum with ``times`` times another."""

        def counters(mine, theirs):
            return collections.Counter(mine) + collections.Counter(
                {name: times * value for name, value in theirs.items()}
            )

        return Launches(
            self.kernels + times * other.kernels,
            self.bytes + times * other.bytes,
            counters(self.calls, other.calls),
            counters(self.crossing, other.crossing),
            self.waits + times * other.waits,
            self.host + times * other.host,
        )


def launches(text: str) -> Launches:
    """Return what a program launches.

    Args:
      text: the optimised program, as ``compiled.as_text()`` returns it.

    Example:
      >>> text = '''HloModule m
      ... body {
      ...   p = (s32[], f32[8]) parameter(0)
      ...   x = f32[8] get-tuple-element(p), index=1
      ...   ROOT y = f32[8] negate(x)
      ... }
      ... ENTRY main {
      ...   a = (s32[], f32[8]) parameter(0)
      ...   ROOT w = (s32[], f32[8]) while(a), condition=c, body=body, \
      ...     backend_config={"known_trip_count":{"n":"10"}}
      ... }'''
      >>> found = launches(text)
      >>> found.kernels, found.bytes
      (10, 640)
    """
    computations = parsed(text)
    return _of(computations, "ENTRY", {})


def parsed(text: str) -> dict[str, dict[str, Instruction]]:
    """Return the instructions of every computation by name; the entry also as ``ENTRY``."""
    found: dict[str, dict[str, Instruction]] = {}
    current: dict[str, Instruction] = {}
    for line in text.splitlines():
        if line and not line[0].isspace():
            head = re.match(r"(ENTRY )?%?([\w.\-]+) .*\{$", line.rstrip())
            if head:
                current = found[head.group(2)] = {}
                if head.group(1):
                    found["ENTRY"] = current
        elif " = " in line:
            instruction = _instruction(line.strip())
            current[instruction.name] = instruction
    return found


def num_bytes(type_text: str) -> int:
    """Return the bytes of a type, which may be a tuple.

    Example:
      >>> num_bytes("(f32[2,3]{1,0}, bf16[4], pred[])")
      33
    """
    total = 0
    for kind, dims in _SHAPE.findall(type_text):
        bits = re.search(r"\d+", kind)
        size = _SIZES[kind] if kind in _SIZES else int(bits.group()) // 8 if bits else 0
        sides = [int(side.strip("<= ")) for side in dims.split(",") if side.strip()]
        total += size * math.prod(sides)
    return total


def _instruction(line: str) -> Instruction:
    left, right = line.split(" = ", 1)
    root = left.startswith("ROOT ")
    kind, right = _until_closed(right) if right.startswith("(") else right.split(" ", 1)
    op, right = right.strip().split("(", 1)
    arguments, rest = _until_closed("(" + right)
    operands = tuple(
        match.group(1)
        for part in _split(arguments[1:-1])
        if (match := re.search(r"%?([\w.\-]+)$", part.strip()))
    )
    return Instruction(left.removeprefix("ROOT ").lstrip("%"), kind, op, operands, rest, root)


def _until_closed(text: str) -> tuple[str, str]:
    """Split behind the bracket that closes the first one."""
    depth = 0
    for index, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if depth == 0:
            return text[: index + 1], text[index + 1 :]
    return text, ""


def _split(arguments: str) -> list[str]:
    """Split at the commas that are in no bracket."""
    parts, depth = [""], 0
    for letter in arguments:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _of(computations, name: str, known: dict[str, Launches]) -> Launches:
    if name in known:
        return known[name]
    body, total = computations.get(name, {}), Launches()
    for each in body.values():
        total = total.plus(*_of_one(computations, body, each, known))
    known[name] = total
    return total


def _of_one(computations, body, each: Instruction, known) -> tuple[Launches, float]:
    """Return what one instruction launches, and how many times."""
    if _FREE.fullmatch(each.op):
        return Launches(), 1
    if each.op == "while":
        inner = _of(computations, _called(each, "body")[0], known)
        trips = _trips(computations, each)
        if trips is not None:
            return inner, trips
        return inner.plus(_of(computations, _called(each, "condition")[0], known))._replace(
            waits=inner.waits + 1
        ), 1
    if each.op == "conditional":
        names = "branch_computations|true_computation|false_computation"
        branches = [_of(computations, branch, known) for branch in _called(each, names)]
        most = max(branches, key=lambda branch: branch.kernels)
        return most._replace(waits=most.waits + 1), 1
    if each.op in ("call", "async-start") and (called := _called(each, "to_apply|calls")):
        return _of(computations, called[0], known), 1
    inner = _called(each, "calls") if each.op == "fusion" else []
    size = _fusion_bytes(computations[inner[0]], body, each) if inner else _bytes(body, each)
    calls, crossing = collections.Counter(), collections.Counter()
    # Memory space 5 is the host's.
    host = _HOST.match(each.op) is not None or "S(5)" in each.type
    if each.op == "custom-call":
        target = re.search(r'custom_call_target="([^"]+)"', each.rest)
        name = target.group(1) if target else "?"
        calls[name], host = 1, "callback" in name or "Host" in name
    if _CROSSING.match(each.op):
        crossing[each.op.removesuffix("-start")] = num_bytes(each.type)
    return Launches(1, size, calls, crossing, host=host), 1


def _trips(computations, loop: Instruction) -> int | None:
    """Return how often a loop runs; ``None`` if that depends on data.

    XLA for GPUs writes it down. Elsewhere it is the number below which a counter from zero stays.
    """
    written = re.search(r'known_trip_count":\{"n":"(\d+)"', loop.rest)
    if written:
        return int(written.group(1))
    condition = computations.get(*_called(loop, "condition"), {})
    compared = [each for each in condition.values() if each.op == "compare"]
    if len(compared) != 1 or "direction=LT" not in compared[0].rest:
        return None
    bound = condition.get(compared[0].operands[1])
    number = "".join(bound.operands) if bound is not None and bound.op == "constant" else ""
    return int(number) if number.isdigit() else None


def _called(each: Instruction, names: str) -> list[str]:
    found = re.findall(rf"\b(?:{names})=(\{{[^}}]*\}}|%?[\w.\-]+)", each.rest)
    return [name.strip(" %") for part in found for name in part.strip("{}").split(",")]


def _bytes(body, each: Instruction) -> int:
    result = num_bytes(each.type)
    if each.op in _SLICES:
        return 2 * result
    if each.op == "dynamic-update-slice":
        return 2 * _size(body, each.operands[1])
    return result + sum(_size(body, name) for name in each.operands)


def _size(body, name: str) -> int:
    return num_bytes(body[name].type) if name in body else 0


def _fusion_bytes(inner, body, each: Instruction) -> int:
    """Return the bytes of a fusion: slices where it only reads or writes those of an operand."""
    users = collections.defaultdict(list)
    for instruction in inner.values():
        for position, operand in enumerate(instruction.operands):
            users[operand].append((position, instruction))
    total = 0
    for instruction in inner.values():
        if instruction.op != "parameter":
            continue
        total += (
            sum(
                num_bytes(user.type) if user.op in _SLICES else 0
                for _, user in users[instruction.name]
            )
            if all(
                position == 0 and user.op in (*_SLICES, "dynamic-update-slice")
                for position, user in users[instruction.name]
            )
            else num_bytes(instruction.type)
        )
    (root,) = [instruction for instruction in inner.values() if instruction.root]
    outputs = [inner[name] for name in root.operands] if root.op == "tuple" else [root]
    for output in outputs:
        while output.op == "bitcast":
            output = inner[output.operands[0]]
        written = inner[output.operands[1]] if output.op == "dynamic-update-slice" else output
        total += num_bytes(written.type)
    return total
