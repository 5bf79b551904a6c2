"""RegexTokenizer: a pattern splits the text into chunks first, so that merges stay within words, numbers or spaces.

It differs from BasicTokenizer in that, and in what it does by default about special tokens in a text: it refuses them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Set
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cbpe.base import Attribute, OwnAttribute
from cbpe.files import atomic_write
from cbpe.formats import ranks
from cbpe.formats.minbpe import vocab_text
from cbpe.model import Model
from cbpe.native import NativeTokenizer
from cbpe.patterns import GPT2_SPLIT_PATTERN, GPT4_SPLIT_PATTERN
from cbpe.splitting.split import Splitter

if TYPE_CHECKING:
    from typing import TypeVar

    Self = TypeVar("Self", bound="RegexTokenizer")

__all__ = ["GPT2_SPLIT_PATTERN", "GPT4_SPLIT_PATTERN", "RegexTokenizer"]


_LONGEST = 10**9        # seconds of regex_timeout, thirty years: the regex package counts microseconds in 64 bits


class RegexTokenizer(NativeTokenizer):
    """A tokenizer that splits texts by a pattern.

    tokenizer = RegexTokenizer()
    tokenizer.train("hello hello", 256 + 4)
    tokenizer.register_special_tokens({"<|endoftext|>": 260})
    tokenizer.encode("hello<|endoftext|>", allowed_special="all") -> [259, 260]

    Args:
        pattern: of the regex package; GPT4_SPLIT_PATTERN if None. Text that it does not match is dropped. A compiled
            pattern is taken too, and so are Stages, several patterns one after the other. Raises regex.error.
        regex_timeout: see the attribute.
    """

    compiled_pattern = Attribute[Any](
        "regex.Pattern: the pattern, compiled. It follows pattern, unless another was assigned."
    )

    byte_shuffle = OwnAttribute[dict[int, int]](
        "dict byte -> id: the permutation of the bytes, of a tokenizer that was imported with one. vocab has bytes as "
        "merges do: permuted."
    )
    inverse_byte_shuffle = OwnAttribute[dict[int, int]](
        "dict id -> byte: the inverse of byte_shuffle, which it follows."
    )

    _needs_pattern = True

    def __init__(self, pattern: Any = None, *, regex_timeout: float | None = None) -> None:
        super().__init__()
        split = GPT4_SPLIT_PATTERN if pattern is None else pattern
        self._model = Model.split_by(split, _checked_timeout(regex_timeout))

    @classmethod
    def from_tiktoken(
        cls: type[Self],
        source: Any,
        pattern: Any = None,
        special_tokens: Mapping[str, int] | None = None,
        *,
        strict: bool | None = None,
    ) -> Self:
        """A tokenizer with the ids that tiktoken gives by a rank file, such as cl100k_base.tiktoken, or an encoding.

        tokenizer = RegexTokenizer.from_tiktoken("mine.tiktoken", "gpt4", {"<|endoftext|>": 32768})

        Args:
            source: the path of a rank file, or a tiktoken.Encoding.
            pattern: as for RegexTokenizer, or the name of one: "gpt2", "gpt4", "r50k", "cl100k", "o200k", .... None: an
                encoding's own; that of a rank file, if it is one whose pattern is known, as OpenAI's are.
            special_tokens: str -> id. None: an encoding's own; a rank file has none.
            strict: refuse tokens that no two tokens of lower rank make, as there are where a line was lost. False: take
                them as tiktoken does, which gives them for whole chunks. None: refuse them, unless the file is known to
                have them, as Llama 3's.

        Ids, and the order of the bytes, are the file's. Like tiktoken, the tokenizer repairs surrogates: a pair becomes
        the character that it stands for, a lone one U+FFFD. A .model file cannot hold most such tokenizers, and
        training one anew begins like RegexTokenizer(pattern).

        Raises ModelFileError, naming line or token, for a file that is damaged or lacks a byte, or (see strict) for a
        token that is not made of two; ValueError if the pattern is not known, SpecialTokenError, regex.error, OSError.
        """
        tokenizer: Self = cls.__new__(cls)
        tokenizer._model = ranks.imported(source, pattern, special_tokens, strict)
        return tokenizer

    @classmethod
    def from_huggingface(cls: type[Self], source: Any) -> Self:
        """A tokenizer with the ids of a byte-level BPE tokenizer of Hugging Face's: GPT-2's, Llama 3's, Qwen's, ...

        RegexTokenizer.from_huggingface("models/llama3/tokenizer.json").encode("hello world", allowed_special="all")

        Args:
            source: a tokenizer.json file, or a folder with one; or a tokenizers.Tokenizer, or a fast tokenizer of
                transformers.

        encode(text, allowed_special="all") gives what tokenizers' encode(text, add_special_tokens=False) gives; what a
        post_processor puts around a text, such as a token for its beginning, is up to the program. Added tokens that
        are not special are always recognised. truncation and padding of the file have no effect. Characters whose class
        or normal form is of a newer edition of Unicode than the one in tokenizers may be split otherwise.

        Raises ModelFileError, naming the part, for what is damaged or cannot be matched: other models (WordPiece,
        Unigram, byte_fallback), other normalizers than NFC, other pre-tokenizers; OSError.
        """
        from cbpe.formats import huggingface

        tokenizer: Self = cls.__new__(cls)
        tokenizer._model = huggingface.load(source)
        return tokenizer

    @property
    def regex_timeout(self) -> float | None:
        """How many seconds the pattern may take for a text before TimeoutError is raised; None, as at first: any.

        Some patterns, such as "(a|aa)+$", take time that doubles with every character of some texts, and a search of
        theirs cannot be stopped: Ctrl-C is heard when it is over. The limit holds for each text of encode and of
        batches, and for each text, or stretch of one, of training and files; the call that needs more changes nothing.
        It is kept by load, copies and pickles. The seconds are the processor's, on Windows the clock's. It is the
        regex package that counts them; the library's own patterns do without that package, and have no such texts.
        """
        return self._model.regex_timeout

    @regex_timeout.setter
    def regex_timeout(self, seconds: float | None) -> None:
        self._model = replace(self._model, regex_timeout=_checked_timeout(seconds))

    def encode(self, text: str, allowed_special: str | Set[str] = "none_raise") -> list[int]:
        """The ids of a text.

        Args:
            text: a str. What stands on either side of a special token is split on its own.
            allowed_special: which special tokens become their ids: "all", "none", or a set of them; the others are text
                like any other. "none_raise": none, and a text that holds one is refused.

        Raises DisallowedSpecialTokenError (a ValueError and an AssertionError), UnicodeEncodeError for lone surrogates,
        TypeError.
        """
        return self._encode(text, allowed_special)

    def save_vocab(self, vocab_file: str | os.PathLike[str]) -> None:
        """Writes the tokens and what they are merged from for people to read, as minbpe does. Raises OSError."""
        model = self._model
        text = vocab_text(model.tokens(with_specials=False), model.merges())
        with atomic_write(vocab_file) as file:
            file.write(text.encode())

    def _splitter(self, model: Model) -> Splitter:
        return model.splitter


def _checked_timeout(seconds: float | None) -> float | None:
    """The seconds as a float, or None. Raises TypeError, ValueError."""
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise TypeError(f"regex_timeout must be a number of seconds or None, not {seconds!r}")
    if not 0 < seconds < math.inf:
        raise ValueError(f"regex_timeout must be more than 0 seconds, and finite: {seconds}")
    return float(min(seconds, _LONGEST))
