#!/usr/bin/env python3
"""Our programs against transformers: the same losses and gradient norms from the same folders, and the same tensors after
every way through our formats.

    python3 -m venv venv && venv/bin/pip install torch==2.15.0 transformers==5.24.0 safetensors==0.8.0 numpy==2.4.6
    venv/bin/python scripts/check_hf.py --build build [FILE.bin ...]

FILE.bin are llm.c weights to start from, besides random models that transformers makes and saves. A trained one shows more
than random ones do: for it the greedy text is compared too. Exits 1 when anything differs.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
from transformers.utils import logging

TOLERANCE = 2e-5  # float32 against float32, summed in another order
STEPS, ROWS = 3, 4
LENGTHS = (1, 2, 7, 64)  # a wrong order of rotary pairs, or of positions, shows only beyond the first token
GPT2_TOKENS, LLAMA_TOKENS = (20240520, 1, np.uint16), (20240801, 7, np.uint32)


def random_models():
    """Name, model, further words for the programs that read its .bin file."""
    torch.manual_seed(1)
    no_tokens = dict(bos_token_id=None, eos_token_id=None)
    gpt2 = dict(vocab_size=131, n_positions=64, n_embd=40, n_layer=3, n_head=5, initializer_range=0.2, **no_tokens)
    llama = dict(vocab_size=131, hidden_size=48, intermediate_size=72, num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2,
                 max_position_embeddings=64, rms_norm_eps=1e-5, initializer_range=0.2, **no_tokens)
    scaling = dict(rope_type="llama3", rope_theta=5000.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192)
    plain = dict(rope_type="default", rope_theta=5000.0)
    yield "gpt2", GPT2LMHeadModel(GPT2Config(**gpt2)), []
    yield "llama", LlamaForCausalLM(LlamaConfig(**llama, rope_parameters=plain)), []
    yield "llama_tied", LlamaForCausalLM(LlamaConfig(**llama, rope_parameters=plain, tie_word_embeddings=True)), []
    yield ("llama_scaled", LlamaForCausalLM(LlamaConfig(**llama, rope_parameters=dict(scaling, factor=32.0))),
           ["--rope_scaling_factor", "32"])
    odd = dict(scaling, factor=4.0, low_freq_factor=1.5, high_freq_factor=3.0, original_max_position_embeddings=64)
    yield "llama_scaled_oddly", LlamaForCausalLM(LlamaConfig(**llama, rope_parameters=odd)), None  # no .bin can say that


class Checker:
    def __init__(self, build, folder):
        self.build, self.folder, self.failures = build.resolve(), folder, 0

    def report(self, what, is_right, detail=""):
        self.failures += not is_right
        print(f"{'ok  ' if is_right else 'FAIL'} {what} {detail}", flush=True)

    def run(self, program, *words):
        environment = dict(os.environ, OMP_WAIT_POLICY="passive")
        result = subprocess.run([self.build / program, *map(str, words)], capture_output=True, timeout=600, env=environment, check=False)
        if result.returncode != 0:
            raise RuntimeError(f"{program} {' '.join(map(str, words))}: {result.stderr.decode(errors='replace').strip()}")
        return result.stdout

    def our_steps(self, family, words, tokens, length):
        magic, version, dtype = GPT2_TOKENS if family == "gpt2" else LLAMA_TOKENS
        header = np.zeros(256, dtype=np.int32)
        header[:3] = magic, version, len(tokens)
        path, metrics = self.folder / "tokens.bin", self.folder / "metrics.jsonl"
        path.write_bytes(header.tobytes() + tokens.astype(dtype).tobytes())
        self.run(family, *words, "--device", "cpu", "--input_bin", path, "--sequence_length", length, "--batch_size", ROWS, "--num_iteration",
                 STEPS, "--learning_rate", 0, "--metrics_file", metrics)
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
        return [line["loss"] for line in lines], [line["grad_norm"] for line in lines]

    def check_steps(self, name, model, words):
        family = "gpt2" if model.config.model_type == "gpt2" else "llama3"
        tokens = np.random.default_rng(3).integers(0, model.config.vocab_size, STEPS * ROWS * max(LENGTHS) + 1)
        worst = 0.0
        model.eval()
        for length in LENGTHS:
            losses, norms = self.our_steps(family, words, tokens, length)
            for step in range(STEPS):
                begin = step * ROWS * length
                x, y = (torch.tensor(tokens[begin + shift:begin + shift + ROWS * length].reshape(ROWS, length)) for shift in (0, 1))
                model.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(x).logits.flatten(0, 1), y.flatten())
                loss.backward()
                norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in model.parameters()])
                for ours, theirs in ((losses[step], loss.item()), (norms[step], norm.item())):
                    worst = max(worst, abs(ours - theirs) / abs(theirs))
        self.report(f"{name}: losses and gradient norms at lengths {LENGTHS}", worst <= TOLERANCE, f"largest relative difference {worst:.1e}")

    def check_round_trip(self, name, folder, bin_words):
        first, back, binary = self.folder / f"{name}.first", self.folder / f"{name}.back", self.folder / f"{name}.bin"
        self.run("export_hf", "--hf_dir", folder, "--output", first, "--max_shard_bytes", 40000)
        self.report(f"{name}: folder -> folder in shards", same_tensors(folder, first), f"{len(list(first.glob('*.safetensors')))} files")
        if bin_words is not None:
            self.run("export_llmc", "--hf_dir", first, "--output", binary)
            self.run("export_hf", "--llmc_filepath", binary, "--output", back, *bin_words)
            self.report(f"{name}: folder -> .bin -> folder", same_tensors(folder, back))
        ids = torch.arange(40).reshape(2, 20)
        logits = [AutoModelForCausalLM.from_pretrained(path)(ids).logits for path in (folder, first)]
        self.report(f"{name}: transformers' logits from both folders", torch.equal(*logits))


def tensors_of(folder):
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors.update(load_file(path))
    return {name.removeprefix("transformer."): values for name, values in tensors.items()}


def same_tensors(a, b):
    a, b = tensors_of(a), tensors_of(b)
    return a.keys() == b.keys() and all(a[name].tobytes() == b[name].tobytes() for name in a)


def check_random(checker, name, model, bin_words):
    folder = checker.folder / name
    model.save_pretrained(folder)
    checker.check_steps(name, model, ["--hf_dir", folder])
    checker.check_round_trip(name, folder, bin_words)


def check_bin(checker, path):
    folder, dtype = checker.folder / f"{path.stem}.hf", "bfloat16" if "bf16" in path.stem else "float32"
    checker.run("export_hf", "--llmc_filepath", path, "--output", folder)
    stored = AutoModelForCausalLM.from_pretrained(folder)
    checker.report(f"{path.name}: dtype in transformers", str(stored.dtype) == f"torch.{dtype}", str(stored.dtype))
    model = stored.float()
    checker.check_steps(path.name, model, ["--hf_dir", folder])
    checker.check_steps(f"{path.name} itself", model, ["--llmc_filepath", path])
    saved, again = checker.folder / f"{path.stem}.saved", checker.folder / f"{path.stem}.again.bin"
    model.to(getattr(torch, dtype)).save_pretrained(saved)
    checker.run("export_llmc", "--hf_dir", saved, "--output", again)
    checker.report(f"{path.name}: .bin -> folder -> transformers -> folder -> .bin", path.read_bytes() == again.read_bytes())
    prompt, count = b"First Citizen:\n", 64
    ids = model.float().generate(torch.tensor([list(prompt)]), max_new_tokens=count, do_sample=False, pad_token_id=0)[0].tolist()
    if max(ids) < 256:
        family = "gpt2" if model.config.model_type == "gpt2" else "llama3"
        out = checker.run(family, "--hf_dir", folder, "--device", "cpu", "--num_iteration", 0, "--prompt", prompt.decode(), "--text_length",
                          count, "--temperature", 0)
        checker.report(f"{path.name}: greedy text", bytes(ids) in out, repr(bytes(ids[len(prompt):])[:40]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True, help="folder with gpt2, llama3, export_hf and export_llmc")
    parser.add_argument("files", nargs="*", type=Path, help="llm.c weights whose tokens are bytes")
    arguments = parser.parse_args()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as folder:
        checker = Checker(arguments.build, Path(folder))
        for name, model, bin_words in random_models():
            check_random(checker, name, model, bin_words)
        for path in arguments.files:
            check_bin(checker, path)
    sys.exit(1 if checker.failures else 0)


if __name__ == "__main__":
    main()
