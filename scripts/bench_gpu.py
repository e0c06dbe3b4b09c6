#!/usr/bin/env python3
"""Ours against PyTorch on one GPU: tokens/s, MFU, peak memory.

    bench_gpu.py --build DIR [--only gpt2,llama,pipeline] [--steps N] [--no_torch]

PyTorch: torch.compile, bfloat16 autocast, float32 masters, flash attention, fused AdamW, clipping; measured right before
ours. Both see uniformly random tokens. A figure is the median over the steps after the warm-up.
"""
import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

WARM_UP = 8
HEADER_WORDS = 256
GPT2_TOKENS = (20240520, 1, np.uint16)
LLAMA_TOKENS = (20240801, 7, np.uint32)

GPT2 = dict(program="gpt2", model="d12", tokens=GPT2_TOKENS, vocab=50257, batch=32, length=1024, torch="gpt2")
LLAMA = dict(program="llama3", model="1b", tokens=LLAMA_TOKENS, vocab=128256, batch=4, length=2048, torch="llama")


def write_tokens(path, kind, vocab, count):
    magic, version, dtype = kind
    header = np.zeros(HEADER_WORDS, dtype=np.int32)
    header[:3] = magic, version, count
    tokens = np.random.default_rng(1).integers(0, vocab, count, dtype=np.int64).astype(dtype)
    path.write_bytes(header.tobytes() + tokens.tobytes())


def run_ours(build, folder, case, steps, more=(), batch=None, total=None):
    batch = batch or case["batch"]
    total = total or batch * case["length"]
    tokens = folder / f"{case['program']}.bin"
    if not tokens.exists():
        write_tokens(tokens, case["tokens"], case["vocab"], 2_000_000)
    metrics = folder / "metrics.jsonl"
    command = [f"{build}/{case['program']}", "--model", case["model"], "--input_bin", tokens, "--device", "cuda",
               "--dtype", "bfloat16", "--batch_size", batch, "--sequence_length", case["length"], "--total_batch_size", total,
               "--num_iteration", steps + WARM_UP, "--grad_clip", 1, "--metrics_file", metrics, *more]
    run = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{run.stdout}{run.stderr}")
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    ms = statistics.median(line["ms"] for line in lines[WARM_UP:])
    mfu = [word.split()[1] for word in run.stdout.splitlines()[-3].split(" | ") if word.startswith("MFU")]
    return dict(ms=ms, tokens_per_s=total / ms * 1e3, peak_gib=max(line["peak_bytes"] for line in lines) / 2**30,
                loss=lines[-1]["loss"], mfu=mfu[0] if mfu else "")


def run_torch(name):
    script = Path(__file__).with_name("bench_gpu_torch.py")
    run = subprocess.run([sys.executable, script, name], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(run.stdout + run.stderr)
    return json.loads(run.stdout.splitlines()[-1])


def show(name, figures, beside=None):
    ratio = f"{figures['tokens_per_s'] / beside['tokens_per_s']:6.3f}" if beside else "      "
    loss = f"  loss {figures['loss']:.4f}" if "loss" in figures else ""
    print(f"{name:52s} {figures['ms']:9.2f} ms {figures['tokens_per_s']:10.0f} tok/s {ratio}  MFU {figures.get('mfu', '')}  "
          f"peak {figures['peak_gib']:6.2f} GiB{loss}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--only", default="gpt2,llama,pipeline")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--no_torch", action="store_true")
    options = parser.parse_args()
    wanted = options.only.split(",")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for key, case in (("gpt2", GPT2), ("llama", LLAMA)):
            if key not in wanted:
                continue
            title = f"{case['program']} {case['model']} B={case['batch']} T={case['length']} bf16, f32 masters"
            torch = None if options.no_torch else run_torch(case["torch"])
            if torch:
                show(f"{title}: PyTorch compiled", torch)
            show(f"{title}: ours", run_ours(options.build, folder, case, options.steps), torch)
            show(f"{title}: ours --nondeterministic",
                 run_ours(options.build, folder, case, options.steps, ["--nondeterministic"]), torch)
        if "pipeline" in wanted:
            total = 16 * LLAMA["length"]
            one = run_ours(options.build, folder, LLAMA, options.steps, batch=1, total=total)
            show("llama3 1b B=1 M=16: one rank", one)
            for schedule in ("1f1b", "gpipe"):
                four = run_ours(options.build, folder, LLAMA, options.steps, batch=1, total=total,
                                more=["--pipeline_parallel", 4, "--pipeline_schedule", schedule, "--transport", "copy"])
                show(f"llama3 1b B=1 M=16: 4 rank threads, {schedule}, copy", four, one)


if __name__ == "__main__":
    main()
