"""Files that minbpe itself wrote, to be made again byte for byte.

published.py says where they lie: data/NAME.txt, and golden/NAME-CLASS-SIZE with .model and .vocab. Special tokens were
registered after training; they stand in the .model file.
"""

from pathlib import Path

import pytest
from published import SHARED

from cbpe import GPT2_SPLIT_PATTERN, GPT4_SPLIT_PATTERN, BasicTokenizer, RegexTokenizer

MODELS = sorted((SHARED / "golden").glob("*.model"))

pytestmark = pytest.mark.skipif(not MODELS, reason=f"no golden files in {SHARED / 'golden'}")


def new_tokenizer(model: Path) -> BasicTokenizer | RegexTokenizer:
    if "-regex-" not in model.stem:
        return BasicTokenizer()
    return RegexTokenizer(GPT2_SPLIT_PATTERN if "-gpt2-" in model.stem else GPT4_SPLIT_PATTERN)


def special_tokens_of(model: Path) -> dict[str, int]:
    lines = model.read_bytes().decode().split("\n")
    return {word: int(number) for word, number in (line.rsplit(" ", 1) for line in lines[3 : 3 + int(lines[2])])}


def assert_saves_as(tokenizer: BasicTokenizer | RegexTokenizer, model: Path, folder: Path) -> None:
    tokenizer.save(folder / "again")
    assert (folder / "again.model").read_bytes() == model.read_bytes()
    assert (folder / "again.vocab").read_bytes() == model.with_suffix(".vocab").read_bytes()


def corpus_and_size(model: Path) -> tuple[Path, int]:
    name, *_, size = model.stem.split("-")
    return SHARED / "data" / f"{name}.txt", int(size)


@pytest.mark.parametrize("num_threads", [1, 2, 3, 5])
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.stem)
def test_training_on_a_file_makes_minbpes_files(model, num_threads, tmp_path):
    corpus, size = corpus_and_size(model)
    tokenizer = new_tokenizer(model)
    tokenizer.train_from_files(corpus, size, num_threads=num_threads)
    tokenizer.register_special_tokens(special_tokens_of(model))
    assert_saves_as(tokenizer, model, tmp_path)


@pytest.mark.parametrize("num_threads", [1, 2, 3, 5])
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.stem)
def test_training_on_a_text_makes_minbpes_files(model, num_threads, tmp_path):
    corpus, size = corpus_and_size(model)
    tokenizer = new_tokenizer(model)
    tokenizer.train(corpus.read_bytes().decode(), size, num_threads=num_threads)
    tokenizer.register_special_tokens(special_tokens_of(model))
    assert_saves_as(tokenizer, model, tmp_path)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.stem)
def test_a_loaded_model_is_the_one_that_was_saved(model, tmp_path):
    tokenizer = new_tokenizer(model)
    tokenizer.load(model)
    tokenizer.save(tmp_path / "again")
    assert (tmp_path / "again.model").read_bytes() == model.read_bytes()
    # after load, minbpe's vocab holds the special tokens too
    more = "".join(f"[{word}] {number}\n" for word, number in special_tokens_of(model).items())
    assert (tmp_path / "again.vocab").read_bytes() == model.with_suffix(".vocab").read_bytes() + more.encode()
    text = corpus_and_size(model)[0].read_bytes().decode()[:20_000]
    assert tokenizer.decode(tokenizer.encode(text)) == text
