"""BasicTokenizer: byte-pair encoding with nothing around it. The text is one chunk; merges may cross anything."""

from __future__ import annotations

from collections.abc import Set

from cbpe.model import Model
from cbpe.native import NativeTokenizer
from cbpe.splitting.split import Splitter, splitter_for

_WHOLE = splitter_for(None)


class BasicTokenizer(NativeTokenizer):
    """A tokenizer that does not split texts.

    tokenizer = BasicTokenizer()
    tokenizer.train("aaabdaaabac", 256 + 3)
    tokenizer.encode("aaabdaaabac") -> [258, 100, 258, 97, 99]
    """

    _needs_pattern = False

    def encode(self, text: str, allowed_special: str | Set[str] = "none") -> list[int]:
        """The ids of a text.

        As in minbpe, special tokens are text like any other, unless allowed_special says otherwise; see
        RegexTokenizer.encode. Raises TypeError, UnicodeEncodeError for lone surrogates.
        """
        return self._encode(text, allowed_special)

    def _splitter(self, model: Model) -> Splitter:
        return _WHOLE
