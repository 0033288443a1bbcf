"""What bad sites send: each kind is a function of the answer that was in order."""

import json
import pickle

import numpy as np

from fcojax_sites import safetensors

DEEP = "[" * 100_000 + "]" * 100_000
ESCAPES = "\x1b[2J\x1b]0;owned\x07\r\n\u202e\ud800"


def file_of(header, body=b""):
    """The bytes of a file with this header, which need not be in order."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def parts(reply):
    size = int.from_bytes(reply[:8], "little")
    return json.loads(reply[8 : 8 + size]), reply[8 + size :]


def with_facts(**facts):
    """The answer with other facts; ``None`` for one that is left out."""

    def spoil(reply):
        header, body = parts(reply)
        found = header["__metadata__"] | facts
        header["__metadata__"] = {name: one for name, one in found.items() if one is not None}
        return file_of(header, body)

    return spoil


def with_metadata(metadata):
    def spoil(reply):
        header, body = parts(reply)
        return file_of(header | {"__metadata__": metadata}, body)

    return spoil


def with_arrays(change):
    """The answer with other arrays."""

    def spoil(reply):
        arrays, facts = safetensors.loads(reply)
        return safetensors.dumps(change(arrays), facts)

    return spoil


def of_each(change):
    return with_arrays(lambda arrays: {name: change(array) for name, array in arrays.items()})


def with_entry(**entry):
    """The answer with another place, shape or dtype of its first array."""

    def spoil(reply):
        header, body = parts(reply)
        name = next(name for name in header if name != "__metadata__")
        header[name] |= entry
        return file_of(header, body)

    return spoil


def deep_facts(reply):
    header, body = parts(reply)
    del header["__metadata__"]
    text = json.dumps(header)[:-1] + f', "__metadata__": {{"kind": {DEEP}}}}}'
    return file_of(text.encode(), body)


def instead(value):
    return lambda reply: value


def poisoned(value):
    def change(array):
        array = array.copy()
        if array.dtype.kind == "f":
            array.ravel()[-1] = value
        return array

    return of_each(change)


def renamed(arrays):
    return {f"{name}x": array for name, array in arrays.items()}


def without_one(arrays):
    return dict(list(arrays.items())[1:])


UNREADABLE = {
    "nothing": instead(None),
    "a number": instead(7),
    "text": instead("an upload"),
    "a list": instead([b""]),
    "a dict": instead({"finite": "True"}),
    "a memoryview": memoryview,
    "no bytes": instead(b""),
    "two bytes": instead(b"PK"),
    "a pickle": instead(pickle.dumps({"site": "Bern"})),
    "a web page": instead(b"<!doctype html><title>502 Bad Gateway</title>" * 5),
    "zeros": instead(bytes(1000)),
    "ones": instead(b"\xff" * 1000),
    "a header beyond the end": lambda reply: (2**63).to_bytes(8, "little") + reply[8:],
    "a header that is cut off": lambda reply: reply[:20],
    "text that is no JSON": instead(file_of(b"{finite: True}")),
    "text that is not UTF-8": instead(file_of(b"\xff\xfe{}")),
    "JSON of a list": instead(file_of([])),
    "JSON of a number": instead(file_of(7)),
    "deep JSON": instead(file_of(DEEP.encode())),
    "deep facts": deep_facts,
    "long JSON": instead(file_of(b"{}" + b" " * 2**23)),
    "a long number": instead(file_of(b'{"w": ' + b"7" * 10_000 + b"}")),
    "no facts": with_metadata({}),
    "facts that are a number": with_metadata(7),
    "facts that are a list": with_metadata(["join", "round"]),
    "facts that are numbers": with_metadata({"round": 1, "kind": 2}),
    "facts that are nothing": with_metadata(None),
}

OF_ANOTHER_MESSAGE = {
    "no site": with_facts(site=None),
    "another site": with_facts(site="Antwerp"),
    "a site with escape codes": with_facts(site=ESCAPES),
    "no run": with_facts(run=None),
    "another run": with_facts(run="another"),
    "no kind": with_facts(kind=None),
    "another kind": with_facts(kind="join"),
    "no round": with_facts(round=None),
    "an earlier round": with_facts(round="0"),
    "a later round": with_facts(round="99"),
    "a round that is text": with_facts(round=ESCAPES),
}

# Of answers that have arrays.
DAMAGED = {
    "a body that is cut off": lambda reply: reply[:-3],
    "no array": with_arrays(lambda arrays: {}),
    "an array less": with_arrays(without_one),
    "an array more": with_arrays(lambda arrays: arrays | {"w": np.zeros(3)}),
    "arrays of other names": with_arrays(renamed),
    "a million numbers more": with_arrays(lambda arrays: arrays | {"w": np.zeros(2**20)}),
    "longer arrays": of_each(lambda array: np.append(array, array)),
    "arrays of more axes": of_each(lambda array: array[None]),
    "arrays without numbers": of_each(lambda array: array[..., :0] if array.ndim else array[None]),
    "numbers in float32": of_each(lambda array: array.astype("float32")),
    "numbers as integers": of_each(lambda array: array.astype("int16")),
    "complex numbers": of_each(lambda array: array.astype("complex64")),
    "truth values": of_each(lambda array: array.astype(bool)),
    "an unknown dtype": with_entry(dtype="F128"),
    "a dtype with escape codes": with_entry(dtype=ESCAPES),
    "a dtype that is a list": with_entry(dtype=["F64"]),
    "a negative length": with_entry(shape=[-1]),
    "a length of 2**62": with_entry(shape=[2**62]),
    "a million axes": with_entry(shape=[2**60] * 10**5),
    "a length that is text": with_entry(shape=["6"]),
    "a shape that is none": with_entry(shape=None),
    "numbers beyond the end": with_entry(data_offsets=[0, 2**62]),
    "numbers before the start": with_entry(data_offsets=[-8, 0]),
    "places that are text": with_entry(data_offsets=["0", "8"]),
    "one place": with_entry(data_offsets=[0]),
    "more about an array": with_entry(code="import os"),
}

NOT_FINITE = {
    "NaN": poisoned(np.nan),
    "infinity": poisoned(np.inf),
    "minus infinity": poisoned(-np.inf),
}

OF_UPLOADS = {
    "not said whether finite": with_facts(finite=None),
    "perhaps finite": with_facts(finite="perhaps"),
    "escape codes for finite": with_facts(finite=ESCAPES),
}

ROUND = UNREADABLE | OF_ANOTHER_MESSAGE | DAMAGED | NOT_FINITE | OF_UPLOADS
CERTIFICATE = UNREADABLE | OF_ANOTHER_MESSAGE | DAMAGED


def with_columns(columns):
    return with_facts(columns=columns if isinstance(columns, str) else json.dumps(columns))


X, Y = ["float64", 6], ["float64"]

# The site has no name then, since it is in what cannot be read.
NAMELESS = UNREADABLE | {
    "no name": with_facts(site=None),
    "an empty name": with_facts(site=""),
    "a name with escape codes": with_facts(site="Bern" + ESCAPES),
    "a name of 10,000 letters": with_facts(site="Bern" * 2500),
}

INTRODUCTION = {
    "another kind": with_facts(kind="round"),
    "the name of another": with_facts(site="Antwerp"),
    "no rows": with_facts(num_examples="0"),
    "-5 rows": with_facts(num_examples="-5"),
    "2**31 rows": with_facts(num_examples="2147483648"),
    # On a backend whose programs are not compared, so that the sum of all rows is looked at.
    "2**31 - 1 rows": with_facts(num_examples="2147483647", program=f"tpu {'0' * 64}"),
    "NaN rows": with_facts(num_examples="NaN"),
    "infinitely many rows": with_facts(num_examples="inf"),
    "half a row": with_facts(num_examples="4.5"),
    "1e3 rows": with_facts(num_examples="1e3"),
    "a padded number of rows": with_facts(num_examples=" 4"),
    "rows in other digits": with_facts(num_examples="４"),
    "rows of 10,000 digits": with_facts(num_examples="9" * 10_000),
    "rows with escape codes": with_facts(num_examples=ESCAPES),
    "no number of rows": with_facts(num_examples=None),
    "no columns": with_columns([]),
    "no column by name": with_columns({}),
    "empty columns": with_columns({"x": [], "y": []}),
    "columns NaN": with_columns("NaN"),
    "columns that are a number": with_columns(7),
    "columns that are nothing": with_columns(None),
    "columns that are no JSON": with_columns("{x}"),
    "deep columns": with_columns(DEEP),
    "columns in 900 lists": with_columns("[" * 900 + "]" * 900),
    "a column less": with_columns({"x": X}),
    "a column more": with_columns({"x": X, "y": Y, "z": Y}),
    "a column of text": with_columns({"x": X, "y": ["object"]}),
    "a column of an unknown dtype": with_columns({"x": X, "y": [ESCAPES]}),
    "a column in float32": with_columns({"x": ["float32", 6], "y": Y}),
    "a wider column": with_columns({"x": ["float64", 7], "y": Y}),
    "a column of no width": with_columns({"x": ["float64", 0], "y": Y}),
    "a column of negative width": with_columns({"x": ["float64", -6], "y": Y}),
    "a column of width 2**62": with_columns({"x": ["float64", 2**62], "y": Y}),
    "a column of width 6.0": with_columns({"x": ["float64", 6.0], "y": Y}),
    "a column of a thousand axes": with_columns({"x": ["float64", *[1] * 1000], "y": Y}),
    "columns with escape codes": with_columns({ESCAPES: X}),
    "a description that is none": with_facts(description=None),
    "a description that is no JSON": with_facts(description=ESCAPES),
    "a deep description": with_facts(description=DEEP),
    "a description that is a list": with_facts(description="[]"),
    "an empty description": with_facts(description="{}"),
    "a description with escape codes": with_facts(description=json.dumps({ESCAPES * 99: ESCAPES})),
    "no program": with_facts(program=None),
    "an empty program": with_facts(program=""),
    "a short program": with_facts(program="cpu 0"),
    "a program with escape codes": with_facts(program=ESCAPES),
    "another program": with_facts(program=f"cpu {'0' * 64}"),
}
