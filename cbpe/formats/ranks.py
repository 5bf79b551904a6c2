r"""Rank files, tiktoken's form of a vocabulary, and the models behind them.

A rank file has a line for each token, its bytes in Base64, a space and its rank: `IGhlbGxv 24748`. The rank is the
token's id, and of two pieces that can merge the one of lower rank goes first. Which order bytes are in, whether there
are gaps, and where the ranks begin is the file's affair; special tokens and the pattern are not in it.

tiktoken gives a chunk that is a token as this token, and merges any two neighbours whose bytes together are one. From
that formats/recover finds the two parts of each token; where a file was not made by training there may be tokens that
come before their parts, and tokens that merging does not make at all and that are only given for a whole chunk. Llama
3's file has 90 and 588 of these, and a file that has lost a line has them too.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cbpe.data.merges import SOURCES
from cbpe.errors import ExportError, ModelFileError
from cbpe.formats.fancy import from_fancy
from cbpe.formats.recover import recover
from cbpe.model import Model
from cbpe.patterns import NAMED_PATTERNS
from cbpe.special import MAX_ID

_LINE = re.compile(rb"([A-Za-z0-9+/]+={0,2}) ([0-9]{1,10})")
_NONE = 2**32 - 1       # in place of a part, from recover


class _Published(NamedTuple):
    pattern: str        # its name in NAMED_PATTERNS
    strict: bool = True


# What is known of rank files that were published, by their sha256.
_PUBLISHED = {sha256: _Published(name if name != "p50k" else "r50k") for name, sha256 in SOURCES.items()} | {
    "82e9d31979e92ab929cd544440f129d9ecd797b69e327f80f17e1c50d5551b55": _Published("llama3", strict=False),
    "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186": _Published("qwen2"),
}


# ---- files


def parse(data: bytes, name: str) -> dict[bytes, int]:
    """The ranks of a file's tokens: b"YQ== 0\\nYWI= 1\\n" -> {b"a": 0, b"ab": 1}. name: the file's, for messages.

    Empty lines are passed over, as tiktoken does. Raises ModelFileError, naming the line, for what is no token and its
    rank, and for a token or a rank that was there before.
    """
    ranks: dict[bytes, int] = {}
    line_of: dict[int, int] = {}
    for number, line in enumerate(data.splitlines(), 1):
        match = _LINE.fullmatch(line)
        if match is None:
            if not line:
                continue
            raise _wrong(name, number, f"not a token in Base64 and its rank: {_shown(line)}")
        token, rank = _decoded(match[1]), int(match[2])
        if token is None or rank > MAX_ID:
            raise _wrong(name, number, f"not a token in Base64 and its rank, 0..{MAX_ID}: {_shown(line)}")
        if token in ranks:
            raise _wrong(name, number, f"token {token!r} for the second time; it has rank {ranks[token]} already")
        if rank in line_of:
            raise _wrong(name, number, f"rank {rank} for the second time; line {line_of[rank]} has it")
        ranks[token] = rank
        line_of[rank] = number
    return ranks


def text(ranks: Mapping[bytes, int]) -> bytes:
    """The content of a rank file, in the order of the ranks: {b"ab": 1, b"a": 0} -> b"YQ== 0\\nYWI= 1\\n"."""
    in_order = sorted(ranks.items(), key=lambda item: item[1])
    return b"".join([b"%b %d\n" % (base64.b64encode(token), rank) for token, rank in in_order])


def _decoded(encoded: bytes) -> bytes | None:
    try:
        token = binascii.a2b_base64(encoded)
    except binascii.Error:
        return None
    return token if binascii.b2a_base64(token, newline=False) == encoded else None      # bits that decoding passes over


def _wrong(name: str, line: int, message: str) -> ModelFileError:
    return ModelFileError(f"{name}: line {line}: {message}")


def _shown(line: bytes) -> str:
    return repr(line if len(line) <= 60 else line[:60] + b"...")


# ---- from ranks to a model


def imported(
    source: Any, pattern: Any, special_tokens: Mapping[str, int] | None, strict: bool | None
) -> Model:
    """The model that RegexTokenizer.from_tiktoken gives a tokenizer; the arguments are its."""
    shared: frozenset[int] = frozenset()
    if hasattr(source, "_mergeable_ranks"):
        name = f"encoding {source.name}"
        ranks = dict(source._mergeable_ranks)
        data = text(ranks)
        if special_tokens is None:
            special_tokens, shared = _special_tokens_of(source)
        if pattern is None:
            pattern = from_fancy(source._pat_str)
    else:
        name = os.fsdecode(source)
        with open(source, "rb") as file:
            data = file.read()
        ranks = parse(data, name)
    published = _PUBLISHED.get(hashlib.sha256(data).hexdigest())
    if pattern is None:
        if published is None or published.pattern not in NAMED_PATTERNS:
            raise ValueError(
                f"{name}: a rank file does not hold the pattern that texts are split by, and this is none of those "
                f"whose pattern is known: pass pattern=, a regular expression or one of {', '.join(NAMED_PATTERNS)}"
            )
        pattern = published.pattern
    if strict is None:
        strict = published is None or published.strict
    model = model_of(ranks, pattern, special_tokens, strict=strict, name=name, shared_ids=shared)
    return replace(model, specials_in_vocab=True)


def model_of(
    ranks: Mapping[bytes, int],
    pattern: Any,
    special_tokens: Mapping[str, int] | None = None,
    *,
    strict: bool = True,
    name: str = "ranks",
    shared_ids: frozenset[int] = frozenset(),
) -> Model:
    """The model that encodes as tiktoken does with these ranks, no two the same.

    pattern: as RegexTokenizer takes it, or a name in NAMED_PATTERNS. strict: refuse tokens that are not made of two of
    lower rank. name: of what is read, for messages. Raises ModelFileError for such tokens and for bytes that are
    missing, SpecialTokenError, regex.error.
    """
    missing = [byte for byte in range(256) if bytes([byte]) not in ranks]
    if missing:
        more = f", and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ModelFileError(f"{name}: no token for byte {missing[0]:#04x}{more}: not every text could be encoded")
    first = np.array([ranks[bytes([byte])] for byte in range(256)], np.uint32)
    longer = sorted((token for token in ranks if len(token) > 1), key=ranks.__getitem__)
    ids = np.array([ranks[token] for token in longer], np.uint32)
    try:
        pairs = recover(longer, strict)
    except ValueError as error:
        hint = " (strict=False takes such tokens as tiktoken does)" if "is not a merge" in str(error) else ""
        raise ModelFileError(f"{name}: {error}{hint}") from None
    is_made = pairs[:, 0] != _NONE
    whole = {token: ranks[token] for token, made in zip(longer, is_made.tolist(), strict=True) if not made}
    split = Model.split_by(NAMED_PATTERNS.get(pattern, pattern) if isinstance(pattern, str) else pattern)
    model = replace(split, whole=whole, one_by_one=True, mends_surrogates=True, shared_ids=shared_ids)
    outer = np.concatenate([first, ids])
    if np.array_equal(np.sort(first), np.arange(256)):
        made = ids[is_made]
        in_order = np.array_equal(made, np.arange(256, 256 + len(made)))
        model = replace(
            model,
            pairs=outer[pairs[is_made]],
            ids=None if in_order else made,
            byte_ids=None if np.array_equal(first, np.arange(256)) else bytes(first.tolist()),
        )
    else:
        is_inner = np.concatenate([np.ones(256, bool), is_made])
        inner = (np.cumsum(is_inner) - 1).astype(np.uint32)
        model = replace(model, pairs=inner[pairs[is_made]], numbers=outer[is_inner])
    return model.registered(special_tokens or {})


def _special_tokens_of(encoding: Any) -> tuple[dict[str, int], frozenset[int]]:
    """An encoding's special tokens, and the ids that several of them have: of these the one that decodes comes last."""
    special_tokens: dict[str, int] = dict(encoding._special_tokens)
    times = Counter(special_tokens.values())
    shared = frozenset(number for number, n in times.items() if n > 1)
    for number in shared:
        word = encoding.decode_single_token_bytes(number).decode()
        special_tokens[word] = special_tokens.pop(word)
    return special_tokens, shared


# ---- from a model to ranks


def ranks_of(model: Model) -> dict[bytes, int]:
    """The ranks with which tiktoken encodes as the model does, special tokens aside: the id of each token's bytes.

    Raises ExportError, naming a token, if there are none: of merges that are not in the order of their ids, that make
    the same bytes twice, or that are not those which the ranks of their tokens come to.
    """
    plain = replace(model, assigned={name: value for name, value in model.assigned.items() if name != "vocab"})
    tokens = plain.tokens(with_specials=False)
    if "vocab" in model.assigned and model.tokens(with_specials=False) != tokens:
        raise ExportError("the vocab that was assigned is not the one that the merges make")
    ranks = {token: number for number, token in tokens.items()}
    if len(ranks) < len(tokens):
        number, token = next((number, token) for number, token in tokens.items() if ranks[token] != number)
        raise ExportError(f"ids {number} and {ranks[token]} both stand for {token!r}, and a rank table has it once")
    pairs, ids = _in_order_of_merging(plain)
    if len(np.unique(ids)) < len(ids):
        raise ExportError(f"id {np.sort(ids)[np.flatnonzero(np.diff(np.sort(ids)) == 0)[0]]} is made by two merges")
    later = np.flatnonzero(ids[1:] < ids[:-1])
    if len(later):
        first, second = ids[later[0] : later[0] + 2].tolist()
        raise ExportError(
            f"id {second} ({tokens[second]!r}) is merged after id {first}, and by ranks the lower id goes first"
        )
    made, right, whole = _by_ranks(ranks)
    if not np.array_equal(ids, made) or dict(plain.whole) != whole:
        other_whole = plain.whole.items() ^ whole.items()
        number = min({*ids.tolist()} ^ {*made.tolist()} | {number for _, number in other_whole})
        raise ExportError(
            f"token {tokens[number]!r} of id {number} is made by merging here and not by ranks, or the other way round"
        )
    other = np.flatnonzero((pairs != right).any(axis=1))
    if len(other):
        i = other[0]
        here, there = ([tokens[part] for part in row[i].tolist()] for row in (pairs, right))
        raise ExportError(
            f"token {tokens[int(ids[i])]!r} of id {ids[i]} is made of {here[0]!r} and {here[1]!r}, and by ranks of "
            f"{there[0]!r} and {there[1]!r}"
        )
    if not plain.one_by_one and (pairs.max(axis=1, initial=0) > ids).any():
        i = int(np.flatnonzero(pairs.max(axis=1) > ids)[0])
        raise ExportError(
            f"token {tokens[int(ids[i])]!r} of id {ids[i]} is made of a token of higher id, and such tiktoken does not "
            "merge as minbpe does"
        )
    return ranks


def _in_order_of_merging(model: Model) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    """The pairs, uint32[m, 2], and what they make, uint32[m], all outer ids, the merge that goes first first."""
    merges = model.merges()
    pairs = np.array(list(merges), np.uint32).reshape(-1, 2)
    ids = np.array(list(merges.values()), np.uint32)
    if model.numbers is None:
        order = np.argsort(ids, kind="stable")
        pairs, ids = pairs[order], ids[order]
    return pairs, ids


def _by_ranks(
    ranks: Mapping[bytes, int],
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32], dict[bytes, int]]:
    """What ranks come to: ids that merging makes, the pairs that it makes them of, and whole chunks."""
    model = model_of(ranks, r"\p{L}+", strict=False)
    pairs, ids = _in_order_of_merging(model)
    return ids, pairs, dict(model.whole)
