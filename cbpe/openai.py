"""OpenAI's encodings, with tiktoken's ids and without its network: get_encoding and encoding_for_model.

tiktoken publishes an encoding as ranks, a number for each token's bytes; the merges behind them come with the package
(cbpe/data). An encoding is such a table, a pattern and special tokens, and several share a table:

    encoding                                table       pattern
    gpt2, r50k_base                         r50k        r50k
    p50k_base, p50k_edit                    p50k        r50k
    cl100k_base                             cl100k      cl100k
    o200k_base, o200k_harmony               o200k       o200k

One oddity is common to all: the ids of single bytes are permuted. In the merges a byte is its id, so the vocab
attribute, as in minbpe's GPT4Tokenizer, holds permuted bytes: byte_shuffle maps a byte to its id and
inverse_byte_shuffle back.

The ids are tiktoken's as far as both follow the same edition of Unicode: cbpe follows the regex package, and tiktoken's
engine may be some editions behind. A character to which a later one gave a class is split by it here, and not there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple, NoReturn

from cbpe.data import merges
from cbpe.model import Model
from cbpe.patterns import CL100K_SPLIT_PATTERN, O200K_SPLIT_PATTERN, R50K_SPLIT_PATTERN
from cbpe.regex import RegexTokenizer

CL100K_SPECIAL_TOKENS = {
    "<|endoftext|>": 100257,
    "<|fim_prefix|>": 100258,
    "<|fim_middle|>": 100259,
    "<|fim_suffix|>": 100260,
    "<|endofprompt|>": 100276,
}


class _Published(NamedTuple):
    table: str              # in cbpe.data.merges.SOURCES
    pattern: str
    special_tokens: Mapping[str, int]


def _harmony_special_tokens() -> dict[str, int]:
    """o200k_harmony's: 200000 to 201087 are reserved, but for a few that have names.

    200018 has two, "<|reserved_200018|>" and o200k_base's "<|endofprompt|>", which is what it decodes to, being last.
    """
    named = {
        200002: "return", 200003: "constrain", 200005: "channel", 200006: "start", 200007: "end", 200008: "message",
        200012: "call",
    }  # fmt: skip
    special_tokens = {"<|startoftext|>": 199998, "<|endoftext|>": 199999}
    for number in range(200000, 201088):
        special_tokens[f"<|{named.get(number, f'reserved_{number}')}|>"] = number
    return {**special_tokens, "<|endofprompt|>": 200018}


_GPT2 = _Published("r50k", R50K_SPLIT_PATTERN, {"<|endoftext|>": 50256})
_PUBLISHED = {
    "gpt2": _GPT2,
    "r50k_base": _GPT2,
    "p50k_base": _Published("p50k", R50K_SPLIT_PATTERN, {"<|endoftext|>": 50256}),
    "p50k_edit": _Published(
        "p50k",
        R50K_SPLIT_PATTERN,
        {"<|endoftext|>": 50256, "<|fim_prefix|>": 50281, "<|fim_middle|>": 50282, "<|fim_suffix|>": 50283},
    ),
    "cl100k_base": _Published("cl100k", CL100K_SPLIT_PATTERN, CL100K_SPECIAL_TOKENS),
    "o200k_base": _Published("o200k", O200K_SPLIT_PATTERN, {"<|endoftext|>": 199999, "<|endofprompt|>": 200018}),
    "o200k_harmony": _Published("o200k", O200K_SPLIT_PATTERN, _harmony_special_tokens()),
}


@cache
def published_model(name: str) -> Model:
    """The model of an encoding. All its tokenizers that are not changed share it, and what is made of it on first use.

    Raises ValueError, naming those there are, for an encoding that the package does not have.
    """
    if name not in _PUBLISHED:
        raise ValueError(f"no encoding is called {name!r}; there are {', '.join(_PUBLISHED)}")
    table, pattern, special_tokens = _PUBLISHED[name]
    pairs, ids, byte_ids = merges.load(table)
    shared = frozenset({200018}) if name == "o200k_harmony" else frozenset()
    model = Model(pairs=pairs, ids=ids, byte_ids=byte_ids, pattern=pattern, shared_ids=shared, mends_surrogates=True)
    return model.registered(special_tokens)


class OpenAITokenizer(RegexTokenizer):
    """The tokenizer of an encoding that OpenAI published, with the ids that tiktoken gives; get_encoding makes it.

    Unlike the other classes it repairs surrogates, as tiktoken does: a pair becomes the character it stands for, a lone
    one U+FFFD. It is not trained, saved or loaded.

    Attributes: name, the encoding's.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self._model = published_model(name)
        self.name = name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def _train(self, vocab_size: int, count: Callable[..., Any], **kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            f"{type(self).__name__} is trained already; train RegexTokenizer(pattern) with its pattern"
        )

    def extend(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not possible: the encoding is complete as it is, and a .model file could not hold what came of it."""
        raise NotImplementedError(
            f"{type(self).__name__} is complete as it is: with more merges it would be no encoding of OpenAI's, and a "
            ".model file could not hold it; train RegexTokenizer(pattern) with its pattern"
        )

    def truncated(self, vocab_size: int) -> NoReturn:
        """Not possible: with fewer merges it would be no encoding of OpenAI's."""
        raise NotImplementedError(
            f"{type(self).__name__} is complete as it is; to have fewer merges train RegexTokenizer(pattern) with its "
            "pattern"
        )

    def save(self, file_prefix: str | os.PathLike[str]) -> NoReturn:
        """Not possible: a .model file cannot say how the bytes are permuted. save_tiktoken writes a file that can."""
        raise NotImplementedError(
            f"{type(self).__name__} cannot be saved: a .model file does not hold its permutation of the bytes; "
            "save_tiktoken(path) writes a file that does, save_vocab(file) the tokens for people to read"
        )

    @classmethod
    def from_tiktoken(cls, source: Any, *args: Any, **kwargs: Any) -> NoReturn:
        """Not possible: the class has the encodings that come with the package. RegexTokenizer imports others."""
        raise NotImplementedError(
            f"{cls.__name__} has the encodings that come with the package; RegexTokenizer.from_tiktoken imports others"
        )

    def load(self, model_file: str | os.PathLike[str]) -> NoReturn:
        """Not possible: the tokenizer is complete as it is. A RegexTokenizer loads .model files."""
        raise NotImplementedError(
            f"{type(self).__name__} is complete as it is; load a .model file with RegexTokenizer"
        )


def get_encoding(name: str) -> OpenAITokenizer:
    """A tokenizer with tiktoken's ids for one of OpenAI's encodings, by tiktoken's name. It needs no network.

    get_encoding("o200k_base").encode("hello world") -> [24912, 2375]

    Args:
        name: "gpt2", "r50k_base", "p50k_base", "p50k_edit", "cl100k_base", "o200k_base" or "o200k_harmony".

    Every call returns a tokenizer of its own; what is costly is made once and shared. Raises ValueError for other
    names, TypeError for what is no str.
    """
    if not isinstance(name, str):
        raise TypeError(f"the name of an encoding must be a str, not {type(name).__name__}")
    return OpenAITokenizer(name)


def encoding_for_model(model_name: str) -> OpenAITokenizer:
    """A tokenizer with tiktoken's ids for one of OpenAI's models, such as "gpt-4o".

    Which encoding a model uses, the installed tiktoken says. Raises KeyError for a model that it does not know,
    ValueError for a model whose encoding the package does not have, TypeError for what is no str.
    """
    if not isinstance(model_name, str):
        raise TypeError(f"the name of a model must be a str, not {type(model_name).__name__}")
    from tiktoken.model import MODEL_PREFIX_TO_ENCODING, MODEL_TO_ENCODING

    name = MODEL_TO_ENCODING.get(model_name)
    if name is None:
        prefixes = (prefix for prefix in MODEL_PREFIX_TO_ENCODING if model_name.startswith(prefix))
        prefix = next(prefixes, None)
        if prefix is None:
            raise KeyError(f"tiktoken knows no model {model_name!r}; name its encoding to get_encoding")
        name = MODEL_PREFIX_TO_ENCODING[prefix]
    return get_encoding(name)
