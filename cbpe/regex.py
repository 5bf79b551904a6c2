"""RegexTokenizer: a pattern splits the text into chunks first, so that merges stay within words, numbers or spaces.

It differs from BasicTokenizer in that, and in what it does by default about special tokens in a text: it refuses them.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from cbpe.base import Attribute
from cbpe.model import Model
from cbpe.native import NativeTokenizer
from cbpe.patterns import GPT2_SPLIT_PATTERN, GPT4_SPLIT_PATTERN
from cbpe.splitting.split import Splitter, splitter_for

__all__ = ["GPT2_SPLIT_PATTERN", "GPT4_SPLIT_PATTERN", "RegexTokenizer"]


class RegexTokenizer(NativeTokenizer):
    """A tokenizer that splits texts by a pattern.

    tokenizer = RegexTokenizer()
    tokenizer.train("hello hello", 256 + 4)
    tokenizer.register_special_tokens({"<|endoftext|>": 260})
    tokenizer.encode("hello<|endoftext|>", allowed_special="all") -> [259, 260]

    Args:
        pattern: of the regex package; GPT4_SPLIT_PATTERN if None. Text that it does not match is dropped. A compiled
            pattern is taken too. Raises regex.error.
    """

    compiled_pattern = Attribute[Any](
        "regex.Pattern: the pattern, compiled. It follows pattern, unless another was assigned."
    )

    _needs_pattern = True

    def __init__(self, pattern: Any = None) -> None:
        super().__init__()
        splitter = splitter_for(GPT4_SPLIT_PATTERN if pattern is None else pattern)     # says what is wrong with it
        model = Model(pattern=splitter.pattern or "")
        if splitter.compiled is not None:
            model = model.with_attribute("compiled_pattern", splitter.compiled)         # it may have flags of its own
        self._model = model

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

    def _splitter(self, model: Model) -> Splitter:
        return model.splitter
