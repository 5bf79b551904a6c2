import os

SEGMENT: int

class Workspace:
    mapped: bool
    def __init__(self, mapped: bool = False, scratch_dir: str | os.PathLike[str] | None = None) -> None: ...
