"""Splitting a text into the chunks that merges never cross: see split.pyx."""

from cbpe.splitting.split import REGEX_VERSION, UNICODE_EDITION, Splitter, splitter_for
from cbpe.splitting.stages import Stage, Stages

__all__ = ["REGEX_VERSION", "UNICODE_EDITION", "Splitter", "Stage", "Stages", "splitter_for"]
