"""A unigram tokenizer (Kudo, ACL 2018) over a vocabulary that is looked up by hashes.

Its tokens are those of XLM-RoBERTa in the library `tokenizers`. The trie of that library for
250,000 pieces takes 270 MB and most of the start-up time; here the vocabulary is a sorted array of
hashes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from search.models.packed_weights import Vocabulary
from skills.unicode_normalization import normalize

_SPACE = "\u2581"
"""Represents a space in pieces; it is always the first character of a word."""

_DROPPED = re.compile("[\x01-\x08\x0b\x0e-\x1f\x7f\x8f\x9f]")
_SPACES = re.compile("[\t\n\f\r\u1680\u200b-\u200f\u2028\u2029\u2581\ufeff\ufffd]")
_REPEATED = re.compile(" {2,}")
_WORD = re.compile(f"{_SPACE}[^{_SPACE}]*")
_UNKNOWN_PENALTY = 10.0
"""An unknown character scores this much less than the least probable piece, as in SentencePiece."""

_TEXTS_AT_ONCE = 32
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_SPREAD = np.uint64(0xD6E8FEB86659FD93)
_FILTER_SHIFT = np.uint64(64 - 22)

Hashes = npt.NDArray[np.uint64]
_Places = npt.NDArray[np.int64]


class UnigramTokenizer:
    """Cuts texts into the most probable pieces. Threads may share it."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._unknown_score = float(vocabulary.scores.min()) - _UNKNOWN_PENALTY
        starts, lengths = vocabulary.ends[:-1], np.diff(vocabulary.ends)
        self._longest = int(lengths.max())
        hashes = np.zeros(len(starts), dtype=np.uint64)
        for length, places, found in _hash_all(vocabulary.codes, starts, lengths, self._longest):
            ended = lengths[places] == length
            hashes[places[ended]] = found[ended]
        self._order = np.argsort(hashes).astype(np.int32)
        self._hashes = hashes[self._order]
        # Most substrings are not pieces: reading one byte excludes them.
        self._filter = np.zeros(1 << 22, dtype=np.bool_)
        self._filter[hashes >> _FILTER_SHIFT] = True

    def tokenize(self, texts: Sequence[str], limit: int) -> list[list[int]]:
        """Return the token ids of each text, with the tokens of begin and end, at most `limit`."""
        rows: list[list[int]] = []
        for first in range(0, len(texts), _TEXTS_AT_ONCE):
            # Every word has at least one token.
            cut = [_split(text)[:limit] for text in texts[first : first + _TEXTS_AT_ONCE]]
            known = self._segment(list(dict.fromkeys(word for words in cut for word in words)))
            for words in cut:
                ids = [token for word in words for token in known[word]][: limit - 2]
                rows.append([self._vocabulary.begin, *ids, self._vocabulary.end])
        return rows

    def _segment(self, words: list[str]) -> dict[str, list[int]]:
        """Return the token ids of each word."""
        lengths = np.array([len(word) for word in words], dtype=np.int64)
        ends = np.cumsum(lengths)
        codes = np.frombuffer("".join(words).encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
        places, sizes, ids = self._find_pieces(codes, np.repeat(ends, lengths))
        firsts = np.searchsorted(places, np.arange(len(codes) + 1)).tolist()
        pieces = list(
            zip(sizes.tolist(), ids.tolist(), self._vocabulary.scores[ids].tolist(), strict=True)
        )
        found, start = {}, 0
        for word, end in zip(words, ends.tolist(), strict=True):
            at = [pieces[firsts[place] : firsts[place + 1]] for place in range(start, end)]
            found[word] = self._best_path(at)
            start = end
        return found

    def _find_pieces(
        self, codes: npt.NDArray[np.uint32], ends: _Places
    ) -> tuple[_Places, _Places, _Places]:
        """Return the start, length and id of every piece in the text, by start and then by length.

        codes: code points of words, one after another. ends: for each code point, the end of its
        word.
        """
        starts = np.arange(len(codes))
        found: list[tuple[_Places, _Places, _Places]] = []
        for length, places, hashes in _hash_all(codes, starts, ends - starts, self._longest):
            likely = self._filter[hashes >> _FILTER_SHIFT]
            places, hashes = places[likely], hashes[likely]
            ranks = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
            equal = self._hashes[ranks] == hashes
            places = places[equal]
            ids = self._order[ranks[equal]].astype(np.int64)
            found.append((places, np.full(len(places), length), ids))
        if not found:
            return (np.empty(0, dtype=np.int64),) * 3
        places, sizes, ids = (np.concatenate(parts) for parts in zip(*found, strict=True))
        order = np.argsort(places, kind="stable")
        return places[order], sizes[order], ids[order]

    def _best_path(self, pieces_at: list[list[tuple[int, int, float]]]) -> list[int]:
        """Return the ids of the pieces with the largest sum of scores (Viterbi).

        pieces_at: for each place in a word, the (length, id, score) of the pieces that start there.
        """
        unknown = self._vocabulary.unknown
        best = [0.0] + [-np.inf] * len(pieces_at)
        came: list[tuple[int, int]] = [(0, unknown)] * (len(pieces_at) + 1)
        for place, pieces in enumerate(pieces_at):
            here = best[place]
            for length, token, score in pieces:
                if here + score > best[place + length]:
                    best[place + length] = here + score
                    came[place + length] = (place, token)
            is_known = bool(pieces) and pieces[0][0] == 1
            if not is_known and here + self._unknown_score > best[place + 1]:
                best[place + 1] = here + self._unknown_score
                came[place + 1] = (place, unknown)
        ids: list[int] = []
        place = len(pieces_at)
        while place:
            place, token = came[place]
            if token != unknown or not ids or ids[-1] != unknown:  # merges unknown ones
                ids.append(token)
        return ids[::-1]


def _split(text: str) -> list[str]:
    """Return the words of a text, each with a mark for the space before it."""
    text = normalize("NFKC", _SPACES.sub(" ", _DROPPED.sub("", text)))
    text = _REPEATED.sub(" ", text).replace(" ", _SPACE)
    if text and not text.startswith(_SPACE):
        text = _SPACE + text
    return _WORD.findall(text)


def _hash_all(
    codes: npt.NDArray[np.uint32], starts: _Places, lengths: _Places, longest: int
) -> list[tuple[int, _Places, Hashes]]:
    """Return (length, strings of at least this length, hashes of their first `length` codes).

    starts, lengths: of strings in `codes`, (n,). A hash is a polynomial of the code points modulo
    2**64, multiplied so that its high bits are well mixed.
    """
    found = []
    places = np.arange(len(starts))
    sums = np.zeros(len(starts), dtype=np.uint64)
    for length in range(1, longest + 1):
        longer = lengths[places] >= length
        places, sums = places[longer], sums[longer]
        if not len(places):
            break
        sums = sums * _FACTOR + codes[starts[places] + (length - 1)] + np.uint64(1)
        hashes = sums ^ (sums >> np.uint64(29))
        found.append((length, places, hashes * _SPREAD))
    return found
