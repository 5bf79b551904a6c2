#!/usr/bin/env bash
# Which lines of Python, Cython and C headers the test suite runs, and which it does not; the report is in coverage.txt.
#
#     scripts/coverage.sh                              # a short run (tests/budget.py) on all cores: 25 minutes; needs gcc
#     scripts/coverage.sh -n 0 tests/test_stream.py    # arguments go to pytest
#     CBPE_TESTS=long scripts/coverage.sh              # all tests, with all their examples
#
# What runs in processes that the tests start is counted as well, unless they are killed or end by os._exit.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/_env.sh

# A copy of what git holds is built and installed: gcc's counters are written beside its object files.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git ls-files -z | tar --null --files-from=- -cf - | tar -xf - -C "$work"
checkout=$PWD
cd "$work"
export CBPE_COVERAGE=1 CBPE_TESTS=${CBPE_TESTS:-short} COVERAGE_FILE=$work/data/python GCOV_ERROR_FILE=$work/data/gcov
mkdir data
make_environment "$checkout/.venv-coverage" ".[test]"
"$env_bin/python" -m pip install --quiet --disable-pip-version-check "coverage>=7.10"

cd "$checkout"
unset PYTHONPATH
status=0
"$env_bin/coverage" run "$env_bin/pytest" -q -n logical --dist worksteal --ignore=tests/benchmarks "$@" || status=$?
"$env_bin/coverage" combine --quiet
"$env_bin/coverage" json --quiet -o "$work/data/python.json"
(cd "$work" && "$env_bin/python" scripts/coverage_report.py data/python.json) >coverage.txt
tail -n 3 coverage.txt
exit $status
