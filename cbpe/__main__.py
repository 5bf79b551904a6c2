"""python -m cbpe: the command cbpe, where it is not on PATH."""

from cbpe.cli import main

if __name__ == "__main__":
    main()
