#!/usr/bin/env python3
"""The chain top-k 1 % + 4 bits + error feedback on ten million values, ours beside PyTorch: milliseconds an update.

    python3 compress/benches/torch_top_k.py [--repeat 9] [--threads 1 2]

Ours is `Encoder::encode` whole: the sum with the residual, selection, 4 bits by block of 1024, gap and entropy coding,
checksum and the residual's update. PyTorch does the same up to the symbols, and the symbols and indices stay tensors: its
entropy coding is left out unless `--zlib` asks for it. Both take the best of their runs; for one thread the mean CPU time is
given as well, because other work on the machine slows the wall clock more.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import zlib

LEN, COLS, DENSITY, BLOCK = 10_000_000, 1250, 0.01, 1024


def ours(program, layers, threads):
    out = subprocess.run([program, str(layers), str(threads)], check=True, stdout=subprocess.PIPE, text=True).stdout
    return [float(word) for word in out.split()]


def build(profile):
    command = ["cargo", "bench", "-p", "fl-compress", "--bench", "once", "--no-run", "--message-format=json"]
    lines = subprocess.run(command + ["--profile", profile], check=True, stdout=subprocess.PIPE, text=True).stdout
    for line in lines.splitlines():
        message = json.loads(line) if line.startswith("{") else {}
        if message.get("target", {}).get("name") == "once" and message.get("executable"):
            return message["executable"]
    sys.exit("cargo built no bench called `once`")


class Theirs:
    """Each of `layers` tensors on its own, as ours does it; operations in place where PyTorch has them."""

    def __init__(self, torch, layers, pack):
        self.torch, self.pack = torch, pack
        torch.manual_seed(1)
        self.update = (torch.rand(LEN) - 0.5) / (torch.rand(LEN) + 0.05) * 1e-3
        self.parts = self.update.view(layers, LEN // layers)
        self.residual = torch.zeros_like(self.parts)

    def step(self):
        torch = self.torch
        for part, residual in zip(self.parts, self.residual):
            residual.add_(part)
            k = int(part.numel() * DENSITY)
            indices = torch.topk(residual.abs(), k, sorted=False).indices
            kept = residual[indices]
            padded = torch.nn.functional.pad(kept, (0, -k % BLOCK)).view(-1, BLOCK)
            scales = padded.abs().amax(1, keepdim=True).clamp_min_(3e-36).to(torch.bfloat16).float()
            levels = (padded * (7 / scales)).round_().clamp_(-7, 7)
            decoded = (levels * (scales / 7)).view(-1)[:k]
            residual[indices] -= decoded
            symbols = (levels.view(-1)[:k] + 7).to(torch.uint8)
            if self.pack:
                order = indices.sort().values.to(torch.int32)
                zlib.compress(torch.diff(order).numpy().tobytes(), 1)
                zlib.compress(symbols.numpy().tobytes(), 1)

    def measure(self, repeat):
        wall, cpu = [], []
        for _ in range(repeat + 2):
            start, used = time.perf_counter(), time.process_time()
            self.step()
            wall.append(time.perf_counter() - start)
            cpu.append(time.process_time() - used)
        return min(wall[2:]) * 1e3, sum(cpu[2:]) / repeat * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--layers", type=int, nargs="+", default=[4, 1])
    parser.add_argument("--zlib", action="store_true", help="lets PyTorch code what it made")
    parser.add_argument("--profile", default="bench")
    parser.add_argument("--program", help="the bench `once`, if it is built already")
    options = parser.parse_args()
    try:
        import torch
    except ImportError as error:
        torch = None
        print(f"PyTorch cannot be imported ({error}): only our own figures follow; `pip install torch` for both")
    program = options.program or build(options.profile)
    print(f"PyTorch {torch.__version__ if torch else '-'}; load {os.getloadavg()[0]:.1f}; best of {options.repeat}")
    print(f"{'tensors':>7} {'threads':>7} {'ours ms':>9} {'theirs ms':>9} {'ratio':>6} {'ours cpu':>9} {'theirs cpu':>10} {'ratio':>6}")
    for layers in options.layers:
        for threads in options.threads:
            wall, cpu = ours(program, layers, threads)
            line = f"{layers:7} {threads:7} {wall:9.1f}"
            if torch:
                torch.set_num_threads(threads)
                other, used = Theirs(torch, layers, options.zlib).measure(options.repeat)
                line += f" {other:9.1f} {other / wall:6.1f}"
                line += f" {cpu:9.1f} {used:10.1f} {used / cpu:6.1f}" if threads == 1 else ""
            print(line)


if __name__ == "__main__":
    main()
