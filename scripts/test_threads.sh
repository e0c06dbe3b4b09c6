#!/usr/bin/env bash
# Builds and runs the tests of communication and of the pipeline with the thread sanitizer. One OpenMP thread a rank: the sanitizer does not know how
# OpenMP's own threads wait for each other, so the test that needs several is left out; so are those of gloo that sum and gather millions of numbers, which
# take longer than a rank waits.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh
tests=(comm_channel comm_outcome comm_process_group comm_run_ranks comm_gloo_connections comm_gloo_fault comm_gloo_link comm_gloo_process_group
    nn_parallel_pp_send_recv nn_parallel_pp_pipeline_parallel nn_parallel_pp_pipeline_parallel_input)
cmake --preset tsan >/dev/null
cmake --build --preset tsan --target "${tests[@]/%/_test}"
export TSAN_OPTIONS="suppressions=$PWD/test/support/tsan_suppressions.txt"
for test in "${tests[@]}"; do
    OMP_NUM_THREADS=1 timeout 300 "build-tsan/tests/${test}_test" --gtest_brief=1 --gtest_filter='-*AnyNumberOfThreads*:GlooAllReduceSum.AddsInRankOrder:GlooProcessGroup.GathersAndBroadcasts'
done
