"""Native work in threads: shared out, with results in order, or waited for in a way that hears Ctrl-C.

The threads live as long as one call: none is left to make a process that forks hang, and a call after a fork makes its
own. They are daemons, and whoever waits for a result here hears Ctrl-C at once, though the work is native and may take
seconds.
"""

from __future__ import annotations

import mmap
import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, wait
from queue import Empty, SimpleQueue
from threading import Thread, current_thread, main_thread
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

MOST_THREADS = 256          # each takes memory, whether there is a processor for it or not
LOOK_UP = 0.1               # seconds between two looks whether Ctrl-C was pressed
LONG_TEXT = 1 << 23              # characters of a text that may take a good part of a second to encode
ROOM = 1 << 22              # bytes that must be there for a thread to be started
DIED = "a thread ended before its work did, for there was no memory"
GRACE = 0.5                 # seconds that threads are given to end when their results are not wanted any more


def thread_count(num_threads: int | None) -> int:
    """num_threads, but MOST_THREADS at most; or as many as there are processors for this process.

    Raises ValueError below 1.
    """
    if num_threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if num_threads < 1:
        raise ValueError(f"num_threads must be at least 1: {num_threads}")
    return min(num_threads, MOST_THREADS)


def heeding_ctrl_c(call: Callable[..., Result], *args: object) -> Result:
    """What call(*args) returns, or KeyboardInterrupt at once, though the call is native and may take seconds.

    It runs in a thread of its own while this one waits; after Ctrl-C it ends there, and nobody takes its result.
    """
    if current_thread() is not main_thread():
        return call(*args)          # only the main thread hears of signals
    waiting: deque[Future[Result]] = deque([Future()])
    threads: list[Thread] = []
    start_threads([Thread(target=_run, args=(waiting[0], call, *args), daemon=True)], threads)
    return _awaited(waiting, threads) if threads else call(*args)


def _run(outcome: Future[Result], call: Callable[..., Result], *args: object) -> None:
    try:
        outcome.set_result(call(*args))
    except BaseException as fault:
        outcome.set_exception(fault)
    finally:
        del outcome     # see _awaited


def start_threads(threads: Iterable[Thread], running: list[Thread]) -> None:
    """Starts as many of the threads as there is leave and memory for, maybe none, and puts them into running.

    A thread that begins and then finds no memory never says so, and Thread.start waits for that word for ever. Hence
    the look beforehand whether there is some.
    """
    for thread in threads:
        running.append(thread)          # before it runs, so that after Ctrl-C here it is known
        try:
            mmap.mmap(-1, ROOM).close()
            thread.start()
        except (OSError, RuntimeError):
            running.pop()
            break


def _awaited(waiting: deque[Future[Result]], threads: list[Thread]) -> Result:
    """The result of the first outcome, which is taken away. Looks up now and then: the system may give a signal to a
    thread that works, and then a wait without end would not hear of it.

    A frame that held the outcome would be in the traceback of what it raises, which the outcome holds: such a ring
    keeps files open, and memory, until the next garbage collection.

    threads: those at work. None of them ends before its work does, but for want of memory: MemoryError.
    """
    while not waiting[0].done():
        all_alive = all(thread.is_alive() for thread in threads)
        if not all_alive and not waiting[0].done():
            raise MemoryError(DIED)
        wait([waiting[0]], timeout=LOOK_UP)
    return waiting.popleft().result()


def _until_fault(items: Iterable[Item], faults: list[Exception]) -> Iterator[Item]:
    """The items up to the one that cannot be taken; why not is put into faults."""
    try:
        yield from items
    except Exception as fault:
        faults.append(fault)


class _Caller:
    """One that waits for results. Threads that may work for it know by a weak reference whether it is still there."""


def _taken(queue: SimpleQueue[Item], is_wanted: Callable[[], object]) -> Item | None:
    """What comes out of the queue next. None when nobody is there any more who could put something in."""
    while True:
        try:
            return queue.get(timeout=LOOK_UP)
        except Empty:
            if is_wanted() is None:
                return None


def in_order(
    work: Callable[[Item], Result], items: Iterable[Item], num_threads: int
) -> Generator[Result, None, None]:
    """Yields work(item) for each item, in their order: str.upper, ["a", "b"] -> "A", "B".

    Items are taken one after another, in the caller's thread, and not more than two a thread ahead of the results. What
    work raises, or taking an item, is raised here when its turn comes, so that of several faults the first one is seen.
    Close the iterator to stop early.
    """
    faults: list[Exception] = []
    queue: SimpleQueue[tuple[Future[Result], Item] | None] = SimpleQueue()
    waiting: deque[Future[Result]] = deque()
    caller: _Caller | None = _Caller()
    is_wanted = weakref.ref(caller)

    def run() -> None:
        while job := _taken(queue, is_wanted):
            future, item = job
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work(item))
                except BaseException as fault:
                    future.set_exception(fault)
            del job, future, item       # a thread that waits holds nothing

    threads: list[Thread] = []
    try:
        start_threads((Thread(target=run, daemon=True) for _ in range(num_threads)), threads)
        if not threads:
            yield from map(work, items)
            return
        for item in _until_fault(items, faults):
            if len(waiting) == 2 * num_threads:
                yield _awaited(waiting, threads)
            future: Future[Result] = Future()
            waiting.append(future)
            queue.put((future, item))
            del future      # see _awaited
        while waiting:
            yield _awaited(waiting, threads)
        if faults:
            raise faults.pop()
    finally:
        caller = None       # before Ctrl-C may break off what follows
        for future in waiting:
            future.cancel()
        for _ in threads:
            queue.put(None)
        deadline = time.monotonic() + GRACE
        for thread in threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))
