#!/usr/bin/env python3
"""Draws metrics files of ./gpt2 and ./llama3 (--metrics_file): loss, gradient norm, learning rate, tokens/s.

    plot_run.py run.jsonl                            a picture of one run: run.png
    plot_run.py a.jsonl b.jsonl --output both.svg    several runs in one, each in its colour
    plot_run.py run.jsonl --smooth 20                a mean over 20 steps on the pale curve of each step

Validation losses are dashed, with dots. What was not finite (null in the file) leaves a gap. A line that cannot be read is
named and left out; of a step that is there twice the later line counts. Needs Python 3.9 and matplotlib:
    python3 -m pip install matplotlib, or apt install python3-matplotlib
"""
import argparse
import json
import math
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # no screen
import matplotlib.pyplot as plt  # noqa: E402  (after the choice above)

PANELS = (("loss", "loss (nats a token)"), ("grad_norm", "gradient norm"), ("lr", "learning rate"), ("tokens_per_s", "tokens/s"))


def number(line, name):
    """A value of a line; NaN for null and for what is not finite. Raises ValueError for anything else."""
    value = line.get(name, math.nan)
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{name} is no number")
    return float(value) if math.isfinite(value) else math.nan


def read(path):
    """{name: {step: value}} of the names of PANELS and val_loss."""
    series = {name: {} for name, _ in PANELS} | {"val_loss": {}}
    with open(path, encoding="utf-8", errors="replace") as file:
        for line_number, text in enumerate(file, 1):
            try:
                line = json.loads(text)
                if not isinstance(line, dict) or type(line.get("step")) is not int:
                    raise ValueError("no object with a step")
                names = ["val_loss"] if "val_loss" in line else [name for name, _ in PANELS]
                values = {name: number(line, name) for name in names}
            except (ValueError, RecursionError) as error:
                print(f"{path} line {line_number}: left out: {error}", file=sys.stderr)
                continue
            for name, value in values.items():
                series[name][line["step"]] = value
    return series


def smoothed(values, window):
    """The mean of the finite ones of the last `window` values; NaN where the value itself is."""
    result, total, count = [], 0.0, 0
    for i, value in enumerate(values):
        if not math.isnan(value):
            total, count = total + value, count + 1
        if i >= window and not math.isnan(values[i - window]):
            total, count = total - values[i - window], count - 1
        result.append(math.nan if math.isnan(value) else total / count)
    return result


def draw(axes, series, name, label, color, window):
    steps = sorted(series[name])
    values = [series[name][step] for step in steps]
    marker = "." if len(steps) < 30 else ""
    if window > 1:
        axes.plot(steps, values, color=color, alpha=0.25, linewidth=0.8)
        values = smoothed(values, window)
    axes.plot(steps, values, color=color, linewidth=1.2, marker=marker, label=label)
    if name == "loss" and series["val_loss"]:
        steps = sorted(series["val_loss"])
        axes.plot(steps, [series["val_loss"][step] for step in steps], color=color, linestyle="--", marker="o", markersize=3,
                  linewidth=1.0, label=f"{label}, validation")


def wants_log(runs, name):
    """Values far apart: a linear axis would show little of the least."""
    values = [value for series in runs.values() for value in series[name].values() if math.isfinite(value)]
    return bool(values) and min(values) > 0 and max(values) / min(values) > 30


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, help="metrics files, a run each")
    parser.add_argument("--output", type=Path, help="picture, .png or .svg; default: the first file's name with .png")
    parser.add_argument("--smooth", type=int, default=1, metavar="N", help="mean over N steps")
    args = parser.parse_args()
    if args.smooth < 1:
        parser.error("--smooth: at least 1")
    output = args.output or args.files[0].with_suffix(".png")
    if output.suffix not in (".png", ".svg"):
        parser.error(f"--output {output}: a name that ends in .png or .svg")
    if output.resolve() in [path.resolve() for path in args.files]:
        parser.error(f"--output {output}: is one of the metrics files")
    try:
        runs = {str(path): read(path) for path in args.files}
    except OSError as error:
        sys.exit(f"{error.filename}: {error.strerror}")
    for path, series in runs.items():
        if not series["loss"]:
            sys.exit(f"{path}: has no line of a step")

    figure, grid = plt.subplots(2, 2, figsize=(12, 7.5), layout="constrained")
    for axes, (name, title) in zip(grid.flat, PANELS):
        for i, (path, series) in enumerate(runs.items()):
            draw(axes, series, name, path, f"C{i % 10}", 1 if name == "lr" else args.smooth)
        if name in ("loss", "grad_norm") and wants_log(runs, name):
            axes.set_yscale("log")
        elif name in ("lr", "tokens_per_s"):
            axes.set_ylim(bottom=0)
        axes.set(title=title, xlabel="step")
        axes.grid(alpha=0.3)
    grid[0, 0].legend(fontsize="small")
    figure.savefig(output, dpi=120)
    print(output)


if __name__ == "__main__":
    main()
