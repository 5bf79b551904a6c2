"""The program cbpe from its first moment to its last: what stands around the command of cbpe.cli.

A module of its own, because to import anything of cbpe is to import all of it, which takes some tenths of a second.
Ctrl-C in that time ends the program at once, as it does later, instead of in a traceback from somewhere in an import;
and so it does when the command is over and Python cleans up. What this module imports is there when Python has begun,
or nearly: an interrupt in that time is Python's to tell of.
"""

from __future__ import annotations

import os
import signal


def main() -> None:
    """Runs the command with the process's arguments."""
    heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler      # not so in the background of a shell
    if heard:
        end_on_ctrl_c(130)
    from cbpe.cli import main as command

    if heard:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        command()
    except SystemExit as end:
        if heard:
            end_on_ctrl_c(int(end.code or 0))
        raise


def end_on_ctrl_c(code: int) -> None:
    """Has Ctrl-C end the process with this code. Nothing is cleaned up: there is nothing yet, or nothing any more."""
    signal.signal(signal.SIGINT, lambda *_: os._exit(code))
