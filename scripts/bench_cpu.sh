#!/usr/bin/env bash
# The CPU benchmark: ./gpt2 --model d12 in float32 and bfloat16 against PyTorch, one after the other on this machine, as ratios; and the
# kernels alone (Google Benchmark). Needs a Python with torch (scripts/requirements.txt): PYTHON=/path/to/python scripts/bench_cpu.sh
set -euo pipefail
cd "$(dirname "$0")/.."

export INFINI_BUILD_DIR=${INFINI_BUILD_DIR:-build}
scripts/setup.sh --dev
scripts/build.sh -DINFINI_BUILD_BENCHMARKS=ON
"${PYTHON:-python3}" scripts/bench_cpu.py --build "$INFINI_BUILD_DIR" "$@"
for bench in gemm_bench kernels_bench; do
    "$INFINI_BUILD_DIR/$bench" --benchmark_min_time=0.5
done
