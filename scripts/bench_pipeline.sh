#!/usr/bin/env bash
# The pipeline benchmark on two quiet cores: GPT-2 124M on two ranks of one thread beside one rank of two, each step against its own simulation
# (pipeline_bench); and the memory of each rank, predicted beside measured.
set -euo pipefail
cd "$(dirname "$0")/.."

export INFINI_BUILD_DIR=${INFINI_BUILD_DIR:-build}
scripts/setup.sh --dev
scripts/build.sh -DINFINI_BUILD_BENCHMARKS=ON
"$INFINI_BUILD_DIR/pipeline_bench"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$INFINI_BUILD_DIR/tokenize" --output "$folder/tokens.bin" README.md docs/*.md >/dev/null
for words in "--pipeline_parallel 1" "--pipeline_parallel 2 --pipeline_schedule gpipe" "--pipeline_parallel 2 --pipeline_schedule 1f1b" \
    "--pipeline_parallel 4 --pipeline_schedule 1f1b" "--pipeline_parallel 2 --pipeline_schedule interleaved"; do
    echo "d12 $words"
    # shellcheck disable=SC2086  # words are several
    "$INFINI_BUILD_DIR/gpt2" --model d12 --input_bin "$folder/tokens.bin" --batch_size 1 --total_batch_size 512 --num_iteration 2 $words | grep '^rank'
done
