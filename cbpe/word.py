"""WordTokenizer: the byte-pair encoding of Sennrich et al. 2016, of characters in words, as in subword-nmt and GPT-1.

It differs from the other tokenizers in what merges begin with. There it is bytes; here it is the characters of the
training text, and a mark, "</w>", that stands at each word's end, so that "er" in "lower" and in "eric" are different
tokens. The spaces between words are in no token. What the alphabet lacks cannot be encoded.

Ids are numbered as CLIP does it: the alphabet in the order of code points, the alphabet at a word's end, then the
merges. What is done within with bytes stands in splitting/words.py and encoding/words.py.
"""

from __future__ import annotations

import copy
import hashlib
import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import regex

from cbpe.encoding.decoder import Decoder
from cbpe.encoding.files import Encode
from cbpe.encoding.words import WordEncoder, all_merges, first_merges, n_first_ids
from cbpe.errors import ModelFileError, NoStatisticsError, VocabSizeError
from cbpe.files import atomic_write
from cbpe.formats import minbpe, subword
from cbpe.formats.subword import END
from cbpe.formats.untrusted import check_pattern
from cbpe.inputs.sources import StrPath
from cbpe.model import Model, Pair, lazy
from cbpe.native import NativeTokenizer, _as_int, _check_text, _counted, _fixed_special_tokens
from cbpe.special import MAX_ID, check_special_tokens, check_word, words_of
from cbpe.splitting.split import Splitter
from cbpe.splitting.words import MARK, WORD_PATTERN, WordSplitter
from cbpe.training import ChunkStore, learn_merges
from cbpe.training.learn import Known

if TYPE_CHECKING:
    from typing import SupportsIndex, TypeVar

    from cbpe.clip import ClipTokenizer

    SpecialTokens = Iterable[str] | Mapping[str, int]
    Self = TypeVar("Self", bound="WordTokenizer")

__all__ = ["WORD_PATTERN", "WordTokenizer"]

_TIES = ("greatest", "first")
_SPELLINGS = [bytes([byte]) for byte in range(MARK)] + [END.encode()]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class WordModel(Model):
    """Merges over an alphabet of characters.

    pairs hold ids as users see them, and pairs[i] makes id n_first + i. alphabet: what the first ids stand for.
    version: "0.2", the mark is part of a word's last character from the beginning, or "0.1", it is a symbol of its own.
    unk: the special token that stands for each character that is not in the alphabet.
    """

    alphabet: tuple[bytes, ...] = ()
    version: str = "0.2"
    lower: bool = False
    unk: str | None = None
    pattern: str = field(default=WORD_PATTERN)

    @property
    def joined(self) -> bool:
        return self.version != "0.1"

    @property
    def n_first(self) -> int:
        """The number of ids before those of merges."""
        return n_first_ids(self.alphabet, self.joined)

    @property
    def n_ids(self) -> int:
        """The number of ids, special tokens not counted."""
        return self.n_first + len(self.pairs)

    def learned(self, alphabet: tuple[bytes, ...], pairs: npt.NDArray[np.uint32]) -> WordModel:
        return replace(self, alphabet=alphabet, pairs=pairs, special_tokens={})

    def registered(self, special_tokens: Mapping[str, int]) -> WordModel:
        return replace(self, special_tokens=check_special_tokens(special_tokens, self.is_taken))

    def with_attribute(self, name: str, value: Any) -> Model:
        if name == "special_tokens":
            return self.registered(value)
        raise ValueError(f"{name} of a WordTokenizer cannot be set: it follows from training, or from a file")

    def attribute(self, name: str) -> Any:
        return self.merges() if name == "merges" else super().attribute(name)

    def merges(self) -> dict[Pair, int]:
        return {(left, right): number for number, (left, right) in enumerate(self.pairs.tolist(), start=self.n_first)}

    def symbols(self, mark: bytes = END.encode()) -> list[bytes]:
        """What each id stands for, in their order, with this mark at a word's end: [b"a", b"a</w>", b"aa</w>"]."""
        symbols = list(self.alphabet)
        symbols += [symbol + mark for symbol in symbols] if self.joined else [mark]
        for left, right in self.pairs.tolist():
            symbols.append(symbols[left] + symbols[right])
        return symbols

    def vocab(self, *, with_specials: bool, values: bytes = b"") -> dict[int, bytes]:
        vocab = dict(enumerate(self.symbols()))
        if with_specials:
            vocab |= {number: word.encode() for word, number in self.special_tokens.items()}
        return vocab

    def tokens(self, *, with_specials: bool) -> dict[int, bytes]:
        tokens = dict(enumerate(self.symbols(b" ")))
        if with_specials:
            tokens |= {number: word.encode() for word, number in self.special_tokens.items()}
        return tokens

    def is_taken(self, number: int) -> bool:
        return number < self.n_ids

    def numbered_pairs(self) -> npt.NDArray[np.uint32]:
        raise ValueError("the merges of a WordTokenizer are not those of bytes")

    def settings(self) -> dict[str, Any]:
        """All that a .model file holds besides the merges."""
        return {
            "version": self.version,
            "pattern": self.pattern,
            "lower": self.lower,
            "unk": self.unk,
            "alphabet": "".join(symbol.decode("utf-8", "backslashreplace") for symbol in self.alphabet),
            "special_tokens": dict(self.special_tokens),
        }

    @lazy
    def max_id(self) -> int:
        return max([self.n_ids - 1, *self.specials.values()])

    @lazy
    def sha256(self) -> str:
        """A hash of the content of this model's .model file."""
        return hashlib.sha256(subword.model_text(self.settings(), self.pairs).encode()).hexdigest()

    @lazy
    def splitter(self) -> Splitter:
        return WordSplitter(self.pattern, self.lower)

    @lazy
    def encoder(self) -> Any:
        unk = None if self.unk is None else self.specials.get(self.unk)
        return WordEncoder(all_merges(self.alphabet, self.joined, self.pairs), unk)

    @lazy
    def decoder(self) -> Decoder:
        return Decoder(self.tokens(with_specials=True))


class WordTokenizer(NativeTokenizer):
    """A tokenizer of words, each of which is encoded on its own, beginning with its characters.

    tokenizer = WordTokenizer()
    tokenizer.train("low low lower newest newest", num_merges=3)
    tokenizer.segment("lowest") -> "lo@@ w@@ est"
    tokenizer.decode(tokenizer.encode("low newest")) -> "low newest"

    Args:
        pattern: what a word is, of the regex package; text that it does not match is dropped. None: words are what
            spaces and line ends part, as in subword-nmt.
        lower: texts are lower-cased, by str.lower.
        ties: which of equally frequent pairs is merged first. "greatest": the one whose symbols are the greatest as
            strings, which is subword-nmt's rule; merges do not depend on the order of the corpus. "first": the one that
            occurs first, the rule of the paper's program and of cbpe's other tokenizers.
        version: "0.2" of subword-nmt's codes, in which the last character of a word and its mark are one symbol, or
            "0.1", that of the paper, in which the mark is a symbol of its own.
        unk: a special token, such as "<unk>", that stands for each character that the alphabet lacks; it is numbered
            behind the last merge. None: such a character raises UnknownCharacterError, which names it.

    Ids: the characters in the order of their code points, the same at a word's end (by version 0.1 "</w>" alone), and
    the merges in their order. Decoding puts a space where a word ends, except at the end.

    By default merges, and what segment writes, are those of subword-nmt to the byte, with two exceptions. If words hold
    whitespace (tabs, no-break spaces), subword-nmt merges some symbols in the wrong place and so counts some pairs
    wrong; pattern=r"\\S+" keeps whitespace out of words. And if the text itself holds "</w>", subword-nmt may take that
    for the mark, which is something else here.
    """

    _model: WordModel

    def __init__(
        self,
        pattern: str | None = None,
        *,
        lower: bool = False,
        ties: str = "greatest",
        version: str = "0.2",
        unk: str | None = None,
    ) -> None:
        super().__init__()
        if ties not in _TIES:
            raise ValueError(f"ties must be 'greatest' or 'first', not {ties!r}")
        if version not in subword.VERSIONS:
            raise ValueError(f"version must be '0.1' or '0.2', not {version!r}")
        if unk is not None:
            check_word(unk)
        pattern = WORD_PATTERN if pattern is None else pattern
        if not isinstance(pattern, str):
            raise TypeError(f"pattern must be a str, not {type(pattern).__name__}")
        WordSplitter(pattern)                   # says what is wrong with it
        self._ties = ties
        self._model = _with_unk(WordModel(pattern=pattern, lower=bool(lower), version=version, unk=unk), {})

    def _splitter(self, model: Model) -> Splitter:
        return model.splitter

    @property
    def alphabet(self) -> str:
        """The characters that can be encoded, in the order of their ids."""
        return "".join(symbol.decode() for symbol in self._model.alphabet)

    # ---- training

    def train(  # type: ignore[override]
        self,
        text: str,
        vocab_size: int | None = None,
        verbose: bool = False,
        *,
        num_merges: int | None = None,
        special_tokens: SpecialTokens | None = None,
        min_frequency: int = 2,
        num_threads: int | None = None,
        progress: bool | None = None,
        memory_limit: int | str | None = None,
        scratch_dir: StrPath | None = None,
    ) -> None:
        """Learns an alphabet and merges from a text, in place of those there are.

        Args:
            text: a str.
            vocab_size: the number of ids afterwards, special tokens not counted. If the text does not support as many,
                training stops early with a UserWarning.
            num_merges: how many merges to learn, in place of vocab_size; exactly one of the two is given.
            verbose: print a line for every merge, as subword-nmt does.
            special_tokens: None: keep those that are registered. A list of str: leave them out of what is counted, and
                register them with the ids that follow the last merge's. A dict str -> id: the same with these ids.
            min_frequency: stop before the first merge of a pair that occurs less often.
            num_threads, progress, memory_limit, scratch_dir: as in RegexTokenizer.train.

        A call that fails or is interrupted leaves the tokenizer as it was. Raises TypeError, VocabSizeError if
        vocab_size is less than the alphabet needs, SpecialTokenError, UnicodeEncodeError for lone surrogates,
        CorpusTooLargeError, MemoryError.
        """
        _check_text(text)
        self._learn(
            lambda **how: ChunkStore.from_iterator([text], **how),
            vocab_size=vocab_size,
            num_merges=num_merges,
            verbose=verbose,
            special_tokens=special_tokens,
            min_frequency=min_frequency,
            num_threads=num_threads,
            progress=progress,
            memory_limit=memory_limit,
            scratch_dir=scratch_dir,
        )

    def train_from_files(  # type: ignore[override]
        self,
        paths: StrPath | Iterable[StrPath],
        vocab_size: int | None = None,
        *,
        num_merges: int | None = None,
        special_tokens: SpecialTokens | None = None,
        min_frequency: int = 2,
        min_count: int = 1,
        num_threads: int | None = None,
        errors: str = "strict",
        text_field: str = "text",
        verbose: bool = False,
        progress: bool | None = None,
        memory_limit: int | str | None = None,
        scratch_dir: StrPath | None = None,
    ) -> None:
        """Learns from files; a file of text is a text of its own, and so is each line or row; see train.

        paths, errors, text_field: as in RegexTokenizer.train_from_files. min_count: leave words that occur less often
        out of the training. Raises what train does, and OSError, CorpusDecodeError, CorpusFormatError, ImportError.
        """
        self._learn(
            lambda **how: ChunkStore.from_files(paths, errors=errors, text_field=text_field, **how),
            vocab_size=vocab_size,
            num_merges=num_merges,
            verbose=verbose,
            special_tokens=special_tokens,
            min_frequency=min_frequency,
            min_count=min_count,
            num_threads=num_threads,
            progress=progress,
            memory_limit=memory_limit,
            scratch_dir=scratch_dir,
        )

    def train_from_iterator(  # type: ignore[override]
        self,
        texts: Iterable[str],
        vocab_size: int | None = None,
        *,
        num_merges: int | None = None,
        special_tokens: SpecialTokens | None = None,
        min_frequency: int = 2,
        min_count: int = 1,
        num_threads: int | None = None,
        verbose: bool = False,
        progress: bool | None = None,
        memory_limit: int | str | None = None,
        scratch_dir: StrPath | None = None,
    ) -> None:
        """Learns from an iterable of str, each of which is a text of its own; see train and train_from_files."""
        self._learn(
            lambda **how: ChunkStore.from_iterator(texts, **how),
            vocab_size=vocab_size,
            num_merges=num_merges,
            verbose=verbose,
            special_tokens=special_tokens,
            min_frequency=min_frequency,
            min_count=min_count,
            num_threads=num_threads,
            progress=progress,
            memory_limit=memory_limit,
            scratch_dir=scratch_dir,
        )

    def train_from_chunks(  # type: ignore[override]
        self,
        store: ChunkStore,
        vocab_size: int | None = None,
        *,
        num_merges: int | None = None,
        special_tokens: SpecialTokens | None = None,
        min_frequency: int = 2,
        min_count: int = 1,
        verbose: bool = False,
        progress: bool | None = None,
        memory_limit: int | str | None = None,
        scratch_dir: StrPath | None = None,
    ) -> None:
        """Learns from a store of counted words, ChunkStore.from_files(paths, pattern=tokenizer.pattern); see train.

        With lower the store's words are lower-cased one by one. Raises ChunkStoreError if the store's pattern is not
        the tokenizer's.
        """
        if not isinstance(store, ChunkStore):
            raise TypeError(f"store must be a ChunkStore, not {type(store).__name__}")
        counted = _counted(store)
        self._learn(
            lambda **how: _lowered(counted(**how)) if self._model.lower else counted(**how),
            vocab_size=vocab_size,
            num_merges=num_merges,
            verbose=verbose,
            special_tokens=special_tokens,
            min_frequency=min_frequency,
            min_count=min_count,
            num_threads=None,
            progress=progress,
            memory_limit=memory_limit,
            scratch_dir=scratch_dir,
        )

    def extend(self, *args: Any, **kwargs: Any) -> None:
        """Not for words: a new corpus may have new characters, and ids of the alphabet come before those of merges."""
        raise NotImplementedError(
            f"a {type(self).__name__} cannot be extended: new characters would take the ids of its merges. Train it "
            "anew on all of the corpus"
        )

    def _learn(
        self,
        count: Callable[..., ChunkStore],
        *,
        vocab_size: int | None,
        num_merges: int | None,
        verbose: bool,
        special_tokens: SpecialTokens | None,
        min_frequency: int,
        num_threads: int | None,
        progress: bool | None,
        memory_limit: int | str | None,
        scratch_dir: StrPath | None,
        min_count: int = 1,
    ) -> None:
        """Every way to train: checks, counts, learns, and replaces the model when nothing can fail any more."""
        if (vocab_size is None) == (num_merges is None):
            raise TypeError("give either vocab_size, the number of ids, or num_merges, the number of merges")
        if vocab_size is not None:
            vocab_size = _as_int(vocab_size, "vocab_size")
        else:
            num_merges = _as_int(num_merges, "num_merges", least=0)
        min_frequency = _as_int(min_frequency, "min_frequency", least=1)
        min_count = _as_int(min_count, "min_count", least=1)
        if num_threads is not None:
            num_threads = _as_int(num_threads, "num_threads", least=1)
        model = self._model
        words = words_of(special_tokens, lambda number: False)
        fixed = _fixed_special_tokens(model, special_tokens)
        if special_tokens is None:
            fixed = {word: number for word, number in fixed.items() if word != model.unk}
        store = count(
            pattern=WordSplitter(model.pattern, model.lower, marked=False),
            special_tokens=words,
            num_threads=num_threads,
            progress=progress,
            memory_limit=memory_limit,
            scratch_dir=scratch_dir,
        )
        if min_count > 1:
            store = store.pruned(min_count)
        alphabet = _alphabet(store)
        n_first = n_first_ids(alphabet, model.joined)
        if vocab_size is not None:
            if vocab_size < n_first:
                raise VocabSizeError(
                    f"vocab_size must be at least {n_first:,}: the text has {len(alphabet):,} characters, "
                    f"{'each of which may also end a word' if model.joined else 'and a mark ends each word'}; "
                    f"it is {vocab_size:,}"
                )
            num_merges = vocab_size - n_first
        assert num_merges is not None
        num_merges = min(num_merges, MAX_ID + 1 - n_first)
        first = first_merges(alphabet, model.joined)
        learned = learn_merges(
            _marked(store),
            len(first.pairs) + num_merges,
            min_frequency=min_frequency,
            known=Known(first.pairs),
            progress=progress,
            memory_limit=memory_limit,
            scratch_dir=scratch_dir,
            close_store=True,
            spellings=_SPELLINGS if self._ties == "greatest" else None,
        )
        n_known = len(first.pairs)
        n_merges = len(learned.pairs) - n_known
        outer = np.concatenate([first.outer, np.arange(n_first, n_first + n_merges, dtype=np.uint32)])
        trained = model.learned(alphabet, outer[learned.pairs[n_known:]])
        if special_tokens is not None and not isinstance(special_tokens, Mapping):
            fixed = {word: number for number, word in enumerate(words, start=trained.n_ids)}
        trained = _with_unk(trained, fixed)
        if verbose:
            _print_merges(trained, learned.counts[n_known:].tolist())
        if n_merges < num_merges:
            warnings.warn(
                f"training stopped at {n_merges:,} merges instead of {num_merges:,}, a vocabulary of "
                f"{trained.n_ids:,}: no pair occurs {min_frequency} times",
                UserWarning,
                stacklevel=3,
            )
        self._model = trained

    def truncated(self: Self, vocab_size: int) -> Self:
        """A new tokenizer with the first merges only: what training at this vocab_size gives.

        Special tokens that are numbered directly behind the last merge are numbered behind the new last one; others
        keep their ids. Raises VocabSizeError if vocab_size is below the alphabet's ids or above what there is.
        """
        model = self._model
        vocab_size = _as_int(vocab_size, "vocab_size")
        if not model.n_first <= vocab_size <= model.n_ids:
            raise VocabSizeError(
                f"vocab_size must lie in {model.n_first}..{model.n_ids}, the ids of the alphabet and the merges there "
                f"are: {vocab_size}"
            )
        stop = model.n_ids
        while stop in model.special_ids:
            stop += 1
        moved = {
            word: number - model.n_ids + vocab_size if model.n_ids <= number < stop else number
            for word, number in model.specials.items()
        }
        tokenizer = copy.copy(self)
        smaller = replace(model, pairs=model.pairs[: vocab_size - model.n_first].copy(), special_tokens={})
        tokenizer._model = smaller.registered(moved)
        return tokenizer

    def _statistics(self) -> Any:
        raise NoStatisticsError(f"a {type(self).__name__} keeps no statistics of its training")

    # ---- encoding and decoding

    def encode(self, text: str, allowed_special: str | Set[str] = "none_raise") -> list[int]:
        """The ids of a text.

        Args:
            text: a str. What stands on either side of a special token is split into words on its own.
            allowed_special: as in RegexTokenizer.encode.

        Raises UnknownCharacterError naming a character that is not in the alphabet, unless the tokenizer has an unk;
        DisallowedSpecialTokenError, UnicodeEncodeError for lone surrogates, TypeError.
        """
        return self._encode(text, allowed_special)

    def decode(self, ids: Iterable[SupportsIndex] | npt.NDArray[Any], errors: str = "replace") -> str:
        """The text of ids, special tokens included: words with a space between them.

        errors: what bytes.decode does about bytes that are not UTF-8. Raises UnknownIdError, naming the id, for one
        that the tokenizer does not have; TypeError for what is no int.
        """
        return super().decode(ids, errors).removesuffix(" ")

    def decode_batch(self, list_of_ids: Iterable[Iterable[SupportsIndex] | npt.NDArray[Any]]) -> list[str]:
        """The text of each of many lists of ids; see decode. An UnknownIdError names the list's index too."""
        return [text.removesuffix(" ") for text in super().decode_batch(list_of_ids)]

    def segment(self, text: str, separator: str = "@@", glossaries: Iterable[str] = ()) -> str:
        """The text with its words cut into symbols: "lower low" -> "lo@@ w@@ er low".

        What subword-nmt apply-bpe writes with these merges: words are what spaces part, several of these become one,
        line ends and what stands before a line's first word or behind its last stay. Characters that are not in the
        alphabet are symbols too. With lower the text is lower-cased first.

        separator: put behind each symbol but a word's last one. glossaries: regular expressions, of Python's re; what
        matches one of them within a word is a word by itself, and one that matches as a whole is not cut.
        """
        _check_text(text)
        model = self._model
        if model.lower:
            text = text.lower()
        patterns = list(glossaries)
        kept = re.compile("^({})$".format("|".join(patterns))) if patterns else None
        parts = {word: _apart(word, patterns) for word in dict.fromkeys(re.split("[ \r\n]", text)) if word}
        pieces = {part: [part] for apart in parts.values() for part in apart}
        to_cut = [part for part in pieces if not (kept and kept.match(part))]
        pieces.update(zip(to_cut, model.encoder.pieces(to_cut), strict=True))
        cut = {
            word: f"{separator} ".join([piece for part in apart for piece in pieces[part]])
            for word, apart in parts.items()
        }
        lines = []
        for line in re.split(r"(\r\n|\r|\n)", text):
            words = line.strip(" \r\n")
            if words:
                begin = len(line) - len(line.lstrip(" "))
                end = len(line.rstrip(" "))
                line = line[:begin] + " ".join([cut[word] for word in words.split(" ") if word]) + line[end:]
            lines.append(line)
        return "".join(lines)

    # ---- files

    def save(self, file_prefix: StrPath) -> None:
        """Writes file_prefix.model, which load reads, and file_prefix.vocab, which people read.

        Both are UTF-8 with "\\n" on every platform, and each is written whole or not at all. Raises OSError.
        """
        model = self._model
        vocab = minbpe.vocab_text(model.vocab(with_specials=True), model.merges())
        minbpe.save(file_prefix, subword.model_text(model.settings(), model.pairs), vocab)

    def load(self, model_file: StrPath) -> None:
        """Takes over all that save wrote: alphabet, merges, pattern, special tokens, lower, version and unk.

        Raises ModelFileError, naming the line, for a file that is damaged or another tokenizer's, and OSError; the
        tokenizer is then as it was.
        """
        name = os.fspath(model_file)
        with open(name, "rb") as file:
            settings, pairs = subword.parse_model(file.read(), name)
        try:
            check_pattern(settings["pattern"])
            model = WordModel(
                pairs=pairs,
                alphabet=tuple(character.encode() for character in settings["alphabet"]),
                pattern=settings["pattern"],
                lower=settings["lower"],
                version=settings["version"],
                unk=settings.get("unk"),
            ).registered(settings["special_tokens"])
        except (ValueError, regex.error) as error:
            raise ModelFileError(f"{name}: line 2: {error}") from None
        self._model = model

    @classmethod
    def from_codes(
        cls: type[Self],
        path: StrPath,
        *,
        pattern: str | None = None,
        lower: bool = False,
        unk: str | None = None,
        alphabet: Iterable[str] = (),
    ) -> Self:
        """The tokenizer of a codes file of subword-nmt, version 0.1 or 0.2, or of fastBPE.

        alphabet: characters that can be encoded besides those that the file's merges hold, which a codes file does not
        say; ids are numbered behind all of them. The other arguments are the class's. Raises ModelFileError, naming the
        line, for a file that is damaged, OSError.
        """
        codes = subword.read_codes(path)
        characters = sorted({*subword.alphabet_of(codes), *"".join(alphabet)})
        tokenizer = cls(pattern, lower=lower, version=codes.version, unk=unk)
        pairs = subword.numbered(codes, characters)
        symbols = tuple(character.encode() for character in characters)
        tokenizer._model = _with_unk(tokenizer._model.learned(symbols, pairs), {})
        return tokenizer

    @staticmethod
    def from_clip(path: StrPath, *, clean: str | None = "lower") -> ClipTokenizer:
        """CLIP's tokenizer, of its file bpe_simple_vocab_16e6.txt.gz: ids are those of open_clip; see ClipTokenizer."""
        from cbpe.clip import ClipTokenizer

        return ClipTokenizer(path, clean=clean)

    def save_codes(self, path: StrPath) -> None:
        """Writes the merges as a codes file, which subword-nmt and from_codes read.

        It does not hold special tokens, the pattern, or characters that are in no merge. Raises ModelFileError, and
        writes nothing, for a symbol that such a file cannot hold; OSError.
        """
        model = self._model
        symbols = [symbol.decode() for symbol in model.symbols()]
        pairs = [(symbols[left], symbols[right]) for left, right in model.pairs.tolist()]
        text = subword.codes_text(model.version, pairs)
        name = os.fspath(path)
        try:
            codes = subword.parse_codes(text.encode(), name)
            alphabet = [character.decode() for character in model.alphabet]
            same = codes.version == model.version and np.array_equal(subword.numbered(codes, alphabet), model.pairs)
        except ModelFileError as error:
            raise ModelFileError(f"a codes file cannot hold these merges: {error}") from None
        if not same:
            raise ModelFileError("a codes file cannot hold these merges: two symbols would be written alike")
        with atomic_write(path) as file:
            file.write(text.encode())

    def _encoding_of_texts(self, model: Model) -> tuple[Encode, bool]:
        encode, _ = super()._encoding_of_texts(model)
        return encode, False        # what follows a cut is shown as a letter, which may not be in the alphabet


def _with_unk(model: WordModel, special_tokens: Mapping[str, int]) -> WordModel:
    """The model with these special tokens, and with its unk, behind all others that follow the last merge."""
    fixed = dict(special_tokens)
    if model.unk is not None and model.unk not in fixed:
        number = model.n_ids
        taken = set(fixed.values())
        while number in taken:
            number += 1
        fixed[model.unk] = number
    return model.registered(fixed)


def _alphabet(store: ChunkStore) -> tuple[bytes, ...]:
    """The characters of a store's words, in the order of their code points."""
    found: set[str] = set()
    for start in range(0, len(store), 1 << 16):
        stop = min(start + (1 << 16), len(store))
        begin, end = int(store.offsets[start]), int(store.offsets[stop])
        found.update(store.data[begin:end].tobytes().decode())
    return tuple(character.encode() for character in sorted(found))


def _marked(store: ChunkStore) -> ChunkStore:
    """The store with MARK behind each word."""
    ends = store.offsets[1:].astype(np.int64)
    data = np.insert(store.data, ends, MARK)
    offsets = (store.offsets + np.arange(len(store.offsets), dtype=np.uint64)).astype(np.uint64)
    return ChunkStore(store.pattern, store.counts, store.places, offsets, data)


def _lowered(store: ChunkStore) -> ChunkStore:
    """The store with its words lower-cased: Low 2, low 3 -> low 5."""
    counts: dict[bytes, int] = {}
    for word, count in store:
        lower = word.decode().lower().encode()
        counts[lower] = counts.get(lower, 0) + count
    offsets = np.zeros(len(counts) + 1, np.uint64)
    offsets[1:] = np.cumsum([*map(len, counts)])
    data = np.frombuffer(b"".join(counts), np.uint8)
    places = np.arange(len(counts), dtype=np.uint64)
    return ChunkStore(store.pattern, np.array([*counts.values()], np.uint64), places, offsets, data)


def _print_merges(model: WordModel, counts: list[int]) -> None:
    """subword-nmt's lines, one for every merge."""
    symbols = [symbol.decode() for symbol in model.symbols()]
    for number, ((left, right), count) in enumerate(zip(model.pairs.tolist(), counts, strict=True)):
        left, right = symbols[left], symbols[right]
        print(f"pair {number}: {left} {right} -> {left}{right} (frequency {count})")


def _apart(word: str, patterns: list[str]) -> list[str]:
    """A word cut where a pattern matches: "1934USABUSA", ["USA"] -> ["1934", "USA", "B", "USA"]."""
    parts = [word]
    for pattern in patterns:
        cut: list[str] = []
        for part in parts:
            if re.match(f"^{pattern}$", part) or not re.search(pattern, part):
                cut.append(part)
            else:
                cut += [piece for piece in re.split(f"({pattern})", part) if piece]
        parts = cut
    return parts
