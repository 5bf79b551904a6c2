"""The command cbpe: the library's daily jobs from a shell.

    train    a corpus -> a model            encode   a corpus -> files of ids
    count    a corpus -> a chunk store      decode   ids -> text
    merge    chunk stores -> one            info     what a file is
                                            stats    how a model does on a corpus

A file each, and all the work is the library's: a subcommand checks arguments, calls it and says what came of it.
common.py has what they share. Nothing of cbpe imports this package, so that only the command needs click.

Exit codes: 0; 1 for what went wrong, said in one line on stderr; 2 for wrong arguments; 130 for Ctrl-C. What is said of
success goes to stdout, with --json as one JSON object; bars and warnings go to stderr.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import click

import cbpe
from cbpe.cli import count, decode, encode, info, stats, train
from cbpe.cli.common import Output


class Cbpe(click.Group):
    """The group of all subcommands, which ends every error in an exit code and one line."""

    def main(      # type: ignore[override]
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> NoReturn:
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):      # any name and any token can be shown, whatever the locale
                stream.reconfigure(errors="backslashreplace")
        code = 0
        try:
            code = super().main(args, prog_name, **{**extra, "obj": Output(), "standalone_mode": False}) or 0
            if sys.stdout is not None:              # closed by who started this
                sys.stdout.flush()
        except click.ClickException as error:
            at = error.ctx if isinstance(error, click.UsageError) else None
            name = at.command_path if at else "cbpe"
            say_error(f"{name}: error: {in_one_line(error)} ({name} --help says more)")
            code = error.exit_code
        except BrokenPipeError:
            code = unread()
        except OSError as error:                    # of stdout, such as a full disk: has it been said already?
            if code == 0:
                say_error(f"cbpe: error: {in_one_line(error)}")
            code = unread()
        except (KeyboardInterrupt, click.Abort):
            code = 130
        sys.exit(code)

    def invoke(self, ctx: click.Context) -> Any:
        output: Output = ctx.obj
        with heard_warnings(ctx):
            try:
                return super().invoke(ctx)
            except (click.ClickException, click.exceptions.Exit, click.Abort):
                raise
            except BrokenPipeError:
                ctx.exit(unread())
            except KeyboardInterrupt as stopped:
                say_error(f"cbpe {ctx.invoked_subcommand}: stopped; {output.if_stopped}")
                ctx.exit(143 if isinstance(stopped, Terminated) else 130)
            except Exception as error:
                if output.debug:
                    traceback.print_exc()
                else:
                    say_error(f"cbpe {ctx.invoked_subcommand}: error: {in_one_line(error)}")
                ctx.exit(1)


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a command as tidily as Ctrl-C does."""


def terminate(*_: object) -> NoReturn:
    raise Terminated


def unread() -> int:
    """Whoever read stdout has seen enough: that is said by the exit code alone, now and when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


def in_one_line(error: Exception) -> str:
    """What is said of an error: its message; the name of its class too, if it is none that is meant for people."""
    if isinstance(error, click.ClickException):
        return " ".join(error.format_message().split())
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    message = " ".join(str(error).split())
    if message and isinstance(error, (OSError, ValueError, OverflowError, MemoryError, ImportError)):
        return message
    return f"{type(error).__name__}: {message} (--debug shows where)"


def say_error(line: str) -> None:
    click.echo(line, err=True)


@contextmanager
def heard_warnings(ctx: click.Context) -> Iterator[None]:
    """Has every UserWarning said in a line on stderr, and kept for --json."""

    def show(message: Warning | str, *_: object, **__: object) -> None:
        line = " ".join(str(message).split())
        ctx.obj.warnings.append(line)
        say_error(f"cbpe {ctx.invoked_subcommand}: warning: {line}")

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield


@click.group(
    cls=Cbpe, name="cbpe", invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(cbpe.__version__, prog_name="cbpe")
@click.pass_context
def command(ctx: click.Context) -> None:
    """Train byte-level BPE tokenizers on text, and encode and decode with them.

    \b
    A first tour, on a corpus of your own:
      cbpe train corpus.txt --vocab-size 1000 -o mine
      cbpe info mine.model
      cbpe encode corpus.txt -m mine.model -o corpus.bin
      cbpe decode corpus.bin -m mine.model --limit 20
      cbpe stats corpus.txt -m mine.model

    "cbpe COMMAND --help" shows examples and says what is written where. Exit codes: 0; 1 for what went wrong, said in
    one line on stderr; 2 for wrong arguments; 130 for Ctrl-C.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(2)


for subcommand in (train.train, count.count, count.merge, encode.encode, decode.decode, info.info, stats.stats):
    command.add_command(subcommand)


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Runs the command as a program: with these arguments, or the process's."""
    if hasattr(signal, "SIGTERM"):
        signal.signal(signal.SIGTERM, terminate)
    command.main(args, prog_name="cbpe")
