"""cbpe train, for a checkout in which the command is not installed.

    python scripts/train.py corpus.txt --vocab-size 32768 -o models/mine
    python scripts/train.py --help
"""

import sys

from cbpe.cli import main

if __name__ == "__main__":
    main(["train", *sys.argv[1:]])
