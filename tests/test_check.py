"""The comparison that every exporter makes finds each kind of fault, says which it is, and none in what is sound."""

from __future__ import annotations

import functools
import random
import unicodedata
import warnings
from itertools import product

import pytest
import regex

import cbpe
from cbpe import BasicTokenizer, ExportError, RegexTokenizer
from cbpe.formats import check
from cbpe.formats.check import check_export, overlapping
from cbpe.patterns import CL100K_SPLIT_PATTERN, GPT2_SPLIT_PATTERN, GPT4_SPLIT_PATTERN

SPECIALS = {"<|a|>": 1000, "<|b|>": 1001, "<|aa|>": 1003}
CORPUS = (
    "the cat sat on the mat, the dog didn't; don't they'll we've 12 123 1234 2024\n\n    indented  twice\n\t\ttabs\r\n"
    "naïve café déjà vu 日本語 日本 привет мир नमस्ते !!! ??? ... == != << >> aaaa aaaaaaa bbbb \0\0 x" * 5
)


def trained(pattern=GPT4_SPLIT_PATTERN, size=420, specials=SPECIALS, corpus=CORPUS):
    tokenizer = RegexTokenizer(pattern) if pattern else BasicTokenizer()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tokenizer.train(corpus, size)
    tokenizer.register_special_tokens(specials)
    return tokenizer


class RegexEngine:
    """Regular expressions of another library, played by the regex package."""

    def __init__(self, pattern, lacking=""):
        self.pattern = pattern
        self.lacking = lacking

    def find(self, pattern, text):
        return "".join(char for char in regex.findall(pattern, text) if char not in self.lacking)

    def split(self, text):
        return [match.encode() for match in regex.findall(self.pattern, text) if match]


def compare(tokenizer, other, *, engine=None, before=lambda text: text, **functions):
    """check_export of a tokenizer against another one of cbpe's, to which something was done."""

    def encode(text, specials):
        return other.encode(before(text), allowed_special="all" if specials else "none")

    def encode_batch(texts, specials):
        return other.encode_batch(map(before, texts), "all" if specials else "none")

    batch = None if "encode" in functions else encode_batch
    functions = {"encode": encode, "decode": other.decode_bytes, **functions}
    check_export(tokenizer, functions["encode"], functions["decode"], "other", encode_batch=batch, engine=engine)


def fault(*args, **kwargs):
    with pytest.raises(ExportError) as caught:
        compare(*args, **kwargs)
    return str(caught.value)


@pytest.mark.parametrize("pattern", [GPT4_SPLIT_PATTERN, GPT2_SPLIT_PATTERN, CL100K_SPLIT_PATTERN, r"\p{L}+", None])
def test_a_tokenizer_is_like_itself(pattern):
    tokenizer = trained(pattern)
    compare(tokenizer, trained(pattern))
    compare(tokenizer, trained(pattern), engine=RegexEngine(pattern or "(?s:.+)"))


@pytest.mark.parametrize("name", ["cl100k_base", "o200k_harmony", "p50k_edit"])
def test_published_encodings_are_like_themselves(name):
    compare(cbpe.get_encoding(name), cbpe.get_encoding(name))


def test_str_is_compared_where_the_other_library_decodes_to_str():
    tokenizer = trained()
    compare(tokenizer, tokenizer, decode=tokenizer.decode)


def test_it_is_the_same_every_time(monkeypatch):
    tokenizer = trained()
    seen = []
    for _ in range(2):
        texts = []
        compare(tokenizer, tokenizer, encode=lambda text, specials, texts=texts: (
            texts.append((text, specials)) or tokenizer.encode(text, "all" if specials else "none")
        ))  # fmt: skip
        seen.append(texts)
    assert seen[0] == seen[1]
    assert len(seen[0]) > 10_000


def test_all_tokens_and_special_tokens_are_looked_at():
    tokenizer = trained()
    seen = set()
    compare(tokenizer, tokenizer, encode=lambda text, specials: (
        seen.add((text, specials)) or tokenizer.encode(text, "all" if specials else "none")
    ))  # fmt: skip
    for token in tokenizer.vocab.values():
        try:
            assert (token.decode(), False) in seen
        except UnicodeDecodeError:
            continue
    for word in SPECIALS:
        assert {(word, True), (word, False)} <= seen
        assert any(specials and f"a{word}b" in text and f"  {word}  " in text for text, specials in seen)


# ---- patterns that another engine reads otherwise. Each pair differs in one small thing.

OTHERWISE = [
    (r"\p{N}{1,3}", r"\p{N}{1,2}"),
    (r"\p{N}{1,3}", r"\p{N}+"),
    (r"\p{N}{1,3}", r"\d{1,3}"),
    (r"\p{N}{1,3}", r"[0-9]{1,3}|\p{N}{1,3}+"),
    ("(?i:[sdmt]|ll|ve|re)", "(?:[sdmt]|ll|ve|re)"),
    ("(?i:[sdmt]|ll|ve|re)", "(?:[sdmtSDMT]|ll|ve|re|LL|VE|RE)"),
    ("(?i:[sdmt]|ll|ve|re)", "(?:[sdmtSDMT]|[Ll][Ll]|[Vv][Ee]|[Rr][Ee])"),        # without U+017F
    (r"[^\s\p{L}\p{N}]++[\r\n]*", r"[^\s\p{L}\p{N}]++[\n]*"),
    (r"[^\s\p{L}\p{N}]++[\r\n]*", r"[^\s\p{L}\p{N}]++"),
    (r"\s*[\r\n]", r"\s*\n"),
    (r"|\s+(?!\S)", ""),
    (r"\s+(?!\S)", r"\s+(?! |\S)"),
    (r"[^\r\n\p{L}\p{N}]?+", r" ?"),
    (r"\p{L}+|", r"[\p{L}\p{M}]+|"),
    (r"\p{L}+|", r"[\p{L}--\p{Lm}]+|".replace("--", "&&")),
    (r"\p{L}+|", r"\p{Alphabetic}+|"),
    (r"\s+(?!\S)|\s+", r"[^\S\u3000]+(?!\S)|[^\S\u3000]+|\u3000"),
    (r"\s+(?!\S)|\s+", r"[\s\x1c]+(?!\S)|[\s\x1c]+"),
    (r" ?[^\s\p{L}\p{N}]++", r"[^\s\p{L}\p{N}]++"),
]


@pytest.mark.parametrize(("part", "instead"), OTHERWISE)
def test_a_pattern_that_is_read_otherwise_is_found(part, instead):
    assert part in GPT4_SPLIT_PATTERN
    pattern = GPT4_SPLIT_PATTERN.replace(part, instead, 1)
    tokenizer, other = every_border(GPT4_SPLIT_PATTERN), every_border(pattern)
    message = fault(tokenizer, other, engine=RegexEngine(pattern))
    assert "read the pattern otherwise" in message
    assert "here" in message


@functools.cache
def all_pairs():
    low, high = [*range(9, 14), *range(28, 128), 160, 0xBF], range(0x80, 0xF5)
    pairs = [*product(low, low), *product(high, low), *product(low, high)]
    pairs += product(range(0xC2, 0xF5), range(0x80, 0xC0))
    return {pair: 256 + i for i, pair in enumerate(dict.fromkeys(pairs))}


def every_border(pattern):
    """A tokenizer with tokens of two bytes for most that occurs: wherever another chunk begins, the ids are others."""
    tokenizer = RegexTokenizer(pattern)
    tokenizer.merges = all_pairs()
    return tokenizer


def test_an_engine_that_is_not_known_is_found_too():
    pattern = GPT4_SPLIT_PATTERN.replace("{1,3}", "{1,2}")
    message = fault(every_border(GPT4_SPLIT_PATTERN), every_border(pattern))
    assert "split otherwise" in message or "merged otherwise" in message


def test_the_text_that_is_named_is_short():
    pattern = GPT4_SPLIT_PATTERN.replace("{1,3}", "{1,2}")
    message = fault(every_border(GPT4_SPLIT_PATTERN), every_border(pattern), engine=RegexEngine(pattern))
    text = regex.search(r"text '([^']*)'", message)[1]
    assert len(text) <= 4
    assert text.isnumeric()


def test_characters_in_the_pattern_are_tried_in_all_cases():
    pattern = r"(?i:kite)|\p{L}|[^\p{L}]+"
    other = r"[Kk][Ii][Tt][Ee]|\p{L}|[^\p{L}]+"           # without the sign for Kelvin
    message = fault(every_border(pattern), every_border(other), engine=RegexEngine(other))
    assert "read the pattern otherwise" in message


def test_uncovered_text_that_is_kept_is_found():
    tokenizer, other = trained(r"\p{L}+"), trained(r"\p{L}+|[^\p{L}]+")
    other.merges = tokenizer.merges
    assert "leaves out" in fault(tokenizer, other)
    assert "leaves out" in fault(tokenizer, other, engine=RegexEngine(other.pattern))


def test_whole_texts_that_are_split_are_found():
    tokenizer, other = trained(None), trained(r"\w+|\W+")
    other.merges = tokenizer.merges
    assert "the text is one chunk here" in fault(tokenizer, other, engine=RegexEngine(other.pattern))


# ---- two editions of Unicode


def newest_letter():
    """A letter in regex's edition of Unicode that the edition of this Python does not have."""
    letters = check.representatives()["Ll"]
    return next(char for char in letters if ord(char) > 0xA000 and unicodedata.category(char) == "Cn")


def older(pattern, new):
    """GPT-4's pattern as an engine reads it to which a letter is no letter yet."""
    return (
        pattern.replace(r"[^\r\n\p{L}\p{N}]?+\p{L}+", rf"(?:[^\r\n\p{{L}}\p{{N}}]|{new})?+(?:(?!{new})\p{{L}})+")
        .replace(r"[^\s\p{L}\p{N}]++", rf"(?:[^\s\p{{L}}\p{{N}}]|{new})++")
    )  # fmt: skip


def test_characters_of_a_newer_edition_are_no_error_and_those_in_the_vocabulary_are_named():
    new = newest_letter()
    assert new in check.representatives()["Ll"]
    engine = RegexEngine(older(GPT4_SPLIT_PATTERN, new), lacking=new)
    corpus = f"a{new}a{new}a{new} x" * 5 + CORPUS
    tokenizer, other = trained(corpus=corpus), trained(corpus=corpus)
    assert f"a{new}".encode() in tokenizer.vocab.values()
    other.pattern = engine.pattern
    with pytest.warns(UserWarning, match=rf"splits U\+{ord(new):04X}.*otherwise.*for instance"):
        compare(tokenizer, other, engine=engine)
    assert "otherwise" in fault(tokenizer, other)       # without the engine it cannot be known

    tokenizer, other = trained(), trained()             # the vocabulary does not have it
    other.pattern = engine.pattern
    compare(tokenizer, other, engine=engine)


def test_special_tokens_of_newer_characters_are_no_error_and_named():
    new = newest_letter()
    engine = RegexEngine(older(GPT4_SPLIT_PATTERN, new), lacking=new)
    tokenizer, other = every_border(GPT4_SPLIT_PATTERN), every_border(engine.pattern)
    for each in (tokenizer, other):
        each.register_special_tokens({f"<{new}b>": 100_000})
    with pytest.warns(UserWarning, match=rf"U\+{ord(new):04X}"):
        compare(tokenizer, other, engine=engine)


def test_a_fault_beside_a_newer_character_is_found():
    new = newest_letter()
    engine = RegexEngine(older(GPT4_SPLIT_PATTERN, new).replace("1,3", "1,2"), lacking=new)
    tokenizer, other = every_border(GPT4_SPLIT_PATTERN), every_border(engine.pattern)
    for each in (tokenizer, other):
        each.register_special_tokens({f"x{new}123": 100_000})
    message = fault(tokenizer, other, engine=engine)
    assert "'123'" in message
    assert "read the pattern otherwise" in message


# ---- special tokens


def test_special_tokens_that_are_chosen_otherwise_are_found():
    specials = {"<a>": 1000, "<a>b": 1001}
    tokenizer, other = trained(specials=specials), trained(specials=dict(reversed(list(specials.items()))))
    message = fault(tokenizer, other)
    assert "'<a>b' begins with '<a>'" in message


def test_special_tokens_that_lack_or_swallow_spaces_are_found():
    tokenizer = trained()
    other = trained(specials={**SPECIALS, "<|b|>": 1009, "<|c|>": 1001})
    assert "id 1001 is " in fault(tokenizer, other)
    other = trained()
    message = fault(tokenizer, other, before=lambda text: regex.sub(r"\s*(<\|b\|>)\s*", r"\1", text))
    assert "<|b|>" in message
    other = trained()
    message = fault(tokenizer, other, encode=lambda text, specials: other.encode(text, "all"))
    assert "1000" in message


def test_overlapping():
    assert overlapping(["b", "ab", "abc"]) == ("ab", "abc")
    assert overlapping(["<a>", "<a", "<b>"]) == ("<a", "<a>")
    assert overlapping(["<s>", "</s>"]) is None
    assert overlapping([]) is None
    rng = random.Random(5)
    for _ in range(500):
        words = {"".join(rng.choices("ab", k=rng.randint(1, 5))) for _ in range(rng.randint(1, 5))}
        pairs = {(a, b) for a in words for b in words if a != b and b.startswith(a)}
        found = overlapping(words)
        assert (found in pairs) if pairs else found is None


# ---- merges and ids


@pytest.mark.parametrize("which", [0, 1, 60, 128, 129])
def test_a_merge_that_lacks_is_found(which):
    tokenizer, other = trained(), trained()
    merges = tokenizer.merges
    assert len(merges) == 130
    del merges[list(merges)[which]]
    lacking = BasicRegex(tokenizer, dict(merges))
    message = fault(other, lacking)
    assert "merged otherwise" in message or "decodes" in message or "has no id" in message


class BasicRegex:
    """Encodes by other merges, and decodes as before."""

    def __init__(self, tokenizer, merges):
        self.tokenizer = trained()
        self.tokenizer.vocab = dict(trained().vocab)
        vocab = dict(trained().vocab)
        self.decoder = trained()
        self.tokenizer.merges = merges
        self.tokenizer.vocab = vocab
        self.decode_bytes = self.decoder.decode_bytes

    def encode(self, text, allowed_special):
        return self.tokenizer.encode(text, allowed_special)


def test_the_order_of_merges_is_found():
    tokenizer = trained()
    merges = list(tokenizer.merges.items())
    # numbers stay with their pairs; what is merged first, does not
    swapped = {pair: 256 + len(merges) - 1 - i for i, (pair, _) in enumerate(merges) if max(pair) < 256}
    back = {number: pair for pair, number in merges}
    other = RegexTokenizer()
    other.merges = swapped

    def encode(text, specials):
        names = {number: tokenizer.merges[pair] for pair, number in swapped.items()}
        return [names.get(number, number) for number in other.encode(text, "none")]

    assert back
    assert "merged otherwise" in fault(tokenizer, other, encode=encode, decode=tokenizer.decode_bytes)


def test_a_whole_token_that_merges_do_not_make_is_found():
    tokenizer = RegexTokenizer()
    tokenizer.merges = {(97, 98): 256, (98, 99): 257, (97, 257): 258}       # "abc" is 256, 99
    assert tokenizer.encode("abc") == [256, 99]

    def encode(text, specials):
        return [258] if text == "abc" else tokenizer.encode(text, "none")

    message = fault(tokenizer, tokenizer, encode=encode)
    assert "b'abc' is a token, which the merges here do not make" in message


def test_ids_that_clash_or_are_shifted_are_found():
    tokenizer = trained()
    shifted = fault(tokenizer, tokenizer, decode=lambda ids: tokenizer.decode_bytes([min(i + 1, 419) for i in ids]))
    assert "that is id 1 here" in shifted
    message = fault(tokenizer, tokenizer, encode=lambda text, specials: [
        i + 1 if i > 300 else i for i in tokenizer.encode(text, "all" if specials else "none")
    ])  # fmt: skip
    assert "encodes the text" in message


def test_ids_that_lack_are_found():
    tokenizer = trained()

    def decode(ids):
        if max(ids) > 999:
            raise IndexError("out of range")
        return tokenizer.decode_bytes(ids)

    message = fault(tokenizer, tokenizer, decode=decode)
    assert "has no id 1000" in message
    assert "out of range" in message


def test_numbers_without_gaps_are_found_where_ids_are_sparse():
    tokenizer = trained(specials={})
    sparse = RegexTokenizer()
    sparse.merges = {
        tuple(i + 10 if i > 255 else i for i in pair): number + 10 for pair, number in tokenizer.merges.items()
    }
    there = {number: i for i, number in enumerate(sparse.vocab)}

    def encode(text, specials):
        return [there[number] for number in sparse.encode(text, "none")]

    def decode(ids):
        dense = list(sparse.vocab.values())
        return b"".join(dense[i] for i in ids)

    message = fault(sparse, sparse, encode=encode, decode=decode)
    assert "sparse" in message
    assert "256" in message


# ---- what is done to a text before


@pytest.mark.parametrize(
    "before",
    [
        str.lower,
        str.strip,
        lambda text: unicodedata.normalize("NFC", text),
        lambda text: unicodedata.normalize("NFKC", text),
        lambda text: " " + text,
        lambda text: text.replace("\r\n", "\n"),
        lambda text: text.partition("\0")[0],
        lambda text: text[:500],
        lambda text: text.replace("\ufeff", ""),
        lambda text: text.replace("\u200d", ""),
        lambda text: text.replace("  ", " "),
        lambda text: text.replace("\x85", "\n"),
        lambda text: regex.sub("[\ue000-\uf8ff]", "", text),
        lambda text: "".join(char for char in text if ord(char) < 1 << 16),
    ],
)
def test_texts_that_are_changed_before_are_found(before):
    tokenizer = trained()
    message = fault(tokenizer, tokenizer, before=before)
    assert "encodes the text" in message


def test_a_library_that_fails_is_found():
    tokenizer = trained()

    def encode(text, specials):
        if "\0" in text:
            raise RuntimeError("no")
        return tokenizer.encode(text, "all" if specials else "none")

    assert "other fails on the text '\\x00'" in fault(tokenizer, tokenizer, encode=encode)

    class PanicException(BaseException):
        pass

    def panicking(text, specials):
        if "!!" in text:
            raise PanicException
        return tokenizer.encode(text, "all" if specials else "none")

    assert "other fails on the text '!!'" in fault(tokenizer, tokenizer, encode=panicking)


def test_ctrl_c_is_no_difference():
    tokenizer = trained()

    def encode(text, specials):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare(tokenizer, tokenizer, encode=encode)
