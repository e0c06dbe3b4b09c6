#!/usr/bin/env python3
"""PyTorch's side of bench_multi_gpu.sh: the shape of LLaMA 1B over the GPUs of this machine with torch.distributed.pipelining.

    scripts/run_local.sh -n P -- python3 scripts/bench_multi_gpu_torch.py SCHEDULE ROWS    SCHEDULE: GPipe, 1F1B or Interleaved1F1B

A stage is compiled, with bfloat16 autocast and float32 masters; what goes from stage to stage is bfloat16. M = 4 P
micro-batches, tied head (the first and the last rank add their gradients), clipping by the global norm, fused AdamW.
Rank 0 prints a line of JSON.
"""
import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import get_schedule_class

from bench_gpu_torch import Llama, LlamaBlock

WARM_UP, STEPS = 4, 10


class Stage(nn.Module):
    """The layers [begin, end) of Llama, with the embedding or the head where they begin or end the model."""

    def __init__(self, begin, end):
        super().__init__()
        self.is_first, self.is_last = begin == 0, end == Llama.layers
        if self.is_first or self.is_last:
            self.wte = nn.Embedding(Llama.vocab, Llama.dim)
        self.blocks = nn.ModuleList(LlamaBlock(Llama.dim, 32, 8, 8192) for _ in range(begin, end))
        if self.is_last:
            self.norm = nn.RMSNorm(Llama.dim, eps=1e-5)
        head_dim = Llama.dim // 32
        angles = torch.outer(torch.arange(Llama.length).float(), 500000.0 ** (-torch.arange(0, head_dim, 2).float() / head_dim))
        angles = torch.cat([angles, angles], -1)[None, :, None].bfloat16()
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, x):
        with torch.autocast("cuda", torch.bfloat16):
            if self.is_first:
                x = self.wte(x).bfloat16()
            for block in self.blocks:
                x = block(x, self.cos, self.sin)
            if self.is_last:
                return F.linear(self.norm(x), self.wte.weight)
            return x.bfloat16()


def loss_of(logits, targets):
    return F.cross_entropy(logits.view(-1, Llama.vocab).float(), targets.view(-1))


def main():
    schedule_name, rows = sys.argv[1], int(sys.argv[2])
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    chunks = 2 if schedule_name == "Interleaved1F1B" else 1
    num_stages, num_microbatches = world * chunks, 4 * world
    first, rest = divmod(Llama.layers, num_stages)
    sizes = [first + (stage < rest) for stage in range(num_stages)]
    modules, stages = [], []
    for stage in range(rank, num_stages, world):
        module = Stage(sum(sizes[:stage]), sum(sizes[:stage + 1])).to(device)
        for parameter in module.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)
        modules.append(module)
        stages.append(PipelineStage(torch.compile(module), stage, num_stages, device))
    parameters = [parameter for module in modules for parameter in module.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=True)
    schedule_class = get_schedule_class(schedule_name)
    schedule = schedule_class(stages if chunks > 1 else stages[0], num_microbatches, loss_fn=loss_of)
    tied = dist.new_group([0, world - 1])
    shape = (num_microbatches * rows, Llama.length)
    ids, targets = (torch.randint(0, Llama.vocab, shape, device=device) for _ in range(2))

    def step():
        words = (ids,) if rank == 0 else ()
        if rank == world - 1:
            schedule.step(*words, target=targets, losses=[])
        else:
            schedule.step(*words)
        if rank in (0, world - 1) and world > 1:
            wte = modules[0 if rank == 0 else -1].wte.weight
            dist.all_reduce(wte.grad, group=tied)
        # The tied weight counts once.
        norms = [torch.linalg.vector_norm(p.grad) for module in modules for name, p in module.named_parameters()
                 if not (rank == world - 1 and world > 1 and name == "wte.weight")]
        total = torch.stack(norms).square().sum()
        dist.all_reduce(total)
        scale = torch.clamp(1.0 / (total.sqrt() + 1e-6), max=1.0)
        torch._foreach_mul_([p.grad for p in parameters], scale)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    times = []
    for i in range(WARM_UP + STEPS):
        torch.cuda.synchronize()
        dist.barrier()
        begin = time.perf_counter()
        step()
        torch.cuda.synchronize()
        dist.barrier()
        if i >= WARM_UP:
            times.append((time.perf_counter() - begin) * 1e3)
    peaks = [None] * world
    dist.all_gather_object(peaks, torch.cuda.max_memory_allocated() / 2**30)
    if rank == 0:
        ms = statistics.median(times)
        print(json.dumps(dict(ms=ms, tokens_per_s=shape[0] * shape[1] / ms * 1e3, peak_gib=max(peaks), torch=torch.__version__)))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
