"""Tokenizers of Hugging Face's in the layouts in which well-known ones were published, without the files themselves.

In: tokens in the order of merging. Out: what a tokenizer.json of that layout holds: the same parts, flags, patterns,
spellings and order of ids as the model it is named after, with these tokens.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from cbpe.formats.alphabet import text_of

Ranks = Mapping[bytes, int]
Json = dict[str, Any]

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
    r"\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace("{1,3}", "")
QWEN35 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|"
    r"\s+(?!\S)|\s+"
)
_CASED = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+@|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*@|"
)
TEKKEN = _CASED.replace("@", "") + r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = (
    _CASED.replace("@", "(?i:'s|'t|'re|'ve|'m|'ll|'d)?")
    + r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
GPT4 = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)
DEEPSEEK3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK2_LETTERS = (
    "\\s?[A-Za-z\xb5À-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯ\u0370-\u0373Ͷͷͻ-ͽͿ\u0386\u0388-\u038a\u038c\u038e-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫ"
    "ᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u1f7dᾀ-ᾴᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌῐ-\u1fd3ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻ"
    "Ȿ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎ\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17Ａ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+"
)


def split(pattern: str, behavior: str = "Isolated", invert: bool = False) -> Json:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def byte_level(use_regex: bool = False, add_prefix_space: bool = False) -> Json:
    return {
        "type": "ByteLevel", "add_prefix_space": add_prefix_space, "trim_offsets": True, "use_regex": use_regex,
    }  # fmt: skip


def sequence(*parts: Json) -> Json:
    return {"type": "Sequence", "pretokenizers": list(parts)}


def token(content: str, number: int, **flags: bool) -> Json:
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"id": number, "content": content, **plain, **flags}


def all_merges(ranks: Ranks) -> list[tuple[str, str]]:
    """Every way to part a token in two, by rank, as transformers converts rank files."""
    merges = []
    for whole, _ in sorted(ranks.items(), key=lambda item: item[1]):
        ways = [(whole[:i], whole[i:]) for i in range(1, len(whole))]
        ways = [(left, right) for left, right in ways if left in ranks and right in ranks]
        merges += sorted(ways, key=lambda way: (ranks[way[0]], ranks[way[1]]))
    return [(text_of(left), text_of(right)) for left, right in merges]


def build(
    ranks: Ranks,
    *,
    pre_tokenizer: Json,
    merges: list[tuple[str, str]],
    first: list[str] = (),
    last: list[str] = (),
    added: Callable[[Mapping[str, int]], list[Json]] = lambda vocab: [],
    normalizer: Json | None = None,
    post_processor: Json | None = None,
    strings: bool = False,
    shuffled: bool = False,
    **model: Any,
) -> Json:
    """A tokenizer.json. first, last: texts that the vocabulary has before and behind the tokens.

    added: made of the vocabulary. strings: merges are "a b". shuffled: ids are not in the order of merging.
    """
    texts = [text_of(whole) for whole, _ in sorted(ranks.items(), key=lambda item: item[1])]
    if shuffled:
        random.Random(1).shuffle(texts)
    vocab = {text: number for number, text in enumerate([*first, *texts, *last])}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added(vocab),
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": post_processor,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, **model,
            "vocab": vocab,
            "merges": [" ".join(pair) for pair in merges] if strings else [list(pair) for pair in merges],
        },
    }  # fmt: skip


def behind(words: list[str], **flags: bool) -> Callable[[Mapping[str, int]], list[Json]]:
    """Added tokens with the ids behind the vocabulary's."""
    return lambda vocab: [token(word, number, **flags) for number, word in enumerate(words, len(vocab))]


def within(words: list[str], **flags: bool) -> Callable[[Mapping[str, int]], list[Json]]:
    """Added tokens that are in the vocabulary."""
    return lambda vocab: [token(word, vocab[word], **flags) for word in words]


def both(*parts: Callable[[Mapping[str, int]], list[Json]]) -> Callable[[Mapping[str, int]], list[Json]]:
    return lambda vocab: [each for part in parts for each in part(vocab)]


def template(word: str, number: int) -> Json:
    return {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": word, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {word: {"id": word, "ids": [number], "tokens": [word]}},
    }


NFC = {"type": "NFC"}
END = "<|endoftext|>"
SPACES = [" " * n for n in range(24, 1, -1)]
RESERVED = [f"<|reserved_special_token_{i}|>" for i in range(250)]
ROBERTA = ["<s>", "<pad>", "</s>", "<unk>"]


def roberta(ranks: Ranks, merges: list[tuple[str, str]]) -> Json:
    content = build(
        ranks,
        pre_tokenizer=byte_level(True, True),
        merges=merges,
        strings=True,
        shuffled=True,
        first=ROBERTA,
        last=["madeupword0000", "<mask>"],
        added=both(within(ROBERTA, normalized=True), within(["<mask>"], lstrip=True)),
        post_processor={
            "type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0], "trim_offsets": True,
            "add_prefix_space": True,
        },
        continuing_subword_prefix="",
        end_of_word_suffix="",
    )  # fmt: skip
    del content["model"]["type"]        # as in files of that time
    return content


# name -> (ranks, merges of one way each, merges of all ways) -> content
LAYOUTS: dict[str, Callable[[Ranks, list[tuple[str, str]], list[tuple[str, str]]], Json]] = {
    "gpt2": lambda ranks, one, all_: build(
        ranks, pre_tokenizer=byte_level(True), merges=one, strings=True, last=[END], unk_token="",
        added=within([END], normalized=True), continuing_subword_prefix="", end_of_word_suffix="",
    ),
    "roberta": lambda ranks, one, all_: roberta(ranks, one),
    "gpt-neox": lambda ranks, one, all_: build(
        ranks, pre_tokenizer=byte_level(True), merges=one, strings=True, normalizer=NFC, first=[END, "<|padding|>"],
        added=both(within([END, "<|padding|>"]), behind(SPACES, normalized=True, special=False)),
    ),
    "phi-2": lambda ranks, one, all_: build(
        ranks, pre_tokenizer=byte_level(True), merges=one, strings=True, last=[END],
        added=both(
            within([END]), behind([*SPACES, *("\t" * n for n in range(9, 1, -1))], normalized=True, special=False)
        ),
    ),
    "llama3": lambda ranks, one, all_: build(
        ranks, pre_tokenizer=sequence(split(LLAMA3), byte_level()), merges=all_, strings=True, ignore_merges=True,
        added=behind(["<|begin_of_text|>", "<|end_of_text|>", *RESERVED]),
        post_processor=template("<|begin_of_text|>", len(ranks)),
    ),
    "qwen2": lambda ranks, one, all_: build(
        ranks, pre_tokenizer=sequence(split(QWEN2), byte_level()), merges=one, strings=True, normalizer=NFC,
        added=both(
            behind([END, "<|im_start|>", "<|im_end|>"]),
            lambda vocab: [
                token(word, number, special=False)
                for number, word in enumerate(["<tool_call>", "</tool_call>", "<think>", "</think>"], len(vocab) + 3)
            ],
        ),
    ),
    "qwen3.5": lambda ranks, one, all_: build(
        ranks, pre_tokenizer=sequence(split(QWEN35), byte_level()), merges=one, normalizer=NFC, added=behind([END]),
    ),
    "deepseek-v2": lambda ranks, one, all_: build(
        ranks, merges=one, strings=True, normalizer={"type": "Sequence", "normalizers": []},
        pre_tokenizer=sequence(
            split("[\r\n]"), split(DEEPSEEK2_LETTERS), split(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"), split(r"\s+$"),
            split("[一-龥ࠀ-一가-\ud7ff]+"), {"type": "Digits", "individual_digits": True}, byte_level(),
        ),
        added=behind(["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"], normalized=True),
    ),
    "deepseek-v3": lambda ranks, one, all_: build(
        ranks, merges=one, strings=True, first=["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"],
        normalizer={"type": "Sequence", "normalizers": []},
        pre_tokenizer=sequence(
            split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(DEEPSEEK3), byte_level(),
        ),
        added=both(
            within(["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"], normalized=True),
            behind(["<｜fim▁hole｜>"], special=False, normalized=True),
        ),
    ),
    "mistral-nemo": lambda ranks, one, all_: build(
        ranks, pre_tokenizer=sequence(split(TEKKEN), byte_level()), merges=all_, ignore_merges=True,
        first=["<unk>", "<s>", "</s>", "[INST]", *(f"<SPECIAL_{i}>" for i in range(4, 1000))],
        added=within(["<unk>", "<s>", "</s>", "[INST]", *(f"<SPECIAL_{i}>" for i in range(4, 1000))]),
    ),
    "starcoder": lambda ranks, one, all_: build(
        ranks, merges=one, strings=True, first=[END, "<fim_prefix>", "<fim_middle>"],
        pre_tokenizer=sequence({"type": "Digits", "individual_digits": True}, byte_level(True)),
        added=within([END, "<fim_prefix>", "<fim_middle>"]),
    ),
    "falcon": lambda ranks, one, all_: build(
        ranks, merges=one, strings=True, first=[">>TITLE<<", ">>ABSTRACT<<"], last=[END],
        pre_tokenizer=sequence(
            {"type": "Punctuation", "behavior": "Contiguous"}, byte_level(True),
            {"type": "Digits", "individual_digits": False}, split("[0-9][0-9][0-9]"),
        ),
        added=within([">>TITLE<<", ">>ABSTRACT<<", END]),
    ),
    "bloom": lambda ranks, one, all_: build(
        ranks, merges=one, strings=True, first=["<unk>", "<s>", "</s>", "<pad>"], unk_token="<unk>",
        pre_tokenizer=sequence(split(" ?[^(\\s|[.,!?…。，、।۔،])]+"), byte_level()),
        added=within(["<unk>", "<s>", "</s>", "<pad>"]),
    ),
    "gpt-oss": lambda ranks, one, all_: build(
        ranks, pre_tokenizer=sequence(split(O200K), byte_level()), merges=all_,
        added=behind(["<|startoftext|>", END, "<|reserved_200000|>", "<|return|>"]),
    ),
    "gpt-4": lambda ranks, one, all_: build(
        ranks, pre_tokenizer=sequence(split(GPT4, "Removed", True), byte_level()), merges=one,
        added=lambda vocab: [token(END, len(vocab))],
    ),
    "command-r": lambda ranks, one, all_: build(
        ranks, merges=one, normalizer=NFC, first=["<PAD>", "<BOS_TOKEN>"],
        pre_tokenizer=sequence(
            split(r"\d{1,3}(?=(?:\d{3})*\b)"), {"type": "Digits", "individual_digits": True}, byte_level(True)
        ),
        added=within(["<PAD>", "<BOS_TOKEN>"]),
    ),
    "laguna": lambda ranks, one, all_: build(
        ranks, merges=one, first=[END], added=within([END]),
        pre_tokenizer=sequence(
            split(r"(?:\r?\n)+(?!\r?\n)", "MergedWithNext"), split(LLAMA3), byte_level()
        ),
    ),
    "plain": lambda ranks, one, all_: build(ranks, merges=one, pre_tokenizer=byte_level()),
}  # fmt: skip

