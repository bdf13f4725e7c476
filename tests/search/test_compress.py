from __future__ import annotations

import gzip
import random

import pytest
from decoders import BitReader, decompress, restore
from hypothesis import example, given, settings
from hypothesis import strategies as st

from waysout.errors import InputError
from waysout.search.compress import COMPRESSORS, Compressor, compressor
from waysout.search.compress.bits import BitWriter
from waysout.search.compress.repair import pair_up
from waysout.search.compress.rlbwt import suffix_array, transform

# Few different bytes, so that runs, overlaps and long repeats are common.
repetitive = st.lists(st.sampled_from(b"ab\n\x00"), max_size=60).map(bytes)
texts = repetitive | st.binary(max_size=200)
every_compressor = pytest.mark.parametrize("c", COMPRESSORS.values(), ids=list(COMPRESSORS))


def key_like_text(keys: int) -> bytes:
    rng = random.Random(keys)
    lines = [
        f'{{"bank":{rng.randrange(9)},"education":"graduate","income_annum":{rng.randrange(9)}}}'
        for _ in range(keys)
    ]
    return "\n".join(lines).encode()


@every_compressor
@given(data=texts)
@example(data=b"")
@example(data=b"\x00")
@example(data=b"\xff" * 100)
@example(data=bytes(range(256)))
@example(data=bytes(range(256)) * 3)
@example(data=b"\n\n\n")
@settings(deadline=None)
def test_any_bytes_come_back(c: Compressor, data: bytes) -> None:
    packed = c.compress(data)
    assert decompress(c.name, packed) == data
    assert c.size(data) == len(packed)


@every_compressor
@pytest.mark.parametrize("data", [key_like_text(200), random.Random(5).randbytes(5000)],
                         ids=["keys", "noise"])  # fmt: skip
def test_long_texts_come_back(c: Compressor, data: bytes) -> None:
    assert decompress(c.name, c.compress(data)) == data


@every_compressor
def test_repeated_structure_makes_the_text_small(c: Compressor) -> None:
    text = key_like_text(100)
    assert c.size(text) < len(text) / 12
    assert c.size(text + b"\n" + text.split(b"\n")[3]) - c.size(text) <= 3


def test_names_lead_to_compressors() -> None:
    assert {name: compressor(name).name for name in COMPRESSORS} == {
        "gzip": "gzip", "rlbwt": "rlbwt", "repair": "repair",
    }  # fmt: skip


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match=r"unknown compressor 'gzipp'; did you mean 'gzip'\?"):
        compressor("gzipp")


def test_gzip_is_level_9_without_a_timestamp() -> None:
    text = key_like_text(40)
    assert compressor("gzip").compress(text) == gzip.compress(text, 9, mtime=0)


def packed(bits: str) -> bytes:
    bits = bits.replace(" ", "")
    return bytes(int(bits[i : i + 8].ljust(8, "0"), 2) for i in range(0, len(bits), 8))


def test_the_encoding_of_rlbwt_worked_out_by_hand() -> None:
    assert transform(b"banana") == (b"annbaa", 4)
    length, place, unit = "00111", "101", "010"
    alphabet = "00000010 0000001100010 1 0001100"  # 3 values; gaps of 98, 1 and 12
    runs = "0 0 1  1 1 1  1 0 1  0 1 1"  # a, nn, b, aa: byte, whole units or not, how many
    expected = packed(length + alphabet + place + unit + runs)
    assert compressor("rlbwt").compress(b"banana") == expected
    assert compressor("rlbwt").size(b"banana") == 7


def test_the_encoding_of_repair_worked_out_by_hand() -> None:
    assert pair_up(b"abababab") == (["ab", "ĀĀ"], "āā")  # X is ab, Y is XX, and YY is left
    length, rules = "011", "011"
    alphabet = "00000001 0000001100010 1"  # 2 values; gaps of 98 and 1
    left, right, sequence = "10 0 10 0", "01 10", "11 11"  # a rule begins with a, one with X
    expected = packed(length + alphabet + rules + left + right + sequence)
    assert compressor("repair").compress(b"abababab") == expected
    assert compressor("repair").size(b"abababab") == 6


@pytest.mark.parametrize("keys", [15, 31, 63])
def test_a_repeat_says_little_new_where_run_lengths_reach_a_power_of_two(keys: int) -> None:
    text = key_like_text(keys)
    again = text + b"\n" + text.rsplit(b"\n", 1)[1]
    assert compressor("rlbwt").size(again) - compressor("rlbwt").size(text) <= 4


@given(data=texts)
def test_suffixes_are_sorted(data: bytes) -> None:
    expected = sorted(range(len(data) + 1), key=lambda i: data[i:])
    assert suffix_array(data).tolist() == expected


@given(data=texts.filter(bool))
def test_the_transform_can_be_undone(data: bytes) -> None:
    transformed, start = transform(data)
    assert sorted(transformed) == sorted(data)
    assert restore(transformed, start) == data


def plain_pair_up(data: bytes) -> tuple[list[str], str]:
    text, pairs = data.decode("latin-1"), list[str]()
    while True:
        found = {text[i : i + 2] for i in range(len(text) - 1)}
        ranked = sorted((-text.count(pair), pair) for pair in found)
        if not ranked or ranked[0][0] > -2:
            return pairs, text
        text = text.replace(ranked[0][1], chr(256 + len(pairs)))
        pairs.append(ranked[0][1])


@given(data=texts)
@example(data=b"aaaaaaa")
@example(data=b"abaabaaab" * 5)
def test_always_the_most_frequent_pair_is_replaced(data: bytes) -> None:
    assert pair_up(data) == plain_pair_up(data)


def test_the_most_frequent_pair_is_replaced_among_keys_too() -> None:
    text = key_like_text(15)
    assert pair_up(text) == plain_pair_up(text)


numbers = st.integers(1, 2**40) | st.integers(1, 9)


@given(
    gammas=st.lists(numbers),
    belows=st.lists(numbers.flatmap(lambda n: st.tuples(st.integers(0, n - 1), st.just(n)))),
    flags=st.lists(st.booleans()),
    alphabet=st.sets(st.integers(0, 255), min_size=1).map(sorted),
)
def test_numbers_are_read_as_they_were_written(
    gammas: list[int], belows: list[tuple[int, int]], flags: list[bool], alphabet: list[int]
) -> None:
    written = BitWriter()
    for number in gammas:
        written.gamma(number)
    written.alphabet(alphabet)
    for number, limit in belows:
        written.below(number, limit)
    for value in flags:
        written.flag(value)
    packed = written.packed()
    read = BitReader(packed)
    assert len(packed) == (len(written) + 7) // 8
    assert [read.gamma() for _ in gammas] == gammas
    assert read.alphabet() == alphabet
    assert [(read.below(limit), limit) for _, limit in belows] == belows
    assert [read.flag() for _ in flags] == flags


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 8, 13, 256])
def test_truncated_binary_wastes_no_code(limit: int) -> None:
    lengths = []
    for number in range(limit):
        bits = BitWriter()
        bits.below(number, limit)
        lengths.append(len(bits))
    assert sum(2.0**-length for length in lengths) == 1
    assert max(lengths) - min(lengths) <= 1
