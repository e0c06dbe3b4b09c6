#!/usr/bin/env bash
# Builds with CUDA and NCCL and runs the tests that need GPUs, each on GPUs of its own.
# scripts/test_gpu.sh [--build DIR] [CMAKE WORDS...]    --build: takes this build as it is
set -euo pipefail
cd "$(dirname "$0")/.."

build=${INFINI_BUILD_DIR:-build-cuda}
if [ "${1:-}" = --build ]; then
    build=$2
    shift 2
else
    INFINI_BUILD_DIR=$build scripts/build.sh -DINFINI_USE_CUDA=ON -DINFINI_USE_NCCL=ON -DINFINI_BUILD_TESTS=ON "$@"
fi

mapfile -t gpus < <(nvidia-smi --query-gpu=index --format=csv,noheader)
[ ${#gpus[@]} -gt 0 ] || { echo "test_gpu: nvidia-smi shows no GPU" >&2; exit 1; }
echo "test_gpu: ${#gpus[@]} GPU(s)"

slots=$(printf '{"id":"%s","slots":1},' "${gpus[@]}")
printf '{"version":{"major":1,"minor":0},"local":[{"gpus":[%s]}]}\n' "${slots%,}" >"$build/gpus.json"
ctest --test-dir "$build" -L cuda --output-on-failure -j "${#gpus[@]}" --resource-spec-file gpus.json
ctest --test-dir "$build" -L multi_gpu --output-on-failure  # on all GPUs; on one it says what it would need
