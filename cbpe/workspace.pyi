import os
from typing import final

SEGMENT: int

@final
class Workspace:
    mapped: bool
    def __new__(cls, mapped: bool = False, scratch_dir: str | os.PathLike[str] | None = None) -> Workspace: ...
