"""What all tokenizers share: minbpe's helper functions, and a class that holds, saves and loads a model.

BasicTokenizer, RegexTokenizer and GPT4Tokenizer stand on Tokenizer, and so may a program's own: it sets `merges`,
`pattern` and `special_tokens`, and has save and load for nothing. The functions are for reading, experiments and such
tokenizers; the library's own classes work with compiled code instead.

The attributes are dicts as in minbpe, and changing one, in place too, takes effect on the next call. Assigning a dict
copies it.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar, overload

import numpy as np
import numpy.typing as npt

from cbpe.errors import ModelFileError
from cbpe.files import atomic_write
from cbpe.formats import minbpe, statistics
from cbpe.formats.minbpe import render_token, replace_control_characters
from cbpe.model import Model, Pair

T = TypeVar("T")

__all__ = ["Tokenizer", "get_stats", "merge", "render_token", "replace_control_characters"]


def get_stats(ids: Sequence[int], counts: dict[Pair, int] | None = None) -> dict[Pair, int]:
    """How often each pair of neighbours occurs, in order of first occurrence; added to counts if that is given.

    [1, 2, 3, 1, 2] -> {(1, 2): 2, (2, 3): 1, (3, 1): 1}
    """
    counts = {} if counts is None else counts
    for pair in itertools.pairwise(ids):
        counts[pair] = counts.get(pair, 0) + 1
    return counts


def merge(ids: Sequence[int], pair: Pair, idx: int) -> list[int]:
    """The ids with idx in place of every occurrence of pair, from left to right.

    [1, 2, 3, 1, 2], (1, 2), 4 -> [4, 3, 4]
    """
    merged: list[int] = []
    rest = iter(range(len(ids)))
    for i in rest:
        if ids[i] == pair[0] and i + 1 < len(ids) and ids[i + 1] == pair[1]:
            merged.append(idx)
            next(rest)
        else:
            merged.append(ids[i])
    return merged


class WatchedDict(dict[Any, Any]):
    """A dict that remembers whether it was changed, so that a tokenizer that handed it out can take the change over."""

    changed = False

    def __reduce__(self) -> tuple[type, tuple[dict[Any, Any]]]:
        return dict, (dict(self),)      # copies and pickles are a plain dict


def _watched(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def changing(self: WatchedDict, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        finally:
            self.changed = True         # only now: a thread that takes changes over meanwhile must not miss this one

    return changing


for _name in ("__setitem__", "__delitem__", "__ior__", "clear", "pop", "popitem", "setdefault", "update"):
    setattr(WatchedDict, _name, _watched(getattr(dict, _name)))


class _Held:
    """A tokenizer's model, and the attributes of it that were handed out."""

    def __init__(self, model: Model, handed_out: dict[str, WatchedDict] | None = None) -> None:
        self.model = model
        self.handed_out = {} if handed_out is None else handed_out


# an attribute that is assigned takes those with it that follow from it
_FOLLOWERS = {
    "merges": ("vocab",),
    "special_tokens": ("vocab", "inverse_special_tokens"),
    "byte_shuffle": ("inverse_byte_shuffle",),
    "inverse_byte_shuffle": ("byte_shuffle",),
}


class Attribute(Generic[T]):
    """A public attribute whose value lives in the tokenizer's model."""

    def __init__(self, doc: str) -> None:
        self.__doc__ = doc

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Attribute[T]: ...
    @overload
    def __get__(self, instance: Tokenizer, owner: type) -> T: ...
    def __get__(self, instance: Tokenizer | None, owner: type) -> Attribute[T] | T:
        if instance is None:
            return self
        held = instance._current()
        value: Any = held.handed_out.get(self.name)
        if value is None:
            value = held.model.attribute(self.name)
            if isinstance(value, dict):
                value = held.handed_out.setdefault(self.name, WatchedDict(value))
        result: T = value
        return result

    def __set__(self, instance: Tokenizer, value: T) -> None:
        held = instance._current()
        gone = (self.name, *_FOLLOWERS.get(self.name, ()))
        handed_out = {name: out for name, out in list(held.handed_out.items()) if name not in gone}
        instance._held = _Held(held.model.with_attribute(self.name, value), handed_out)


class OwnAttribute(Attribute[T]):
    """An attribute of the byte order, which only tokenizers have whose model says one.

    In others it is missing, as in minbpe's, and a program may use its name for a value of its own.
    """

    def __get__(self, instance: Tokenizer | None, owner: type) -> Any:
        if instance is None or instance._model.has_byte_order:
            return super().__get__(instance, owner)
        try:
            return instance.__dict__[self.name]
        except KeyError:
            raise AttributeError(f"{type(instance).__name__!r} object has no attribute {self.name!r}") from None

    def __set__(self, instance: Tokenizer, value: T) -> None:
        model = instance._model
        if model.has_byte_order or model.numbers is not None or model.whole:
            super().__set__(instance, value)
        else:
            instance.__dict__[self.name] = value


class Tokenizer:
    """The base of all tokenizers. train, encode and decode are for subclasses to write."""

    merges = Attribute[dict[Pair, int]]("dict (int, int) -> int: the pairs, and the ids that they merge into.")
    vocab = Attribute[dict[int, bytes]](
        "dict int -> bytes: the bytes of each id. As in minbpe, special tokens are in it after load, and not after "
        "registering. It follows merges, unless another one was assigned."
    )
    special_tokens = Attribute[dict[str, int]]("dict str -> int: the special tokens, in the order of registration.")
    pattern = Attribute[str]('str: the split pattern; "" where there is none.')

    _needs_pattern: bool | None = None      # whether a model of this class has a pattern; None: as it likes

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        tokenizer = super().__new__(cls)
        tokenizer._held = _Held(Model())
        return tokenizer

    def __init__(self) -> None:
        """A tokenizer of the 256 bytes, without a pattern."""

    def train(self, text: str, vocab_size: int, verbose: bool = False) -> None:
        """Learns a vocabulary of vocab_size ids from a text."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it trains")

    def encode(self, text: str) -> list[int]:
        """The ids of a text."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it encodes")

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it decodes")

    def save(self, file_prefix: str | os.PathLike[str]) -> None:
        """Writes file_prefix.model, which load reads, and file_prefix.vocab, which people read: minbpe's files, to the
        byte. What training has recorded goes to file_prefix.stats.json, if it is known.

        All are UTF-8 with "\\n" on every platform, and each is written whole or not at all. Raises ModelFileError,
        before anything is written, for what the format cannot hold: line ends in a pattern or a special token, merges
        whose ids are not 256, 257, ... in this order; OSError.
        """
        model = self._model
        content = self._model_text(model)
        vocab = minbpe.vocab_text(model.attribute("vocab"), model.merges())
        if model.statistics is None:
            minbpe.save(file_prefix, content, vocab)
            return
        # replaced behind the model: where that fails, the old model keeps its own
        with atomic_write(minbpe.check_prefix(file_prefix) + statistics.SUFFIX) as file:
            file.write(statistics.text(model.statistics, model.pairs, model.pattern).encode())
            file.flush()        # a full disk is met before anything is replaced
            minbpe.save(file_prefix, content, vocab)

    def _model_text(self, model: Model) -> str:
        """The content of a .model file. Raises ModelFileError for what it cannot hold."""
        lost = {
            "the ids": model.numbers is not None,
            "the order of the bytes": model.has_byte_order,
            "the chunks that have an id as a whole": bool(model.whole),
            "all stages but one of how texts are split": model.stages is not None,
            "what is done to texts before": model.preparation is not None,
        }
        if any(lost.values()):
            what = " and ".join(name for name, is_lost in lost.items() if is_lost)
            raise ModelFileError(
                f"a .model file cannot hold this tokenizer: {what} would be lost, for bytes have the ids 0..255 there, "
                "merges the following ones, and one pattern splits texts; save_tiktoken and save_huggingface write "
                "files that cbpe.load reads, save_vocab writes the tokens for people to read"
            )
        if "compiled_pattern" in model.assigned:
            raise ModelFileError(
                "the compiled_pattern that was assigned is not the pattern's own, and a .model file would not hold it: "
                "set pattern instead"
            )
        wrong = self._wrong_pattern(model.pattern)
        if wrong:
            raise ModelFileError(wrong)
        return minbpe.model_text(model.pattern, model.specials, model.merges())

    def load(self, model_file: str | os.PathLike[str]) -> None:
        """Takes over pattern, special tokens and merges from a .model file of save's or minbpe's, and from the
        .stats.json file beside it, if there is one that belongs to it, what training has recorded.

        Raises ModelFileError, naming the line, for a file that is damaged, foreign or of another class of tokenizer,
        and OSError; the tokenizer is then as it was.
        """
        self._take(os.fspath(model_file), *minbpe.load(model_file))

    def _take(
        self, name: str, pattern: str, special_tokens: dict[str, int], pairs: npt.NDArray[np.uint32]
    ) -> None:
        """Takes over what a .model file of this name holds. Raises ModelFileError if that is another class's."""
        wrong = self._wrong_pattern(pattern)
        if wrong:
            raise ModelFileError(f"{name}: line 2: {wrong}")
        self._model = Model(
            pairs=pairs,
            special_tokens=special_tokens,
            pattern=pattern,
            specials_in_vocab=True,
            statistics=statistics.load(name.removesuffix(".model") + statistics.SUFFIX, pairs, pattern),
            regex_timeout=self._model.regex_timeout,
        )

    def _build_vocab(self) -> dict[int, bytes]:
        """The vocab that follows from merges and special_tokens."""
        return self._model.vocab(with_specials=True)

    def _wrong_pattern(self, pattern: str) -> str | None:
        """What is wrong with a pattern in a model of this class, if anything is."""
        if self._needs_pattern is True and not pattern:
            return f"a model without a pattern is one of BasicTokenizer, not of {type(self).__name__}"
        if self._needs_pattern is False and pattern:
            return f"a model with a pattern is one of RegexTokenizer, not of {type(self).__name__}"
        return None

    # ---- the model, and what programs do to the dicts that were handed out

    @property
    def _model(self) -> Model:
        return self._current().model

    @_model.setter
    def _model(self, model: Model) -> None:
        self._held = _Held(model)

    def _current(self) -> _Held:
        """The model and what was handed out of it, after taking over what was changed in place."""
        held = self._held
        if not held.handed_out:
            return held
        handed_out = dict(held.handed_out)
        changed = {name: out for name, out in handed_out.items() if out.changed}
        if changed:
            model = held.model
            for name, out in changed.items():
                out.changed = False
                try:
                    model = model.with_attribute(name, out)
                except ValueError:
                    held.handed_out.pop(name, None)     # a change that is refused is as if it had not been made
                    raise
                for follower in _FOLLOWERS.get(name, ()):
                    if follower not in changed:
                        handed_out.pop(follower, None)
            held = self._held = _Held(model, handed_out)
        return held

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_held": self._model}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._model = state["_held"]
