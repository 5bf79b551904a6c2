"""What the subcommands share: where their words go, the options that several take, and what is checked beforehand."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import regex

from cbpe import GPT4Tokenizer, encoding_for_model, get_encoding, load
from cbpe.inputs import find_sources
from cbpe.memory import parse_size
from cbpe.native import NativeTokenizer
from cbpe.patterns import NAMED_PATTERNS
from cbpe.splitting import Stages

# ---- where words go


@dataclass
class Output:
    """What a subcommand says: news as it goes, results in text, or with --json one object at the end.

    if_stopped: what is said after Ctrl-C.
    """

    as_json: bool = False
    quiet: bool = False
    debug: bool = False
    if_stopped: str = "nothing was written"
    warnings: list[str] = field(default_factory=list)

    @property
    def progress(self) -> bool | None:
        """The library's progress=: None shows bars on a terminal only."""
        return False if self.quiet else None

    def say(self, line: str) -> None:
        """A line of news, unless --quiet or --json."""
        if not (self.quiet or self.as_json):
            click.echo(line)

    def show(self, line: str) -> None:
        """A line of what was asked for, unless --json."""
        if not self.as_json:
            click.echo(line)

    def wrote(self, paths: Iterable[Path]) -> dict[str, int]:
        """Says which files were written; returns their sizes for finish."""
        sizes = {os.fspath(path): path.stat().st_size for path in paths}
        for name, size in sizes.items():
            self.say(f"wrote    {name} ({size:,} bytes)")
        return sizes

    def finish(self, result: Mapping[str, Any]) -> None:
        """With --json: the one object."""
        if self.as_json:
            click.echo(json.dumps({**result, "warnings": self.warnings}))


# ---- options. Each is named after the keyword of the library that it is passed to.


def _into_output(ctx: click.Context, option: click.Parameter, value: bool) -> None:
    setattr(ctx.find_object(Output), str(option.name), value)


def _output_flag(flag: str, name: str, help: str) -> click.Option:
    return click.Option([flag, name], is_flag=True, expose_value=False, is_eager=True, callback=_into_output, help=help)


# Every subcommand has them; they go into its Output.
OUTPUT = [
    _output_flag("--json", "as_json", "Print one JSON object on stdout, and nothing else there."),
    _output_flag("--quiet", "quiet", "Print no news, only what was asked for; show no progress bars."),
    _output_flag("--debug", "debug", "Show the traceback of an error."),
]

CORPUS = click.Argument(["corpus"], nargs=-1, required=True, metavar="CORPUS...")

MODEL = click.Option(
    ["-m", "--model"],
    required=True,
    metavar="MODEL",
    help="A tokenizer's file (.model, .tiktoken, tokenizer.json, ...), gpt4, or an encoding or a model of OpenAI's, "
    "such as o200k_base or gpt-4o.",
)

PATTERN = [
    click.Option(
        ["--pattern"],
        metavar="NAME|REGEX",
        help=f"Where texts are split: {', '.join(NAMED_PATTERNS)}, or a regular expression; by default gpt4.",
    ),
    click.Option(["--basic"], is_flag=True, help="Do not split: merges may cross words."),
]

# What is common to all that reads a corpus.
READING = [
    click.Option(
        ["--errors"],
        type=click.Choice(["strict", "replace", "skip"]),
        default="strict",
        show_default=True,
        help="What to do about bytes that are not UTF-8: stop there, or take U+FFFD in their place. skip: leave out "
        "lines and rows that cannot be read.",
    ),
    click.Option(
        ["--text-field"],
        default="text",
        show_default=True,
        metavar="NAME",
        help="The member of JSON objects, or the column of Parquet, that holds the text.",
    ),
    click.Option(
        ["--threads", "num_threads"],
        type=click.IntRange(min=1),
        metavar="N",
        help="How many threads work; by default one per processor. The result does not depend on it.",
    ),
]

SEPARATOR = click.Option(
    ["--separator"], metavar="TEXT", help="What stands between the documents in text files; it is no part of them."
)

COUNTING = [
    click.Option(
        ["--special", "special_tokens"],
        multiple=True,
        metavar="TOKEN",
        help="A special token: cut out of the corpus, so that no piece of it is learned. May be given several "
        "times.",
    ),
    *READING,
]


MEMORY = [
    click.Option(
        ["--memory-limit"],
        metavar="SIZE",
        help="Use about so much memory at most, such as 512MB, 2GB or 1.5GiB, and scratch files for what does not fit. "
        "The result is the same.",
    ),
    click.Option(
        ["--scratch-dir"],
        type=click.Path(exists=True, file_okay=False, writable=True),
        metavar="DIR",
        help="Where scratch files are; by default the system's folder for temporary files.",
    ),
]


def taken(given: dict[str, Any], group: Sequence[click.Option]) -> dict[str, Any]:
    """The values of a group's options, taken out of those given. Raises UsageError for a size that is none."""
    values = {str(option.name): given.pop(str(option.name)) for option in group}
    try:
        parse_size(values.get("memory_limit"), "--memory-limit")
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    return values


def pattern_of(pattern: str | None, basic: bool) -> str | None:
    """The split pattern of --pattern and --basic; None: texts are not split. Raises UsageError."""
    if basic:
        if pattern is not None:
            raise click.UsageError("--pattern: not allowed with --basic")
        return None
    if pattern == "":
        raise click.UsageError("--pattern: must not be empty; --basic does not split")
    pattern = "gpt4" if pattern is None else pattern
    pattern = NAMED_PATTERNS.get(pattern, pattern)
    if re.fullmatch(r"[\w-]+", pattern):      # a regular expression that matches this word and nothing else
        raise click.UsageError(f"--pattern: no pattern is called {pattern!r}; there are {', '.join(NAMED_PATTERNS)}")
    try:
        regex.compile(pattern)
    except regex.error as error:
        raise click.UsageError(f"--pattern {pattern!r}: {error}") from None
    return pattern


def name_of(pattern: str | Stages | None) -> str | None:
    """The name of a split pattern that has one."""
    return next((name for name, named in NAMED_PATTERNS.items() if named == pattern), None)


# ---- what can be known before hours of work


def check_outputs(outputs: Iterable[Path], inputs: Iterable[str] = (), corpus: Sequence[str] = ()) -> None:
    """Raises UsageError for a file that could not be written in the end, or would replace one that is read or another.

    inputs: names of files, which need not be there. corpus: as find_sources takes it, which says what is not there.
    """
    outputs = list(outputs)
    names = [os.path.realpath(path) for path in outputs]
    read = [name for name in inputs if os.path.exists(name)]
    if any(path.exists() for path in outputs):
        read += [source.path for source in find_sources(corpus) if os.path.exists(source.path)]
    for path, name in zip(outputs, names, strict=True):
        if names.count(name) > 1:
            raise click.UsageError(f"{path}: would be written twice")
        if not path.parent.is_dir():
            raise click.UsageError(f"{path}: there is no folder {path.parent}")
        if path.is_dir():
            raise click.UsageError(f"{path}: is a folder")
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise click.UsageError(f"{path}: may not be written")
        if path.exists() and any(os.path.samefile(path, each) for each in read):
            raise click.UsageError(f"{path}: is a file to be read; the output needs another place")


def prefix_of(_: click.Context, option: click.Parameter, value: str) -> Path:
    """A prefix of files to be written; models/ is a folder, which Path would take for the prefix models."""
    if value.endswith(("/", os.sep)):
        raise click.BadParameter(f"{value!r}: a name is wanted, not a folder; say {value}NAME.", param=option)
    if value.endswith(".model"):
        raise click.BadParameter(
            f"{value!r}: .model is put behind the name; say {value.removesuffix('.model')}.", param=option
        )
    return Path(value)


def with_suffix(prefix: Path, suffix: str) -> Path:
    """models/mine, ".model" -> models/mine.model. Raises UsageError for a prefix without a name."""
    if not prefix.name:
        raise click.UsageError(f"{prefix}: a name is wanted, not a folder")
    return prefix.with_name(prefix.name + suffix)


def tokenizer_of(model: str) -> NativeTokenizer:
    """The tokenizer of a file, or of the name of an encoding or a model of OpenAI's. Raises ValueError, OSError."""
    if model == "gpt4":
        return GPT4Tokenizer()
    if model.endswith(".model") or os.path.exists(model):
        return load(model)
    try:
        return get_encoding(model)
    except ValueError as error:
        with suppress(KeyError):
            return encoding_for_model(model)
        if os.path.isfile(f"{model}.model"):
            raise ValueError(f"{model}: no such file, but {model}.model is there") from None
        raise ValueError(f"{model}: no such file; {error}, gpt4, and models of OpenAI's such as gpt-4o") from None
