"""cbpe encode, for a checkout in which the command is not installed.

    python scripts/encode.py corpus.txt -m models/mine.model -o corpus.bin
    python scripts/encode.py --help
"""

import sys

from cbpe.cli import main

if __name__ == "__main__":
    main(["encode", *sys.argv[1:]])
