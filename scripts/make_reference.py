#!/usr/bin/env python3
"""Reference values for the tests: tiny models, tokens, losses, gradients and greedy texts.

The models are written out in plain PyTorch, float32 on the CPU, on parameters stacked over the layers exactly as
the files hold them, so that a gradient has the layout of its weight.

    make_reference.py                  write everything to test/reference
    make_reference.py --check DIR      recompute what DIR/reference.json claims; print the largest differences

The weights come from numpy's PCG64 with a fixed seed and one thread does the arithmetic: a second run on the same
machine writes the same bytes. Another processor may change the last bits of losses and gradients.
"""
import argparse
import json
import math
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

HEADER_WORDS = 256
GPT2_MAGIC, GPT2_STATE_MAGIC, GPT2_TOKENS_MAGIC = 20240326, 20240327, 20240520
LLAMA_MAGIC, LLAMA_TOKENS_MAGIC = 20240803, 20240801  # a LLaMA debug state has the magic of the weights
FLOAT32_VERSION, BFLOAT16_VERSION = 3, 5
GPT2_HEADER = ("block_size", "vocab_size", "n_layer", "n_head", "n_embd", "padded_vocab_size")  # words 2..7
LLAMA_HEADER = ("block_size", "vocab_size", "n_layer", "n_head", "n_kv_head", "n_embd")  # words 2..7
STEPS, SEED = 12, 1234


# ---- layouts ----
def is_llama(config):
    return "n_kv_head" in config


def layout(c):
    """Names and shapes in the order of the file; the shape of one layer where the layers are stacked."""
    C = c["n_embd"]
    if is_llama(c):
        V, H, qkv_rows = c["vocab_size"], c["ffn_hidden"], (c["n_head"] + 2 * c["n_kv_head"]) * (C // c["n_head"])
        return {"wte": (V, C), "ln_1.weight": (C,), "qkv.weight": (qkv_rows, C), "attn_proj.weight": (C, C), "ln_2.weight": (C,),
                "c_fc.weight": (H, C), "c_fc2.weight": (H, C), "fc_proj.weight": (C, H), "ln_f.weight": (C,), "lm_head": (V, C)}
    return {"wte": (c["padded_vocab_size"], C), "wpe": (c["block_size"], C), "ln_1.weight": (C,), "ln_1.bias": (C,),
            "qkv.weight": (3 * C, C), "qkv.bias": (3 * C,), "attn_proj.weight": (C, C), "attn_proj.bias": (C,),
            "ln_2.weight": (C,), "ln_2.bias": (C,), "fc.weight": (4 * C, C), "fc.bias": (4 * C,),
            "fc_proj.weight": (C, 4 * C), "fc_proj.bias": (C,), "ln_f.weight": (C,), "ln_f.bias": (C,)}


def full_shapes(config):
    """As layout, with the layers in front: all layers of a tensor lie together in the file."""
    one_only = ("wte", "wpe", "ln_f.weight", "ln_f.bias", "lm_head")
    return {name: shape if name in one_only else (config["n_layer"], *shape) for name, shape in layout(config).items()}


# ---- models ----
def attention(q, k, v):
    """q, k, v [B, heads, T, hd]; causal."""
    T = q.shape[2]
    scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[3])
    scores = scores.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), -math.inf)
    return scores.softmax(-1) @ v


def gpt2_logits(p, config, x):
    (B, T), C, heads = x.shape, config["n_embd"], config["n_head"]
    split = lambda t: t.view(B, T, heads, C // heads).transpose(1, 2)
    norm = lambda t, name, i: F.layer_norm(t, (C,), p[name + ".weight"][i], p[name + ".bias"][i], 1e-5)
    linear = lambda t, name, i: F.linear(t, p[name + ".weight"][i], p[name + ".bias"][i])
    h = p["wte"][x] + p["wpe"][:T]
    for i in range(config["n_layer"]):
        q, k, v = map(split, linear(norm(h, "ln_1", i), "qkv", i).split(C, dim=2))
        h = h + linear(attention(q, k, v).transpose(1, 2).reshape(B, T, C), "attn_proj", i)
        h = h + linear(F.gelu(linear(norm(h, "ln_2", i), "fc", i), approximate="tanh"), "fc_proj", i)
    h = F.layer_norm(h, (C,), p["ln_f.weight"], p["ln_f.bias"], 1e-5)
    return F.linear(h, p["wte"][:config["vocab_size"]])  # the padding rows take no part


def rope_frequencies(config):
    """theta^(-2j/hd), [hd/2], with LLaMA-3.1's scaling where the config asks for it."""
    hd = config["n_embd"] // config["n_head"]
    frequencies = [config["rope_theta"] ** (-2 * j / hd) for j in range(hd // 2)]
    s = config.get("rope_scaling")
    if not s:
        return torch.tensor(frequencies, dtype=torch.float32)
    original, low, high = s["original_max_position_embeddings"], s["low_freq_factor"], s["high_freq_factor"]
    scaled = []
    for f in frequencies:
        turns = original * f / (2 * math.pi)  # how often the pair turns within the original context
        keep = min(1.0, max(0.0, (turns - low) / (high - low)))
        scaled.append((1 - keep) * f / s["factor"] + keep * f)
    return torch.tensor(scaled, dtype=torch.float32)


def rotate(t, cos, sin):
    """t [B, T, heads, hd]; elements 2j and 2j+1 are one pair."""
    even, odd = t[..., 0::2], t[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


def llama_logits(p, config, x):
    (B, T), C, heads, kv_heads = x.shape, config["n_embd"], config["n_head"], config["n_kv_head"]
    hd = C // heads
    norm = lambda t, weight: t * torch.rsqrt(t.pow(2).mean(-1, keepdim=True) + config["norm_eps"]) * weight
    angles = torch.outer(torch.arange(T, dtype=torch.float32), rope_frequencies(config))[:, None, :]
    cos, sin = angles.cos(), angles.sin()
    h = p["wte"][x]
    for i in range(config["n_layer"]):
        qkv = F.linear(norm(h, p["ln_1.weight"][i]), p["qkv.weight"][i]).view(B, T, -1, hd)
        q, k, v = qkv.split((heads, kv_heads, kv_heads), dim=2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = (t.repeat_interleave(heads // kv_heads, dim=2) for t in (k, v))
        out = attention(*(t.transpose(1, 2) for t in (q, k, v))).transpose(1, 2).reshape(B, T, C)
        h = h + F.linear(out, p["attn_proj.weight"][i])
        n = norm(h, p["ln_2.weight"][i])
        hidden = F.silu(F.linear(n, p["c_fc2.weight"][i])) * F.linear(n, p["c_fc.weight"][i])
        h = h + F.linear(hidden, p["fc_proj.weight"][i])
    return F.linear(norm(h, p["ln_f.weight"]), p["lm_head"])


def forward(p, config, x, y):
    logits = (llama_logits if is_llama(config) else gpt2_logits)(p, config, x)
    return logits, F.cross_entropy(logits.flatten(0, 1), y.flatten())


# ---- files ----
def to_bfloat16_bits(a):
    """Round to nearest even; the values are finite."""
    bits = np.ascontiguousarray(a, dtype="<f4").view("<u4")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def write(path, words, *arrays):
    header = np.zeros(HEADER_WORDS, "<i4")
    header[:len(words)] = words
    path.write_bytes(b"".join(a.tobytes() for a in (header, *arrays)))


def write_weights(path, params, config, version, float_header=False):
    """float_header: the dialect with float bits in words 8 (FFN multiplier), 10 (norm eps) and 11 (RoPE theta)."""
    number = (lambda x: int(np.float32(x).view(np.int32))) if float_header else int  # int cuts 1e-5 to 0, as upstream does
    common = [config[key] for key in (LLAMA_HEADER if is_llama(config) else GPT2_HEADER)]
    words = [LLAMA_MAGIC if is_llama(config) else GPT2_MAGIC, version, *common]
    if is_llama(config):
        multiplier, eps, theta = (number(config[key]) for key in ("ffn_dim_multiplier", "norm_eps", "rope_theta"))
        words += [multiplier, config["multiple_of"], eps, theta, 0, 4, 3, 1]
    encode = to_bfloat16_bits if version == BFLOAT16_VERSION else lambda a: a.astype("<f4")
    write(path, words, *(encode(params[name].numpy()) for name in layout(config)))


def read_weights(path):
    """-> parameters by name (float32), config."""
    raw = Path(path).read_bytes()
    h = np.frombuffer(raw, "<i4", HEADER_WORDS)
    data = np.frombuffer(raw, "<f4" if h[1] == FLOAT32_VERSION else "<u2", offset=4 * HEADER_WORDS)
    if h[1] == BFLOAT16_VERSION:
        data = (data.astype("<u4") << 16).view("<f4")
    if h[0] == GPT2_MAGIC:
        config = dict(zip(GPT2_HEADER, map(int, h[2:8])))
    elif h[0] == LLAMA_MAGIC:
        config = dict(zip(LLAMA_HEADER, map(int, h[2:8])))
        floats = h.view("<f4")
        is_float = 1e-8 <= floats[10] <= 1e-3
        C, L = config["n_embd"], config["n_layer"]
        qkv_rows = (config["n_head"] + 2 * config["n_kv_head"]) * (C // config["n_head"])
        rest = data.size - 2 * config["vocab_size"] * C - C - L * (2 * C + qkv_rows * C + C * C)
        config |= {"ffn_hidden": rest // (3 * C * L), "multiple_of": int(h[9]),
                   "rope_theta": float(floats[11]) if is_float else float(h[11]),
                   "norm_eps": float(f"{floats[10]:.6g}") if is_float else 1e-5}
    else:
        raise SystemExit(f"{path}: magic {h[0]} is neither GPT-2's nor LLaMA's")
    shapes = full_shapes(config)
    sizes = [math.prod(shape) for shape in shapes.values()]
    if sum(sizes) != data.size:
        raise SystemExit(f"{path}: {data.size} values, wanted {sum(sizes)}")
    pieces = np.split(data, np.cumsum(sizes)[:-1])
    return {name: torch.from_numpy(a.reshape(shapes[name]).copy()) for name, a in zip(shapes, pieces)}, config


def read_tokens(path):
    h = np.fromfile(path, "<i4", HEADER_WORDS)
    return np.fromfile(path, "<u2" if h[0] == GPT2_TOKENS_MAGIC else "<u4", offset=4 * HEADER_WORDS).astype(np.int64)


def write_debug_state(path, config, x, y, logits, loss, grads):
    words = (LLAMA_MAGIC, *x.shape) if is_llama(config) else (GPT2_STATE_MAGIC, 2, *x.shape)
    write(path, words, x.numpy().astype("<i4"), y.numpy().astype("<i4"), logits.numpy().astype("<f4"),
          np.array([loss], "<f4"), *(grads[name].numpy().astype("<f4") for name in layout(config)))


def read_debug_state(path, config):
    h = np.fromfile(path, "<i4", HEADER_WORDS)
    B, T = (int(n) for n in (h[1:3] if is_llama(config) else h[2:4]))
    n, V = B * T, config["vocab_size"]
    ids = torch.from_numpy(np.fromfile(path, "<i4", 2 * n, offset=4 * HEADER_WORDS).astype(np.int64)).view(2, B, T)
    floats = torch.from_numpy(np.fromfile(path, "<f4", offset=4 * HEADER_WORDS + 8 * n))
    return *ids, floats[:n * V].view(B, T, V), floats[n * V].item(), floats[n * V + 1:]


# ---- what is recorded ----
def batch(tokens, B, T, step):
    """Rows in file order: row b of step s starts at token (s B + b) T."""
    rows = torch.from_numpy(np.stack([tokens[(step * B + b) * T:][:T + 1] for b in range(B)]))
    return rows[:, :-1], rows[:, 1:]


def learning_rate(o, step, steps):
    peak, warmup, last = o["lr"], o.get("warmup", 0), o.get("final_lr_fraction", 1.0)
    if step < warmup:
        return peak * (step + 1) / warmup
    return last * peak + (1 - last) * peak * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup))) / 2


def train(params, config, tokens, B, T, steps, o):
    """-> loss, grad_norm (before clipping) and lr of each step."""
    p = {name: t.clone().requires_grad_() for name, t in params.items()}
    if o["name"] == "adamw":
        matrices = [name for name, shape in layout(config).items() if len(shape) >= 2]
        groups = [{"params": [p[n] for n in matrices], "weight_decay": o["weight_decay"]},
                  {"params": [t for n, t in p.items() if n not in matrices], "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, betas=tuple(o["betas"]), eps=o["eps"], foreach=False)
    else:
        optimizer = torch.optim.SGD(p.values(), foreach=False)
    record = {"loss": [], "grad_norm": [], "lr": []}
    for step in range(steps):
        _, loss = forward(p, config, *batch(tokens, B, T, step))
        optimizer.zero_grad()
        loss.backward()
        norm = math.sqrt(sum(t.grad.double().pow(2).sum().item() for t in p.values()))
        if "clip" in o:
            for t in p.values():
                t.grad.mul_(min(1.0, o["clip"] / (norm + 1e-6)))
        lr = learning_rate(o, step, steps)
        for group in optimizer.param_groups:
            group["lr"] = lr
        optimizer.step()
        for key, value in (("loss", loss.item()), ("grad_norm", norm), ("lr", lr)):
            record[key].append(value)
    return record


def greedy(params, config, prompt, num_new):
    """-> all tokens, and the smallest lead of a chosen logit over the next best."""
    tokens, lead = list(prompt), math.inf
    for _ in range(num_new):
        x = torch.tensor([tokens])
        best = forward(params, config, x, x)[0][0, -1].topk(2)
        lead = min(lead, (best.values[0] - best.values[1]).item())
        tokens.append(best.indices[0].item())
    return tokens, lead


def debug_step(params, config, x, y):
    p = {name: t.clone().requires_grad_() for name, t in params.items()}
    logits, loss = forward(p, config, x, y)
    loss.backward()
    return logits.detach(), loss.item(), {name: t.grad for name, t in p.items()}


# ---- making ----
GPT2_TINY = {"block_size": 32, "vocab_size": 131, "padded_vocab_size": 192, "n_layer": 3, "n_head": 2, "n_embd": 32}
LLAMA_TINY = {"block_size": 64, "vocab_size": 131, "n_layer": 3, "n_head": 4, "n_kv_head": 2, "n_embd": 32, "ffn_hidden": 88,
              "multiple_of": 8, "rope_theta": 2000.0, "norm_eps": 1e-5, "ffn_dim_multiplier": 1.0}
LLAMA_FLOAT_HEADER = {"block_size": 64, "vocab_size": 131, "n_layer": 1, "n_head": 2, "n_kv_head": 1, "n_embd": 16, "ffn_hidden": 56,
                      "multiple_of": 8, "rope_theta": 10000.0, "norm_eps": 1e-6, "ffn_dim_multiplier": 1.3}
# With theta 2000 and 8 channels a head the four pairs fall into all three bands: kept, blended, divided, divided.
ROPE_SCALING = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
SGD = {"name": "sgd", "lr": 0.1}
ADAMW = {"name": "adamw", "lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}
OPTIMIZERS = {"sgd": SGD, "adamw": ADAMW,
              "adamw_clip_cosine": ADAMW | {"lr": 2e-3, "clip": 1.8, "warmup": 3, "final_lr_fraction": 0.1}}


def random_weights(config, rng):
    """Wide enough that logits differ clearly; biases and norms are not at their trivial values."""
    params = {}
    for name, shape in full_shapes(config).items():
        is_norm = "ln_" in name and name.endswith("weight")
        scale = 0.1 if is_norm else 0.05 if name.endswith("bias") else 0.15
        a = rng.standard_normal(shape) * scale + is_norm
        if name == "wte" and not is_llama(config):
            a[config["vocab_size"]:] = 0
        params[name] = torch.from_numpy(a.astype(np.float32))
    return params


def make_text(num_bytes):
    """English-looking ASCII from a small grammar and a linear congruential generator."""
    words = [["The", "A", "Every", "One", "That", "This"], ["old", "quiet", "brown", "tall", "merry", "cold", "little", "seventh"],
             ["miller", "heron", "river", "engine", "lantern", "baker", "orchard", "fox"],
             ["carries", "counts", "follows", "mends", "remembers", "paints", "leaves", "finds"],
             ["three", "some", "no", "many", "twelve", "its"], ["stones", "apples", "wheels", "letters", "bells", "shadows", "numbers"],
             ["before dawn", "by the gate", "in the rain", "without a word", "as it did last year", "and then sleeps"]]
    state, text = 1, ""
    while len(text) < num_bytes:
        picks = []
        for choices in words:
            state = (state * 1103515245 + 12345) % 2**31
            picks.append(choices[(state >> 16) % len(choices)])
        text += " ".join(picks) + (".\n" if state & 0x40000 else "; ")
    return text[:num_bytes].encode("ascii")


def make(out):
    out.mkdir(parents=True, exist_ok=True)
    rng = np.random.Generator(np.random.PCG64(SEED))
    text = np.frombuffer(make_text(4000), np.uint8)
    write(out / "text_u16.bin", (GPT2_TOKENS_MAGIC, 1, text.size), text.astype("<u2"))
    write(out / "text_u32.bin", (LLAMA_TOKENS_MAGIC, 7, text.size), text.astype("<u4"))
    models = (("gpt2_tiny", GPT2_TINY, False), ("llama_tiny", LLAMA_TINY, False), ("llama_float_header", LLAMA_FLOAT_HEADER, True))
    for stem, config, float_header in models:
        params = random_weights(config, rng)
        write_weights(out / f"{stem}.bin", params, config, FLOAT32_VERSION, float_header)
        if not float_header:
            write_weights(out / f"{stem}_bf16.bin", params, config, BFLOAT16_VERSION)

    runs = {}

    def record(name, weights, optimizer, **extra_config):
        params, config = read_weights(out / weights)
        config |= extra_config
        data, T = ("text_u32.bin", 40) if is_llama(config) else ("text_u16.bin", 32)
        runs[name] = {"weights": weights, "tokens": data, "config": config, "B": 8, "T": T, "steps": STEPS, "optimizer": optimizer,
                      **train(params, config, read_tokens(out / data), 8, T, STEPS, optimizer)}

    reference = {"about": "made by scripts/make_reference.py: float32 on a CPU with one thread; see README.md", "runs": runs}
    for stem, num_prompt, num_new, T in (("gpt2_tiny", 8, 20, 12), ("llama_tiny", 12, 44, 12)):
        for suffix, optimizer in OPTIMIZERS.items():
            record(f"{stem}_{suffix}", f"{stem}.bin", optimizer)
        record(f"{stem}_bf16_weights_sgd", f"{stem}_bf16.bin", SGD)
        params, config = read_weights(out / f"{stem}.bin")
        x, y = batch(text.astype(np.int64), 2, T, 0)
        write_debug_state(out / f"{stem}_debug_state.bin", config, x, y, *debug_step(params, config, x, y))
        tokens, lead = greedy(params, config, text[:num_prompt].tolist(), num_new)
        reference[f"{stem}_greedy"] = {"prompt": text[:num_prompt].tobytes().decode(), "tokens": tokens, "smallest_lead": lead,
                                       "text": "".join(map(chr, tokens))}
    record("llama_tiny_rope_scaled_adamw", "llama_tiny.bin", ADAMW, rope_scaling=ROPE_SCALING)
    record("llama_float_header_sgd", "llama_float_header.bin", SGD)
    (out / "reference.json").write_text(json.dumps(reference, indent=1) + "\n")
    for path in sorted(out.iterdir()):
        print(f"{path.stat().st_size:8d}  {path.name}")


# ---- checking ----
def check(folder):
    """Recomputes every run, greedy text and debug state of a folder. -> whether all agree."""
    reference = json.loads((folder / "reference.json").read_text())
    good = True

    def row(name, what, difference, limit):
        nonlocal good
        good &= difference <= limit
        print(f"{name:36s} {what:38s} {difference:10.2e}  <= {limit:.0e}  {'ok' if difference <= limit else 'FAILED'}")

    def worst(got, wanted):
        return max(abs(a - b) / abs(b) for a, b in zip(got, wanted, strict=True))

    for name, run in reference["runs"].items():
        stem = name.split("_sgd")[0].split("_adamw")[0]
        params, config = read_weights(folder / run.get("weights", stem + ".bin"))
        row(name, "header fields that differ", sum(config.get(k) != v for k, v in run["config"].items() if k != "rope_scaling"), 0)
        default_tokens = "shakespeare_val_bytes_u32.bin" if is_llama(config) else "shakespeare_bytes.bin"
        got = train(params, run["config"], read_tokens(folder / run.get("tokens", default_tokens)), run["B"], run["T"], run["steps"],
                    run["optimizer"])
        row(name, "loss, relative", worst(got["loss"], run["loss"]), 1e-5)
        row(name, "gradient norm, relative", worst(got["grad_norm"], run["grad_norm"]), 1e-4)
        row(name, "learning rate, relative", worst(got["lr"], run["lr"]), 1e-12)
    for key in (k for k in reference if k.endswith("_greedy")):
        wanted, prompt = reference[key]["tokens"], reference[key]["prompt"].encode()
        tokens, lead = greedy(*read_weights(folder / f"{key.removesuffix('_greedy')}.bin"), prompt, len(wanted) - len(prompt))
        row(key, f"tokens that differ (lead {lead:.1e})", sum(a != b for a, b in zip(tokens, wanted)), 0)
    for path in sorted(folder.glob("*_debug_state.bin")):
        params, config = read_weights(folder / f"{path.name.removesuffix('_debug_state.bin')}.bin")
        x, y, logits, loss, grads = read_debug_state(path, config)
        got_logits, got_loss, got_grads = debug_step(params, config, x, y)
        flat = torch.cat([got_grads[name].flatten() for name in layout(config)])
        row(path.name, "logits, absolute", (got_logits - logits).abs().max().item(), 1e-5)
        row(path.name, "loss, relative", abs(got_loss - loss) / loss, 1e-5)
        row(path.name, "gradients, absolute", (flat - grads).abs().max().item(), 1e-5)
    for path in sorted(folder.glob("*_bf16.bin")):
        (narrow, _), (wide, _) = read_weights(path), read_weights(path.with_name(path.name.replace("_bf16", "")))
        differ = sum((narrow[n] != t.bfloat16().float()).sum().item() for n, t in wide.items())
        row(path.name, "values that are not the rounded ones", differ, 0)
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "test/reference", help="folder to write (test/reference)")
    parser.add_argument("--check", type=Path, metavar="DIR", help="write nothing; verify DIR/reference.json and the files beside it")
    args = parser.parse_args()
    torch.set_num_threads(1)  # the order of sums must not depend on the machine's cores
    torch.use_deterministic_algorithms(True)
    if args.check:
        sys.exit(0 if check(args.check) else 1)
    make(args.out)


if __name__ == "__main__":
    main()
