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

# The folder cbpe/ in here has no compiled modules: it must not shadow the installed package. The command `pytest` leaves the current
# folder out of sys.path (python -m pytest would put it in), and PYTHONSAFEPATH does the same for what tests start with python -c.
unset PYTHONPATH
export PYTHONSAFEPATH=1
say "testing $("$env_bin/python" - <<'PY'
import pathlib, sys
sys.path.remove("") if "" in sys.path else None
import cbpe
home = pathlib.Path(cbpe.__file__).parent
if pathlib.Path(sys.prefix) not in home.parents:
    sys.exit(f"error: cbpe is imported from {home}, not from the environment")
print(home)
PY
)"
"$env_bin/pytest" "$@"
