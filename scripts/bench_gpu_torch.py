#!/usr/bin/env python3
"""PyTorch's side of bench_gpu.py: trains one model, compiled, with bfloat16 autocast and float32 masters, and prints a line of JSON.

    bench_gpu_torch.py gpt2|llama
"""
import json
import statistics
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

PEAK_FLOPS = 989e12  # H100, H200: bfloat16
WARM_UP, STEPS = 8, 20


class Gpt2Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        rows, length, dim = x.shape
        q, k, v = (part.view(rows, length, self.heads, -1).transpose(1, 2) for part in self.qkv(self.ln_1(x)).split(dim, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(rows, length, dim))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    vocab, length, layers, dim, batch = 50304, 1024, 12, 768, 32

    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(self.vocab, self.dim), nn.Embedding(self.length, self.dim)
        self.blocks = nn.ModuleList(Gpt2Block(self.dim, 12) for _ in range(self.layers))
        self.norm = nn.LayerNorm(self.dim)

    def forward(self, ids, targets):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(F.linear(self.norm(x), self.wte.weight).view(-1, self.vocab).float(), targets.view(-1))


class LlamaBlock(nn.Module):
    def __init__(self, dim, heads, kv_heads, hidden):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, dim // heads
        self.norm_1, self.norm_2 = nn.RMSNorm(dim, eps=1e-5), nn.RMSNorm(dim, eps=1e-5)
        self.qkv = nn.Linear(dim, (heads + 2 * kv_heads) * self.head_dim, bias=False)
        self.proj = nn.Linear(dim, dim, bias=False)
        self.gate, self.up = nn.Linear(dim, hidden, bias=False), nn.Linear(dim, hidden, bias=False)
        self.down = nn.Linear(hidden, dim, bias=False)

    def forward(self, x, cos, sin):
        rows, length, dim = x.shape
        qkv = self.qkv(self.norm_1(x)).view(rows, length, -1, self.head_dim)
        q, k, v = qkv.split([self.heads, self.kv_heads, self.kv_heads], 2)

        def rotate(t):
            return t * cos + torch.cat([-t[..., self.head_dim // 2:], t[..., :self.head_dim // 2]], -1) * sin
        y = F.scaled_dot_product_attention(rotate(q).transpose(1, 2), rotate(k).transpose(1, 2), v.transpose(1, 2),
                                           is_causal=True, enable_gqa=True)
        x = x + self.proj(y.transpose(1, 2).reshape(rows, length, dim))
        y = self.norm_2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    vocab, length, layers, dim, batch = 128256, 2048, 16, 2048, 4

    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(self.vocab, self.dim)
        self.blocks = nn.ModuleList(LlamaBlock(self.dim, 32, 8, 8192) for _ in range(self.layers))
        self.norm = nn.RMSNorm(self.dim, eps=1e-5)
        head_dim = self.dim // 32
        angles = torch.outer(torch.arange(self.length).float(), 500000.0 ** (-torch.arange(0, head_dim, 2).float() / head_dim))
        angles = torch.cat([angles, angles], -1)[None, :, None]
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, ids, targets):
        x = self.wte(ids)
        cos, sin = self.cos.to(x.dtype), self.sin.to(x.dtype)
        for block in self.blocks:
            x = block(x, cos, sin)
        return F.cross_entropy(F.linear(self.norm(x), self.wte.weight).view(-1, self.vocab).float(), targets.view(-1))


def main():
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = {"gpt2": Gpt2, "llama": Llama}[sys.argv[1]]().to("cuda")
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.02)
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    compiled = torch.compile(model)
    shape = (model.batch, model.length)
    ids, targets = (torch.randint(0, model.vocab, shape, device="cuda") for _ in range(2))

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            loss = compiled(ids, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    times = []
    for i in range(WARM_UP + STEPS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        step()
        end.record()
        torch.cuda.synchronize()
        if i >= WARM_UP:
            times.append(begin.elapsed_time(end))
    ms = statistics.median(times)
    tokens_per_s = model.batch * model.length / ms * 1e3
    flops = 6 * num_parameters + 12 * model.layers * model.dim * model.length
    print(json.dumps(dict(ms=ms, tokens_per_s=tokens_per_s, mfu=f"{100 * tokens_per_s * flops / PEAK_FLOPS:.1f}",
                          peak_gib=torch.cuda.max_memory_allocated() / 2**30, torch=torch.__version__)))


if __name__ == "__main__":
    main()
