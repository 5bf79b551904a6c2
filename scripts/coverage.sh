#!/usr/bin/env bash
# Which lines of Python, Cython and C headers the test suite runs, and which it does not; the report is in coverage.txt.
#
#     scripts/coverage.sh                          # a short run (tests/budget.py), some minutes; needs gcc
#     scripts/coverage.sh tests/test_stream.py     # arguments go to pytest
#
# Of Python only what runs in the tests' own process is counted, of compiled code what runs in those that they start as well.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/_env.sh

make_environment .venv-coverage ".[test]"
env_bin=$PWD/$env_bin report=$PWD/coverage.txt
"$env_bin/python" -m pip install --quiet --disable-pip-version-check coverage

# A copy of what git holds, built in place: gcc's counters are written beside its object files.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git ls-files -z | tar --null --files-from=- -cf - | tar -xf - -C "$work"
cd "$work"
say "building with counters"
export CBPE_COVERAGE=1
"$env_bin/python" setup.py -q build_ext --inplace
export CBPE_TESTS=short PYTHONPATH=$work COVERAGE_FILE=$work/data
status=0
"$env_bin/python" -m coverage run --source=cbpe -m pytest -q -p no:cacheprovider \
    --ignore=tests/benchmarks --ignore=tests/test_distributed.py --ignore=tests/test_scripts.py "$@" || status=$?
"$env_bin/python" -m coverage report --show-missing >"$report"
"$env_bin/python" scripts/coverage_of_c.py >>"$report"
grep TOTAL "$report"
exit $status
