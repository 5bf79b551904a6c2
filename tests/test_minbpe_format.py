"""Tests of minbpe's file format: what is written, what is read, what is refused, and that nothing is left half done."""

import errno
import os
import stat
import subprocess
import sys

import pytest

from cbpe import GPT2_SPLIT_PATTERN, BasicTokenizer, GPT4Tokenizer, ModelFileError, RegexTokenizer, Tokenizer
from cbpe.files import atomic_write

SOUND = b"minbpe v1\n\\w+|\\W+\n2\n<a> 300\n<b c> 301\n97 97\n256 98\n"


def written(path, content: bytes):
    path.write_bytes(content)
    return path


def regex_tokenizer(pattern=r"\w+|\W+", special_tokens=None):
    tokenizer = RegexTokenizer(pattern)
    tokenizer.train("aab aab\n", 258)
    tokenizer.register_special_tokens(special_tokens or {})
    return tokenizer


def state(tokenizer):
    return dict(tokenizer.merges), dict(tokenizer.vocab), tokenizer.pattern, list(tokenizer.special_tokens.items())


# ---- what is written


def test_save_writes_both_files_to_the_byte(tmp_path):
    tokenizer = regex_tokenizer(special_tokens={"<é f>": 400, "<g>": 300})
    tokenizer.save(tmp_path / "m")
    expected = "minbpe v1\n\\w+|\\W+\n2\n<é f> 400\n<g> 300\n97 97\n256 98\n"
    assert (tmp_path / "m.model").read_bytes() == expected.encode()
    lines = (tmp_path / "m.vocab").read_bytes().decode().split("\n")
    assert lines[9:11] == ["[\\u0009] 9", "[\\u000a] 10"]
    assert lines[97] == "[a] 97"
    assert lines[255] == "[\ufffd] 255"
    assert lines[256:] == ["[a][a] -> [aa] 256", "[aa][b] -> [aab] 257", ""]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.model", "m.stats.json", "m.vocab"]


def test_the_vocab_file_holds_special_tokens_after_load_and_not_after_registering(tmp_path):
    tokenizer = RegexTokenizer()
    tokenizer.load(written(tmp_path / "m.model", SOUND))
    tokenizer.save(tmp_path / "n")
    assert (tmp_path / "n.vocab").read_bytes().decode().endswith("[aab] 257\n[<a>] 300\n[<b c>] 301\n")
    tokenizer.register_special_tokens({"<d>": 302})
    tokenizer.save(tmp_path / "n")
    assert (tmp_path / "n.vocab").read_bytes().decode().endswith("[aab] 257\n")


def test_an_untrained_tokenizer_saves_and_loads(tmp_path):
    BasicTokenizer().save(str(tmp_path / "m"))
    assert (tmp_path / "m.model").read_bytes() == b"minbpe v1\n\n0\n"
    tokenizer = BasicTokenizer()
    tokenizer.load(str(tmp_path / "m.model"))
    assert tokenizer.merges == {}
    assert tokenizer.encode("ab") == [97, 98]


# ---- what is read


@pytest.mark.parametrize(
    "content",
    [SOUND, SOUND[:-1], SOUND.replace(b"\n", b"\r\n")],
    ids=["as written", "without the last line end", "as written on Windows"],
)
def test_load_reads_what_save_wrote(content, tmp_path):
    tokenizer = RegexTokenizer()
    tokenizer.load(written(tmp_path / "m.model", content))
    assert tokenizer.pattern == r"\w+|\W+"
    assert tokenizer.compiled_pattern.pattern == r"\w+|\W+"
    assert list(tokenizer.special_tokens.items()) == [("<a>", 300), ("<b c>", 301)]
    assert tokenizer.inverse_special_tokens == {300: "<a>", 301: "<b c>"}
    assert list(tokenizer.merges.items()) == [((97, 97), 256), ((256, 98), 257)]
    assert list(tokenizer.vocab)[-2:] == [300, 301]
    assert tokenizer.vocab[257] == b"aab"
    assert tokenizer.vocab[301] == b"<b c>"
    assert tokenizer.encode("aab<b c>", allowed_special="all") == [257, 301]


@pytest.mark.parametrize("pattern", [" ?a+| ", "[ab] ", r"\w+|\r", "a|\r", "\ta", "a\u2028|b\x85|\x0c\x1c"])
def test_a_pattern_keeps_its_ends(pattern, tmp_path):
    RegexTokenizer(pattern).save(tmp_path / "m")
    tokenizer = RegexTokenizer()
    tokenizer.load(tmp_path / "m.model")
    assert tokenizer.pattern == pattern


def test_load_replaces_everything(tmp_path):
    tokenizer = RegexTokenizer(GPT2_SPLIT_PATTERN)
    tokenizer.train("xyz xyz", 259, special_tokens=["<x>"])
    tokenizer.vocab = {0: b"zero"}
    tokenizer.load(written(tmp_path / "m.model", SOUND))
    assert 0 in tokenizer.vocab
    assert tokenizer.vocab[0] == b"\0"
    assert "<x>" not in tokenizer.special_tokens
    assert tokenizer.encode("xyz") == [120, 121, 122]


@pytest.mark.parametrize(
    ("content", "line", "word"),
    [
        (b"", 1, "header"),
        (b"minbpe v2\n\n0\n", 1, "not a .model file"),
        (b"\xef\xbb\xbfminbpe v1\na\n0\n", 1, "not a .model file"),
        (b"minbpe v1", 2, "pattern"),
        (b"minbpe v1\n(\n0\n", 2, "regular expression"),
        (b"minbpe v1\n\xff\n0\n", 2, "UTF-8"),
        (b"minbpe v1\na\n", 3, "number of special tokens"),
        (b"minbpe v1\na\n-1\n", 3, "number of special tokens"),
        (b"minbpe v1\na\n1_0\n", 3, "number of special tokens"),
        (b"minbpe v1\na\n" + b"9" * 5000 + b"\n", 3, "number of special tokens"),
        (b"minbpe v1\na\n9999999999\n<a> 300\n", 5, "one of 9999999999 special tokens"),
        (b"minbpe v1\na\n1\n<a>\n", 4, "special token"),
        (b"minbpe v1\na\n1\n 300\n", 4, "special token"),
        (b"minbpe v1\na\n1\n<a> x\n", 4, "special token"),
        (b"minbpe v1\na\n1\n<a> 4294967295\n", 4, "special token"),
        (b"minbpe v1\na\n2\n<a> 300\n<a> 301\n", 5, "second time"),
        (b"minbpe v1\na\n2\n<a> 300\n<b> 300\n", 5, "second time"),
        (b"minbpe v1\na\n2\n<b> 300\n<a> 97\n97 97\n", 5, "a byte or a merge"),
        (b"minbpe v1\na\n1\n<a> 256\n97 97\n", 4, "a byte or a merge"),
        (b"minbpe v1\na\n0\n97 97\n97\n", 5, "two ids"),
        (b"minbpe v1\na\n0\n97 97 97\n", 4, "two ids"),
        (b"minbpe v1\na\n0\n97 -97\n", 4, "two ids"),
        (b"minbpe v1\na\n0\n97 97\n\n97 98\n", 5, "two ids"),
        (b"minbpe v1\na\n0\n97 97\n97 97\n", 5, "second time"),
        (b"minbpe v1\na\n0\n97 256\n", 4, "must be lower"),
        (b"minbpe v1\na\n0\n97 9999999999\n", 4, "must be lower"),
        ("minbpe v1\na\n0\n９７ 97\n".encode(), 4, "two ids"),
        (b"minbpe v1\na\n0\n97 97\n" + b"".join(b"%d %d\n" % (i, i) for i in range(256, 300)), 34, "bytes together"),
    ],
)
def test_a_damaged_file_is_refused_by_line_and_changes_nothing(content, line, word, tmp_path):
    tokenizer = regex_tokenizer(special_tokens={"<z>": 999})
    before = state(tokenizer)
    with pytest.raises(ModelFileError, match=word) as caught:
        tokenizer.load(written(tmp_path / "m.model", content))
    assert f"m.model: line {line}:" in str(caught.value)
    assert isinstance(caught.value, ValueError)
    assert state(tokenizer) == before


def test_files_of_the_other_class_are_refused(tmp_path):
    path = written(tmp_path / "m.model", SOUND)
    tokenizer = BasicTokenizer()
    with pytest.raises(ModelFileError, match="RegexTokenizer"):
        tokenizer.load(path)
    written(path, b"minbpe v1\n\n0\n97 97\n")
    with pytest.raises(ModelFileError, match="BasicTokenizer"):
        RegexTokenizer().load(path)
    tokenizer.load(path)
    assert tokenizer.encode("aa") == [256]


def test_a_tokenizer_of_ones_own_loads_either(tmp_path):
    tokenizer = Tokenizer()
    for content in (SOUND, b"minbpe v1\n\n0\n97 97\n256 98\n"):
        tokenizer.load(written(tmp_path / "m.model", content))
        assert tokenizer.vocab[257] == b"aab"


def test_load_wants_the_suffix_and_a_file(tmp_path):
    with pytest.raises(TypeError, match="not bytes"):
        RegexTokenizer().load(b"a.model")
    path = written(tmp_path / "m.txt", SOUND)
    with pytest.raises(AssertionError, match=r"\.model"):
        RegexTokenizer().load(path)
    with pytest.raises(FileNotFoundError, match="absent"):
        RegexTokenizer().load(tmp_path / "absent.model")
    with pytest.raises(TypeError):
        RegexTokenizer().load(5)


# ---- what cannot be written


def assign(name, value):
    return lambda tokenizer: setattr(tokenizer, name, value)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (assign("pattern", "a\nb"), "line end"),
        (assign("pattern", "a\ud800"), "UTF-8"),
        (assign("pattern", ""), "BasicTokenizer"),
        (assign("special_tokens", {"<a\nb>": 300}), "line end"),
        (assign("special_tokens", {"<a>": 256}), "not free"),
        (assign("merges", {(97, 97): 257, (97, 98): 256}), "in this order"),
        (assign("merges", {(97, 97): 300}), "in this order"),
        (assign("merges", {(97, 257): 256, (97, 97): 257}), "in this order"),
        (assign("vocab", {256: b"aa"}), "parts"),
        (assign("compiled_pattern", "x+"), "compiled_pattern"),
    ],
)
def test_what_the_format_cannot_hold_is_refused_before_anything_is_written(change, word, tmp_path):
    tokenizer = regex_tokenizer()
    tokenizer.save(tmp_path / "m")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    change(tokenizer)
    with pytest.raises(ValueError, match=word):
        tokenizer.save(tmp_path / "m")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_basic_tokenizer_with_a_pattern_is_not_saved(tmp_path):
    tokenizer = BasicTokenizer()
    tokenizer.pattern = "a+"
    with pytest.raises(ModelFileError, match="RegexTokenizer"):
        tokenizer.save(tmp_path / "m")
    assert not list(tmp_path.iterdir())


def test_a_compiled_pattern_that_is_the_patterns_own_may_be_assigned(tmp_path):
    tokenizer = regex_tokenizer()
    tokenizer.compiled_pattern = type(tokenizer)(tokenizer.pattern).compiled_pattern    # as after minbpe's load
    tokenizer.save(tmp_path / "m")
    assert (tmp_path / "m.model").exists()


# ---- whole or not at all


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    tokenizer = regex_tokenizer()
    tokenizer.save(tmp_path / "m")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    tokenizer.train("other text", 260)

    def fail(*args):
        raise OSError(errno.ENOSPC, "no space left on device")

    for function in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, function, fail)
            with pytest.raises(OSError, match="no space"):
                tokenizer.save(tmp_path / "m")
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_vocab_file_that_cannot_be_written_leaves_the_old_model(tmp_path):
    tokenizer = regex_tokenizer()
    tokenizer.save(tmp_path / "m")
    before = (tmp_path / "m.model").read_bytes()
    (tmp_path / "m.vocab").unlink()
    (tmp_path / "m.vocab").mkdir()
    tokenizer.train("other text", 260)
    with pytest.raises(OSError, match=r"m\.vocab"):
        tokenizer.save(tmp_path / "m")
    assert (tmp_path / "m.model").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.model", "m.stats.json", "m.vocab"]


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="absent"):
        regex_tokenizer().save(tmp_path / "absent" / "m")


@pytest.mark.skipif(sys.platform == "win32", reason="permissions are those of Unix")
def test_a_prefix_in_place_of_a_model_file_is_told_the_file(tmp_path):
    tokenizer = RegexTokenizer()
    with pytest.raises(ModelFileError, match=r"mine: the name of a model file ends in \.model$"):
        tokenizer.load(tmp_path / "mine")
    tokenizer.save(str(tmp_path / "mine"))
    with pytest.raises(ModelFileError, match=r"there is .*mine\.model$"):
        tokenizer.load(tmp_path / "mine")


def test_permissions_follow_the_umask_and_then_the_old_file(tmp_path):
    path = tmp_path / "f"
    old = os.umask(0o027)
    try:
        for mode in (0o640, 0o604):
            with atomic_write(path) as file:
                file.write(b"x")
            assert stat.S_IMODE(path.stat().st_mode) == mode
            path.chmod(0o604)
    finally:
        os.umask(old)


@pytest.mark.skipif(sys.platform == "win32" or getattr(os, "geteuid", int)() == 0, reason="nothing stops this user")
def test_a_file_that_may_not_be_written_is_not_replaced(tmp_path):
    path = written(tmp_path / "f", b"old")
    path.chmod(0o444)
    with pytest.raises(PermissionError), atomic_write(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"old"


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_links_are_followed(tmp_path):
    target = written(tmp_path / "target", b"old")
    (tmp_path / "link").symlink_to(target)
    with atomic_write(tmp_path / "link") as file:
        file.write(b"new")
    assert target.read_bytes() == b"new"
    assert (tmp_path / "link").is_symlink()


@pytest.mark.skipif(sys.platform == "win32", reason="no such device")
def test_a_device_is_written_to_and_not_replaced():
    GPT4Tokenizer().save_vocab("/dev/null")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_an_interrupt_leaves_nothing_behind(tmp_path):
    written(tmp_path / "f", b"old")

    def write_and_be_interrupted():
        with atomic_write(tmp_path / "f") as file:
            file.write(b"new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_and_be_interrupted()
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [b"old"]


@pytest.mark.skipif(sys.platform == "win32", reason="the environment's locale is Unix's")
def test_c52_files_are_utf8_whatever_the_locale(tmp_path):
    program = (
        "import sys; from cbpe import RegexTokenizer; t = RegexTokenizer('[\\u0430-\\u044f]+|[^\\u0430-\\u044f]+');"
        "t.train('\\u0430\\u0431 \\u0430\\u0431', 257);"
        "t.register_special_tokens({'<\\u00e9>': 300}); t.save(sys.argv[1])"
    )
    folder = tmp_path / "größe"
    folder.mkdir()
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    subprocess.run([sys.executable, "-c", program, str(folder / "m")], env=environment, check=True)
    tokenizer = RegexTokenizer()
    tokenizer.load(folder / "m.model")
    assert tokenizer.pattern == "[а-я]+|[^а-я]+"
    assert tokenizer.special_tokens == {"<é>": 300}
    assert b"\r" not in (folder / "m.vocab").read_bytes()
