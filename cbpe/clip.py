"""CLIP's tokenizer: WordTokenizer's merges over bytes, and the cleaning of texts that belongs to it.

It differs from WordTokenizer in the alphabet, which is that of all 256 bytes, so that nothing is unknown; in the
pattern, which cuts punctuation off words; and in what is done to a text before: mojibake is mended, HTML entities are
resolved, whitespace becomes single spaces, letters are lower-cased. Ids are those of open_clip's SimpleTokenizer.
"""

from __future__ import annotations

import html
import string
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import regex

from cbpe.encoding.encoder import encodable
from cbpe.encoding.files import Encode
from cbpe.errors import DisallowedSpecialTokenError
from cbpe.formats import subword
from cbpe.inputs.sources import StrPath
from cbpe.model import Model, lazy
from cbpe.special import Cutter
from cbpe.word import WordModel, WordTokenizer

if TYPE_CHECKING:
    from typing import NoReturn

__all__ = ["ClipTokenizer"]

SPECIAL_TOKENS = ("<start_of_text>", "<end_of_text>")

_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
_ZEROS = regex.compile(r"&#0+(?=[0-9])")
_TOO_LARGE = regex.compile(r"&#[1-9][0-9]{7,};?")
_PUNCTUATION = str.maketrans("_", " ", string.punctuation.replace("_", ""))


def _spaced(text: str) -> str:
    return " ".join(text.split())


# what is done to a text, by open_clip's names, after it was mended
_CLEANING: dict[str, Callable[[str], str]] = {
    "lower": lambda text: _spaced(text).lower(),
    "whitespace": _spaced,
    "canonicalize": lambda text: _spaced(text.translate(_PUNCTUATION).lower()),
}


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ClipModel(WordModel):
    """CLIP's merges; special tokens are found where the pattern finds them."""

    def cutter(self, allowed_special: str | Set[str]) -> Cutter:
        return ClipCutter(self.specials, self.compiled, allowed_special)

    @lazy
    def compiled(self) -> Any:
        return regex.compile(self.pattern)


class ClipCutter(Cutter):
    """Takes clean texts apart at the special tokens that are chunks of the pattern: not at the one in "!<end_of_text>",
    for punctuation goes on to its end.
    """

    def __init__(self, special_tokens: Mapping[str, int], compiled: Any, allowed_special: str | Set[str]) -> None:
        super().__init__(special_tokens, None, allowed_special)
        self._specials = dict(special_tokens)
        self._compiled = compiled
        self._refuses = allowed_special == "none_raise"
        if isinstance(allowed_special, Set):
            self._specials = {word: number for word, number in special_tokens.items() if word in allowed_special}
        elif allowed_special == "none":
            self._specials = {}

    def leaves_whole(self, texts: list[str]) -> bool:
        return False            # each is to be cleaned

    def parts(self, text: str) -> list[str | bytes | int]:
        """A clean text cut at its special tokens, which come as their ids."""
        if not any(word in text for word in self._specials):
            return [text]
        parts: list[str | bytes | int] = []
        start = 0
        for match in self._compiled.finditer(text):
            number = self._specials.get(match.group())
            if number is None:
                continue
            if self._refuses:
                raise DisallowedSpecialTokenError(
                    f"the text holds the special token {match.group()!r}; to encode it as such pass "
                    "allowed_special='all' or a set with it, to encode it as ordinary text pass allowed_special='none'"
                )
            parts += [text[start : match.start()], number]
            start = match.end()
        parts.append(text[start:])
        return [part for part in parts if part != ""]


class ClipTokenizer(WordTokenizer):
    """The tokenizer of CLIP: WordTokenizer.from_clip makes it.

    tokenizer = WordTokenizer.from_clip("bpe_simple_vocab_16e6.txt.gz")
    tokenizer.encode("a photo of a cat") -> [320, 1125, 539, 320, 2368]

    In the model's input 49406, "<start_of_text>", stands before that and 49407, "<end_of_text>", behind. Unlike the
    other tokenizers this one takes special tokens in a text for such unless it is told otherwise, as open_clip does.

    Args:
        path: CLIP's file.
        clean: what is done to a text before it is split, by the names that open_clip has for it: "lower" (CLIP's),
            "whitespace" (case is kept), "canonicalize" (without punctuation, lower-cased); they need the package ftfy.
            None: nothing, for texts that are clean.

    Raises ModelFileError, naming the line, for a file that is damaged, OSError, ImportError without ftfy.
    """

    def __init__(self, path: StrPath, *, clean: str | None = "lower") -> None:
        if clean is not None and clean not in _CLEANING:
            raise ValueError(f"clean must be 'lower', 'whitespace', 'canonicalize' or None, not {clean!r}")
        super().__init__()
        self._clean = clean
        if clean is not None:
            _mend("")                   # says if ftfy is missing
        characters = subword.byte_characters()
        codes = subword.read_clip(path)
        model = ClipModel(
            pairs=subword.numbered(codes, list(characters.values())),
            alphabet=tuple(bytes([byte]) for byte in characters),
            pattern="(?i)" + "|".join([*SPECIAL_TOKENS, _WORDS]),
        )
        words = {word: number for number, word in enumerate(SPECIAL_TOKENS, start=model.n_ids)}
        self._model = model.registered(words)

    def clean(self, text: str) -> str:
        """The text as it is split: "Caf&eacute;  Noir" -> "café noir"."""
        if self._clean is None:
            return text
        return _CLEANING[self._clean](_mend(text))

    @property
    def alphabet(self) -> str:
        raise AttributeError("the alphabet of CLIP's tokenizer is that of all bytes, not of characters")

    def encode(self, text: str, allowed_special: str | Set[str] = "all") -> list[int]:
        """The ids of a text, as open_clip's SimpleTokenizer.encode gives them.

        allowed_special: as in RegexTokenizer.encode, but for what is allowed by default. A special token is found where
        the pattern has it for a word, which is not so right behind punctuation.
        """
        return self._encode(text, allowed_special)

    def encode_to_numpy(self, text: str, allowed_special: str | Set[str] = "all") -> npt.NDArray[np.uint32]:
        """The ids of a text as an array, uint32[n]; see encode."""
        return super().encode_to_numpy(text, allowed_special)

    def encode_batch(
        self, texts: Iterable[str], allowed_special: str | Set[str] = "all", num_threads: int | None = None
    ) -> list[list[int]]:
        """The ids of each of many texts; see encode and RegexTokenizer.encode_batch."""
        return super().encode_batch(texts, allowed_special, num_threads)

    def encode_batch_to_numpy(
        self, texts: Iterable[str], allowed_special: str | Set[str] = "all", num_threads: int | None = None
    ) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        """The ids of many texts end to end, and where each text's begin; see encode and
        RegexTokenizer.encode_batch_to_numpy."""
        return super().encode_batch_to_numpy(texts, allowed_special, num_threads)

    def count(self, text: str, allowed_special: str | Set[str] = "all") -> int:
        """How many ids encode gives for a text."""
        return super().count(text, allowed_special)

    def _as_encodable(self, text: str, model: Model) -> str:
        return encodable(self.clean(super()._as_encodable(text, model)))

    def _encoding_of_texts(self, model: Model) -> tuple[Encode, bool]:
        encode, _ = super()._encoding_of_texts(model)
        return lambda texts: encode([self.clean(text.decode()).encode() for text in texts]), False

    # ---- what only a tokenizer of characters can do

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not for CLIP's tokenizer, whose merges come from its file and whose alphabet is bytes."""
        raise NotImplementedError(
            "CLIP's tokenizer comes from its file and is not trained, saved, loaded or cut into symbols; "
            "WordTokenizer is for that"
        )

    train = train_from_files = train_from_iterator = train_from_chunks = _refuse
    save = load = save_codes = segment = truncated = from_codes = _refuse


def _mend(text: str) -> str:
    """The text with mojibake mended and HTML entities resolved, twice, as CLIP does it."""
    try:
        import ftfy
    except ImportError:
        raise ImportError(
            "CLIP's cleaning of texts needs the package ftfy: pip install 'cbpe[clip]'; or pass clean=None for texts "
            "that are clean"
        ) from None
    mended: str = ftfy.fix_text(text)
    return _unescaped(_unescaped(mended)).strip()


def _unescaped(text: str) -> str:
    """html.unescape, also for a number of thousands of digits, which int refuses: there is no such character."""
    text = _ZEROS.sub("&#", text)
    return html.unescape(_TOO_LARGE.sub("\ufffd", text))
