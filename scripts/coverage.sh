#!/usr/bin/env bash
# Which lines of Python and Cython the test suite runs, and which it does not.
#
#     scripts/coverage.sh                          # a short run (tests/budget.py); some ten minutes
#     scripts/coverage.sh tests/test_stream.py     # arguments go to pytest
#
# Neither the lines of C headers are counted, nor what runs in processes that tests start. Counting slows
# loops down by much. The report is in coverage.txt.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/_env.sh

make_environment .venv-coverage ".[test]"
env_bin=$PWD/$env_bin report=$PWD/coverage.txt
"$env_bin/python" -m pip install --quiet --disable-pip-version-check coverage setuptools "Cython>=3.1"

# Cython counts where a module's C lies beside it: in a copy of what git holds, built in place.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git ls-files -z | tar --null --files-from=- -cf - | tar -xf - -C "$work"
cd "$work"
say "building with lines traced"
export CBPE_COVERAGE=1
"$env_bin/python" setup.py -q build_ext --inplace
cat >coveragerc <<'INI'
[run]
plugins = Cython.Coverage
source = cbpe
[report]
exclude_also =
    if TYPE_CHECKING:
    @overload
INI
export CBPE_TESTS=short PYTHONPATH=$work COVERAGE_FILE=$work/data
status=0
"$env_bin/python" -m coverage run --rcfile=coveragerc -m pytest -q -p no:cacheprovider \
    --ignore=tests/benchmarks --ignore=tests/test_distributed.py --ignore=tests/test_scripts.py "$@" || status=$?
"$env_bin/python" -m coverage report --rcfile=coveragerc --show-missing >"$report"
tail -n 1 "$report"
exit $status
