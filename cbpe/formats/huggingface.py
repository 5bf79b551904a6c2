"""Hugging Face's tokenizer.json, of byte-level BPE: read into a Model, and written of one.

The file has five parts, which a text goes through in this order, and here becomes of them:

    added_tokens    cut out of the text: special tokens, Preparation.added, Preparation.flags
    normalizer      nothing or NFC: Preparation.normalizer
    pre_tokenizer   Splits, and ByteLevel, which writes bytes as letters: pattern or stages
    model           BPE: a vocabulary with its ids, and merges in their order, each of two tokens' texts
    post_processor  puts special tokens around the ids; cbpe does not, nor does tokenizers if it is asked not to

The file's ids are kept, whatever order they are in (Model.numbers). Merges often list every way to make a token; those
that cannot occur are left out (recover.live_pairs), so that one is left for each. A token that no merge makes is found
only as a whole chunk, if the file says ignore_merges (Model.whole), or not at all (Preparation.unused).

What cbpe would encode otherwise than tokenizers is refused, with the part named. Patterns are of Oniguruma there, and
translated both ways (oniguruma.py).
"""

from __future__ import annotations

import json
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import regex

from cbpe.errors import ExportError, ModelFileError
from cbpe.files import StrPath, atomic_write
from cbpe.formats.alphabet import ALPHABET, bytes_of, is_written, text_of
from cbpe.formats.check import check_export
from cbpe.formats.oniguruma import from_oniguruma, to_oniguruma
from cbpe.formats.recover import live_pairs
from cbpe.formats.untrusted import check_pattern
from cbpe.model import Model
from cbpe.patterns import NAMED_PATTERNS
from cbpe.preparation import REGISTERED, Flags, Preparation
from cbpe.special import MAX_ID
from cbpe.splitting.split import Splitter, splitter_for
from cbpe.splitting.stages import BYTE_LEVEL, Stage, Stages, digits, punctuation

if TYPE_CHECKING:
    from cbpe.native import NativeTokenizer

Json = dict[str, Any]

# What tokenizers calls the ways to keep the parts of a text; None: the same, whether inverted or not.
_KEEPS = {
    ("Removed", False): "between",
    ("Removed", True): "matches",
    ("Isolated", None): "all",
    ("Contiguous", None): "runs",
    ("MergedWithPrevious", False): "with_previous",
    ("MergedWithPrevious", True): "with_next",
    ("MergedWithNext", False): "with_next",
    ("MergedWithNext", True): "with_previous",
}
_BEHAVIORS = {keep: (behavior, bool(invert)) for (behavior, invert), keep in reversed(_KEEPS.items())}

# the library's own patterns, as save writes them
_OWN_PATTERNS = {to_oniguruma(pattern): pattern for pattern in NAMED_PATTERNS.values()}

_BYTES = {letter: byte for byte, letter in enumerate(ALPHABET)}
_EVERYTHING = "(?s:.+)"


# ---- reading


def load(source: Any) -> Model:
    """The model that a tokenizer.json file holds; see RegexTokenizer.from_huggingface."""
    name, data = _read(source)
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{name}: no JSON: {error}") from None
    try:
        return _model_of(content)
    except _Refusal as refusal:
        raise ModelFileError(f"{name}: {refusal}") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise ModelFileError(f"{name}: not a tokenizer.json as tokenizers writes it: {error!r}") from None


class _Refusal(ValueError):
    """Why a file is not read."""


def _read(source: Any) -> tuple[str, str | bytes]:
    """The name and the content of a file, of the one in a folder, or of a tokenizer of the other library."""
    source = getattr(source, "backend_tokenizer", source)       # transformers'
    if hasattr(source, "to_str"):
        return "tokenizer", source.to_str()
    path = os.fspath(source)
    if os.path.isdir(path):
        path = os.path.join(path, "tokenizer.json")
    with open(path, "rb") as file:
        return os.fsdecode(path), file.read()


def _model_of(content: Any) -> Model:
    if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
        raise _Refusal("no tokenizer.json: it has no model")
    model = content["model"]
    _check_kind(model)
    preparation = Preparation(normalizer=_normalizer(content.get("normalizer")))
    stages, prefix_space = _stages(content.get("pre_tokenizer"))
    vocab = _vocab(model["vocab"])
    added = _added_tokens(content.get("added_tokens") or [], vocab)
    merged = _merged(vocab, _merges(model["merges"]))

    taken = set(merged.numbers.tolist())
    leftover = {text: number for text, number in vocab.items() if number not in taken and text not in added}
    whole = {}
    if model.get("ignore_merges"):
        whole = {bytes_of(text): number for text, number in leftover.items() if is_written(text)}
        taken.update(whole.values())
    if preparation.normalizer is None and len({flags.normalized for _, flags in added.values()}) == 1:
        # all are looked for at once, in texts as they are
        added = {text: (number, flags._replace(normalized=False)) for text, (number, flags) in added.items()}
    special = {text for text, (number, flags) in added.items() if flags.special and number not in taken}
    preparation = replace(
        preparation,
        added={text: number for text, (number, _) in added.items() if text not in special},
        flags={text: flags for text, (_, flags) in added.items() if flags != REGISTERED},
        prefix_space=prefix_space,
        unused={number: text for text, number in leftover.items() if number not in taken},
    )
    numbers = Counter(added[text][0] for text in special)
    return Model(
        pairs=merged.pairs,
        byte_ids=merged.byte_ids,
        numbers=None if merged.in_order else merged.numbers,
        whole=whole,
        one_by_one=bool((merged.pairs.max(axis=1, initial=0) >= 256 + np.arange(len(merged.pairs))).any()),
        special_tokens={text: number for text, (number, _) in added.items() if text in special},
        shared_ids=frozenset(number for number, n in numbers.items() if n > 1),
        specials_in_vocab=True,
        pattern=stages.stages[-1].pattern,
        stages=stages if splitter_for(stages).kind == "stages" else None,
        preparation=None if preparation.changes_nothing else preparation,
    )


def _check_kind(model: Json) -> None:
    """Raises _Refusal unless the model is byte-level BPE whose ids follow from its merges."""
    kind = model.get("type", "BPE")
    if kind != "BPE":
        raise _Refusal(f"model is {kind}, which is no byte-pair encoding")
    if model.get("byte_fallback"):
        raise _Refusal("model has byte_fallback: its alphabet is characters, and bytes stand only for those it lacks")
    if model.get("dropout"):
        raise _Refusal(f"model has dropout {model['dropout']}: what it encodes is left to chance")
    for part in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(part):
            raise _Refusal(f"model has {part} {model[part]!r}: the tokens are of words; see WordTokenizer")


def _normalizer(part: Any) -> Literal["NFC"] | None:
    if part is None:
        return None
    if part["type"] == "Sequence":
        found = [_normalizer(each) for each in part["normalizers"]]
        return "NFC" if "NFC" in found else None
    if part["type"] != "NFC":
        raise _Refusal(f"normalizer is {part['type']}; none and NFC can be matched")
    return "NFC"


# ---- how texts are split


def _stages(part: Any) -> tuple[Stages, bool]:
    """What splits texts, and whether stretches get a space in front."""
    stages: list[Stage] = []
    prefix_space = are_bytes = False
    for each in _flat(part):
        kind = each["type"]
        if kind == "ByteLevel":
            if are_bytes:
                raise _Refusal("pre_tokenizer has ByteLevel twice, which writes bytes of what are bytes already")
            prefix_space = each["add_prefix_space"]
            if prefix_space and stages:
                raise _Refusal("pre_tokenizer has ByteLevel with add_prefix_space behind others: a space for each word")
            if each.get("use_regex", True):
                stages.append(BYTE_LEVEL)
            are_bytes = True
        elif kind == "Split":
            stages.append(_stage_of_split(each)._replace(of_bytes=are_bytes))
        elif kind == "Digits":
            stages.append(digits(each["individual_digits"])._replace(of_bytes=are_bytes))
        elif kind == "Punctuation":
            stages.append(punctuation(_keep(each.get("behavior", "Isolated"), False))._replace(of_bytes=are_bytes))
        else:
            raise _Refusal(f"pre_tokenizer has {kind}; ByteLevel, Split, Digits and Punctuation can be matched")
    if not are_bytes:
        raise _Refusal("pre_tokenizer has no ByteLevel, so the tokens are not of bytes")
    return Stages(stages or [Stage(_EVERYTHING, "matches")]), prefix_space


def _flat(part: Any) -> Iterator[Json]:
    if part is None:
        return
    if part["type"] == "Sequence":
        for each in part["pretokenizers"]:
            yield from _flat(each)
    else:
        yield part


def _keep(behavior: str, invert: bool) -> str:
    keep = _KEEPS.get((behavior, invert)) or _KEEPS.get((behavior, None))
    if keep is None:
        raise _Refusal(f"pre_tokenizer splits by the behavior {behavior!r}, which is not known")
    return keep


def _stage_of_split(part: Json) -> Stage:
    (kind, text), = part["pattern"].items()
    keep = _keep(part["behavior"], part["invert"])
    if kind == "String":
        return Stage(regex.escape(text), keep)
    if text in _OWN_PATTERNS:
        return Stage(_OWN_PATTERNS[text], keep)
    try:
        pattern = from_oniguruma(text)
        check_pattern(pattern)
    except (ValueError, regex.error) as error:
        raise _Refusal(f"pre_tokenizer splits by {text!r}, which cannot be translated: {error}") from None
    return Stage(pattern, keep)


# ---- tokens and merges


def _vocab(part: Any) -> Mapping[str, int]:
    for text, number in part.items():
        if type(number) is not int or not 0 <= number <= MAX_ID:
            raise _Refusal(f"model's vocab has {number!r} for {text!r}, which is no id")
    missing = [byte for byte, letter in enumerate(ALPHABET) if letter not in part]
    if missing:
        raise _Refusal(f"model's vocab lacks {len(missing)} of the 256 bytes, {missing[0]:#04x} the first")
    vocab: Mapping[str, int] = part
    return vocab


def _merges(part: Any) -> list[tuple[str, str]]:
    """The pairs of texts in their order. tokenizers takes the last place of one that is listed several times."""
    pairs = [tuple(each.split(" ")) if isinstance(each, str) else tuple(each) for each in part]
    wrong = next((i for i, pair in enumerate(pairs) if len(pair) != 2), None)
    if wrong is not None:
        raise _Refusal(f"model's merge {wrong} is no pair: {part[wrong]!r}")
    if len(set(pairs)) < len(pairs):
        pairs = list(dict.fromkeys(reversed(pairs)))[::-1]
    return pairs        # type: ignore[return-value]


class _Merged(NamedTuple):
    """Merges that occur: pairs, of inner ids; numbers, the outer id of each inner one.

    in_order: the outer ids are those of Model.byte_ids and of merging.
    """

    pairs: npt.NDArray[np.uint32]
    numbers: npt.NDArray[np.uint32]
    in_order: bool
    byte_ids: bytes | None


def _merged(vocab: Mapping[str, int], merges: list[tuple[str, str]]) -> _Merged:
    """What merges make of bytes, without those that cannot occur."""
    texts = [text for text in vocab if text not in _BYTES]
    places = _BYTES | {text: place for place, text in enumerate(texts, 256)}
    try:
        rows = [(places[left], places[right], places[left + right]) for left, right in merges]
    except KeyError as error:
        raise _Refusal(f"model's merges have {error.args[0]!r}, which is not in its vocab") from None
    table = np.array(rows, np.uint32).reshape(-1, 3)
    try:
        live = live_pairs(np.ascontiguousarray(table[:, :2]), np.ascontiguousarray(table[:, 2]), len(places))
    except ValueError as error:
        raise _Refusal(f"model's merges: {error}") from None
    pairs, made = table[live, :2], table[live, 2]
    inner = np.arange(len(places), dtype=np.uint32)
    inner[made] = np.arange(256, 256 + len(made))
    pairs = inner[pairs]
    outer = np.array([vocab[letter] for letter in ALPHABET] + [vocab[text] for text in texts], np.uint32)
    numbers = outer[np.concatenate([np.arange(256), made])]
    if len(np.unique(numbers)) < len(numbers):
        raise _Refusal("model's vocab has the same id for two tokens")
    byte_ids = None
    in_order = np.array_equal(np.sort(numbers[:256]), np.arange(256)) and np.array_equal(
        numbers[256:], np.arange(256, len(numbers))
    )
    if in_order and not np.array_equal(numbers[:256], np.arange(256)):
        byte_ids = bytes(numbers[:256].tolist())
        pairs = numbers[pairs]
    return _Merged(pairs, numbers, in_order, byte_ids)


def _added_tokens(part: Any, vocab: Mapping[str, int]) -> dict[str, tuple[int, Flags]]:
    """Added tokens with the ids that tokenizers gives them: text -> id, flags. Of those with one prefix, longer first.

    It has the vocabulary's id for a token that is in it, and numbers others in their order, behind the vocabulary. What
    the file says is not asked.
    """
    added: dict[str, tuple[int, Flags]] = {}
    following = len(vocab)
    for each in part:
        text = each["content"]
        if not text:
            continue
        number = vocab.get(text)
        if number is None and text in added:
            number = added[text][0]
        if number is None:
            number = following
        following = max(following, number + 1)
        if number != each["id"]:
            warnings.warn(
                f"added token {text!r} is said to have id {each['id']}, but is numbered {number}, as in tokenizers",
                stacklevel=5,
            )
        flags = Flags(*(bool(each.get(name, default)) for name, default in Flags._field_defaults.items()))
        added[text] = number, flags
    if any(longer.startswith(word) for word, longer in pairwise(sorted(added))):
        added = dict(sorted(added.items(), key=lambda item: len(item[0]), reverse=True))
    return added


# ---- writing


def save(tokenizer: NativeTokenizer, path: StrPath) -> None:
    """Writes a tokenizer.json; see NativeTokenizer.save_huggingface."""
    if tokenizer._encodes_its_own_way:
        raise ExportError(f"{type(tokenizer).__name__} encodes in a way of its own, which a file would not have")
    model = tokenizer._model
    if type(model) is not Model:
        raise ExportError(f"the tokens of a {type(tokenizer).__name__} are not of bytes, as those of such a file are")
    content = _content(model, tokenizer._splitter(model))
    text = _lines(content)
    _check(tokenizer, text)
    with ExitStack() as files:
        if os.path.isdir(path):
            config = files.enter_context(atomic_write(os.path.join(path, "tokenizer_config.json")))
            config.write(json.dumps(_CONFIG, indent=1).encode() + b"\n")
            path = os.path.join(path, "tokenizer.json")
        files.enter_context(atomic_write(path)).write(text.encode())


# what transformers' AutoTokenizer asks for beside a tokenizer.json
_CONFIG = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}


def _lines(content: Json) -> str:
    """JSON with a line for each part. With indentation a vocabulary of 128,000 takes seconds."""
    lines = [f" {json.dumps(name)}: {json.dumps(part, ensure_ascii=False)}" for name, part in content.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _check(tokenizer: NativeTokenizer, text: str) -> None:
    """Raises ExportError unless tokenizers gives the tokenizer's ids; warns if it is not installed."""
    try:
        import tokenizers
    except ImportError:
        warnings.warn(
            "the file is written without a test whether it gives the same ids: that needs the extra cbpe[huggingface]",
            stacklevel=4,
        )
        return
    try:
        theirs = tokenizers.Tokenizer.from_str(text)
    except Exception as error:
        raise ExportError(f"tokenizers does not read what was made of this tokenizer: {error}") from error

    def encode_batch(texts: list[str], specials: bool) -> list[list[int]]:
        theirs.encode_special_tokens = not specials
        return [each.ids for each in theirs.encode_batch_fast(texts, add_special_tokens=False)]

    check_export(
        tokenizer,
        lambda text, specials: encode_batch([text], specials)[0],
        lambda ids: theirs.decode(ids, skip_special_tokens=False),
        "tokenizers",
        encode_batch=encode_batch,
        engine=_Engine(tokenizers, theirs, tokenizer._model.preparation or Preparation()),
    )


class _Engine:
    """tokenizers' regular expressions, for check_export.

    Characters that have another normal form there, being of a newer edition of Unicode here or there, are not found.
    """

    def __init__(self, tokenizers: Any, theirs: Any, preparation: Preparation) -> None:
        self._tokenizers = tokenizers
        self._theirs = theirs
        self._preparation = preparation

    def find(self, pattern: str, text: str) -> str:
        split = self._tokenizers.pre_tokenizers.Split(self._tokenizers.Regex(pattern), "removed", invert=True)
        found = "".join(piece for piece, _ in split.pre_tokenize_str(text))
        return found if self._preparation.normalizer is None else "".join(filter(self._is_normalized_alike, found))

    def _is_normalized_alike(self, character: str) -> bool:
        """Whether it gets the same place among marks, from one that belongs before all others to one behind them."""
        probe = f"a{character}\u0334b\u0345{character}"
        return bool(self._theirs.normalizer.normalize_str(probe) == self._preparation.normalized(probe))

    def split(self, text: str) -> list[bytes]:
        return [bytes_of(piece) for piece, _ in self._theirs.pre_tokenizer.pre_tokenize_str(text)]


def _content(model: Model, splitter: Splitter) -> Json:
    """What the file holds. Raises ExportError for what it cannot hold."""
    preparation = model.preparation or Preparation()
    words = model.specials | dict(preparation.added)
    tokens = replace(model, preparation=None).tokens(with_specials=False)
    texts = {number: text_of(token) for number, token in tokens.items()}
    first_of: dict[int, str] = {}
    for word, number in words.items():
        first = first_of.setdefault(number, word)
        if first != word:
            raise ExportError(f"special tokens {first!r} and {word!r} have one id, for which tokenizers finds but one")
    texts |= {number: text for number, text in preparation.unused.items() if number not in first_of}
    merges = [[texts[left], texts[right]] for left, right in _merges_in_order(model)]
    found = words if model.preparation is not None else _found(model)
    added = [
        {"id": number, "content": word, **preparation.flags.get(word, REGISTERED)._asdict()}
        for word, number in sorted(found.items(), key=lambda item: item[1])
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": preparation.normalizer and {"type": preparation.normalizer},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": _splits(model, splitter, preparation.prefix_space)},
        "post_processor": None,
        "decoder": _decoder(words),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": bool(model.whole),
            "vocab": _numbered(texts, words, [token["content"] for token in added]),
            "merges": merges,
        },
    }


def _found(model: Model) -> dict[str, int]:
    """The special tokens that can be found, as an earlier one is found in place of each that begins with it.

    {"<a>": 1, "<a>b": 2} -> {"<a>": 1}, where tokenizers would find the longer one.
    """
    finder = model.special_finder
    return {word: model.specials[word] for word in map(bytes.decode, finder.words if finder else [])}


def _merges_in_order(model: Model) -> Iterable[tuple[int, int]]:
    """The pairs in the order of merging. Raises ExportError if a list cannot say what they do."""
    merges = model.merges()
    items = list(merges.items())
    if model.numbers is None:
        items.sort(key=lambda item: item[1])
    made = set(range(256)) if model.numbers is None else set(model.numbers[:256].tolist())
    for (left, right), number in items:
        if not model.one_by_one and (left not in made or right not in made):
            raise ExportError(f"the merge of {left} and {right} to {number} comes before one that makes its parts")
        if number in made:
            raise ExportError(f"several merges make id {number}, which tokenizers has no way to say")
        made.add(number)
    return [pair for pair, _ in items]


def _numbered(texts: Mapping[int, str], words: Mapping[str, int], added: list[str]) -> dict[str, int]:
    """The vocabulary: tokens with their ids, and added ones if tokenizers would number them otherwise.

    Raises ExportError if two tokens have one text.
    """
    vocab: dict[str, int] = {}
    for number, text in sorted(texts.items()):
        if vocab.setdefault(text, number) != number:
            raise ExportError(f"ids {vocab[text]} and {number} clash: both stand for {bytes_of(text)!r}")
    for word, number in words.items():
        if vocab.get(word, number) != number:
            raise ExportError(f"special token {word!r}, id {number}, is how the token of id {vocab[word]} is written")
    # tokenizers takes the vocabulary's id for one that is in it, and numbers the rest in their order, behind it
    expected = range(len(vocab), len(vocab) + len(words))
    if list(words) != added or [words[word] for word in added] != list(expected):
        vocab |= words
    return vocab


def _splits(model: Model, splitter: Splitter, prefix_space: bool) -> list[Json]:
    """The pre-tokenizers."""
    if model.stages is not None:
        stages, flags = list(model.stages.stages), 0
    elif splitter.compiled is not None:
        stages, flags = [Stage(splitter.compiled.pattern, "matches")], splitter.compiled.flags
    else:
        # the patterns that have names match every character
        stages, flags = [] if splitter.kind == "whole" else [Stage(model.pattern, "all")], 0
    use_regex = False
    if prefix_space:
        # only ByteLevel puts a space in front, and only behind that it may split, by GPT-2's pattern
        first = stages.pop(0) if stages and not stages[0].of_bytes else Stage(_EVERYTHING, "matches")
        if first not in (BYTE_LEVEL, Stage(_EVERYTHING, "matches")) or not all(stage.of_bytes for stage in stages):
            raise ExportError("a space in front of texts goes with GPT-2's pattern only, and this model has another")
        use_regex = first == BYTE_LEVEL
    splits = [_split(stage, flags) for stage in stages]
    n_texts = sum(not stage.of_bytes for stage in stages)
    splits.insert(n_texts, _byte_level(prefix_space=prefix_space, use_regex=use_regex))
    return splits


def _split(stage: Stage, flags: int) -> Json:
    behavior, invert = _BEHAVIORS[stage.keep]
    plain = stage._replace(of_bytes=False)
    if plain in (digits(True), digits(False)):
        return {"type": "Digits", "individual_digits": stage.keep == "all"}
    if plain == punctuation(stage.keep) and not invert:
        return {"type": "Punctuation", "behavior": behavior}
    try:
        text = to_oniguruma(stage.pattern, flags)
    except ValueError as error:
        raise ExportError(f"the pattern {stage.pattern!r} cannot be translated: {error}") from None
    return {"type": "Split", "pattern": {"Regex": text}, "behavior": behavior, "invert": invert}


def _byte_level(*, prefix_space: bool, use_regex: bool) -> Json:
    return {"type": "ByteLevel", "add_prefix_space": prefix_space, "trim_offsets": False, "use_regex": use_regex}


def _decoder(words: Iterable[str]) -> Json:
    """ByteLevel, which takes a special token such as "<\xe9>" for bytes in its alphabet unless they are written so."""
    byte_level = _byte_level(prefix_space=False, use_regex=False)
    misread = [word for word in words if not word.isascii() and is_written(word)]
    replacing = [
        {"type": "Replace", "pattern": {"String": word}, "content": text_of(word.encode())} for word in misread
    ]
    return {"type": "Sequence", "decoders": [*replacing, byte_level]} if replacing else byte_level
