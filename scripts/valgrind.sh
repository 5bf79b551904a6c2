#!/usr/bin/env bash
# A little of everything that is compiled, under valgrind: reads of memory that is not there or was never written.
#
#     scripts/valgrind.sh      # some minutes; needs valgrind; 1 if something that cbpe's modules did was wrong
#
# Python, numpy and the loader do things that valgrind takes for faults; only those that cbpe makes count. valgrind knows no
# AVX-512, so CBPE_ISA is avx2 if it names nothing else; and numpy's sorting by AVX2 is more than valgrind can hold, so numpy
# goes without.
#
# Recorded: valgrind 3.19.0, Python 3.11.7, gcc 12.2, x86-64: 3.5 minutes, 19,340 errors, of which none was cbpe's. With
# --leak-check=full, no block that is "definitely lost" was taken by one of its modules.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/_env.sh
command -v valgrind >/dev/null || die "no valgrind on PATH"

make_environment .venv-demo .
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
say "checking (scripts/valgrind_program.py)"
# Python's own allocator would hide from valgrind where objects end.
PYTHONMALLOC=malloc CBPE_ISA=${CBPE_ISA:-avx2} NPY_DISABLE_CPU_FEATURES="X86_V3 X86_V4" valgrind --num-callers=30 --log-file="$work/log" \
    "$env_bin/python" scripts/valgrind_program.py "$work"

# A fault is some lines, then one that holds nothing but the process. It is cbpe's if one of its modules is on the stack
# before Python is at work again.
awk 'NF > 1 { ours = ours || (!python && /\/cbpe\/[^ ]*\.so\)/); python = python || /_PyEval_/; fault = fault $0 "\n" }
     NF <= 1 { if (ours) { print fault; n++ } ours = python = 0; fault = "" }
     END { exit n > 0 }' "$work/log" || die "these faults are cbpe's"
say "of what valgrind found ($(grep -o 'ERROR SUMMARY: [0-9]* errors' "$work/log")) nothing is cbpe's"
