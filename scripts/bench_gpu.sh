#!/usr/bin/env bash
# The GPU benchmark: GPT-2 124M and the shape of LLaMA 1B in bfloat16 with float32 masters, PyTorch and ours one after the other on GPU 0, as
# ratios; and what four rank threads on one GPU cost. Needs a Python with torch: PYTHON=/path/to/python scripts/bench_gpu.sh [--build DIR] [WORDS of bench_gpu.py]
set -euo pipefail
cd "$(dirname "$0")/.."

build=${INFINI_BUILD_DIR:-build-cuda}
if [ "${1:-}" = --build ]; then
    build=$2
    shift 2
else
    INFINI_BUILD_DIR=$build scripts/build.sh -DINFINI_USE_CUDA=ON -DINFINI_USE_NCCL=ON
fi
"${PYTHON:-python3}" scripts/bench_gpu.py --build "$build" "$@"
