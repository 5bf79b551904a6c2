"""What BasicTokenizer, RegexTokenizer and GPT4Tokenizer share: training, encoding and decoding with the compiled parts.

A corpus comes in, is counted as a ChunkStore and leaves as merges; a text comes in and leaves as ids; ids come in and
leave as bytes. Here arguments are checked and the parts are called; what each does, stands with it.
"""

from __future__ import annotations

import copy
import operator
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Set
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

import cbpe
from cbpe.base import Attribute, Tokenizer
from cbpe.curve import CompressionCurve, SizeAdvice, Statistics, advice, advice_table
from cbpe.encoding.batch import Parts, encode_flat, encode_lists, parts_of
from cbpe.encoding.encoder import all_encodable, encodable
from cbpe.encoding.files import Encode, encode_files
from cbpe.encoding.shards import Shards, encode_shards
from cbpe.encoding.usage import count_ids
from cbpe.errors import (
    ChunkStoreError,
    DisallowedSpecialTokenError,
    NoStatisticsError,
    SpecialTokenError,
    UnknownIdError,
    VocabSizeError,
)
from cbpe.files import atomic_write
from cbpe.formats import minbpe
from cbpe.inputs.sources import StrPath, check_field, find_sources
from cbpe.likeness import TiktokenNames
from cbpe.model import Model
from cbpe.special import MAX_ID, words_of
from cbpe.splitting.split import Splitter
from cbpe.threads import LONG_TEXT, heeding_ctrl_c, thread_count
from cbpe.training import ChunkStore, learn_merges
from cbpe.training.learn import Checkpoint, Known

if TYPE_CHECKING:
    from typing import SupportsIndex, TypeVar

    import tiktoken

    SpecialTokens = Iterable[str] | Mapping[str, int]
    Self = TypeVar("Self", bound="NativeTokenizer")
    T = TypeVar("T")


class NativeTokenizer(TiktokenNames, Tokenizer):
    """Training, encoding and decoding; a subclass says how texts are split."""

    inverse_special_tokens = Attribute[dict[int, str]]("dict int -> str: the special token of each id.")

    _encodes_its_own_way = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        # a subclass may encode chunks in Python, as minbpe's own GPT4Tokenizer does: then it is asked chunk by chunk
        super().__init_subclass__(**kwargs)
        cls._encodes_its_own_way = (
            cls._encode_chunk is not NativeTokenizer._encode_chunk
            or cls.encode_ordinary is not NativeTokenizer.encode_ordinary
        )

    def _splitter(self, model: Model) -> Splitter:
        raise NotImplementedError

    # ---- special tokens

    def register_special_tokens(self, special_tokens: Mapping[str, int]) -> None:
        """Takes these special tokens, str -> id, in place of those there are.

        Training keeps them. Where two could begin at one place in a text, the one that stands first in the dict is
        taken. Raises SpecialTokenError, and changes nothing, if a token is empty or not a str, or an id is not an int,
        negative, that of a byte or a merge, or given twice.
        """
        self._model = self._model.registered(special_tokens)

    # ---- other libraries

    def to_tiktoken(self, name: str) -> tiktoken.Encoding:
        """The tokenizer as an encoding of tiktoken, which gives the same ids for every text.

        The pattern is written in the words of tiktoken's engine, and what comes out is compared with the tokenizer: on
        all tokens and special tokens, and on some ten thousand texts that its pattern could be read differently on. One
        difference is allowed: characters of editions of Unicode that tiktoken does not have yet; a UserWarning names
        such a character if the vocabulary has one.

        Args:
            name: what the encoding is called.

        Takes a second for 100,000 tokens. Raises ExportError, which says why, where tiktoken would do something else:
        special tokens of which one begins with another, merges in an order that is not that of the ids, a pattern that
        its engine does not have, or reads otherwise; TypeError for a name that is no str.
        """
        if not isinstance(name, str):
            raise TypeError(f"the name of an encoding must be a str, not {type(name).__name__}")
        from cbpe.formats.tiktoken import to_encoding

        return to_encoding(copy.copy(self), name)       # which no other thread changes meanwhile

    def save_tiktoken(self, path: StrPath) -> None:
        """Writes the tokens as a rank file of tiktoken's, NAME.tiktoken, the lowest rank first.

        The file holds neither the pattern nor the special tokens; RegexTokenizer.from_tiktoken takes both. It is
        compared and refused as by to_tiktoken, written whole or not at all. Raises ExportError, OSError.
        """
        from cbpe.formats.tiktoken import save

        save(copy.copy(self), path)

    # ---- training

    def train(
        self,
        text: str,
        vocab_size: int,
        verbose: bool = False,
        *,
        special_tokens: SpecialTokens | None = None,
        min_frequency: int = 1,
        num_threads: int | None = None,
        progress: bool | None = None,
        checkpoint: StrPath | None = None,
        checkpoint_seconds: float = 60.0,
        memory_limit: int | str | None = None,
        scratch_dir: StrPath | None = None,
    ) -> None:
        """Learns vocab_size - 256 merges from a text, in place of those there are, exactly as minbpe does.

        Args:
            text: a str.
            vocab_size: the number of ids afterwards, special tokens not counted; 256 or more. If the text does not
                support as many, training stops early with a UserWarning that names the size reached.
            verbose: print minbpe's line for every merge.
            special_tokens: None: keep those that are registered, and train as if there were none. A list of str: leave
                them out of what is counted, and register them with the ids that follow the last merge's. A dict
                str -> id: the same with these ids.
            min_frequency: stop before the first merge of a pair that occurs less often.
            num_threads: how many to use, None for one per processor. The result does not depend on it.
            progress: show bars; None: if this is a terminal.
            checkpoint: a file prefix. checkpoint.model is written every checkpoint_seconds while merges are learned,
                and at the end, also if that is an error or Ctrl-C. It holds the merges so far, the pattern, and special
                tokens that have their ids already. extend says how to go on from there.
            memory_limit: bytes, or a text such as "2GB", "512MB", "1.5GiB": counting uses about so much memory at most,
                and merging, if it needs more, works in scratch files, whose pages the system takes out of memory when
                it is short. The merges are the same. What the caller holds (the text) comes on top.
            scratch_dir: where scratch files are, which have no name and never stay; None: the system's folder for
                temporary files.

        What was counted and how far each merge compressed it is kept: see compression_curve and advise. A call that
        fails or is interrupted leaves the tokenizer as it was. Raises TypeError, VocabSizeError,
        SpecialTokenError (also if a registered id is one that a merge would get), UnicodeEncodeError for lone
        surrogates, CorpusTooLargeError, MemoryError.
        """
        _check_text(text)
        self._train(
            vocab_size,
            lambda **how: ChunkStore.from_iterator([text], **how),
            special_tokens=special_tokens,
            min_frequency=min_frequency,
            num_threads=num_threads,
            verbose=verbose,
            progress=progress,
            checkpoint=checkpoint,
            checkpoint_seconds=checkpoint_seconds,
            memory_limit=memory_limit,
            scratch_dir=scratch_dir,
        )

    def train_from_files(
        self,
        paths: StrPath | Iterable[StrPath],
        vocab_size: int,
        *,
        special_tokens: SpecialTokens | None = None,
        min_frequency: int = 1,
        min_count: int = 1,
        num_threads: int | None = None,
        errors: str = "strict",
        text_field: str = "text",
        verbose: bool = False,
        progress: bool | None = None,
        checkpoint: StrPath | None = None,
        checkpoint_seconds: float = 60.0,
        memory_limit: int | str | None = None,
        scratch_dir: StrPath | None = None,
    ) -> None:
        """Learns merges from files; a file of text is a text of its own, and so is each line or row; see train.

        Args:
            paths: one path or several: files of text, JSONL or Parquet, packed or not, folders, globs, "-", URLs; see
                ChunkStore.from_files. They are read as they are: no line end is translated.
            min_count: leave chunks that occur less often out of the training, which then takes less time and memory
                but is not exact any more: see ChunkStore.pruned. Statistics are of the chunks that are left.
            errors: what to do about bytes that are not UTF-8: "strict" raises CorpusDecodeError with file and offset,
                "replace" counts U+FFFD in their place, as bytes.decode does; "skip" moreover leaves out lines and rows
                that hold no text, for which the others raise CorpusFormatError.
            text_field: the member of a JSON object, or the column, that holds the text.

        Raises what train does, OSError naming the file, ImportError for what needs the extra cbpe[data].
        """
        self._train(
            vocab_size,
            lambda **how: ChunkStore.from_files(paths, errors=errors, text_field=text_field, **how),
            special_tokens=special_tokens,
            min_frequency=min_frequency,
            min_count=min_count,
            num_threads=num_threads,
            verbose=verbose,
            progress=progress,
            checkpoint=checkpoint,
            checkpoint_seconds=checkpoint_seconds,
            memory_limit=memory_limit,
            scratch_dir=scratch_dir,
        )

    def train_from_iterator(
        self,
        texts: Iterable[str],
        vocab_size: int,
        *,
        special_tokens: SpecialTokens | None = None,
        min_frequency: int = 1,
        min_count: int = 1,
        num_threads: int | None = None,
        errors: str = "strict",
        verbose: bool = False,
        progress: bool | None = None,
        checkpoint: StrPath | None = None,
        checkpoint_seconds: float = 60.0,
        memory_limit: int | str | None = None,
        scratch_dir: StrPath | None = None,
    ) -> None:
        """Learns merges from an iterable of str, each of which is a text of its own; see train.

        A single str is refused with a TypeError: its characters would be texts. The iterable is read once. errors has
        no effect, for a str has no wrong bytes. min_count is as in train_from_files.
        """
        self._train(
            vocab_size,
            lambda **how: ChunkStore.from_iterator(texts, errors=errors, **how),
            special_tokens=special_tokens,
            min_frequency=min_frequency,
            min_count=min_count,
            num_threads=num_threads,
            verbose=verbose,
            progress=progress,
            checkpoint=checkpoint,
            checkpoint_seconds=checkpoint_seconds,
            memory_limit=memory_limit,
            scratch_dir=scratch_dir,
        )

    def train_from_chunks(
        self,
        store: ChunkStore,
        vocab_size: int,
        *,
        special_tokens: SpecialTokens | None = None,
        min_frequency: int = 1,
        min_count: int = 1,
        num_threads: int | None = None,
        errors: str = "strict",
        verbose: bool = False,
        progress: bool | None = None,
        checkpoint: StrPath | None = None,
        checkpoint_seconds: float = 60.0,
        memory_limit: int | str | None = None,
        scratch_dir: StrPath | None = None,
    ) -> None:
        """Learns merges from a store of counted chunks, which can be used again; see train.

        special_tokens are registered; to leave them out of what is counted is up to whoever makes the store.
        num_threads and errors have no effect: the counting is done. min_count is as in train_from_files. Raises
        ChunkStoreError if the store's pattern is not the tokenizer's.
        """
        if not isinstance(store, ChunkStore):
            raise TypeError(f"store must be a ChunkStore, not {type(store).__name__}")
        self._train(
            vocab_size,
            _counted(store),
            special_tokens=special_tokens,
            min_frequency=min_frequency,
            min_count=min_count,
            num_threads=num_threads,
            verbose=verbose,
            progress=progress,
            checkpoint=checkpoint,
            checkpoint_seconds=checkpoint_seconds,
            memory_limit=memory_limit,
            scratch_dir=scratch_dir,
            keep_store=True,
        )

    def extend(
        self,
        source: ChunkStore | StrPath | Iterable[StrPath],
        vocab_size: int,
        *,
        special_tokens: SpecialTokens | None = None,
        min_frequency: int = 1,
        min_count: int = 1,
        num_threads: int | None = None,
        errors: str = "strict",
        text_field: str = "text",
        verbose: bool = False,
        progress: bool | None = None,
        checkpoint: StrPath | None = None,
        checkpoint_seconds: float = 60.0,
        memory_limit: int | str | None = None,
        scratch_dir: StrPath | None = None,
    ) -> None:
        """Learns more merges, on the same corpus or another, behind those there are, which keep their ids.

        The corpus is taken as the merges there are encode it, and training goes on from there by the same rules. So on
        the corpus that they were learned from, the result is that of one training: a training that was interrupted is
        resumed with

            tokenizer.load("mine.model")            # its checkpoint
            tokenizer.extend(store, vocab_size)     # and the other arguments that it had

        Args:
            source: a store, or the paths of files, as train_from_files takes them.
            vocab_size: the number of ids afterwards, special tokens not counted; not less than there are. With as many
                as there are, nothing is learned, but statistics are then of this corpus.
            special_tokens: None: keep those that are registered; they must not have ids that new merges need. A list or
                a dict takes their place, as in train: a list is numbered behind the last new merge.

        The other arguments are those of train and train_from_files; min_frequency is for new merges. Statistics are
        those of all merges on this corpus. A call that fails or is interrupted leaves the tokenizer as it was. Raises
        what train and train_from_files raise, and ValueError if the merges there are were not numbered 256, 257, ... as
        training does, or if the class encodes in a way of its own.
        """
        if self._encodes_its_own_way:
            raise ValueError(
                f"{type(self).__name__} encodes in a way of its own, so its merges cannot be continued: what a corpus "
                "is to them is not known here"
            )
        if isinstance(source, ChunkStore):
            count = _counted(source)
        else:
            paths = source

            def count(**how: Any) -> ChunkStore:
                return ChunkStore.from_files(paths, errors=errors, text_field=text_field, **how)

        self._train(
            vocab_size,
            count,
            special_tokens=special_tokens,
            min_frequency=min_frequency,
            min_count=min_count,
            num_threads=num_threads,
            verbose=verbose,
            progress=progress,
            checkpoint=checkpoint,
            checkpoint_seconds=checkpoint_seconds,
            memory_limit=memory_limit,
            scratch_dir=scratch_dir,
            keep_store=isinstance(source, ChunkStore),
            keep_merges=True,
        )

    def _train(
        self,
        vocab_size: int,
        count: Callable[..., ChunkStore],
        *,
        special_tokens: SpecialTokens | None,
        min_frequency: int,
        num_threads: int | None,
        verbose: bool,
        progress: bool | None,
        checkpoint: StrPath | None,
        checkpoint_seconds: float,
        memory_limit: int | str | None,
        scratch_dir: StrPath | None,
        min_count: int = 1,
        keep_store: bool = False,
        keep_merges: bool = False,
    ) -> None:
        """Every way to train: checks, counts, learns, and replaces the model when nothing can fail any more.

        count: makes the store; takes pattern, special_tokens, num_threads, progress, memory_limit and scratch_dir.
        keep_merges: begin with those there are.
        """
        vocab_size = _as_int(vocab_size, "vocab_size")
        if vocab_size < 256:
            raise VocabSizeError(f"vocab_size must be at least 256, the number of bytes: {vocab_size}")
        min_frequency = _as_int(min_frequency, "min_frequency", least=1)
        min_count = _as_int(min_count, "min_count", least=1)
        if num_threads is not None:
            num_threads = _as_int(num_threads, "num_threads", least=1)
        words = words_of(special_tokens, lambda number: number < 256)
        model = self._model if keep_merges else self._model.without_merges()
        if model.preparation is not None:
            raise ValueError(
                "an imported tokenizer that prepares texts (a normal form, added tokens, a space in front) cannot be "
                "extended: the corpus would be counted as it is; train a new one"
            )
        known = Known(model.numbered_pairs(), model.first_ids)
        fixed = _fixed_special_tokens(model, special_tokens)
        if keep_merges:
            check_room(len(known.pairs), vocab_size, fixed)
        saving = None if checkpoint is None else self._checkpoint(model, fixed, checkpoint, checkpoint_seconds)
        store = count(
            pattern=self._splitter(model),
            special_tokens=words,
            num_threads=num_threads,
            progress=progress,
            memory_limit=memory_limit,
            scratch_dir=scratch_dir,
        )
        if min_count > 1:
            store, whole = store.pruned(min_count), store
            if not keep_store:
                whole.close()
            keep_store = False
        total_bytes = store.total_bytes
        num_merges = min(vocab_size, MAX_ID + 1) - 256
        pairs, counts, removed = learn_merges(
            store,
            num_merges,
            min_frequency=min_frequency,
            known=known,
            verbose=verbose,
            progress=progress,
            memory_limit=memory_limit,
            scratch_dir=scratch_dir,
            close_store=not keep_store,
            checkpoint=saving,
        )
        reached = 256 + len(pairs)
        if special_tokens is None or isinstance(special_tokens, Mapping):
            new = fixed
        else:
            new = {word: number for number, word in enumerate(words, start=reached)}
        statistics = Statistics.of_training(counts, removed, total_bytes)
        trained = model.trained(pairs, statistics).registered(new)
        if reached < vocab_size:
            reason = f"no pair occurs {min_frequency} times" if min_frequency > 1 else "no pair is left to merge"
            if not total_bytes and min_count == 1:
                reason = "there is no text, or the pattern matches none of it"
            message = f"training stopped at a vocabulary of {reached} instead of {vocab_size}: {reason}"
            warnings.warn(message, UserWarning, stacklevel=3)
        self._model = trained

    def _checkpoint(
        self, model: Model, special_tokens: Mapping[str, int], prefix: StrPath, seconds: float
    ) -> Checkpoint:
        """What writes prefix.model while merges are learned. Raises what can be known to be wrong with that."""
        path = minbpe.check_prefix(prefix) + ".model"
        if not (isinstance(seconds, (int, float)) and seconds >= 0):
            raise ValueError(f"checkpoint_seconds must be a number of seconds, 0 or more: {seconds!r}")

        def content(pairs: npt.NDArray[np.uint32]) -> str:
            return self._model_text(model.trained(pairs).registered(special_tokens))

        def save(pairs: npt.NDArray[np.uint32]) -> None:
            text = content(pairs)
            with atomic_write(path) as file:
                file.write(text.encode())

        content(model.numbered_pairs())
        folder = os.path.dirname(os.path.realpath(path))
        if not os.path.isdir(folder):
            raise FileNotFoundError(2, "there is no such folder for a checkpoint", folder)
        return Checkpoint(save, seconds)

    def truncated(self: Self, vocab_size: int) -> Self:
        """A new tokenizer of the same class with the first merges only: what training at this vocab_size gives.

        Special tokens that are numbered directly behind the last merge are numbered behind the new last one; others
        keep their ids. Statistics are truncated too. This tokenizer stays as it is. Raises VocabSizeError if vocab_size
        is below 256 or above what there is, ValueError if merges are not numbered 256, 257, ... as training does,
        SpecialTokenError if two special tokens would get one id.
        """
        model = self._model
        vocab_size = _as_int(vocab_size, "vocab_size")
        reached = 256 + len(model.numbered_pairs())
        if not 256 <= vocab_size <= reached:
            raise VocabSizeError(
                f"vocab_size must lie in 256..{reached}, the ids of the bytes and the merges there are: {vocab_size}"
            )
        tokenizer = copy.copy(self)
        tokenizer._model = model.truncated(vocab_size)
        return tokenizer

    # ---- what training tells about vocabulary sizes

    def compression_curve(self) -> CompressionCurve:
        """How long the training corpus is at every vocabulary size from 256 up to the one trained.

        curve = tokenizer.compression_curve(); curve.tokens[curve.vocab_sizes == 1000]

        Exact: tokens[k] is the number of ids that the first k merges encode the whole corpus to, each text on its own
        and special tokens left out. See CompressionCurve for shapes and types. Raises NoStatisticsError if it is not
        known what training recorded: for merges that were not trained or loaded with their .stats.json file.
        """
        return self._statistics().curve()

    def advise(self, *, hidden_size: int) -> list[SizeAdvice]:
        """Prints what the usual vocabulary sizes, up to the one trained, would give and cost; returns the rows.

        hidden_size: the width of the model that the vocabulary is for. See SizeAdvice. Raises NoStatisticsError as
        compression_curve does, ValueError for a hidden_size below 1.
        """
        hidden_size = _as_int(hidden_size, "hidden_size", least=1)
        rows = advice(self._statistics(), hidden_size)
        print(advice_table(rows, hidden_size))
        return rows

    def _statistics(self) -> Statistics:
        statistics = self._model.statistics
        if statistics is None:
            raise NoStatisticsError(
                "this tokenizer has no statistics of its training: they come with training, and with load if "
                "NAME.stats.json lies beside NAME.model and belongs to it; extend(store, vocab_size) at the size that "
                "it has makes them for any corpus"
            )
        return statistics

    # ---- encoding

    def encode_ordinary(self, text: str) -> list[int]:
        """The ids of a text in which special tokens are text like any other."""
        model = self._model
        text = self._as_encodable(text, model)
        splitter = self._splitter(model)
        if self._encodes_its_own_way:
            return [number for chunk in splitter.split(text) for number in self._encode_chunk(chunk)]
        if model.preparation is not None:
            return self._encode(text, "none")
        return _heard(model.encoder.encode, text, splitter)

    def encode_to_numpy(self, text: str, allowed_special: str | Set[str] = "none_raise") -> npt.NDArray[np.uint32]:
        """The ids of a text as an array, uint32[n]: what encode gives, without making an int of each."""
        model = self._model
        splitter = self._splitter(model)
        arrays = []
        for part in self._parts(text, allowed_special, model):
            if isinstance(part, int):
                arrays.append(np.array([part], dtype=np.uint32))
            elif self._encodes_its_own_way:
                arrays.append(np.array(self.encode_ordinary(_as_str(part)), dtype=np.uint32))
            else:
                arrays.append(_heard(model.encoder.encode_to_numpy, part, splitter))
        return arrays[0] if len(arrays) == 1 else np.concatenate([np.empty(0, np.uint32), *arrays])

    def encode_batch(
        self,
        texts: Iterable[str],
        allowed_special: str | Set[str] = "none_raise",
        num_threads: int | None = None,
    ) -> list[list[int]]:
        """The ids of each of many texts: what encode(text, allowed_special) gives for each.

        num_threads: how many to use, None for one per processor; the result does not depend on it, and no thread
        outlives the call. Lists are made by one thread after another: encode_batch_to_numpy gains more from threads.
        What encode raises for a text is raised with the text's index. A single str is refused with a TypeError.
        """
        model = self._model
        number = _as_thread_count(num_threads)
        parts = self._batch_parts(texts, allowed_special, model)
        if self._encodes_its_own_way:
            return [self._ids_of_parts(each) for each in parts]
        return encode_lists(model.encoder, self._splitter(model), parts, number)

    def encode_ordinary_batch(self, texts: Iterable[str], num_threads: int | None = None) -> list[list[int]]:
        """The ids of each of many texts, whatever they hold being text: encode_batch with allowed_special="none"."""
        return self.encode_batch(texts, "none", num_threads)

    def encode_batch_to_numpy(
        self,
        texts: Iterable[str],
        allowed_special: str | Set[str] = "none_raise",
        num_threads: int | None = None,
    ) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        """The ids of many texts end to end, uint32[n], and offsets, int64[len(texts) + 1].

        The ids of text i are ids[offsets[i]:offsets[i + 1]]. Arguments and errors are encode_batch's.
        """
        model = self._model
        number = _as_thread_count(num_threads)
        parts = self._batch_parts(texts, allowed_special, model)
        if self._encodes_its_own_way:
            arrays = [np.array(self._ids_of_parts(each), np.uint32) for each in parts]
            offsets = np.cumsum([0, *map(len, arrays)], dtype=np.int64)
            return np.concatenate([np.empty(0, np.uint32), *arrays]), offsets
        return encode_flat(model.encoder, self._splitter(model), parts, number)

    def encode_file(
        self,
        path: StrPath | Iterable[StrPath],
        out_path: StrPath,
        *,
        dtype: npt.DTypeLike | None = None,
        eot: int | str | None = None,
        num_threads: int | None = None,
        progress: bool | None = None,
        errors: str = "strict",
        text_field: str = "text",
        separator: str | None = None,
        document_offsets: bool = False,
    ) -> int:
        """Writes the ids of a corpus end to end to a file that np.memmap opens.

        The ids are those of encode_ordinary for each whole document; line ends are not translated. Files may be larger
        than memory; under a pattern that is none of the library's own and without one each document is held as a whole.

        Args:
            path: one path or several, of everything that train_from_files takes. A file of text is a document; so is
                each line of JSONL and each row of Parquet.
            out_path: gets the ids, little-endian and without a header. Beside it out_path + ".idx.json" gets dtype,
                byte_order, count, the model's sha256 and highest id, eot, the sources and cbpe's version. Both are
                written under temporary names, and renamed when they are complete.
            dtype: np.uint16 or np.uint32; None: uint16 if all ids of the tokenizer fit.
            eot: an id, or a special token, that is put behind each document.
            num_threads: how many encode; None for one per processor.
            progress: show a bar; None: if this is a terminal.
            errors: "strict" raises CorpusDecodeError with file and offset for bytes that are not UTF-8, "replace" takes
                U+FFFD in their place; "strict" also raises CorpusFormatError for lines and rows without a text, "skip"
                leaves those out, as ChunkStore.from_files has it, and says in the JSON file how many.
            text_field: the member of a JSON object, or the column, that holds the text.
            separator: what stands between the documents in files of text, such as "<|endoftext|>"; it is no part of
                them. What follows the last one is a document unless it is empty.
            document_offsets: list in the JSON file where each document's ids begin, and where the last one's end.

        Returns the number of ids. Raises OSError, CorpusDecodeError, CorpusFormatError, ValueError for a dtype that is
        too small or no such, UnknownIdError or SpecialTokenError for an eot that the tokenizer does not have,
        ImportError for what needs the extra cbpe[data]; nothing is left behind.
        """
        return encode_files(
            out_path=out_path,
            progress=progress,
            errors=errors,
            document_offsets=document_offsets,
            **self._how_to_encode(path, dtype, eot, num_threads, text_field, separator),
        )

    def encode_shards(
        self,
        paths: StrPath | Iterable[StrPath],
        out_dir: StrPath,
        shard_tokens: int,
        *,
        dtype: npt.DTypeLike | None = None,
        eot: int | str | None = None,
        num_threads: int | None = None,
        progress: bool | None = None,
        errors: str = "strict",
        text_field: str = "text",
        separator: str | None = None,
        force: bool = False,
    ) -> Shards:
        """Writes the ids of a corpus to shards of shard_tokens ids each: what encode_file writes, cut into files.

        A call that fails, or is stopped in any way, keeps the shards that are finished, and the same call again goes on
        behind them, to the same bytes.

        Args:
            out_dir: gets shard-00000.bin, shard-00001.bin, ..., and beside each what encode_file puts beside its file;
                there also stands where in the corpus the shard begins. It is made if it is not there. One process at a
                time may write to it.
            shard_tokens: the number of ids in each shard but the last, which has those that are left.
            force: replace shards that are damaged, or were made of files of other names or sizes, with another model or
                with other settings. Otherwise the first such raises ShardError.
            The others are encode_file's.

        Returns (n_ids, n_shards, n_made): ids and shards in all, and how many shards this call made. Raises what
        encode_file does, and ShardError.
        """
        shard_tokens = _as_int(shard_tokens, "shard_tokens", least=1)
        return encode_shards(
            out_dir=out_dir,
            shard_tokens=shard_tokens,
            progress=progress,
            errors=errors,
            force=force,
            **self._how_to_encode(paths, dtype, eot, num_threads, text_field, separator),
        )

    def count_ids(
        self,
        paths: StrPath | Iterable[StrPath],
        *,
        num_threads: int | None = None,
        progress: bool | None = None,
        errors: str = "strict",
        text_field: str = "text",
        separator: str | None = None,
    ) -> npt.NDArray[np.int64]:
        """How often each id occurs in a corpus: int64[the highest that occurs + 1].

        The ids are those that encode_file would write, and the arguments are its. Memory does not grow with the corpus.
        """
        how = self._how_to_encode(paths, None, None, num_threads, text_field, separator)
        return count_ids(progress=progress, errors=errors, **how)

    def _how_to_encode(
        self,
        paths: StrPath | Iterable[StrPath],
        dtype: npt.DTypeLike | None,
        eot: int | str | None,
        num_threads: int | None,
        text_field: str,
        separator: str | None,
    ) -> dict[str, Any]:
        """What encode_files and its like take beside their own arguments. Raises what encode_file does."""
        model = self._model
        threads = _as_thread_count(num_threads)
        sources = find_sources(paths)
        check_field(sources, text_field)
        if separator is not None and not isinstance(separator, str):
            raise TypeError(f"separator must be a str, not {type(separator).__name__}")
        if separator == "":
            raise ValueError("separator must not be empty: it would be found everywhere")
        kind = _id_type(dtype, None if self._encodes_its_own_way else model.max_id)
        if isinstance(eot, str):
            if eot not in model.specials:
                known = ", ".join(map(repr, list(model.specials)[:8])) or "none"
                raise SpecialTokenError(f"eot is no special token of this tokenizer: {eot!r}; it has {known}")
            eot = model.specials[eot]
        elif eot is not None:
            eot = _as_int(eot, "eot")
            model.decoder.decode_bytes([eot])       # says if there is no such id
        encode, cuttable = self._encoding_of_texts(model)
        return {
            "sources": sources,
            "encode": encode,
            "cuttable": cuttable,
            "text_field": text_field,
            "separator": separator,
            "dtype": kind,
            "eot": eot,
            "num_threads": threads,
            "index": {
                "model_sha256": model.sha256,
                "max_id": model.max_id,
                "eot": eot,
                "sources": [source.name for source in sources],
                "cbpe_version": cbpe.__version__,
            },
        }

    def _encoding_of_texts(self, model: Model) -> tuple[Encode, bool]:
        """What encodes texts in UTF-8, as encode_files wants it, and whether they may be cut."""
        splitter = self._splitter(model)
        encoder = model.encoder

        def encode(texts: list[bytes]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
            if self._encodes_its_own_way:
                lists = [self.encode_ordinary(text.decode()) for text in texts]
                return np.array(list(chain.from_iterable(lists)), np.uint32), np.cumsum([0, *map(len, lists)])
            if model.preparation is not None:
                parts = self._batch_parts([text.decode() for text in texts], "none", model)
                return encode_flat(encoder, splitter, parts, 1)
            return encoder.encode_batch_to_numpy(texts, splitter)

        return encode, splitter.cuttable and model.may_be_cut and not self._encodes_its_own_way

    def count(self, text: str, allowed_special: str | Set[str] = "none_raise") -> int:
        """How many ids encode gives for a text."""
        model = self._model
        splitter = self._splitter(model)
        total = 0
        for part in self._parts(text, allowed_special, model):
            if isinstance(part, int):
                total += 1
            elif self._encodes_its_own_way:
                total += len(self.encode_ordinary(_as_str(part)))
            else:
                total += _heard(model.encoder.count, part, splitter)
        return total

    def _encode(self, text: str, allowed_special: str | Set[str]) -> list[int]:
        """The ids of a text: what a subclass's encode gives."""
        model = self._model
        splitter = self._splitter(model)
        ids: list[int] = []
        for part in self._parts(text, allowed_special, model):
            if isinstance(part, int):
                ids.append(part)
                continue
            if self._encodes_its_own_way:
                more = list(self.encode_ordinary(_as_str(part)))
            else:
                more = _heard(model.encoder.encode, part, splitter)
            if ids:
                ids += more
            else:
                ids = more          # no copy where there is nothing else
        return ids

    def _encode_chunk(self, text_bytes: bytes) -> list[int]:
        """The ids of one chunk, which is not split any more."""
        return self._model.encoder.encode_chunk(bytes(text_bytes))

    def _parts(self, text: str, allowed_special: str | Set[str], model: Model) -> list[str | bytes | int]:
        """The text, cut at the special tokens that are allowed, which come as their ids."""
        return model.cutter(allowed_special).parts(self._as_encodable(text, model))

    def _batch_parts(self, texts: Iterable[str], allowed_special: str | Set[str], model: Model) -> list[Parts]:
        """Each text, or its _parts; what is wrong with one is said with its index."""
        if isinstance(texts, (str, bytes)):
            raise TypeError(f"texts must be a list of str, not a single {type(texts).__name__}")
        texts = list(texts)
        cutter = model.cutter(allowed_special)
        if all_encodable(texts) and cutter.leaves_whole(texts):
            return list[Parts](texts)
        parts = list[Parts]()
        for index, text in enumerate(texts):
            try:
                parts.append(cutter.parts(self._as_encodable(text, model)))
            except DisallowedSpecialTokenError as error:
                raise DisallowedSpecialTokenError(f"text {index} of the batch: {error}") from None
            except UnicodeEncodeError as error:
                error.reason += f" (text {index} of the batch)"
                raise
            except TypeError as error:
                raise TypeError(f"text {index} of the batch: {error}") from None
        return parts

    def _ids_of_parts(self, parts: Parts) -> list[int]:
        """The ids of one text's parts, by a subclass's own way of encoding."""
        ids: list[int] = []
        for part in parts_of(parts):
            ids += [part] if isinstance(part, int) else self.encode_ordinary(_as_str(part))
        return ids

    def _as_encodable(self, text: str, model: Model) -> str:
        """The text, known to have UTF-8. Raises TypeError, UnicodeEncodeError for surrogates if they are not mended."""
        _check_text(text)
        try:
            return encodable(text)
        except UnicodeEncodeError:
            if not model.mends_surrogates:
                raise
            return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    # ---- for other libraries

    def save_huggingface(self, path: StrPath) -> None:
        """Writes a tokenizer.json, which tokenizers and transformers load, with the same ids.

        tokenizer.save_huggingface("mine.json")
        transformers.PreTrainedTokenizerFast(tokenizer_file="mine.json")

        Args:
            path: of the file; or a folder, which gets tokenizer.json, and the tokenizer_config.json that transformers'
                AutoTokenizer.from_pretrained(folder) needs. A folder must be there.

        Special tokens are written as such, with their ids. If tokenizers is installed (the extra cbpe[huggingface]), it
        reads what was made first, and must give the same ids on every token, every special token, and many nasty texts;
        otherwise the file is written with a UserWarning. Raises ExportError, naming a text and the likely reason, if it
        does not, or if the file cannot hold the tokenizer; OSError. Nothing is left behind then.
        """
        from cbpe.formats import huggingface

        huggingface.save(copy.copy(self), path)         # which no other thread changes meanwhile

    # ---- decoding

    def decode(self, ids: Iterable[SupportsIndex] | npt.NDArray[Any], errors: str = "replace") -> str:
        """The text of ids, special tokens included, with U+FFFD in place of what is not UTF-8.

        Args:
            ids: a list, any other iterable of ints, or an array of any integer type.
            errors: what bytes.decode does about bytes that are not UTF-8.

        Raises UnknownIdError, naming the id, for one that the tokenizer does not have; TypeError for what is no int.
        """
        return self.decode_bytes(ids).decode("utf-8", errors)

    def decode_bytes(self, ids: Iterable[SupportsIndex] | npt.NDArray[Any]) -> bytes:
        """The bytes of ids: what decode makes a str of. Part of a character stays what it is."""
        return self._model.decoder.decode_bytes(ids)

    def decode_batch(self, list_of_ids: Iterable[Iterable[SupportsIndex] | npt.NDArray[Any]]) -> list[str]:
        """The text of each of many lists of ids; see decode. An UnknownIdError names the list's index too."""
        decoder = self._model.decoder
        texts = []
        for index, ids in enumerate(list_of_ids):
            try:
                texts.append(decoder.decode_bytes(ids).decode("utf-8", errors="replace"))
            except UnknownIdError as error:
                raise UnknownIdError(f"list {index} of the batch: {error}") from None
            except TypeError as error:
                raise TypeError(f"list {index} of the batch: {error}") from None
        return texts

    def decode_with_offsets(self, ids: Iterable[SupportsIndex] | npt.NDArray[Any]) -> tuple[str, list[int]]:
        """The text of ids, and for each id the index in the text of the first character that it has bytes of.

        As in tiktoken. The ids of "hi猫", if the last character's bytes are three tokens, have offsets 0, 2, 2, 2.
        Raises what decode raises, and UnicodeDecodeError if the ids' bytes are not UTF-8 as a whole.
        """
        model = self._model
        if not isinstance(ids, (list, tuple, np.ndarray)):
            ids = list(ids)
        data = model.decoder.decode_bytes(ids)
        text = data.decode()
        lengths = np.fromiter((len(model.token_bytes[number]) for number in _plain_ints(ids)), np.int64, len(ids))
        # starts[i]: whether a character starts at byte i; one more for an empty token at the end
        starts = np.append((np.frombuffer(data, np.uint8) & 0xC0) != 0x80, True)
        n_started = np.append(0, np.cumsum(starts))
        begins = np.cumsum(lengths) - lengths
        return text, (n_started[begins] - ~starts[begins]).tolist()


def _check_text(text: object) -> None:
    if not isinstance(text, str):
        raise TypeError(f"text must be a str, not {type(text).__name__}")


def _heard(encode: Callable[[str | bytes, Splitter], T], text: str | bytes, splitter: Splitter) -> T:
    """encode(text, splitter), during which Ctrl-C is heard if that may take long."""
    return heeding_ctrl_c(encode, text, splitter) if len(text) >= LONG_TEXT else encode(text, splitter)


def _as_str(text: str | bytes) -> str:
    return text if isinstance(text, str) else text.decode()


def _counted(store: ChunkStore) -> Callable[..., ChunkStore]:
    """What gives the store in place of counting. It raises ChunkStoreError if the pattern is another."""

    def count(pattern: Any, **how: Any) -> ChunkStore:
        wanted = getattr(pattern, "pattern", pattern)
        if store.pattern != wanted:
            raise ChunkStoreError(
                f"the store was counted with pattern {store.pattern!r}, and the tokenizer's is {wanted!r}"
            )
        return store

    return count


def _as_int(value: object, name: str, least: int | None = None) -> int:
    """An int, numpy's included; TypeError for others, ValueError below the least."""
    try:
        number = operator.index(value)      # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name} must be an int, not {value!r}") from None
    if least is not None and number < least:
        raise ValueError(f"{name} must be at least {least}: {number}")
    return number


def _as_thread_count(num_threads: int | None) -> int:
    return thread_count(None if num_threads is None else _as_int(num_threads, "num_threads"))


def _id_type(dtype: npt.DTypeLike | None, max_id: int | None) -> np.dtype[Any]:
    """The little-endian type of a file's ids: None, 65535 -> uint16. max_id None: not known, any of 32 bits."""
    if dtype is None:
        dtype = np.uint16 if max_id is not None and max_id < 1 << 16 else np.uint32
    kind: np.dtype[Any] = np.dtype(dtype)
    if kind not in (np.dtype(np.uint16), np.dtype(np.uint32)):
        raise ValueError(f"dtype must be uint16 or uint32, not {kind}")
    if max_id is not None and max_id > np.iinfo(kind).max:
        raise ValueError(f"dtype {kind} is too small: the tokenizer's highest id is {max_id}")
    little: np.dtype[Any] = kind.newbyteorder("<")
    return little


def _plain_ints(ids: Any) -> list[int]:
    """[np.int64(5), True] -> [5, 1]; they are known to be integers."""
    return ids.tolist() if isinstance(ids, np.ndarray) else [operator.index(number) for number in ids]


def _fixed_special_tokens(model: Model, special_tokens: SpecialTokens | None) -> dict[str, int]:
    """The special tokens whose ids are known before training: those registered or given in a dict; not a list's."""
    if special_tokens is None:
        return model.specials
    return dict(special_tokens) if isinstance(special_tokens, Mapping) else {}


def check_room(n_merges: int, vocab_size: int, special_tokens: Mapping[str, int]) -> None:
    """Raises VocabSizeError if there are more merges, SpecialTokenError if a special token has an id of new ones."""
    if vocab_size < 256 + n_merges:
        raise VocabSizeError(
            f"vocab_size must be at least {256 + n_merges}, what the tokenizer has: {vocab_size}; truncated makes a "
            "smaller one"
        )
    for word, number in special_tokens.items():
        if 256 + n_merges <= number < vocab_size:
            raise SpecialTokenError(
                f"special token {word!r} has the id {number}, which a new merge needs: pass special_tokens=[...] to "
                "number them behind the last merge, or register them with ids from "
                f"{vocab_size} on (what was encoded with the old ids has to be encoded again)"
            )


