#!/usr/bin/env bash
# From a fresh machine to a model that learns: installs, builds, makes tokens of this repository's own text, trains a small GPT-2 on them for 200
# steps on the CPU, over two pipeline stages, saves it, and lets it write.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh
echo "quickstart: building"
scripts/build.sh -DINFINI_BUILD_TESTS=OFF

build=${INFINI_BUILD_DIR:-build}
export OMP_WAIT_POLICY=passive  # a thread that waits leaves its core to whatever else runs here
out=$build/quickstart
rm -rf "$out"
mkdir -p "$out"
# In a mixed order that is the same every time, so that the last part, for validation, is like the rest.
find README.md docs infini_train example test scripts -name '*.md' -o -name '*.h' -o -name '*.cc' -o -name '*.sh' |
    LC_ALL=C sort | shuf --random-source=<(yes) >"$out/files.txt"
xargs "$build/tokenize" --output "$out/train.bin" --val_output "$out/val.bin" --val_fraction 0.05 <"$out/files.txt"

echo "quickstart: training (a loss of 5.5 is guessing bytes at random)"
"$build/gpt2" --model tiny --input_bin "$out/train.bin" --input_val_bin "$out/val.bin" --val_loss_every 100 \
    --pipeline_parallel 2 --pipeline_schedule 1f1b --batch_size 4 --sequence_length 128 --total_batch_size 2048 --num_iteration 200 --learning_rate 2e-3 --warmup_iterations 20 --final_lr_fraction 0.1 \
    --weight_decay 0.1 --grad_clip 1 --metrics_file "$out/metrics.jsonl" --save "$out/checkpoints" --report "$out/report.html"
echo "quickstart: writing, from the checkpoint"
"$build/generate" --load "$out/checkpoints" --prompt $'#pragma once\n\n#include <' --text_length 200 --temperature 0.7
echo "quickstart: done; the curves are in $out/report.html, the losses in $out/metrics.jsonl"
