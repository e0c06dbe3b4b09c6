#!/usr/bin/env python3
"""Our side of the CPU benchmark, PyTorch's beside it, and the ratios. Run by bench_cpu.sh; run it on a quiet machine.

Both train GPT-2 124M with AdamW on B=4, T=64; the first steps are warm-up, the median of the rest counts.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

TORCH_SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bench_torch_cpu.py")
WARM_UP = 3


def write_tokens(path, count, vocab):
    """Pseudo-random token ids as a GPT-2 token file: a loss is not what is measured."""
    header = [20240520, 1, count] + [0] * 253
    state, tokens = 1, bytearray()
    for _ in range(count):
        state = (state * 1103515245 + 12345) % 2**31
        tokens += (state // 8 % vocab).to_bytes(2, "little")
    with open(path, "wb") as file:
        file.write(b"".join(word.to_bytes(4, "little") for word in header) + bytes(tokens))


def run_ours(build, dtype, threads, steps):
    with tempfile.TemporaryDirectory() as folder:
        tokens, metrics = os.path.join(folder, "tokens.bin"), os.path.join(folder, "metrics.jsonl")
        write_tokens(tokens, 256 * (steps + 1), 50257)
        child = subprocess.Popen(
            [os.path.join(build, "gpt2"), "--model", "d12", "--input_bin", tokens, "--batch_size", "4", "--sequence_length", "64",
             "--num_iteration", str(steps), "--dtype", dtype, "--threads_per_rank", str(threads), "--metrics_file", metrics],
            stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        if status != 0:
            sys.exit(f"gpt2 ended with status {status}")
        with open(metrics) as file:
            ms = [json.loads(line)["ms"] for line in file][WARM_UP:]
    median = statistics.median(ms)
    return {"name": f"infini_train {dtype}", "ms_median": median, "ms_min": min(ms), "tokens_per_s": 256e3 / median,
            "peak_rss_gib": usage.ru_maxrss / 2**20}


def run_torch(dtype, threads):
    out = subprocess.run([sys.executable, TORCH_SCRIPT, "--model", "gpt2", "--dtype", dtype, "--threads", str(threads)],
                         check=True, capture_output=True, text=True).stdout
    rows = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    rows = [row for row in rows if "tokens_per_s" in row]
    return max(rows, key=lambda row: row["tokens_per_s"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build", help="build folder with gpt2")
    parser.add_argument("--threads", type=int, default=2, help="threads of each side")
    parser.add_argument("--steps", type=int, default=20, help="steps of ours, the first %d of them warm-up" % WARM_UP)
    parser.add_argument("--no_torch", action="store_true", help="only our side")
    args = parser.parse_args()
    print("| | ms a step (median, least) | tokens/s | peak RSS GiB |\n|---|---|---|---|")
    rows = {}
    for dtype in ("float32", "bfloat16"):
        runs = [("ours", run_ours(args.build, dtype, args.threads, args.steps))]
        if not args.no_torch:
            runs.append(("torch", run_torch(dtype, args.threads)))
        for side, row in runs:
            rows[side, dtype] = row
            print(f"| {row['name']} | {row['ms_median']:.0f}, {row['ms_min']:.0f} | {row['tokens_per_s']:.0f} | "
                  f"{row['peak_rss_gib']:.2f} |", flush=True)
    rate = lambda side, dtype: rows[side, dtype]["tokens_per_s"]
    print(f"\nbfloat16 / float32, ours: {rate('ours', 'bfloat16') / rate('ours', 'float32'):.2f}")
    if not args.no_torch:
        for dtype in ("float32", "bfloat16"):
            print(f"ours / PyTorch, {dtype}: {rate('ours', dtype) / rate('torch', dtype):.2f}")


if __name__ == "__main__":
    main()
