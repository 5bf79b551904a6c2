"""What a tokenizer knows, as one value that never changes.

In: merges, special tokens and a pattern, from training, a file or a program that assigns to an attribute. Out: what
works with them (splitter, encoder, decoder), each made when it is first asked for.

A tokenizer holds one Model and replaces it as a whole, in one assignment. So a thread that is encoding while another
one trains or loads sees the old state or the new one, never a mix; and a call that fails on the way has changed
nothing.

Merges are held as an array. The dicts that minbpe's attributes are, a hundred thousand entries for GPT-4, are made when
somebody looks at them. A program may put its own in their place: those are held in `assigned` and taken as they are,
for they may be half-built, or meant for a subclass that encodes its own way. What is wrong with them is said when an
encoder or a decoder is made of them.

Merges work with *inner* ids: a byte is its value (or what byte_ids has for it), the i-th merge makes 256 + i (or what
ids has for it), and the lowest goes first. The ids that people see, the *outer* ones, are the same, unless a file that
was imported numbers its tokens in another way: then `numbers` has the outer id of each inner one, and pairs go on being
of inner ids. Attributes, vocab, the decoder and what is encoded have outer ids.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field, fields, replace
from typing import Any, Generic, TypeVar, overload

import numpy as np
import numpy.typing as npt
import regex

from cbpe.curve import Statistics
from cbpe.encoding.decoder import Decoder, add_merged
from cbpe.encoding.encoder import Encoder
from cbpe.encoding.finder import SpecialFinder
from cbpe.errors import UnknownIdError
from cbpe.preparation import Preparation, PreparedCutter, Rules
from cbpe.special import MAX_BYTES, MAX_ID, Cutter, check_special_tokens
from cbpe.splitting.split import Splitter, splitter_for
from cbpe.splitting.stages import Stages

Pair = tuple[int, int]
T = TypeVar("T")


class lazy(Generic[T]):
    """A property that is computed once. Unlike functools.cached_property in Python 3.10 and 3.11 it has no lock.

    A lock that a thread holds during a fork stays locked in the child for ever. Two threads may compute the value at
    once, and the one that is stored first is used by both.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute = compute
        self.name = compute.__name__
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> lazy[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> lazy[T] | T:
        if instance is None:
            return self
        value: T = instance.__dict__.setdefault(self.name, self.compute(instance))
        return value


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Model:
    """Merges, special tokens and a pattern.

    pairs: uint32[m, 2]; ids: None, or uint32[m]: pairs[i] merge into ids[i], without ids into 256 + i, unless merges
    are assigned. byte_ids: None, or 256 bytes: the first id of each byte value (GPT-4 permutes them). shared_ids: ids
    that several special tokens may have (one does in OpenAI's o200k_harmony); the last of them is what decodes.
    numbers: None, or uint32[256 + m]: the outer id of each inner one, no two the same; ids and byte_ids are then None.
    whole: chunks that get this one outer id, whatever the merges say (for what is called ignore_merges elsewhere).
    one_by_one: merge as tiktoken and tokenizers do where minbpe does otherwise: see encoding/merging.pyx.
    mends_surrogates: surrogates in a text become the character they stand for, or U+FFFD, as in tiktoken; otherwise
    they are refused, as in minbpe.
    specials_in_vocab: minbpe's vocab holds the special tokens of a model that was loaded, and not those registered
    later. assigned: what a program put in place of what follows from the rest: merges, vocab, compiled_pattern,
    inverse_special_tokens, byte_shuffle. statistics: what training recorded of these merges, if that is known. stages:
    what splits texts in place of the pattern, which is then the last stage's, for people to see; a pattern that is
    assigned takes their place. preparation: what is done to texts before they are split, None if that is nothing.
    regex_timeout: seconds that a pattern may take for a text.
    """

    pairs: npt.NDArray[np.uint32] = field(default_factory=lambda: np.empty((0, 2), np.uint32))
    ids: npt.NDArray[np.uint32] | None = None
    special_tokens: Mapping[str, int] = field(default_factory=dict)
    pattern: str = ""
    byte_ids: bytes | None = None
    numbers: npt.NDArray[np.uint32] | None = None
    whole: Mapping[bytes, int] = field(default_factory=dict)
    shared_ids: frozenset[int] = frozenset()
    one_by_one: bool = False
    mends_surrogates: bool = False
    specials_in_vocab: bool = False
    assigned: Mapping[str, Any] = field(default_factory=dict)
    statistics: Statistics | None = None
    stages: Stages | None = None
    preparation: Preparation | None = None
    regex_timeout: float | None = None

    @classmethod
    def split_by(cls, pattern: Any, regex_timeout: float | None = None) -> Model:
        """A model of the bytes alone that splits by a pattern: a str, a compiled one with its flags, or Stages.

        Raises regex.error.
        """
        splitter = splitter_for(pattern, regex_timeout)
        if isinstance(splitter.pattern, Stages):
            stages = splitter.pattern
            model = cls(pattern=stages.stages[-1].pattern, stages=stages, regex_timeout=regex_timeout)
        else:
            model = cls(pattern=splitter.pattern or "", regex_timeout=regex_timeout)
        return model if splitter.compiled is None else model.with_attribute("compiled_pattern", splitter.compiled)

    # ---- other models made of this one

    def trained(self, pairs: npt.NDArray[np.uint32], statistics: Statistics | None = None) -> Model:
        """This model with merges that were learned; pattern, special tokens and the ids of the bytes stay."""
        assigned = {name: value for name, value in self.assigned.items() if name not in ("merges", "vocab")}
        return replace(
            self, pairs=pairs, ids=None, specials_in_vocab=False, assigned=assigned, statistics=statistics
        )

    def without_merges(self) -> Model:
        """This model as training begins with it, whatever file it came from: each byte is its own id."""
        assigned = {name: value for name, value in self.assigned.items() if name != "byte_shuffle"}
        bare = replace(
            self,
            byte_ids=None,
            numbers=None,
            whole={},
            one_by_one=False,
            mends_surrogates=False,
            preparation=None,
            assigned=assigned,
        )
        return bare.trained(np.empty((0, 2), np.uint32))

    def truncated(self, vocab_size: int) -> Model:
        """This model with the merges whose ids are below vocab_size, which is no more than it has.

        Special tokens that follow the last merge without a gap follow the new last one; others stay. Raises ValueError
        if merges are not numbered as training does.
        """
        pairs = self.numbered_pairs()
        first = stop = 256 + len(pairs)
        while stop in self.special_ids:
            stop += 1
        moved = {
            word: number - first + vocab_size if first <= number < stop else number
            for word, number in self.specials.items()
        }
        statistics = self.statistics and self.statistics.truncated(vocab_size - 256)
        model = self.trained(pairs[: vocab_size - 256].copy(), statistics).registered(moved)
        return replace(model, specials_in_vocab=self.specials_in_vocab)

    def registered(self, special_tokens: Mapping[str, int]) -> Model:
        """This model with other special tokens. Raises SpecialTokenError if they do not go together with its merges."""
        assigned = {name: value for name, value in self.assigned.items() if name != "inverse_special_tokens"}
        checked = check_special_tokens(special_tokens, self.is_taken, self.shared_ids)
        return replace(self, special_tokens=checked, specials_in_vocab=False, assigned=assigned)

    def with_attribute(self, name: str, value: Any) -> Model:
        """This model with an attribute of minbpe's tokenizers set to a value.

        Statistics are given up if merges or pattern may be others than they are of. Raises ValueError for merges, vocab
        and byte shuffles of a model that numbers its tokens in its own way: the order of merging is not that of their
        ids, and so not in them.
        """
        if (self.numbers is not None or self.whole) and name in _BY_ORDER:
            raise ValueError(
                f"{name} cannot be assigned or changed: this tokenizer was imported from a file whose ids are not in "
                "the order of merging, or are not all made by merging, which the attribute does not hold; a new "
                "RegexTokenizer(pattern) takes merges"
            )
        if name == "special_tokens":
            return replace(self, special_tokens=dict(value))
        pattern, assigned, stages = self.pattern, dict(self.assigned), self.stages
        one_by_one = self.one_by_one and name != "merges"
        statistics = self.statistics if name in ("vocab", "inverse_special_tokens") else None
        if name == "pattern":
            pattern = value
        elif name == "compiled_pattern":
            assigned[name] = value
        elif name == "inverse_byte_shuffle":
            assigned["byte_shuffle"] = {first: byte for byte, first in value.items()}
        else:
            assigned[name] = dict(value)
        if _is_compiled(pattern, assigned.get("compiled_pattern")):
            # what it is anyhow, as programs set it after minbpe's load: it goes on following the pattern
            del assigned["compiled_pattern"]
        if name == "pattern" or "compiled_pattern" in assigned:
            stages = None
        if (pattern, assigned, stages) == (self.pattern, self.assigned, self.stages):
            statistics = self.statistics
        return replace(
            self, pattern=pattern, assigned=assigned, stages=stages, one_by_one=one_by_one, statistics=statistics
        )

    # ---- minbpe's attributes, each made anew

    def attribute(self, name: str) -> Any:
        """The value of an attribute of minbpe's tokenizers. Dicts are the caller's own."""
        if name in self.assigned:
            value = self.assigned[name]
            return dict(value) if isinstance(value, dict) else value
        return _ATTRIBUTES[name](self)

    def merges(self) -> dict[Pair, int]:
        """The pairs and the ids they merge into, in the order of merging unless a program assigned another."""
        if "merges" in self.assigned:
            return dict(self.assigned["merges"])
        pairs = map(tuple, self._outer(self.pairs).tolist())
        return dict(zip(pairs, self._outer(self._merged_ids()).tolist(), strict=True))

    def vocab(self, *, with_specials: bool, values: bytes = bytes(range(256))) -> dict[int, bytes]:
        """The bytes of every id, and of the special tokens if wanted.

        values: the byte that each inner id below 256 stands for.
        """
        vocab = {i: values[i : i + 1] for i in range(256)}
        if "merges" in self.assigned:
            merges = self.assigned["merges"]
            lengths = dict.fromkeys(vocab, 1)
            for (left, right), number in merges.items():
                if left not in lengths or right not in lengths:
                    missing = right if left in lengths else left
                    raise UnknownIdError(f"merge {(left, right)} -> {number}: no merge before it makes {missing}")
                lengths[number] = lengths[left] + lengths[right]
            if sum(lengths.values()) > MAX_BYTES:
                raise ValueError(
                    f"merges that make {sum(lengths.values()):,} bytes of tokens together; {MAX_BYTES:,} is the limit"
                )
            for (left, right), number in merges.items():
                vocab[number] = vocab[left] + vocab[right]
        else:
            add_merged(vocab, self.pairs, self._merged_ids())
        if self.numbers is not None:
            numbers = self.numbers.tolist()
            vocab = {numbers[i]: token for i, token in vocab.items()}
        if self.whole:
            first_ids = self.first_ids
            vocab.update((number, chunk.translate(first_ids).translate(values)) for chunk, number in self.whole.items())
        if self.numbers is not None or self.whole:
            vocab = dict(sorted(vocab.items()))
        if with_specials:
            for word, number in self.special_tokens.items():
                vocab[number] = word.encode()
        return vocab

    def numbered_pairs(self) -> npt.NDArray[np.uint32]:
        """The pairs, uint32[m, 2], where the i-th makes id 256 + i of lower ones, as training numbers them.

        Raises ValueError naming the first merge that does not.
        """
        if self.numbers is not None:
            raise ValueError(
                "the merges must have the ids 256, 257, ... without a gap, behind the bytes': this tokenizer was "
                "imported from a file that numbers its tokens in another way"
            )
        if self.whole:
            raise ValueError(
                f"merges must make all tokens: this tokenizer was imported from a file with {len(self.whole):,} that "
                "stand for chunks as a whole"
            )
        pairs, ids = self._merge_arrays
        order = np.argsort(ids, kind="stable")
        pairs, ids = pairs[order], ids[order]
        expected = np.arange(256, 256 + len(pairs))
        wrong = np.flatnonzero((ids != expected) | (pairs.max(axis=1, initial=0) >= expected))
        if len(wrong):
            first = wrong[0]
            left, right = pairs[first].tolist()
            raise ValueError(
                "the merges must have the ids 256, 257, ... without a gap, each made of lower ids: "
                f"{(left, right)} -> {ids[first]} stands where id {expected[first]} belongs"
            )
        return pairs

    def is_taken(self, number: int) -> bool:
        """Whether an id is a byte's or a merge's, or that of a whole chunk or an added token that is not special."""
        if number in self._own_ids:
            return True
        if self.numbers is not None:
            return False
        if number < 256:
            return True
        if "merges" in self.assigned:
            return number in self._assigned_ids
        return number < 256 + len(self.pairs) if self.ids is None else bool((self.ids == number).any())

    def _merged_ids(self) -> npt.NDArray[np.uint32]:
        """The inner ids that pairs merge into, one for each."""
        return np.arange(256, 256 + len(self.pairs), dtype=np.uint32) if self.ids is None else self.ids

    def _outer(self, ids: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
        """The outer ids of inner ones."""
        return ids if self.numbers is None else self.numbers[ids]

    @lazy
    def max_id(self) -> int:
        """The highest id of a byte, a merge, a whole chunk, a special token or another one that decodes."""
        merged: Iterable[int] = ()
        if "merges" in self.assigned:
            merged = (255, *self._assigned_ids)
        elif self.numbers is None:
            merged = (255, *map(int, self._merged_ids()[-1:]))
        prepared: Iterable[int] = () if self.preparation is None else self.preparation.unused
        return max([*merged, *self._own_ids, *prepared, *self.specials.values()])

    @lazy
    def sha256(self) -> str:
        """A hash of all that decides about ids: merges, pattern, special tokens in their order, ids of the bytes.

        Of hashlib.sha256 over: the pattern and each special token as the length of its UTF-8 and this UTF-8; with each
        special token its id; then the 256 ids of the bytes; then left, right and merged id of each merge, in the order
        of the merged ids. All numbers are little-endian, 32 bits wide. Flags of a compiled pattern that was assigned
        stand behind the pattern; in place of the pattern of a model with stages stand these, as repr shows them. These
        are inner ids; if the outer ones are others, they follow, in the order of the inner ones. Then whole chunks,
        in the order of their bytes, as special tokens; what prepares texts; and at last b"one by one", if that is how
        merges are applied and one of them makes a lower id than it joins.
        """
        digest = hashlib.sha256()

        def add(text: str | bytes) -> None:
            data = text.encode() if isinstance(text, str) else text
            digest.update(len(data).to_bytes(4, "little") + data)

        compiled = self.assigned.get("compiled_pattern")
        if self.stages is not None:
            add(repr(self.stages))
        else:
            add(self.pattern if compiled is None else f"{compiled.pattern} {compiled.flags}")
        digest.update(len(self.specials).to_bytes(4, "little"))
        for word, number in self.specials.items():
            add(word)
            digest.update(number.to_bytes(4, "little"))
        digest.update(np.array(list(self.first_ids or bytes(range(256))), "<u4").tobytes())
        pairs, ids = self._merge_arrays
        order = np.argsort(ids, kind="stable")
        digest.update(np.column_stack([pairs, ids])[order].astype("<u4").tobytes())
        if self.numbers is not None:
            digest.update(self.numbers.astype("<u4").tobytes())
        for chunk, number in sorted(self.whole.items()):
            add(chunk)
            digest.update(number.to_bytes(4, "little"))
        if self.preparation is not None:
            add(self.preparation.description())
        if self.one_by_one and (pairs.max(axis=1, initial=0) > ids).any():
            digest.update(b"one by one")
        return digest.hexdigest()

    # ---- what works with them

    @lazy
    def specials(self) -> dict[str, int]:
        """The special tokens, checked. Raises SpecialTokenError."""
        return check_special_tokens(self.special_tokens, self.is_taken, self.shared_ids)

    @lazy
    def special_finder(self) -> SpecialFinder | None:
        """What finds all special tokens in a text; None if there are none."""
        words = {word.encode(): number for word, number in self.specials.items()}
        return SpecialFinder(words) if words else None

    def cutter(self, allowed_special: str | Set[str]) -> Cutter:
        """What takes texts apart at the special tokens that a caller allows. Raises ValueError, SpecialTokenError."""
        if self.preparation is None:
            return Cutter(self.specials, self.special_finder, allowed_special)
        return PreparedCutter(self.preparation, self.specials, *self._rules, allowed_special)

    @lazy
    def _rules(self) -> tuple[Rules, Rules]:
        """What prepares texts in which all special tokens are recognised, and what if none are."""
        assert self.preparation is not None
        return Rules(self.preparation, self.specials), Rules(self.preparation, {})

    @property
    def may_be_cut(self) -> bool:
        """Whether texts may be cut, for encoding without special tokens, where their splitter allows it."""
        return self.preparation is None or self._rules[1].cuttable

    @property
    def has_byte_order(self) -> bool:
        """Whether the model says which id each byte has."""
        return self.byte_ids is not None or "byte_shuffle" in self.assigned

    @lazy
    def first_ids(self) -> bytes | None:
        """byte_ids, or what was assigned in their place. Raises ValueError if that is no permutation of 0..255."""
        if "byte_shuffle" not in self.assigned:
            return self.byte_ids
        shuffle = self.assigned["byte_shuffle"]
        if sorted(shuffle) != list(range(256)) or sorted(shuffle.values()) != list(range(256)):
            raise ValueError("a byte shuffle must map 0..255 to 0..255, each to another")
        return bytes(shuffle[i] for i in range(256))

    @lazy
    def splitter(self) -> Splitter:
        pattern = self.stages or self.assigned.get("compiled_pattern", self.pattern)
        return splitter_for(pattern, self.regex_timeout)

    @lazy
    def encoder(self) -> Encoder:
        return Encoder(
            *self._merge_arrays,
            self.first_ids,
            numbers=self.numbers,
            whole=dict(self.whole),
            one_by_one=self.one_by_one,
        )

    @lazy
    def token_bytes(self) -> dict[int, bytes]:
        """The bytes that each id stands for, special tokens included: what the decoder is made of, kept to look at."""
        return self.tokens(with_specials=True)

    @lazy
    def special_ids(self) -> frozenset[int]:
        """The ids of the special tokens."""
        return frozenset(self.specials.values())

    @lazy
    def token_ids(self) -> dict[bytes, int]:
        """The id of each token by its bytes, special tokens included; of several ids the first that is not special."""
        ids = {word.encode(): number for word, number in self.specials.items()}
        for number, token in reversed(self.tokens(with_specials=False).items()):
            ids[token] = number
        return ids

    @lazy
    def decoder(self) -> Decoder:
        return Decoder(self.tokens(with_specials=True))

    def tokens(self, *, with_specials: bool) -> dict[int, bytes]:
        """The bytes that each id stands for in a text. Raises SpecialTokenError."""
        values = bytes(range(256)) if self.first_ids is None else _inverse(self.first_ids)
        tokens: dict[int, bytes]
        if "vocab" in self.assigned:
            tokens = {number: token.translate(values) for number, token in self.assigned["vocab"].items()}
        else:
            tokens = self.vocab(with_specials=False, values=values)
        if with_specials:
            inverse = {number: word for word, number in self.specials.items()}
            for number, word in self.assigned.get("inverse_special_tokens", inverse).items():
                tokens.setdefault(number, word.encode())
        return tokens if self.preparation is None else self.preparation.tokens() | tokens

    @property
    def _merge_arrays(self) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
        """The pairs, uint32[m, 2], and the inner ids that they merge into, uint32[m]. Raises ValueError."""
        if "merges" in self.assigned:
            return _merge_arrays(self.assigned["merges"])
        return np.ascontiguousarray(self.pairs, dtype=np.uint32), self._merged_ids()

    @lazy
    def _own_ids(self) -> frozenset[int]:
        """The ids that numbers, whole and added tokens have."""
        numbers = () if self.numbers is None else self.numbers.tolist()
        added = {} if self.preparation is None else self.preparation.added
        return frozenset([*numbers, *self.whole.values(), *added.values()])

    @lazy
    def _assigned_ids(self) -> frozenset[int]:
        return frozenset(self.assigned["merges"].values())

    # ---- copies and pickles: the plain values only

    def __getstate__(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __deepcopy__(self, memo: dict[int, Any]) -> Model:
        return self


_BY_ORDER = ("merges", "vocab", "byte_shuffle", "inverse_byte_shuffle")     # attributes that ids in order are behind

_ATTRIBUTES: dict[str, Callable[[Model], Any]] = {
    "merges": Model.merges,
    "vocab": lambda model: model.vocab(with_specials=model.specials_in_vocab),
    "pattern": lambda model: model.pattern,
    "compiled_pattern": lambda model: regex.compile(model.pattern),
    "special_tokens": lambda model: dict(model.special_tokens),
    "inverse_special_tokens": lambda model: {number: word for word, number in model.special_tokens.items()},
    "byte_shuffle": lambda model: dict(enumerate(model.first_ids or b"")),
    "inverse_byte_shuffle": lambda model: dict(enumerate(_inverse(model.first_ids or b""))),
}


def _merge_arrays(merges: Mapping[Pair, int]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    """{(97, 98): 256} -> uint32 [[97, 98]] and [256]. Raises ValueError naming the first entry that is no merge."""
    rows: list[tuple[int, int, int]] = []
    for pair, number in merges.items():
        try:
            left, right = pair
            row = operator.index(left), operator.index(right), operator.index(number)
        except (TypeError, ValueError):
            raise ValueError(f"merges must map pairs of ids to ids: {pair!r} -> {number!r}") from None
        if not (min(row) >= 0 and max(row) <= MAX_ID):
            raise ValueError(f"ids of merges must lie in 0..{MAX_ID}: {pair!r} -> {number!r}")
        rows.append(row)
    array = np.array(rows, dtype=np.uint32).reshape(-1, 3)
    return np.ascontiguousarray(array[:, :2]), np.ascontiguousarray(array[:, 2])


def _is_compiled(pattern: str, compiled: Any) -> bool:
    """Whether it is what regex makes of the pattern."""
    return (
        isinstance(compiled, regex.Pattern)
        and compiled.pattern == pattern
        and compiled.flags == regex.compile(pattern).flags
    )


def _inverse(permutation: bytes) -> bytes:
    """bytes 2, 0, 1 -> bytes 1, 2, 0."""
    return bytes(sorted(range(len(permutation)), key=permutation.__getitem__))
