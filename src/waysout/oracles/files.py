"""Checks of two file formats whose libraries end the process on a damaged file.

LightGBM calls abort() from a worker thread when a tree is cut short, and XGBoost reads past the
end of a truncated UBJSON file. Neither can be caught, so the files are walked first.
"""

from __future__ import annotations

import re
import struct

from waysout.errors import OracleError

_TREE_FIELDS = ("split_feature", "threshold", "decision_type", "left_child", "right_child")

_SIZES = {"i": 1, "U": 1, "I": 2, "l": 4, "L": 8, "d": 4, "D": 8, "C": 1}
_NO_DATA = "TFZN"
_INTEGERS = {"i": ">b", "U": ">B", "I": ">h", "l": ">i", "L": ">q"}


def check_lightgbm_text(content: bytes) -> None:
    """Raise unless every tree of a LightGBM text model stands where its header says, whole."""
    if content.splitlines()[:1] != [b"tree"]:
        raise OracleError("this is no LightGBM text model: its first line is not 'tree'")
    head, _, body = content.partition(b"\n\n")
    sizes = re.search(rb"^tree_sizes=([\d ]+)$", head, re.MULTILINE)
    if sizes is None:
        raise OracleError("the LightGBM model has no tree_sizes: it is cut short, or has no trees")
    at = 0
    for i, size in enumerate(map(int, sizes[1].split())):
        if not _is_whole_tree(body[at : at + size].decode("utf-8", "replace"), i):
            raise OracleError(
                f"the LightGBM model is damaged at tree {i}: it is cut short, or was edited (also "
                "by a change of line endings)"
            )
        at += size
    if not body[at:].startswith(b"end of trees") or b"\nend of parameters" not in body[at:]:
        raise OracleError("the LightGBM model is cut short after its last tree")


def _is_whole_tree(text: str, number: int) -> bool:
    fields = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    if fields.get("Tree") != str(number) or not fields.get("num_leaves", "").isdigit():
        return False
    leaves = int(fields["num_leaves"])
    inner = all(len(fields.get(name, "").split()) == leaves - 1 for name in _TREE_FIELDS)
    return inner and len(fields.get("leaf_value", "").split()) == leaves and "shrinkage" in fields


def check_ubjson(content: bytes) -> None:
    """Raise unless the bytes are one whole UBJSON value."""
    try:
        whole = _after_value(content, 0) == len(content)
    except (IndexError, KeyError, RecursionError, struct.error):
        whole = False
    if not whole:
        raise OracleError("the UBJSON file is cut short or damaged: save the model again")


def _after_value(data: bytes, at: int) -> int:
    """Return where the value that starts here ends."""
    return _after_payload(data, at + 1, chr(data[at]))


def _after_payload(data: bytes, at: int, kind: str) -> int:
    if kind in _NO_DATA:
        return at
    if kind == "S":
        length, at = _integer(data, at)
        return _within(data, at + length)
    if kind == "[":
        return _after_array(data, at)
    if kind == "{":
        while data[at] != ord("}"):
            length, at = _integer(data, at)
            at = _after_value(data, _within(data, at + length))
        return at + 1
    return _within(data, at + _SIZES[kind])


def _after_array(data: bytes, at: int) -> int:
    kind = None
    if data[at] == ord("$"):
        kind, at = chr(data[at + 1]), at + 2
    if data[at] != ord("#"):
        while data[at] != ord("]"):
            at = _after_value(data, at)
        return at + 1
    count, at = _integer(data, at + 1)
    if kind in _SIZES:
        return _within(data, at + count * _SIZES[kind])
    for _ in range(count):
        at = _after_value(data, at) if kind is None else _after_payload(data, at, kind)
    return at


def _integer(data: bytes, at: int) -> tuple[int, int]:
    code = chr(data[at])
    (value,) = struct.unpack_from(_INTEGERS[code], data, at + 1)
    if value < 0:
        raise IndexError
    return value, at + 1 + _SIZES[code]


def _within(data: bytes, at: int) -> int:
    if at > len(data):
        raise IndexError
    return at
