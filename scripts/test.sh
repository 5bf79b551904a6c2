#!/usr/bin/env bash
# The whole test suite in one command, run against the package as it is installed and not against the source folder.
#
#     scripts/test.sh                       # everything, on all cores
#     scripts/test.sh -n 0 -k encode -x     # arguments go to pytest: one process, some tests
#     ENV=.venv-312 PYTHON=python3.12 CBPE_TESTS=short scripts/test.sh               # what "short" is: tests/budget.py
#     ENV=.venv-debug CBPE_DEBUG=1 scripts/test.sh                                   # what these are: setup.py
#     ENV=.venv-sanitize CBPE_SANITIZE=address,undefined scripts/test.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/_env.sh

make_environment "${ENV:-.venv-test}" ".[test]"

# The folder cbpe/ in here has no compiled modules and must not shadow the installed package: the command `pytest` leaves the
# current folder out of sys.path, where `python -m pytest` would put it in. tests/conftest.py sees to what the tests start.
unset PYTHONPATH
if [ -n "${CBPE_SANITIZE:-}" ]; then
    watch "$env_bin/pytest" -n logical --dist worksteal "$@"
else
    "$env_bin/pytest" -n logical --dist worksteal "$@"
fi
