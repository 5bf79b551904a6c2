"""Many machines, by Ray: a corpus counted to one chunk store, or encoded to many files, by the tasks of a cluster.

In: sources that every machine can read, and a folder that all of them share. Out: the store, or the ids, the same to
the byte as one process makes them. The way there:

    plan        the driver cuts the corpus into stretches of about the same size: bytes of a text or of lines, row
                groups, whole files of what can only be read from its beginning
    count       a task counts its stretches, and writes the chunks to one file in 1024 parts by their hashes
    merge       a task reads the pieces of one group of neighbouring parts out of all these files, and writes them as
                one sorted part: no machine holds more than its own
    join        the driver joins the sorted parts in order of places, some chunks of each at a time (training/spill)

or, for encoding, one step: a task encodes its stretches to a file.

Ray starts tasks, starts them again where a machine or a process was lost, and hands over what is small. All data go
through files in the shared folder. A file has a name that depends on the task's number only, and is written under
another one that it loses when it is complete. So a task that is killed leaves nothing that is read, and one that runs
twice, even at the same time, makes one file: nothing counts twice.
"""

from __future__ import annotations

import hashlib
import io
import json
import operator
import os
import re
import secrets
import socket
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cbpe.encoding.files import encode_piece, stretch_pieces
from cbpe.errors import ChunkStoreError, CorpusFormatError, ShardError
from cbpe.inputs.documents import Faults, in_file
from cbpe.inputs.extra import needed
from cbpe.inputs.sources import Source, Stretch, StrPath, check_field, find_sources
from cbpe.inputs.streams import open_to_jump
from cbpe.memory import parse_size
from cbpe.patterns import GPT4_SPLIT_PATTERN
from cbpe.progress import progress_bar
from cbpe.splitting.split import splitter_for
from cbpe.training.chunks import ChunkCounter
from cbpe.training.corpus import may_cut, separators_of, stretch_parts
from cbpe.training.spill import PART_BITS, Limit, Piece, Size, merge_need, merge_pieces, read_piece, write_piece
from cbpe.training.store import ChunkStore, Work

if TYPE_CHECKING:
    from cbpe.native import NativeTokenizer

N_PARTS = 1 << PART_BITS
LEAST_TASK = 1 << 24        # bytes of a corpus that are worth a task
MOST_TASK = 1 << 29         # and those after which one that is lost costs too much
TASKS_PER_CPU = 4           # so that all end at about the same time
WORTH_A_MERGE = 1 << 16     # chunks
AHEAD = 1 << 22             # bytes that are read of a file at a time
IN_FLIGHT = 1000            # tasks that Ray knows of at a time
WAKE = 1.0                  # seconds after which the driver looks up
GRACE = 10.0                # seconds that tasks are given to end when they are not wanted any more

Words = npt.NDArray[np.int64]

_PART_FILE = re.compile(r"part-(?P<number>\d{5,})\.bin(?:\.idx\.json)?(?P<temporary>\.[0-9a-f]{8}\.tmp)?", re.ASCII)


class Parts(NamedTuple):
    """What became of a corpus: its number of ids, and of files; n_made of these were made by this call."""

    n_ids: int
    n_parts: int
    n_made: int


def count(
    paths: StrPath | Iterable[StrPath],
    pattern: Any = GPT4_SPLIT_PATTERN,
    *,
    special_tokens: Iterable[str] | None = None,
    errors: str = "strict",
    text_field: str = "text",
    out: StrPath | None = None,
    work_dir: StrPath | None = None,
    num_parts: int | None = None,
    task_bytes: int | str | None = None,
    memory_limit: int | str = "1GB",
    max_retries: int = 3,
    progress: bool | None = None,
    scratch_dir: StrPath | None = None,
) -> ChunkStore:
    """Counts the chunks of a corpus on a Ray cluster: the store is, to the byte, what ChunkStore.from_files gives.

    The cluster is the one that ray.init connected to, or that ray.init() finds or starts. Its machines need cbpe, and
    the corpus under the same names: on a file system that all have, or by URL.

    Args:
        paths, pattern, special_tokens, errors, text_field: as in ChunkStore.from_files. Standard input and pipes cannot
            be shared out. Lines that are not packed are shared out by bytes, and so are texts, if the pattern is one of
            the library's own and no special token has a line end in it; Parquet by row groups; all else by files.
        out: a path or URL, to which the store is written as well.
        work_dir: a folder that all machines share, by path or URL, for what tasks hand over: about three times the
            store. It is made if it is not there. A folder in it holds this call's files, and is removed when the call
            ends, in whatever way but the driver's death. None will do where the cluster is one machine.
        num_parts: how many tasks merge: a power of two up to 1024. None: as many as memory_limit and processors want.
        task_bytes: about so much of the corpus, a number or a text such as "256MB", is counted by one task, and is
            counted again where a machine is lost. None: from 16 MB to 512 MB, so that each processor gets several.
        memory_limit: about so much memory a task uses at most, besides what Python and Ray take. A merge takes more if
            1024 parts are too few; it raises MemoryError if that is known not to be there.
        max_retries: how often a task is tried again whose machine or process was lost, or that met an OSError.
        progress: None shows bars on a terminal only.
        scratch_dir: a local folder of the driver, for the scratch file that the store is mapped from.

    Of several things that are wrong with a corpus, the first in reading order is raised: what ChunkStore.from_files
    raises. Moreover ValueError for what cannot be shared, ImportError without the extra cbpe[ray], and Ray's own
    exceptions for a task that was lost too often. Ctrl-C cancels the tasks.
    """
    ray = _ray()
    limit = _limit(memory_limit)
    merging_bits = None if num_parts is None else _bits_of(num_parts)
    n_task = parse_size(task_bytes, "task_bytes")
    faults = Faults(errors)
    words = tuple(special_tokens or ())
    separators = separators_of(words)
    splitter = splitter_for(pattern)
    target = None if out is None else _absolute(out)
    if target is not None and "://" not in target and not os.path.isdir(os.path.dirname(target)):
        raise FileNotFoundError(2, "there is no such folder to write a store to", os.path.dirname(target))
    sources = find_sources(paths)
    check_field(sources, text_field)
    _check_shared(sources)
    n_cpus = _connected(ray)
    if n_task is None:
        total = sum(source.size or 0 for source in sources)
        n_task = min(MOST_TASK, max(LEAST_TASK, total // (TASKS_PER_CPU * n_cpus)))
    tasks = _plan(sources, n_task, may_cut(splitter, separators))

    with _job_folder(ray, work_dir) as folder:
        job = Counting(folder, pattern, words, errors, text_field, limit.n_bytes)
        cluster = _Cluster(ray, max_retries, progress)
        counted: list[Counted] = cluster.run(
            count_stretches, job, list(enumerate(tasks)), [sum(map(_cost, task)) for task in tasks], "counting", "B"
        )
        starts = np.concatenate([np.empty((0, N_PARTS + 1), np.int64), *(each.starts for each in counted)])
        tasks_of_runs = np.repeat(np.arange(len(counted)), [len(each.starts) for each in counted])
        sizes = sum((each.sizes for each in counted), np.zeros((2, N_PARTS), np.int64))
        for each in counted:
            faults.add(each.skipped, each.first)
        bits = _merging_bits(sizes, limit, n_cpus) if merging_bits is None else merging_bits
        groups = _groups(sizes, bits)
        together = N_PARTS >> bits
        block = min(AHEAD, max(1 << 16, limit.share // (16 << bits)))      # the driver holds a few of each part
        merges = [
            (part, bits, tasks_of_runs, starts[:, [part * together, (part + 1) * together]], most, block)
            for part, most in enumerate(groups)
        ]
        merged: list[Size] = cluster.run(merge_group, job, merges, [most.n for most in groups], "merging", " chunks")
        files = [folder.open(_merged_name(part), ahead=block) for part in range(len(groups))]
        names = [source.name for source in sources]
        store = ChunkStore.from_parts(files, merged, splitter.pattern, sources=names, scratch_dir=scratch_dir)
        if target is not None:
            with _write_whole(*_file_system(target)) as file:
                store.write(file)
    store.skipped = faults.skipped
    faults.warn()
    return store


def encode_files(
    tokenizer: NativeTokenizer,
    paths: StrPath | Iterable[StrPath],
    out_dir: StrPath,
    *,
    dtype: npt.DTypeLike | None = None,
    eot: int | str | None = None,
    errors: str = "strict",
    text_field: str = "text",
    separator: str | None = None,
    part_bytes: int | str = "256MB",
    force: bool = False,
    max_retries: int = 3,
    progress: bool | None = None,
) -> Parts:
    """Encodes a corpus on a Ray cluster, to files that are, end to end, what tokenizer.encode_file writes.

    Args:
        tokenizer: any of the library's; machines get it pickled.
        paths, dtype, eot, errors, text_field, separator: as in encode_file. What is shared out by bytes, and what the
            cluster's machines need, is as in count; a separator with a line end keeps texts whole.
        out_dir: a folder that all machines share, by path or URL, which is made if it is not there. It gets
            part-00000.bin, part-00001.bin, ... in reading order, each with the ids of about part_bytes of the corpus,
            and beside each what encode_file puts beside its file. Each is written under a temporary name, and renamed
            when it is complete. One call at a time may write to it.
        part_bytes: a number of bytes, or a text such as "256MB". The parts depend on this and on the sources only.
        force: replace parts that are damaged, or were made of files of other names or sizes, with another model or with
            other settings. Otherwise the first such raises ShardError.
        max_retries, progress: as in count.

    Parts that are finished are not made again: a call that failed, or was stopped in any way, is taken up by the same
    call. Returns (n_ids, n_parts, n_made): ids and files in all, and how many files this call made. Raises what
    encode_file and count do, and ShardError.
    """
    ray = _ray()
    n_part = parse_size(part_bytes, "part_bytes")
    if n_part is None:
        raise TypeError("part_bytes is needed: the parts depend on it")
    faults = Faults(errors)
    how = tokenizer._how_to_encode(paths, dtype, eot, 1, text_field, separator)
    sources: list[Source] = how["sources"]
    _check_shared(sources)
    cuts_text = how["cuttable"] and "\n" not in (separator or "")
    tasks = _plan(sources, n_part, cuts_text)
    index = {key: value for key, value in how["index"].items() if key != "sources"}
    settings = {
        "dtype": how["dtype"].newbyteorder("=").name,
        "byte_order": "little",
        **index,
        "errors": errors,
        "text_field": text_field,
        "separator": separator,
        "part_bytes": n_part,
        "n_parts": len(tasks),
        "n_sources": len(sources),
        "sources_sha256": hashlib.sha256(json.dumps([[each.name, each.size] for each in sources]).encode()).hexdigest(),
    }
    _connected(ray)
    with _checked_folder(Folder(_absolute(out_dir))) as folder:
        _clear(folder, len(tasks), force)
        job = Encoding(folder, tokenizer, how["cuttable"], how["dtype"], how["eot"], settings, force)
        encoded: list[Encoded] = _Cluster(ray, max_retries, progress).run(
            encode_stretches, job, list(enumerate(tasks)), [sum(map(_cost, task)) for task in tasks], "encoding", "B"
        )
    for each in encoded:
        faults.add(each.skipped, each.first)
    faults.warn()
    return Parts(sum(each.n_ids for each in encoded), len(tasks), sum(each.is_new for each in encoded))


# ---- what is checked and planned beforehand


def _ray() -> Any:
    needed("fsspec", "Ray clusters", "ray")
    return needed("ray", "Ray clusters", "ray")


def _connected(ray: Any) -> int:
    """Sees to it that there is a cluster; returns its number of processors."""
    if not ray.is_initialized():
        ray.init()
    return max(1, int(ray.cluster_resources().get("CPU", 1)))


def _limit(memory_limit: int | str) -> Limit:
    n_bytes = parse_size(memory_limit)
    if n_bytes is None:
        raise TypeError("memory_limit is needed: tasks cannot see what their machine's other tasks take")
    return Limit(n_bytes, None)


def _bits_of(num_parts: int) -> int:
    num_parts = operator.index(num_parts)
    bits = num_parts.bit_length() - 1
    if num_parts < 1 or num_parts != 1 << bits or bits > PART_BITS:
        raise ValueError(f"num_parts is a power of two up to {N_PARTS}, not {num_parts}")
    return bits


def _check_shared(sources: Iterable[Source]) -> None:
    """Raises ValueError for what only this process can read, and only once."""
    for source in sources:
        if source.size is None and not source.is_url:
            raise ValueError(f"{source.name}: standard input and pipes cannot be read by many machines")


def _plan(sources: Iterable[Source], n_bytes: int, cuts_text: bool) -> list[list[Stretch]]:
    """What each task takes, in reading order: about n_bytes of one source, or several that are small.

    cuts_text: whether texts may be cut. Sources of 5, 1, 1 and 1 bytes, and 2 bytes a task: a third of the first in
    each of three, two others in one, the last.
    """
    tasks: list[list[Stretch]] = []
    room = 0                            # in the last task; 0: it takes no more
    for number, source in enumerate(sources):
        size = n_bytes if source.size is None else source.size
        if size > n_bytes and (source.kind == "jsonl" or (source.kind == "text" and cuts_text)) and _can_jump(source):
            k = -(-size // n_bytes)
            tasks += ([Stretch(number, source, size * i // k, size * (i + 1) // k)] for i in range(k))
            room = 0
        elif size <= room:
            tasks[-1].append(Stretch(number, source))
            room -= size
        else:
            tasks.append([Stretch(number, source)])
            room = max(0, n_bytes - size)
    return tasks


def _can_jump(source: Source) -> bool:
    """Whether a source can be read from any byte on."""
    if source.compression is not None or source.size is None:
        return False
    if not source.is_url:
        return True
    file = open_to_jump(source)
    if file is None:
        return False
    file.close()
    return True


def _cost(stretch: Stretch) -> int:
    return (stretch.source.size or 0) if stretch.end is None else stretch.end - stretch.begin


def _groups(sizes: Words, bits: int) -> list[Size]:
    """The sizes of 2**bits groups of neighbouring parts. sizes: int64[2, N_PARTS], chunks and bytes of parts."""
    return [Size(*map(int, group)) for group in sizes.reshape(2, 1 << bits, -1).sum(axis=2).T]


def _merging_bits(sizes: Words, limit: Limit, n_cpus: int) -> int:
    """Into 2**how many groups merging is shared out: each fits the limit, and processors have work."""
    wanted = min(n_cpus, int(sizes[0].sum()) // WORTH_A_MERGE)
    for bits in range(PART_BITS):
        if 1 << bits >= wanted and max(map(merge_need, _groups(sizes, bits))) <= limit.share:
            return bits
    return PART_BITS


# ---- the shared folder


@dataclass(frozen=True)
class Folder:
    """A folder that all machines share: url is a path or what fsspec knows; a plain value.

    probe: a file in it that says that it is the one.
    """

    url: str
    probe: str = ""

    def _at(self, name: str) -> tuple[Any, str]:
        fs, root = _file_system(self.url)
        return fs, f"{root.rstrip('/')}/{name}"

    def make(self) -> None:
        fs, path = self._at("")
        fs.makedirs(path.rstrip("/"), exist_ok=True)

    def check(self) -> None:
        """Raises ValueError if what this process finds here is another folder than the driver's."""
        fs, path = self._at(self.probe)
        if not fs.exists(path):
            raise ValueError(
                f"{self.url}: not the same folder on machine {socket.gethostname()}; a folder that all machines of the "
                "cluster share is needed, by its path or as a URL such as s3://... (memory:// is none)"
            )

    def write(self, name: str) -> AbstractContextManager[IO[bytes]]:
        return _write_whole(*self._at(name))

    def open(self, name: str, start: int = 0, stop: int | None = None, ahead: int = AHEAD) -> IO[bytes]:
        """A file's bytes start to stop, of which so many are read, and held, at a time. No file is kept open."""
        fs, path = self._at(name)
        stop = fs.size(path) if stop is None else stop
        return io.BufferedReader(_Range(fs, path, start, stop), max(1, min(ahead, stop - start)))

    def content(self, name: str) -> bytes:
        fs, path = self._at(name)
        return bytes(fs.cat_file(path))

    def size(self, name: str) -> int | None:
        """The bytes of a file; None if it is not there."""
        fs, path = self._at(name)
        try:
            return int(fs.size(path))
        except FileNotFoundError:
            return None

    def names(self) -> list[str]:
        fs, path = self._at("")
        fs.invalidate_cache()
        return sorted(each.rstrip("/").rpartition("/")[2] for each in fs.ls(path, detail=False))

    def remove(self, name: str) -> None:
        fs, path = self._at(name)
        with suppress(FileNotFoundError):
            fs.rm(path)

    def remove_all(self) -> None:
        fs, path = self._at("")
        fs.rm(path.rstrip("/"), recursive=True)


def _file_system(url: str) -> tuple[Any, str]:
    """What fsspec has for a URL or a path, and the path in it."""
    fs, path = needed("fsspec", "Ray clusters", "ray").core.url_to_fs(url)
    return fs, path


class _Range(io.RawIOBase):
    """Some bytes of a file, each read of which is a request of its own."""

    def __init__(self, fs: Any, path: str, start: int, stop: int) -> None:
        self._fs = fs
        self._path = path
        self._at = start
        self._stop = stop

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        stop = min(self._stop, self._at + len(buffer))
        if stop <= self._at:
            return 0
        data = self._fs.cat_file(self._path, start=self._at, end=stop)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


@contextmanager
def _write_whole(fs: Any, path: str) -> Iterator[IO[bytes]]:
    """Opens a file that takes its name when the block ends, and is gone if that fails.

    An OSError that names no file, as that of a full disk, names this one.
    """
    temporary = f"{path}.{secrets.token_hex(4)}.tmp"
    try:
        with fs.open(temporary, "wb") as file:
            yield file
        fs.mv(temporary, path)
    except BaseException as fault:
        with suppress(Exception):           # that is not what went wrong
            fs.rm(temporary)
        if isinstance(fault, OSError) and fault.errno is not None and fault.filename in (None, temporary):
            raise OSError(fault.errno, fault.strerror, path) from None
        raise


def _absolute(path: StrPath) -> str:
    """A URL as it is, any other path from the root on: machines have no common current folder."""
    name = os.fspath(path)
    return name if "://" in name else os.path.abspath(name)


@contextmanager
def _checked_folder(folder: Folder) -> Iterator[Folder]:
    """The folder with a probe in it."""
    folder.make()
    folder = Folder(folder.url, f"cbpe-{secrets.token_hex(8)}.probe")
    with folder.write(folder.probe) as file:
        file.write(b"cbpe: of a job that runs\n")
    try:
        yield folder
    finally:
        with suppress(Exception):           # that is not what went wrong
            folder.remove(folder.probe)


@contextmanager
def _job_folder(ray: Any, work_dir: StrPath | None) -> Iterator[Folder]:
    """A new folder in work_dir for one call, which is removed at the end."""
    if work_dir is None:
        machines = {node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
        if len(machines) > 1:
            raise ValueError(
                f"the cluster has {len(machines)} machines: work_dir= must name a folder that all of them share, by "
                "its path or as a URL such as s3://..."
            )
        work_dir = tempfile.gettempdir()
    folder = Folder(f"{_absolute(work_dir).rstrip('/')}/cbpe-{secrets.token_hex(8)}")
    try:
        with _checked_folder(folder) as checked:
            yield checked
    finally:
        try:
            folder.remove_all()
        except FileNotFoundError:
            pass
        except OSError as fault:            # that is no reason to lose what was counted
            warnings.warn(f"{folder.url} could not be removed: {fault}", UserWarning, stacklevel=4)


# ---- running tasks


class _Cluster:
    """Runs tasks on a Ray cluster."""

    def __init__(self, ray: Any, max_retries: int, progress: bool | None) -> None:
        self._ray = ray
        self._max_retries = max_retries
        self._progress = progress

    def run(
        self,
        task: Callable[..., Any],
        job: Any,
        arguments: Sequence[tuple[Any, ...]],
        costs: Sequence[int],
        verb: str,
        unit: str,
    ) -> list[Any]:
        """task(job, *arguments[i]) for each i, in their order. costs: what each counts on the bar, in a unit.

        Of several that fail, the first is raised; those behind it are cancelled, and so are all on Ctrl-C.
        """
        ray = self._ray
        remote = ray.remote(num_cpus=1, max_retries=self._max_retries, retry_exceptions=[OSError])(task)
        shared_job = ray.put(job)
        results: list[Any] = [None] * len(arguments)
        wanted = len(arguments)         # the tasks before the first one that failed
        started = 0
        fault: BaseException | None = None
        pending: dict[Any, int] = {}
        bar = progress_bar(self._progress, sum(costs), verb, unit=unit)
        try:
            while pending or started < wanted:
                while started < wanted and len(pending) < IN_FLIGHT:
                    pending[remote.remote(shared_job, *arguments[started])] = started
                    started += 1
                for ref in ray.wait(list(pending), timeout=WAKE)[0]:
                    number = pending.pop(ref)
                    try:
                        results[number] = ray.get(ref)
                        bar.update(costs[number])
                    except ray.exceptions.RayError as error:
                        if number < wanted:
                            wanted = number
                            fault = getattr(error, "cause", None) or error
                        self._cancel([each for each in pending if pending[each] > wanted])
        finally:
            bar.close()
            self._cancel(list(pending))
            if pending:
                ray.wait(list(pending), num_returns=len(pending), timeout=GRACE)
        if fault is not None:
            raise fault
        return results

    def _cancel(self, refs: list[Any]) -> None:
        for ref in refs:
            self._ray.cancel(ref, force=True)


# ---- the tasks of counting


@dataclass(frozen=True)
class Counting:
    """What the tasks of one call of count have in common."""

    folder: Folder
    pattern: Any
    special_tokens: tuple[str, ...]
    errors: str
    text_field: str
    memory_limit: int


class Counted(NamedTuple):
    """What a task wrote. starts: int64[k, N_PARTS + 1], where in the file each part begins, of each of the k times that
    the counter was emptied; sizes: int64[2, N_PARTS], chunks and bytes of each part; and what was left out.
    """

    starts: Words
    sizes: Words
    skipped: int
    first: tuple[int, CorpusFormatError] | None


def _counted_name(number: int) -> str:
    return f"counted-{number:06d}"


def _merged_name(part: int) -> str:
    return f"merged-{part:04d}"


def count_stretches(job: Counting, number: int, stretches: Sequence[Stretch]) -> Counted:
    """Counts stretches, and writes their chunks to the task's file, part by part."""
    job.folder.check()
    splitter = splitter_for(job.pattern)
    limit = Limit(job.memory_limit, None)
    faults = Faults(job.errors)
    parts = stretch_parts(stretches, splitter, separators_of(job.special_tokens), job.text_field)
    counter = ChunkCounter(splitter)
    starts: list[list[int]] = []
    sizes = np.zeros((2, N_PARTS), np.int64)
    with job.folder.write(_counted_name(number)) as file:

        def empty(counter: ChunkCounter) -> None:
            starts.append([file.tell()])
            for part in range(N_PARTS):
                piece = Piece(*counter.part(part, PART_BITS))
                if len(piece.counts):
                    write_piece(file, piece, part, PART_BITS)
                starts[-1].append(file.tell())
                sizes[:, part] += len(piece.counts), len(piece.data)

        counter.limit_to(limit.share, empty)
        work = Work(parts, splitter, faults, limit)
        try:
            for _ in work.steps(counter):
                pass
            work.raise_first_fault()
        except CorpusFormatError as fault:
            raise in_file(fault, stretches[0]) from None
        empty(counter)
    return Counted(np.array(starts), sizes, faults.skipped, _first_in_file(faults, stretches))


def _first_in_file(faults: Faults, stretches: Sequence[Stretch]) -> tuple[int, CorpusFormatError] | None:
    """What was left out first. A stretch that does not begin where its source does, is a task's only one."""
    if faults.first is None:
        return None
    place, fault = faults.first
    return place, in_file(fault, stretches[0])


def merge_group(
    job: Counting, part: int, bits: int, tasks: Words, spans: Words, most: Size, block: int
) -> Size:
    """Merges one of 2**bits groups of parts to a file, in order of places; returns its size.

    tasks: int64[k], of which tasks the files are, and spans: int64[k, 2], from where to where the group lies in them.
    """
    job.folder.check()

    def pieces() -> Iterator[Piece]:
        for task, (start, stop) in zip(tasks.tolist(), spans.tolist(), strict=True):
            with job.folder.open(_counted_name(task), start, stop) as file:
                while found := read_piece(file):
                    if found[1] >> PART_BITS - bits != part or found[2] != PART_BITS:
                        raise ChunkStoreError(f"a piece of part {found[1]} where parts of group {part} should be")
                    yield found[0]

    with job.folder.write(_merged_name(part)) as out:
        return merge_pieces(pieces(), most, part, bits, out, block)


# ---- the tasks of encoding


@dataclass(frozen=True)
class Encoding:
    """What the tasks of one call of encode_files have in common. settings: what the JSON files of all parts say."""

    folder: Folder
    tokenizer: NativeTokenizer
    cuttable: bool
    dtype: np.dtype[Any]
    eot: int | None
    settings: dict[str, Any]
    force: bool


class Encoded(NamedTuple):
    """A part's number of ids, whether it was made just now, and what was left out."""

    n_ids: int
    is_new: bool
    skipped: int
    first: tuple[int, CorpusFormatError] | None


def encode_stretches(job: Encoding, number: int, stretches: Sequence[Stretch]) -> Encoded:
    """Encodes stretches to the task's file, unless that is finished."""
    job.folder.check()
    name = f"part-{number:05d}.bin"
    index_name = f"{name}.idx.json"
    try:
        n_ids = _finished(job.folder, name, index_name, job.settings)
    except ShardError:
        if not job.force:
            raise
        n_ids = None
        job.folder.remove(name)         # it must not be taken for what the new JSON file speaks of
    if n_ids is not None:
        return Encoded(n_ids, False, 0, None)

    settings = job.settings
    faults = Faults(settings["errors"])
    encode, _ = job.tokenizer._encoding_of_texts(job.tokenizer._model)
    n_ids = 0
    with job.folder.write(name) as ids_file:
        try:
            for piece in stretch_pieces(
                stretches, cuttable=job.cuttable, text_field=settings["text_field"], separator=settings["separator"]
            ):
                ids, _ = encode_piece(piece, encode, faults, job.dtype, job.eot)
                ids_file.write(ids.tobytes())
                n_ids += len(ids)
        except CorpusFormatError as fault:
            raise in_file(fault, stretches[0]) from None
        known = {
            "count": n_ids,
            **settings,
            "part": number,
            "first_source": stretches[0].number,
            "sources": [stretch.source.name for stretch in stretches],
        }
        if stretches[0].end is not None:
            known["bytes"] = [stretches[0].begin, stretches[0].end]
        if settings["errors"] == "skip":
            known["skipped"] = faults.skipped
        with job.folder.write(index_name) as index_file:
            # a path is bytes to the system: those that are not UTF-8 come as lone surrogates, and are written escaped
            index_file.write(json.dumps(known, indent=1).encode() + b"\n")
    return Encoded(n_ids, True, faults.skipped, _first_in_file(faults, stretches))


def _finished(folder: Folder, name: str, index_name: str, settings: dict[str, Any]) -> int | None:
    """The number of ids in a part that is finished; None: it is not there. Raises ShardError for one of another job."""
    size = folder.size(name)
    if size is None:
        return None
    where = f"{folder.url}/{name}"
    remedy = "remove it to have it made again, or pass force=True"
    try:
        known = json.loads(folder.content(index_name))
        n_ids, width = int(known["count"]), np.dtype(known["dtype"]).itemsize
    except FileNotFoundError:
        raise ShardError(f"{where}: no {index_name} beside it says what it is; {remedy}") from None
    except (ValueError, KeyError, TypeError):
        raise ShardError(f"{where}.idx.json: damaged; {remedy}") from None
    for key, wanted in settings.items():
        if key != "cbpe_version" and known.get(key) != wanted:
            made = f"with {key} {known.get(key)!r}, not {wanted!r}"
            if key in ("n_sources", "sources_sha256", "n_parts"):
                made = "of other files, or of files that have changed their sizes since"
            raise ShardError(f"{where}: made {made}; write to another folder, or pass force=True to make it anew")
    if size != n_ids * width:
        raise ShardError(f"{where}: damaged: {size:,} bytes for {n_ids:,} ids of {known['dtype']}; {remedy}")
    return n_ids


def _clear(folder: Folder, n_parts: int, force: bool) -> None:
    """Removes what killed tasks left, and parts beyond the last of this job, which without force raise ShardError."""
    for name in folder.names():
        match = _PART_FILE.fullmatch(name)
        if match is None:
            continue
        if not match["temporary"] and int(match["number"]) < n_parts:
            continue
        if not match["temporary"] and not force:
            raise ShardError(
                f"{folder.url}/{name}: of another job, for this one has {n_parts:,} parts; write to another folder, or "
                "pass force=True to have it removed"
            )
        folder.remove(name)
