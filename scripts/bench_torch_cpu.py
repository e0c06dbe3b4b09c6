#!/usr/bin/env python3
"""PyTorch's side of the CPU benchmark: milliseconds a training step, tokens a second, peak memory.

Models: GPT-2 124M (B=4, T=64) and a LLaMA of 8.4 million parameters (B=8, T=128), random weights and tokens, AdamW.
Every configuration runs in a process of its own, so that the peak memory is its own, with malloc told to keep its
memory (PyTorch is several times slower without). One JSON line each. Run it on a quiet machine: cores_used well below
threads says that it was not. --repeat takes the best of several processes.

    bench_torch_cpu.py --threads 2
    bench_torch_cpu.py --model gpt2 --dtype float32 --mode eager --repeat 3
"""
import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time

KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(4 << 30), "MALLOC_TRIM_THRESHOLD_": str(8 << 30), "MALLOC_TOP_PAD_": str(64 << 20)}
SHAPES = {"gpt2": {"B": 4, "T": 64, "V": 50304, "L": 12, "C": 768, "heads": 12},
          "llama": {"B": 8, "T": 128, "V": 4096, "L": 8, "C": 256, "heads": 8, "kv_heads": 4, "hidden": 768}}


def build(model_name):
    """-> the module: (x, y) -> loss. torch is imported here so that the parent process stays small: a child's peak
    memory starts at its parent's."""
    import torch
    from torch import nn
    import torch.nn.functional as F

    shape = SHAPES[model_name]
    V, L, C, heads = (shape[key] for key in ("V", "L", "C", "heads"))
    hd = C // heads

    class Gpt2Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(C), nn.LayerNorm(C)
            self.qkv, self.proj = nn.Linear(C, 3 * C), nn.Linear(C, C)
            self.fc, self.fc_proj = nn.Linear(C, 4 * C), nn.Linear(4 * C, C)

        def forward(self, x):
            B, T, _ = x.shape
            q, k, v = (t.view(B, T, heads, hd).transpose(1, 2) for t in self.qkv(self.ln_1(x)).split(C, dim=2))
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(out.transpose(1, 2).reshape(B, T, C))
            return x + self.fc_proj(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))

    class Gpt2(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(V, C), nn.Embedding(1024, C)
            self.blocks, self.ln_f = nn.ModuleList(Gpt2Block() for _ in range(L)), nn.LayerNorm(C)

        def forward(self, x, y):
            h = self.wte(x) + self.wpe.weight[:x.shape[1]]
            for block in self.blocks:
                h = block(h)
            logits = F.linear(self.ln_f(h), self.wte.weight)
            return F.cross_entropy(logits.view(-1, V).float(), y.view(-1))

    class LlamaBlock(nn.Module):
        def __init__(self):
            super().__init__()
            self.kv_heads, hidden = shape["kv_heads"], shape["hidden"]
            self.ln_1, self.ln_2 = nn.RMSNorm(C, eps=1e-5), nn.RMSNorm(C, eps=1e-5)
            self.qkv = nn.Linear(C, (heads + 2 * self.kv_heads) * hd, bias=False)
            self.proj = nn.Linear(C, C, bias=False)
            self.gate, self.up = nn.Linear(C, hidden, bias=False), nn.Linear(C, hidden, bias=False)
            self.down = nn.Linear(hidden, C, bias=False)

        def forward(self, x, cos, sin):
            B, T, _ = x.shape
            q, k, v = self.qkv(self.ln_1(x)).view(B, T, -1, hd).split((heads, self.kv_heads, self.kv_heads), dim=2)

            def rotate(t):
                even, odd = t[..., 0::2], t[..., 1::2]
                return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)

            q, k, v = (t.transpose(1, 2) for t in (rotate(q), rotate(k), v))
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = x + self.proj(out.transpose(1, 2).reshape(B, T, C))
            n = self.ln_2(x)
            return x + self.down(F.silu(self.gate(n)) * self.up(n))

    class Llama(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.lm_head = nn.Embedding(V, C), nn.Linear(C, V, bias=False)
            self.blocks, self.ln_f = nn.ModuleList(LlamaBlock() for _ in range(L)), nn.RMSNorm(C, eps=1e-5)
            angles = torch.outer(torch.arange(shape["T"]).float(), 500000.0 ** (-torch.arange(0, hd, 2).float() / hd))
            self.register_buffer("cos", angles.cos()[:, None, :])
            self.register_buffer("sin", angles.sin()[:, None, :])

        def forward(self, x, y):
            h = self.wte(x)
            cos, sin = self.cos, self.sin
            if torch.is_autocast_enabled("cpu"):
                cos, sin = cos.bfloat16(), sin.bfloat16()
            for block in self.blocks:
                h = block(h, cos, sin)
            return F.cross_entropy(self.lm_head(self.ln_f(h)).view(-1, V).float(), y.view(-1))

    torch.manual_seed(0)
    model = {"gpt2": Gpt2, "llama": Llama}[model_name]()
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.normal_(p, std=0.02)
    return model


def run_child(args):
    """One configuration in this process; prints its JSON line."""
    import resource

    import torch

    torch.set_num_threads(args.threads)
    model_name, dtype, mode, optimizer_kind = args.child.split(",")
    shape, model = SHAPES[model_name], build(model_name)
    B, T = shape["B"], shape["T"]
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
                                  lr=1e-4, fused=optimizer_kind == "fused", foreach=optimizer_kind == "foreach")
    forward = torch.compile(model) if mode == "compile" else model
    x, y = torch.randint(0, shape["V"], (2, B, T))
    times = {"forward": [], "backward": [], "optimizer": [], "step": []}
    for step in range(args.warmup + args.steps):
        if step == args.warmup:
            cpu_start, wall_start = time.process_time(), time.perf_counter()
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
            loss = forward(x, y)
        after_forward = time.perf_counter()
        loss.backward()
        after_backward = time.perf_counter()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        end = time.perf_counter()
        if step >= args.warmup:
            marks = (start, after_forward, after_backward, end)
            for key, (begin, finish) in zip(times, (*itertools.pairwise(marks), (start, end))):
                times[key].append(1000 * (finish - begin))
    cores = (time.process_time() - cpu_start) / (time.perf_counter() - wall_start)
    median = {key: statistics.median(values) for key, values in times.items()}
    print(json.dumps({
        "name": f"{model_name} B={B} T={T} {dtype} {mode}", "optimizer": f"AdamW {optimizer_kind}",
        "ms_median": round(median["step"], 1), "ms_min": round(min(times["step"]), 1),
        "tokens_per_s": round(1000 * B * T / median["step"], 1), "forward_ms": round(median["forward"], 1),
        "backward_ms": round(median["backward"], 1), "optimizer_ms": round(median["optimizer"], 1),
        "peak_rss_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
        "threads": args.threads, "cores_used": round(cores, 2),
        "parameters": sum(p.numel() for p in model.parameters()), "loss": round(loss.item(), 4), "torch": torch.__version__}))


def start_child(args, child):
    """-> the result of one configuration, or {"name", "error"} with the last line that it wrote."""
    environment = os.environ | {"OMP_NUM_THREADS": str(args.threads)} | ({} if args.default_malloc else KEEP_MEMORY)
    command = [sys.executable, os.path.abspath(__file__), "--child", child, "--threads", str(args.threads), "--steps", str(args.steps),
               "--warmup", str(args.warmup)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        return {"name": child, "error": (done.stderr.strip().splitlines() or ["no message"])[-1]}
    return json.loads(done.stdout.splitlines()[-1]) | {"malloc": "default" if args.default_malloc else "keeps its memory"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", nargs="+", choices=SHAPES, default=list(SHAPES), help="which models (default: all)")
    parser.add_argument("--dtype", nargs="+", choices=("float32", "bfloat16"), default=("float32", "bfloat16"),
                        help="bfloat16 is autocast over float32 weights (default: both)")
    parser.add_argument("--mode", nargs="+", choices=("eager", "compile"), default=("eager", "compile"),
                        help="compile needs a C++ compiler and Python's headers (default: both)")
    parser.add_argument("--optimizer", nargs="+", choices=("fused", "foreach", "loop"), default=("fused",),
                        help="form of AdamW (default: fused)")
    parser.add_argument("--threads", type=int, default=2, help="threads of PyTorch (default: 2)")
    parser.add_argument("--steps", type=int, default=15, help="measured steps (default: 15)")
    parser.add_argument("--warmup", type=int, default=5, help="steps before them (default: 5)")
    parser.add_argument("--repeat", type=int, default=1,
                        help="processes a configuration; the one with the best median is shown (default: 1)")
    parser.add_argument("--default-malloc", action="store_true", help="leave malloc as it is")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        run_child(args)
        return
    for configuration in itertools.product(args.model, args.dtype, args.mode, args.optimizer):
        results = [start_child(args, ",".join(configuration)) for _ in range(args.repeat)]
        print(json.dumps(min(results, key=lambda r: r.get("ms_median", float("inf")))), flush=True)


if __name__ == "__main__":
    main()
