#!/usr/bin/env bash
# The whole test suite in one command, run against the package as it is installed and not against the source folder.
#
#     scripts/test.sh                       # everything
#     scripts/test.sh -k encode -x          # arguments go to pytest
#     ENV=.venv-312 PYTHON=python3.12 scripts/test.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/_env.sh

make_environment "${ENV:-.venv-test}" ".[test]"

# The folder cbpe/ in here has no compiled modules and must not shadow the installed package: the command `pytest` leaves the
# current folder out of sys.path, where `python -m pytest` would put it in. tests/conftest.py sees to what the tests start.
unset PYTHONPATH
"$env_bin/pytest" "$@"
