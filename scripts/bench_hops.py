#!/usr/bin/env python3
"""A message from process to process, and a sum over processes: ours over gloo (hop_bench) beside PyTorch's gloo.

Both send a tensor back and forth over loopback, the receive posted before the send, and sum a tensor; the sides take
turns. A time is the median over the rounds of a turn, and then the least of the turns. Needs a Python with torch
(scripts/requirements.txt) and a build with -DINFINI_BUILD_BENCHMARKS=ON; run it on a quiet machine with two free cores.

    python scripts/bench_hops.py --build build
"""
import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time

WARM_UP = 5


def torch_rank(rank, world, port, operation, num_bytes, rounds):
    """Seconds of each round, one way where there is a way back. torch is imported where it is used."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    x, y = torch.zeros(num_bytes // 4), torch.zeros(num_bytes // 4)
    seconds = []
    for _ in range(WARM_UP + rounds):
        start = time.perf_counter()
        if operation == "AllReduce":
            dist.all_reduce(x)
        else:
            pending = dist.irecv(y, src=1 - rank)
            if rank == 0:
                dist.send(x, dst=1)
                pending.wait()
            else:
                pending.wait()
                dist.send(x, dst=0)
        seconds.append((time.perf_counter() - start) / (1 if operation == "AllReduce" else 2))
    dist.barrier()
    dist.destroy_process_group()
    return seconds[WARM_UP:]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run_torch(operation, world, num_bytes, rounds):
    """Median in microseconds; the ranks are this script again."""
    words = [operation, str(num_bytes), str(rounds), str(world), str(free_port())]
    ranks = [subprocess.Popen([sys.executable, __file__, "--torch_rank", str(rank), *words], stdout=subprocess.PIPE, text=True)
             for rank in range(world)]
    outputs = [rank.communicate(timeout=300)[0] for rank in ranks]
    if any(rank.returncode != 0 for rank in ranks):
        sys.exit("a rank of torch failed")
    return statistics.median(json.loads(outputs[0])) * 1e6


def run_ours(build, name):
    out = subprocess.run([os.path.join(build, "hop_bench"), f"--benchmark_filter=^{name}/", "--benchmark_format=json"], check=True,
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    return json.loads(out)["benchmarks"][0]


def print_row(build, turns, title, names, torch_words):
    ours, torch, threads, sent = [], [], [], None
    for _ in range(turns):
        row = run_ours(build, names["gloo"])
        ours.append(row["median_us"])
        sent = row.get("sent_to_floor")
        torch.append(run_torch(*torch_words))
        threads.append(run_ours(build, names["threads"])["median_us"])
    cells = [f"{min(threads):.0f}", f"{min(ours):.0f}", f"{min(torch):.0f}", f"{min(ours) / min(torch):.2f}"]
    print(f"| {title} | {' | '.join(cells)} | {'' if sent is None else f'{sent:.3f}'} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build", help="build folder with hop_bench")
    parser.add_argument("--turns", type=int, default=5, help="of each side")
    parser.add_argument("--torch_rank", nargs=6, metavar="WORD", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.torch_rank:
        rank, operation, num_bytes, rounds, world, port = flags.torch_rank
        print(json.dumps(torch_rank(int(rank), int(world), int(port), operation, int(num_bytes), int(rounds))))
        return
    print("| | threads, us | gloo, us | PyTorch's gloo, us | ours / PyTorch's | bytes sent / least |\n|---|---|---|---|---|---|")
    for num_bytes in [4 * 16**n for n in range(7)]:
        names = {side: f"PingPong/{side}/{num_bytes}" for side in ("threads", "gloo")}
        print_row(flags.build, flags.turns, f"a message of {num_bytes} bytes", names, ("PingPong", 2, num_bytes, 200))
    for world in (2, 4):
        for num_bytes in (4096, 16 << 20):
            names = {side: f"AllReduce/{side}/{world}/{num_bytes}" for side in ("threads", "gloo")}
            print_row(flags.build, flags.turns, f"sum of {num_bytes} bytes over {world}", names, ("AllReduce", world, num_bytes, 50))


if __name__ == "__main__":
    main()
