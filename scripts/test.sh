#!/usr/bin/env bash
# Installs, builds and runs the tests. Further words go to cmake's configuration (CI: -DINFINI_WARNINGS_AS_ERRORS=ON).
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh
scripts/build.sh -DINFINI_BUILD_TESTS=ON "$@"
ctest --test-dir "${INFINI_BUILD_DIR:-build}" --output-on-failure -j "$(nproc)" -LE slow  # slow: whole grids, run by hand
