# Sourced by demo.sh, test.sh and others: a virtual environment that holds this checkout's package, built and installed as a user would.
#
#     make_environment .venv-test ".[test]"     # then $env_bin/python has cbpe and its test extra
#
# A second call installs the checkout's present code into the same environment. Written for bash on Linux, macOS and Git's bash on Windows.

say() { printf '%s\n' "== $*"; }
die() { printf '%s\n' "error: $*" >&2; exit 1; }

# Can this interpreter build a C extension in a virtual environment of its own? Prints what it lacks.
python_lacks() {
    "$1" - <<'PY' 2>/dev/null || echo "it does not run, or is older than Python 3.10"
import importlib.util, os, sys, sysconfig
assert sys.version_info >= (3, 10)
if not (importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip")):
    print("it has no venv module (Debian and Ubuntu: apt-get install python3-venv)")
elif not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")):
    print("it has no C headers (Debian and Ubuntu: apt-get install python3-dev)")
PY
}

# Sets $python to $PYTHON, or to the newest interpreter on PATH that lacks nothing.
find_python() {
    local candidate lacks reasons=""
    if [ -n "${PYTHON:-}" ]; then
        lacks=$(python_lacks "$PYTHON")
        [ -z "$lacks" ] || die "PYTHON=$PYTHON cannot be used: $lacks"
        python=$PYTHON
        return
    fi
    for candidate in python3.14 python3.13 python3.12 python3.11 python3.10 python3 python; do
        command -v "$candidate" >/dev/null 2>&1 || continue
        lacks=$(python_lacks "$candidate")
        if [ -z "$lacks" ]; then
            python=$candidate
            return
        fi
        reasons="$reasons
  $candidate: $lacks"
    done
    die "no usable Python 3.10 or later on PATH; set PYTHON to one.${reasons:-}"
}

find_compiler() {
    local candidate
    case "$(uname -s)" in MINGW* | MSYS* | CYGWIN*) return ;; esac      # MSVC is not on PATH; setuptools finds it
    for candidate in "${CC:-cc}" gcc clang; do
        command -v "${candidate%% *}" >/dev/null 2>&1 && return
    done
    die "no C compiler on PATH (Debian and Ubuntu: apt-get install build-essential; macOS: xcode-select --install)"
}

# make_environment DIR REQUIREMENT: sets $env_bin to the directory of DIR's python.
make_environment() {
    local dir=$1 requirement=$2
    find_compiler
    find_python
    local version='import sys; print(*sys.version_info[:2], sep=".")'
    if [ "$("$dir/bin/python" -c "$version" 2>/dev/null || "$dir/Scripts/python" -c "$version" 2>/dev/null)" != "$("$python" -c "$version")" ]; then
        say "making $dir with $("$python" --version)"
        "$python" -m venv --clear "$dir"
    fi
    env_bin=$dir/bin
    [ -d "$env_bin" ] || env_bin=$dir/Scripts
    say "building cbpe and installing it into $dir"
    rm -rf build/lib*      # setuptools would pack modules that the checkout no longer has
    "$env_bin/python" -m pip install --quiet --disable-pip-version-check "$requirement"
}

# watch COMMAND...: runs it with gcc's sanitizers at work in modules that were built with CBPE_SANITIZE. The first fault
# ends the process that makes it. What Python still holds at its end is no leak; libstdc++ must be there before the
# sanitizer, which wants to see the exceptions of other packages. Of the calls that led to an allocation one is kept, which
# takes a sixth less time than all: malloc_context_size=30 shows more.
watch() {
    local library preload=""
    for library in libasan.so libubsan.so libstdc++.so.6; do
        preload+=${preload:+:}$("${CC:-gcc}" -print-file-name="$library")
    done
    env LD_PRELOAD="$preload" \
        ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:malloc_context_size=1 \
        UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 "$@"
}
