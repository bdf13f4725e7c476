from __future__ import annotations

import gzip
import random

import pytest

from waysout.search.compress import COMPRESSORS, Compressor, History, compressor
from waysout.search.compress.gzip import INCREMENTAL_FROM, Gzip, GzipStream

WINDOW = 32 * 1024
LETTERS = 'abcdefgh {}":,0123456789äßéжя漢字\U0001f600\ud800'


def gain_from_scratch(c: Compressor, keys: list[str], key: str) -> float:
    def size(joined: list[str]) -> int:
        return c.size("\n".join(joined).encode("utf-8", "surrogatepass"))

    return (size([*keys, key]) - size(keys)) / (len(key) + 1)


def random_key(rng: random.Random, longest: int) -> str:
    length = rng.choice((0, 1, rng.randrange(longest), rng.randrange(longest), longest))
    kind = rng.randrange(4)
    if kind == 0:
        return "".join(rng.choices(LETTERS, k=length))
    if kind == 1:
        return "".join(map(chr, rng.choices(range(32, 0xD000), k=length)))  # hardly compressible
    if kind == 2:
        return rng.choice(LETTERS) * length
    part = f'{{"bank_asset_value":{rng.randrange(10)},"cibil_score":{rng.randrange(10)},'
    return (part * (length // len(part) + 1))[:length]


def random_keys(rng: random.Random, most: int, longest: int) -> list[str]:
    different = [random_key(rng, longest) for _ in range(rng.choice((2, 10, most)))]
    return rng.choices(different, k=rng.randrange(most) + 1)


class Doubling(Compressor):
    """Two bytes for each byte, and three for being there at all."""

    name = "doubling"
    asked: int = 0

    def compress(self, data: bytes) -> bytes:
        self.asked += 1
        return b"+++" + data + data


@pytest.mark.parametrize(
    ("keys", "key", "gain"),
    [
        ([], "abcd", 8 / 5),  # φ alone: (3 + 8 - 3) / (4 + 1)
        (["xyz"], "abcd", 10 / 5),  # the line break counts: (3 + 16 - (3 + 6)) / (4 + 1)
        (["xyz", "xyz"], "a", 4 / 2),
        (["xyz"], "é", 6 / 2),  # two bytes, one character
        (["xyz"], "", 2.0),
        ([], "", 0.0),
        ([""], "a", 4 / 2),  # one empty key is not an empty history
    ],
    ids=["first", "second", "third", "unicode", "empty key", "nothing", "after an empty key"],
)
def test_the_formula_worked_out_by_hand(keys: list[str], key: str, gain: float) -> None:
    assert History(Doubling(), keys).gain(key) == gain


def test_the_history_itself_is_compressed_once_however_many_candidates() -> None:
    c = Doubling()
    history = History(c, ["a", "b"])
    assert c.asked == 0
    for key in "xyz":
        history.gain(key)
    assert c.asked == 1 + 3
    history.append("c")
    history.gain("x")
    assert c.asked == 4 + 2


def test_a_trial_leaves_the_history_as_it_was() -> None:
    history = History(compressor("gzip"), ["key"] * 2000)
    before = history.gain("other")
    history.gain("something else entirely")
    assert (history.gain("other"), len(history)) == (before, 2000)


def test_keys_given_and_keys_appended_make_the_same_history() -> None:
    keys = random_keys(random.Random(1), 30, 300)
    grown = History(compressor("gzip"))
    for key in keys:
        grown.append(key)
    assert len(grown) == len(keys)
    assert grown.gain("{}") == History(compressor("gzip"), keys).gain("{}")


@pytest.mark.parametrize("name", [n for n in COMPRESSORS if n != "gzip"])
def test_gains_of_the_others_are_those_from_scratch(name: str) -> None:
    rng, c = random.Random(2), compressor(name)
    for _ in range(40):
        keys, key = random_keys(rng, 6, 80), random_key(rng, 80)
        assert History(c, keys).gain(key) == gain_from_scratch(c, keys, key)


def test_going_on_gives_the_size_from_scratch_on_thousands_of_histories() -> None:
    rng = random.Random(3)
    for _ in range(3000):
        keys, key = random_keys(rng, 12, 250), random_key(rng, 250)
        stream = GzipStream(Gzip(), 0)
        for each in keys:
            stream.feed(f"{each}\n".encode("utf-8", "surrogatepass"))
        whole = "\n".join([*keys, key]).encode("utf-8", "surrogatepass")
        size = stream.size_with(key.encode("utf-8", "surrogatepass"))
        assert size == len(gzip.compress(whole, 9, mtime=0))


def test_gains_of_gzip_are_those_from_scratch_as_a_history_grows_beyond_its_windows() -> None:
    rng, c = random.Random(4), compressor("gzip")
    lengths = []
    for _ in range(25):
        different = [random_key(rng, 2000) for _ in range(rng.choice((3, 60)))]
        history, keys = History(c), list[str]()
        for i in range(120):
            keys.append(rng.choice(different))
            history.append(keys[-1])
            if i % 12 == 0:
                key = rng.choice((rng.choice(keys), random_key(rng, 2000)))
                assert history.gain(key) == gain_from_scratch(c, keys, key)
                lengths.append(len("\n".join(keys).encode("utf-8", "surrogatepass")))
    shares = [sum(low <= n < high for n in lengths) / len(lengths) for low, high in (
        (0, WINDOW), (WINDOW, 2 * WINDOW), (2 * WINDOW, float("inf")),
    )]  # fmt: skip
    assert min(shares) > 0.1, "all three ranges of length were to be tried"


@pytest.mark.parametrize("around", [-1, 0, 1])
def test_the_change_to_going_on_is_not_seen_in_sizes(around: int) -> None:
    text = random.Random(6).randbytes(INCREMENTAL_FROM + around)
    stream = GzipStream(Gzip())
    stream.feed(text[:1000])
    stream.feed(text[1000:])
    assert stream.size_with(text[:50]) == len(gzip.compress(text + text[:50], 9, mtime=0))


def test_a_short_text_is_not_handed_to_a_compressor_object(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fed: list[bytes] = []

    class Engine:
        def compress(self, data: bytes) -> bytes:
            fed.append(data)
            return b""

    monkeypatch.setattr("zlib.compressobj", lambda *_: Engine())
    stream = GzipStream(Gzip(), incremental_from=10)
    stream.feed(b"123456789")
    assert fed == []
    stream.feed(b"0")
    stream.feed(b"next")
    assert fed == [b"1234567890", b"next"]


def test_gzip_forgets_what_lies_more_than_its_window_back() -> None:
    rng = random.Random(7)
    first, *others = ["".join(rng.choices("0123456789abcdef", k=230)) for _ in range(200)]
    near, far = History(compressor("gzip"), [first]), History(compressor("gzip"), [first, *others])
    assert near.gain(first) < 0.05
    assert far.gain(first) > 0.4
