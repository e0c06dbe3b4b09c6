#!/usr/bin/env python3
"""Our tokenizers against tiktoken and tokenizers: the same ids on many texts, and how fast each is on one thread.

    python3 -m venv venv && venv/bin/pip install tiktoken==0.14.0 tokenizers==0.23.3
    venv/bin/python scripts/check_tokenizers.py --tool build/tests/tokenizer_tool --vocabularies DIR [FILE...]

DIR has gpt2/vocab.json, gpt2/merges.txt, cl100k_base.tiktoken and, where there is one, encode_cases.json
([{"text", "gpt2", "cl100k"}]). The texts are the cases, random ones of many scripts, and the FILEs as a whole and in lines; speed is
measured on each FILE. All formats that the tokenizers come in are made from DIR.

Characters that are younger than Unicode 14, the version of PCRE2 in Debian 12 and Ubuntu 24.04, are left out of the texts, since the others
know more letters; every code point is compared at the end, and there the young ones may differ. Exits 1 when anything else does.
"""
import argparse
import base64
import json
import random
import struct
import subprocess
import sys
import tempfile
import time
import unicodedata
from pathlib import Path

import tiktoken
from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers

# As published: GPT-2's encoder.py, LLaMA-3's tokenizer.py.
GPT2_PATTERN = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
LLAMA3_PATTERN = (r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"""
                  r"""|\s*[\r\n]+|\s+(?!\S)|\s+""")
# What tiktoken 0.14 has for cl100k.
CL100K_PATTERN = (r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"""
                  r"""|\s+(?!\S)|\s""")
CL100K_SPECIAL = {"<|endoftext|>": 100257, "<|fim_prefix|>": 100258, "<|fim_middle|>": 100259, "<|fim_suffix|>": 100260,
                  "<|endofprompt|>": 100276}
LLAMA3_RANKS, LLMC_MAGIC = 128000, 20240328
SCRIPTS = [(0x20, 0x7E), (0x20, 0x7E), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x52F), (0x590, 0x5FF), (0x600, 0x6FF),
           (0x700, 0x8FF), (0x900, 0x97F), (0x980, 0xDFF), (0xE00, 0xEFF), (0xF00, 0xFFF), (0x10A0, 0x11FF), (0x1200, 0x139F),
           (0x13A0, 0x167F), (0x1680, 0x1CFF), (0x1D00, 0x1FFF), (0x2000, 0x206F), (0x2070, 0x218F), (0x2190, 0x2BFF), (0x2C00, 0x2FFF),
           (0x3000, 0x30FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xA000, 0xABFF), (0xAC00, 0xD7FF), (0xE000, 0xFDFF), (0xFE00, 0xFFFF),
           (0x10000, 0x10FFF), (0x11000, 0x12FFF), (0x16800, 0x1BCFF), (0x1D000, 0x1D7FF), (0x1E000, 0x1F9FF), (0x1F300, 0x1F6FF),
           (0x20000, 0x2A6DF), (0xE0000, 0xE01EF), (0x100000, 0x10FFFD), (0, 0x10FFFF)]
SNIPPETS = ["'s", "'S", "'LL", "'ll", "'Ve", "'rE", "'\u017f", "\u2019s", "'d'", " I'M", "\r\n", "\n\n\n", "\t\t", "   ", " " * 137, " \n \n",
            "\u3000", "\u00a0", "\u0085", "\u180e", "\u200b", "\u2028", "\ufeff", "\x1c", "\x0b\x0c", "0", "1234567",
            "\u0661\u0662\u0663\u0664", "\u00b2\u00bd", "\u2167", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e8\U0001f1f3",
            "\u2764\ufe0f", "\U0001f44d\U0001f3fd", "e\u0301\u0323", "\u1100\u1161\u11a8", "hello", " world", "don't", "CamelCase",
            "snake_case", "  ===  ", "<|endoftext|>", "\0"]


# ---- vocabularies ----
def read_ranks(path):
    return {base64.b64decode(line.split()[0]): int(line.split()[1]) for line in path.read_bytes().splitlines() if line}


def byte_characters():
    """The character of each byte in the byte-level alphabet."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(256) if byte not in visible]
    return [chr(byte if byte in visible else 256 + hidden.index(byte)) for byte in range(256)]


def gpt2_ranks(vocabulary):
    bytes_of = {character: byte for byte, character in enumerate(byte_characters())}
    return {bytes(bytes_of[c] for c in name): id for name, id in vocabulary.items() if name != "<|endoftext|>"}


def merges_of(ranks):
    """All ways to make a token of two, the way a conversion from ranks lists them."""
    merges = []
    for token in sorted(ranks, key=ranks.get):
        cuts = ((token[:i], token[i:]) for i in range(1, len(token)))
        known = [(left, right) for left, right in cuts if left in ranks and right in ranks]
        merges += sorted(known, key=lambda cut: (ranks[cut[0]], ranks[cut[1]]))
    return merges


def hugging_face(vocabulary, merges, pattern, special_tokens, ignore_merges):
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=ignore_merges))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)
    tokenizer.pre_tokenizer = byte_level if pattern is None else pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated"), byte_level])
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in special_tokens])
    return tokenizer


def write_ranks(path, ranks):
    lines = (b"%s %d\n" % (base64.b64encode(token), ranks[token]) for token in sorted(ranks, key=ranks.get))
    path.write_bytes(b"".join(lines))


def write_llmc(path, ranks, end_of_text):
    tokens = sorted(ranks, key=ranks.get)
    tokens.insert(end_of_text, b"<|endoftext|>")
    header = [LLMC_MAGIC, 2, len(tokens), end_of_text] + [0] * 252
    path.write_bytes(struct.pack("<256i", *header) + b"".join(bytes([len(token)]) + token for token in tokens))


# ---- texts ----
def random_text(generator):
    parts = []
    for _ in range(generator.randint(1, 12)):
        if generator.random() < 0.4:
            parts.append(generator.choice(SNIPPETS))
            continue
        low, high = generator.choice(SCRIPTS)
        characters = (chr(generator.randint(low, high)) for _ in range(generator.randint(1, 9)))
        parts.append("".join(c for c in characters if not 0xD800 <= ord(c) <= 0xDFFF))
        parts.append(generator.choice(["", "", " "]))
    return "".join(parts)


def is_young(character):
    """Not assigned in the Unicode of this Python, and not one of the 66 that never will be."""
    point = ord(character)
    return unicodedata.category(character) == "Cn" and not (0xFDD0 <= point <= 0xFDEF or point & 0xFFFE == 0xFFFE)


def without_young(text):
    return "".join(c for c in text if not is_young(c))


# ---- comparing ----
class Checker:
    def __init__(self, tool):
        self.tool, self.has_failed = tool, False

    def run(self, tokenizer, what, texts):
        packed = b"".join(struct.pack("<I", len(text)) + text for text in texts)
        return subprocess.run([self.tool, tokenizer, what], input=packed, stdout=subprocess.PIPE, check=True).stdout

    def encode(self, tokenizer, texts, what="encode"):
        output, place, tokens = self.run(tokenizer, what, texts), 0, []
        while place < len(output):
            count, = struct.unpack_from("<I", output, place)
            tokens.append(list(struct.unpack_from(f"<{count}i", output, place + 4)))
            place += 4 + 4 * count
        return tokens

    def compare(self, name, texts, ours, theirs, may_differ=lambda text: False):
        differ = [text for text, our, their in zip(texts, ours, theirs, strict=True) if our != their]
        wrong = [text for text in differ if not may_differ(text)]
        allowed = f" ({len(differ) - len(wrong)} of them young characters)" if len(wrong) < len(differ) else ""
        print(f"{name}: {len(texts)} texts, {sum(map(len, theirs))} tokens, {len(differ)} differ{allowed}", flush=True)
        for text in wrong[:3]:
            i = texts.index(text)
            print(f"    {text!a:.200}\n    ours   {ours[i][:40]}\n    theirs {theirs[i][:40]}")
        self.has_failed |= len(wrong) > 0


def best_rate(encode, text):
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        encode(text)
        seconds.append(time.perf_counter() - start)
    return len(text.encode()) / min(seconds) / 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", required=True, help="the program tokenizer_tool")
    parser.add_argument("--vocabularies", required=True, type=Path)
    parser.add_argument("--texts", type=int, default=10000, help="random ones")
    parser.add_argument("files", nargs="*", type=Path)
    arguments = parser.parse_args()
    if unicodedata.unidata_version != "14.0.0":
        print(f"note: this Python knows Unicode {unicodedata.unidata_version}; that of 3.11 has the 14 of PCRE2 10.42")
    checker, folder = Checker(arguments.tool), arguments.vocabularies
    generator = random.Random(5)

    cases_path = folder / "encode_cases.json"
    cases = json.loads(cases_path.read_text()) if cases_path.exists() else []
    files = [without_young(path.read_bytes().decode(errors="replace")) for path in arguments.files]
    texts = [case["text"] for case in cases] + [without_young(random_text(generator)) for _ in range(arguments.texts)] + files
    texts += [line for file in files for line in file.splitlines(keepends=True)]
    raw = [text.encode() for text in texts]

    vocabulary = json.loads((folder / "gpt2/vocab.json").read_text())
    merges = [tuple(line.split(" ")) for line in (folder / "gpt2/merges.txt").read_text().split("\n")[1:] if line]
    ranks, gpt2 = read_ranks(folder / "cl100k_base.tiktoken"), gpt2_ranks(vocabulary)
    # LLaMA-3 has 128000 ranks: cl100k's and others that its pattern can meet.
    llama3 = dict(ranks)
    for text in raw:
        for word in text.split(b" "):
            token = b" " + word[:8]
            if len(llama3) < LLAMA3_RANKS and token not in llama3:
                llama3[token] = len(llama3)
    while len(llama3) < LLAMA3_RANKS:
        llama3[b"filler %d" % len(llama3)] = len(llama3)
    characters = byte_characters()

    def to_alphabet(token):
        return "".join(characters[byte] for byte in token)

    def encoding(name, pattern, token_ranks, special_tokens):
        return tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=token_ranks, special_tokens=special_tokens)

    references = {
        "gpt2": encoding("gpt2", GPT2_PATTERN, gpt2, {"<|endoftext|>": 50256}),
        "cl100k": encoding("cl100k", LLAMA3_PATTERN, ranks, CL100K_SPECIAL),
        "cl100k, tiktoken's pattern": encoding("cl100k_new", CL100K_PATTERN, ranks, CL100K_SPECIAL),
        "llama3": encoding("llama3", LLAMA3_PATTERN, llama3, {"<|begin_of_text|>": 128000, "<|end_of_text|>": 128001}),
    }
    hf_gpt2 = hugging_face(vocabulary, merges, None, ["<|endoftext|>"], False)
    hf_llama3 = hugging_face({to_alphabet(token): rank for token, rank in llama3.items()},
                             [(to_alphabet(left), to_alphabet(right)) for left, right in merges_of(llama3)], LLAMA3_PATTERN,
                             ["<|begin_of_text|>", "<|end_of_text|>"], True)

    with tempfile.TemporaryDirectory() as temporary:
        made = {name: Path(temporary) / name for name in ("gpt2.json", "gpt2.bin", "llama3.json", "tokenizer.model")}
        hf_gpt2.save(str(made["gpt2.json"]))
        hf_llama3.save(str(made["llama3.json"]))
        write_llmc(made["gpt2.bin"], gpt2, 50256)
        write_ranks(made["tokenizer.model"], llama3)
        ours = {"vocab.json": str(folder / "gpt2"), "cl100k_base.tiktoken": str(folder / "cl100k_base.tiktoken"),
                **{name: str(path) for name, path in made.items()}}

        for name, tokenizer in (("gpt2", "vocab.json"), ("cl100k", "cl100k_base.tiktoken")):
            if cases:
                checker.compare(f"{tokenizer} and the cases", [case["text"] for case in cases],
                                checker.encode(ours[tokenizer], raw[:len(cases)]), [case[name] for case in cases])
        for tokenizer, name in (("vocab.json", "gpt2"), ("gpt2.bin", "gpt2"), ("gpt2.json", "gpt2"), ("cl100k_base.tiktoken", "cl100k"),
                                ("cl100k_base.tiktoken", "cl100k, tiktoken's pattern"), ("tokenizer.model", "llama3"),
                                ("llama3.json", "llama3")):
            checker.compare(f"{tokenizer} and tiktoken ({name})", texts, checker.encode(ours[tokenizer], raw),
                            references[name].encode_ordinary_batch(texts, num_threads=1))
        for tokenizer, reference in (("vocab.json", hf_gpt2), ("gpt2.json", hf_gpt2), ("llama3.json", hf_llama3)):
            plain = [text for text in texts if "<|" not in text]  # it makes special tokens of such names
            encoded = checker.encode(ours[tokenizer], [text.encode() for text in plain])
            checker.compare(f"{tokenizer} and tokenizers", plain, encoded, [reference.encode(text).ids for text in plain])

        pieces = texts[:len(cases) + arguments.texts]
        prompts = ["<|endoftext|>".join(generator.choices(pieces, k=3)) for _ in range(1000)]
        prompts += ["", "<|endoftext|>", "<|endoftext|><|endoftext|> a", "<|endof<|endoftext|>text|>", "x <|fim_prefix|>\n<|endofprompt|>"]
        for tokenizer, name in (("vocab.json", "gpt2"), ("cl100k_base.tiktoken", "cl100k")):
            checker.compare(f"{tokenizer} with special tokens", prompts,
                            checker.encode(ours[tokenizer], [prompt.encode() for prompt in prompts], "prompt"),
                            [references[name].encode(prompt, allowed_special="all") for prompt in prompts])
        no_first_bytes = (*range(0x80, 0xC0), *range(0xF5, 0x100))
        lone = [bytes(generator.choices(no_first_bytes, k=generator.randint(1, 30))) for _ in range(1000)]
        checker.compare("cl100k_base.tiktoken on bytes that are no UTF-8", lone, checker.encode(ours["cl100k_base.tiktoken"], lone),
                        [references["cl100k"]._encode_bytes(text) for text in lone])

        points = [chr(point) for point in range(0x110000) if not 0xD800 <= point <= 0xDFFF]
        for tokenizer, name in (("vocab.json", "gpt2"), ("cl100k_base.tiktoken", "cl100k")):
            places = [f"{c}a{c} {c}1{c}'{c} \n{c}\n" for c in points]
            encoded = checker.encode(ours[tokenizer], [text.encode() for text in places])
            checker.compare(f"{tokenizer} on every code point", places, encoded,
                            references[name].encode_ordinary_batch(places, num_threads=1), lambda text: is_young(text[0]))

        for path, file in zip(arguments.files, files):
            for name, reference in references.items():
                tokenizer = {"gpt2": "vocab.json", "llama3": "tokenizer.model"}.get(name, "cl100k_base.tiktoken")
                rate = int(checker.run(ours[tokenizer], "time", [file.encode()])) / 1e6
                print(f"{path.name}, {len(file.encode()) / 1e6:.1f} MB: {tokenizer} {rate:.1f} MB/s, "
                      f"tiktoken ({name}) {best_rate(reference.encode_ordinary, file):.1f}")
    return 1 if checker.has_failed else 0


if __name__ == "__main__":
    sys.exit(main())
