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
pytest=("$env_bin/pytest" -n logical --dist worksteal)
if [ -z "${CBPE_SANITIZE:-}" ]; then
    "${pytest[@]}" "$@"
else
    # Python's own allocator hides from a sanitizer where small objects end; without it all that Python does takes twice as
    # long. So tests of the C code go without it, and those that are Python for the most part do not.
    native=0 rest=0
    PYTHONMALLOC=malloc watch "${pytest[@]}" -m native "$@" || native=$?
    watch "${pytest[@]}" -m "not native" "$@" || rest=$?
    [ $native -ne 5 ] || native=$rest       # 5: there are none of these among the tests that were asked for
    [ $rest -ne 5 ] || rest=$native
    exit $((native > rest ? native : rest))
fi
