"""Where corpora lie: sources.py finds them, streams.py opens and unpacks them, documents.py takes texts out of them."""

from cbpe.inputs.sources import Source, StrPath, find_sources

__all__ = ["Source", "StrPath", "find_sources"]
