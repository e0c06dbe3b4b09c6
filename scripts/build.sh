#!/usr/bin/env bash
# Configures and builds into build/ (or $INFINI_BUILD_DIR), in release. Further words go to cmake's configuration.
set -euo pipefail
cd "$(dirname "$0")/.."

build=${INFINI_BUILD_DIR:-build}
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release "$@" >"/dev/null"
cmake --build "$build"
