#!/usr/bin/env bash
# The pipeline over all GPUs of this machine, ours and PyTorch's one after the other: the shape of LLaMA 1B, T=2048, bfloat16, a stage a GPU, 4 micro-batches a
# stage. Ours (pipeline_gpu_bench): one rank, then every schedule over NCCL and over the copy transport, each beside its own simulation, and the hop. PyTorch's
# (torch.distributed.pipelining): GPipe, 1F1B and interleaved. Needs a Python with torch: PYTHON=/path/to/python scripts/bench_multi_gpu.sh [--build DIR] [ROWS]
set -euo pipefail
cd "$(dirname "$0")/.."

build=${INFINI_BUILD_DIR:-build-cuda}
if [ "${1:-}" = --build ]; then
    build=$2
    shift 2
else
    INFINI_BUILD_DIR=$build scripts/build.sh -DINFINI_USE_CUDA=ON -DINFINI_USE_NCCL=ON -DINFINI_BUILD_BENCHMARKS=ON
fi
rows=${1:-4}
gpus=$(nvidia-smi -L | grep -c '^GPU ')
[ "$gpus" -gt 1 ] || { echo "bench_multi_gpu: needs several GPUs, found $gpus" >&2; exit 1; }

for schedule in GPipe 1F1B Interleaved1F1B; do
    echo "PyTorch $schedule: $(scripts/run_local.sh -n "$gpus" -- "${PYTHON:-python3}" scripts/bench_multi_gpu_torch.py "$schedule" "$rows" 2>/dev/null | tail -1)"
done
"$build/pipeline_gpu_bench" --rows="$rows"
