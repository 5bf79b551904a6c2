#!/usr/bin/env bash
# The whole of cbpe in one command on a fresh machine: build, train on the Python standard library's own sources, encode, decode.
#
#     scripts/demo.sh                       # Python 3.10 or later with venv, and a C compiler, are all it needs
#     PYTHON=python3.12 scripts/demo.sh     # with this interpreter
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/_env.sh

make_environment .venv-demo .
say "training, encoding, decoding (scripts/demo.py)"
"$env_bin/python" scripts/demo.py
