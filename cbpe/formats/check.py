r"""Whether an exported tokenizer gives the ids of the one that it was made of, and if not, why.

In: a tokenizer, and another library's encode and decode for what was exported. Out: nothing, or an ExportError with a
short text that the two encode differently, both results, and the reason. Every exporter calls check_export before it
lets go of its work.

The texts: every token of the vocabulary; every special token alone, in a text, beside others, cut short; characters of
every class of Unicode in every position; runs of every kind of whitespace; what the pattern itself names, in all cases;
long runs; and random strings of all of these. They are drawn anew for each tokenizer, but never differently for the
same one.

A reason is never guessed. Each is a question that the two answer, asked about the text that was found: do both cut it
into the same chunks, does one lack a special token, are the tokens the same and only their numbers others?

One difference is no fault of an export. A character that got its class in a newer edition of Unicode is split by the
class here, and there not until the library has that edition. Such characters are left out of the texts; those that
the vocabulary or a special token has are no error, and a warning names the first.
"""

from __future__ import annotations

import random
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise, product
from typing import TYPE_CHECKING, NoReturn, Protocol

import regex

from cbpe.errors import ExportError

if TYPE_CHECKING:
    from cbpe.native import NativeTokenizer

Ids = list[int]

_CATEGORIES = [
    "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm",
    "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cn",
]  # fmt: skip
_WHITESPACE = [
    " ", "\t", "\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x1f", "\x85", "\xa0", "\u1680", "\u2003", "\u2028",
    "\u2029", "\u202f", "\u205f", "\u3000", "\u200b", "\ufeff", "\u180e",      # the last three are none
]  # fmt: skip
_SUFFIXES = ["s", "t", "d", "m", "re", "ve", "ll", "S", "T", "D", "M", "RE", "Ve", "lL", "\u017f", "\u212a", "x"]
_TEXTS = [
    "\0", "a\0b", "x\0\0y", "\n", " ", "''", "' s", "'\u017f", "\u0130", "\u017f", "\u212a", "\u0345", "\u1e9e",
    "hello world", "Hello World!!!? (안녕하세요!) lol123 😉", "don't I'LL you'Ve it'\u017f o'clock l'été d'Art",
    "1 12 123 1234 12345 1234567890 ٠١٢٣٤ ०१२३ Ⅻ ½ ² 𝟘𝟙𝟚", "a1b22c333d4444", "3.14 1,000,000 -5e-10 0xFF",
    "café cafe\u0301 ñ n\u0303 Å A\u030a \u212b ﬁ ﬀ", "नमस्ते दुनिया हिन्दी", "שָׁלוֹם עולם", "السَّلَامُ عَلَيْكُمْ",
    "ภาษาไทย", "한국어 텍스트 \u1112\u1161\u11ab", "日本語のテキスト、カタカナ。漢字仮名", "中文文本，没有空格。",
    "Привет, мир! ЁЛКА", "Ελληνικά ΣΊΣΥΦΟΣ σς", "\u0130stanbul \u0131I i\u0130 ǅ ǆ Ǆ ß \u1e9e SS",
    "👋👋🏽 👨\u200d👩\u200d👧 🇩🇪🇫🇷 ❤\ufe0f ☺\ufe0e 🏴\U000e0067\U000e0062\U000e007f", "\u00ad\u200d\u200e\u2060",
    "def f(x):\n    return x\n\n\n\tif a==b:\r\n\t\tpass\r\n", "https://example.com/a_b?c=d&e=%20f#g",
    "snake_case CamelCase HTTPServer iOS McDonald x86_64", "...--__==//\\\\!!??", "a/b//c/\n/d", "!\n\n!\r\n!/ \n",
    "$x {y} [z] <w> (v) ^u ~t |s &r *q +p =o `n @m #l %k", "\"'“”‘’«»", "\ufffd \ufffe \uffff \U0010ffff \ue000",
]  # fmt: skip
_LONG = ["a" * 1000, "ab" * 400, " " * 700, " " * 300 + "x", "\n" * 300, "9" * 400, "!" * 600, "é" * 300, "漢字" * 300]
_N_RANDOM = 4000                # texts of random pieces
_MOST_SHRINKING = 3000          # looks at a shorter text
_MOST_SHOWN = 80
_MANY = 1000                    # special tokens, from which on their texts are compared in groups


class Engine(Protocol):
    """How another library applies regular expressions, so that an ExportError can say whether that is the reason."""

    def find(self, pattern: str, text: str) -> str:
        r"""All that a pattern matches in a text, end to end. The patterns are of the form \p{Lu}."""

    def split(self, text: str) -> list[bytes] | None:
        """The chunks that the exported tokenizer cuts a text into; None if that cannot be said of this text."""


def check_export(
    tokenizer: NativeTokenizer,
    encode: Callable[[str, bool], Ids],
    decode: Callable[[Ids], bytes | str],
    target: str,
    *,
    encode_batch: Callable[[list[str], bool], list[Ids]] | None = None,
    engine: Engine | None = None,
    texts: list[str] | None = None,
) -> None:
    """Compares an exported tokenizer with the one it was made of. Raises ExportError for a difference.

    Args:
        tokenizer: what was exported.
        encode: the exported tokenizer's ids of a text, where special tokens are taken for such, or for text.
        decode: the exported tokenizer's bytes of ids, or its str with U+FFFD in place of what is no UTF-8.
        target: the other library's name.
        encode_batch: the same as encode for many texts, if that is faster.
        engine: the other library's regular expressions. Without them an ExportError cannot say what they do, and
            characters of newer editions of Unicode are compared too.
        texts: battery(tokenizer, engine), if it was made already.
    """
    _Check(tokenizer, encode, decode, target, encode_batch, engine).run(texts)


def overlapping(words: Iterable[str]) -> tuple[str, str] | None:
    """A word that another one begins with, and that one: ["b", "ab", "abc"] -> ("ab", "abc")."""
    return next((pair for pair in pairwise(sorted(words)) if pair[1].startswith(pair[0])), None)


class _Check:
    def __init__(
        self,
        tokenizer: NativeTokenizer,
        encode: Callable[[str, bool], Ids],
        decode: Callable[[Ids], bytes | str],
        target: str,
        encode_batch: Callable[[list[str], bool], list[Ids]] | None,
        engine: Engine | None,
    ) -> None:
        self.tokenizer = tokenizer
        self.model = tokenizer._model
        self.splitter = tokenizer._splitter(self.model)
        self.encode = encode
        self.decode = decode
        self.target = target
        self.encode_batch = encode_batch or (lambda texts, specials: [encode(text, specials) for text in texts])
        self.engine = engine
        self.newer: list[str] = []      # texts that differ by characters of a newer edition of Unicode

    def run(self, texts: list[str] | None) -> None:
        self.check_decoding()
        self.check_texts(filter(None, map(_text_of, self.model.token_bytes.values())), specials=False)
        words = list(self.model.specials)
        for texts_of_words in self.groups(_special_texts(words)):
            self.check_texts(texts_of_words, specials=True)
        self.check_texts(words, specials=False)
        self.check_texts(battery(self.tokenizer, self.engine) if texts is None else texts, specials=False)
        if self.newer:
            text = self.newer[0]
            warnings.warn(
                f"{self.target} has an older edition of Unicode and splits {_named(self.newer_characters(text))} "
                f"otherwise, which is in the vocabulary, for instance in {_shown(text)}",
                stacklevel=4,
            )

    def groups(self, texts: list[str]) -> Iterator[list[str]]:
        """Texts with special tokens, without those that are alike for sure.

        For one text tiktoken looks at all special tokens. If they are many, one is put between texts, so that each text
        stands for itself, and only those that differ so are compared one by one.
        """
        if len(self.model.specials) <= _MANY:
            yield texts
            return
        between = next(iter(self.model.specials))
        for start in range(0, len(texts), _MANY):
            group = texts[start : start + _MANY]
            together = between.join(group)
            if self.differs(together, True):
                yield [*group, together]

    # ---- the comparisons

    def check_decoding(self) -> None:
        for number, token in self.model.token_bytes.items():
            if number in self.model.shared_ids:
                continue        # it decodes to one of several special tokens
            try:
                there = self.decode([number])
            except Exception as error:
                raise ExportError(
                    f"{self.target} has no id {number}, which is {_shown(token)} here: {_first_line(error)}"
                ) from error
            here = token if isinstance(there, bytes) else token.decode("utf-8", "replace")
            if there != here:
                raise ExportError(
                    f"id {number} is {_shown(here)} here, and {self.target} decodes it to {_shown(there)}: "
                    + self.why_decoded(number, there)
                )

    def check_texts(self, texts: Iterable[str], *, specials: bool) -> None:
        for text in self.differing(list(texts), specials=specials):
            if self.is_newer(text):
                self.newer.append(text)
                newer = self.newer_characters(text)
                text = "".join(char for char in text if char not in newer)
                if not self.differs(text, specials):
                    continue
            self.refuse(text, specials)

    def differing(self, texts: list[str], *, specials: bool) -> Iterator[str]:
        """Those of the texts that the two encode differently, or the other does not encode."""
        here = self.tokenizer.encode_batch(texts, "all" if specials else "none")
        there: Sequence[Ids | None]
        try:
            there = self.encode_batch(texts, specials)
        except BaseException as error:
            if not _is_fault(error):
                raise
            there = [self.there(text, specials) for text in texts]
        for text, ours, theirs in zip(texts, here, there, strict=True):
            if ours != theirs:
                yield text

    def here(self, text: str, specials: bool) -> Ids:
        return self.tokenizer.encode_batch([text], "all" if specials else "none")[0]

    def there(self, text: str, specials: bool) -> Ids | None:
        """None: the other library fails."""
        try:
            return list(self.encode(text, specials))
        except BaseException as error:
            if not _is_fault(error):
                raise
            return None

    def differs(self, text: str, specials: bool) -> bool:
        return self.here(text, specials) != self.there(text, specials)

    # ---- what is said about a difference

    def refuse(self, text: str, specials: bool) -> NoReturn:
        text = _shrunk(text, lambda shorter: self.differs(shorter, specials))
        ours, theirs = self.here(text, specials), self.there(text, specials)
        if theirs is None:
            raise ExportError(f"{self.target} fails on the text {_shown(text)}, which is {_shown(ours)} here")
        raise ExportError(
            f"{self.target} encodes the text {_shown(text)} as {_shown(theirs)}, and here it is {_shown(ours)}: "
            + self.why(text, specials, ours, theirs)
        )

    def why(self, text: str, specials: bool, ours: Ids, theirs: Ids) -> str:
        if specials:
            parts = [part for part in self.model.cutter("all").parts(text) if not isinstance(part, int)]
            faulty = [each for part in parts if self.differs(each := _as_str(part), False)]
            if not faulty:
                return self.why_specials(text)
            text = faulty[0]
            ours, theirs = self.here(text, False), self.there(text, False) or []
        tokens = self.model.token_bytes
        chunks = self.splitter.split(text)
        dropped = len(text.encode()) - sum(map(len, chunks))
        split = self.split_there(text)
        if split is not None and split != chunks:
            if dropped and sum(map(len, split)) > sum(map(len, chunks)):
                return f"the pattern leaves out {dropped} bytes of the text here, and there they are kept"
            if self.splitter.kind == "whole":
                return f"the text is one chunk here, and there it is {_shown(split)}"
            return f"its regular expressions read the pattern otherwise: {_shown(split)}, and here {_shown(chunks)}"
        if dropped and self.decoded(theirs) == text.encode():
            return f"the pattern leaves out {dropped} bytes of the text here, and there they are kept"
        if [self.decoded([number]) for number in theirs] == [tokens[number] for number in ours]:
            return f"the tokens are the same, and their ids are others there{self.how_numbered()}"
        for chunk in chunks:
            part = _text_of(chunk)
            if part and self.differs(part, False):
                return self.why_merges(part)
        if self.decoded(theirs) != b"".join(chunks):
            return f"there the ids stand for {_shown(self.decoded(theirs))}: the text is changed before it is encoded"
        return "each of its chunks is the same alone, so the text is split otherwise there"

    def why_specials(self, text: str) -> str:
        words = [word for word in self.model.specials if word in text]
        pair = overlapping(words)
        if pair is not None:
            return f"special token {pair[1]!r} begins with {pair[0]!r}, and the two do not choose the same one"
        return "the special tokens in it are found otherwise there, and what stands between them is the same"

    def why_merges(self, chunk: str) -> str:
        token = chunk.encode()
        numbers = [number for number, each in self.model.token_bytes.items() if each == token]
        theirs = self.there(chunk, False)
        if len(numbers) == 1 and theirs == numbers:
            return f"{_shown(token)} is a token, which the merges here do not make of its bytes, and there it is found"
        if len(numbers) > 1:
            return f"{_shown(token)} is what several ids stand for, {', '.join(map(str, numbers))}: ids that clash"
        return f"the chunk {_shown(token)} is merged otherwise there: its merges, or their order, are not those here"

    def why_decoded(self, number: int, there: bytes | str) -> str:
        data = there if isinstance(there, bytes) else there.encode()
        others = [other for other, token in self.model.token_bytes.items() if token == data and other != number]
        if others:
            return f"that is id {others[0]} here, so ids clash or are shifted there{self.how_numbered()}"
        return "the bytes of the token are not those that were exported"

    def how_numbered(self) -> str:
        numbers = self.model.token_bytes.keys()
        missing = self.model.max_id + 1 - len(numbers)
        if missing <= 0:
            return ""
        first = next(number for number in range(self.model.max_id) if number not in numbers)
        return f"; the ids here are sparse: {missing} of 0..{self.model.max_id} do not occur, {first} the first"

    def decoded(self, ids: Ids) -> bytes:
        """The other library's bytes of ids; what is no UTF-8 may be U+FFFD."""
        try:
            there = self.decode(ids)
        except Exception:
            return b""
        return there if isinstance(there, bytes) else there.encode()

    # ---- two editions of Unicode

    def newer_characters(self, text: str) -> str:
        """The characters of a text that the other library's edition of Unicode has in another category, or not yet."""
        if self.engine is None:
            return ""
        distinct = [char for char in dict.fromkeys(text) if not char.isascii()]
        return "".join(char for char in distinct if not self.engine.find(rf"\p{{{_category(char)}}}", char))

    def is_newer(self, text: str) -> bool:
        """Whether such a character is why a text differs: its chunks are others there."""
        return bool(self.newer_characters(text)) and self.split_there(text) != self.splitter.split(text)

    def split_there(self, text: str) -> list[bytes] | None:
        return None if self.engine is None else self.engine.split(text)


# ---- the texts


def battery(tokenizer: NativeTokenizer, engine: Engine | None = None) -> list[str]:
    """The texts that do not depend on special tokens, without characters that the engine does not have yet."""
    model = tokenizer._model
    rng = random.Random(0)
    common: list[str] = []
    for category, characters in representatives().items():
        common += characters if engine is None else engine.find(rf"\p{{{category}}}", characters)
    rng.shuffle(common)
    named = _characters_of(model.pattern)
    literals = [*named, *_words_of(model.pattern)]
    tokens = sorted(model.token_bytes.items())
    words = [text for _, token in rng.sample(tokens, min(len(tokens), 2000)) if (text := _text_of(token))]
    frames = ["{}", "x{}", " {}", "{}y", "x{}y", " {}y"]
    texts = [*_TEXTS, *_LONG, *_whitespace_texts()]
    texts += [frame.format("'" + suffix) for suffix in _SUFFIXES for frame in frames]
    texts += [frame.format(word) for word in literals for frame in [*frames, "'{}", "'{}y"]]
    texts += [f"{''.join(pair)}z" for pair in product(named[:60], repeat=2)]
    texts += _in_context(common)
    kinds = [literals, _WHITESPACE, _SUFFIXES, words, common, [*"0123456789", *"aA'.,!-_/", "é", "漢", "\u0301"]]
    for i in range(_N_RANDOM):
        some = rng.choices([kind for kind in kinds if kind], k=1 + i % 24)
        texts.append("".join(rng.choice(kind) for kind in some))
    return texts


def _special_texts(words: list[str]) -> list[str]:
    """Every special token alone; and in one text between others, doubled, beside the next one, and cut short."""
    texts = list(words)
    for word, following in zip(words, words[1:] + words[:1], strict=True):
        texts.append(
            f"a{word}b a  {word}  b\n{word}\n{word}{word}{word[:-1]}{word}{following}{word[1:]}{word}'s 12{word}34 "
        )
    return texts


def _whitespace_texts() -> list[str]:
    """Runs of whitespace, one kind or two, at the beginning of a text, within and at its end."""
    runs = ["".join(pair) for pair in product(_WHITESPACE, repeat=2)]
    runs += [char * n for char in _WHITESPACE for n in (1, 3, 4, 9)]
    runs += ["".join(three) for three in product(" \n\r\t", repeat=3)]
    contexts = ["{}", "a{}", "{}b", "a{}b", "1{}2", "!{}?"]
    return [context.format(run) for run in runs for context in contexts]


def _in_context(characters: list[str]) -> list[str]:
    """Each character between letters, digits, signs, spaces and beside itself; eight to a text."""
    contexts = ["a{0}b", " {0}", "1{0}2", "{0}{0}", ".{0} ", "\n{0}\n", "A{0}'s", "{0}{1}", "'{0}"]
    pieces = [
        "".join(context.format(char, following) for context in contexts)
        for char, following in zip(characters, characters[1:] + characters[:1], strict=True)
    ]
    return ["".join(pieces[start : start + 8]) for start in range(0, len(pieces), 8)] + characters


def _characters_of(pattern: str) -> list[str]:
    r"""The characters that stand in a pattern, as such or by number, in all cases: "k\x41" -> K, k, A, a, U+212A ..."""
    numbers = regex.findall(r"\\(?:x|u|U|x\{)([0-9A-Fa-f]{2,8})", pattern)
    found = {chr(int(number, 16)) for number in numbers if int(number, 16) < 0x110000} | set(pattern)
    found = {char for char in found if not 0xD800 <= ord(char) < 0xE000}
    return sorted(found.union(*map(_cases, found)))


def _words_of(pattern: str) -> list[str]:
    """The words in a pattern, as such and with one character in another case: "ok|no" -> ok, OK, Ok, oK, o(K) ..."""
    words = set(regex.findall(r"\w{2,}", pattern))
    for word in list(words):
        words |= {word.upper(), word.lower(), word.title()}
        words |= {word[:i] + case + word[i + 1 :] for i, char in enumerate(word) for case in _cases(char)}
    return sorted(words)


@cache
def _cases(char: str) -> str:
    """What a character matches if cases are ignored: "k" -> "Kk" and the sign for Kelvin."""
    if char.lower() == char.upper():
        return char
    return "".join(regex.findall(f"(?i){char}", _assigned()))


# ---- classes of characters


@cache
def _assigned() -> str:
    """Nearly all code points that are something, in order: unassigned planes and most of private use are left out."""
    ranges = [(0, 0xD800), (0xE000, 0x40000), (0xE0000, 0xE0200), (0xF0000, 0xF0010), (0x10FFF0, 0x110000)]
    return "".join(chr(point) for first, stop in ranges for point in range(first, stop))


@cache
def representatives() -> dict[str, str]:
    """By category, the first, the middle and the last character of each run of characters of that category."""
    found: dict[str, str] = {}
    for category in _CATEGORIES:
        runs = regex.findall(rf"\p{{{category}}}+", _assigned())
        found[category] = "".join("".join({run[0]: 0, run[len(run) // 2]: 0, run[-1]: 0}) for run in runs)
    return found


def _category(char: str) -> str:
    """Of regex's edition of Unicode, which may be newer than Python's: "é" -> "Ll"."""
    return next(name for name in _CATEGORIES if regex.match(rf"\p{{{name}}}", char))


def _named(characters: str) -> str:
    """ "é" -> "U+00E9 (LATIN SMALL LETTER E WITH ACUTE)"."""
    char = characters[0]
    return f"U+{ord(char):04X} ({unicodedata.name(char, 'no name in the edition of this Python')})"


# ---- small things


def _shrunk(text: str, differs: Callable[[str], bool]) -> str:
    """A text as short as leaving out stretches makes it, which still differs."""
    looks = 0
    size = len(text) // 2
    while size:
        at = 0
        while at < len(text) and looks < _MOST_SHRINKING:
            shorter = text[:at] + text[at + size :]
            looks += 1
            if shorter and differs(shorter):
                text = shorter
            else:
                at += size
        size //= 2
    return text


def _text_of(token: bytes) -> str | None:
    try:
        return token.decode()
    except UnicodeDecodeError:
        return None


def _as_str(part: str | bytes) -> str:
    return part if isinstance(part, str) else part.decode()


def _is_fault(error: BaseException) -> bool:
    """Whether the other library failed. A panic of Rust's is no Exception."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _shown(value: str | bytes | Iterable[object]) -> str:
    shown = repr(value)
    return shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]}..."
