#!/usr/bin/env python3
"""Training speed of fl-client's models beside the same models in PyTorch: samples a second on one core.

    python3 fl-sim/benches/torch_compare.py [--repeat 5] [--profile bench] [lenet cnn mlp]

Batch 32, SGD step and reading the loss included. The two take turns, so that both meet the same load; medians count.
CPU time is measured as well as wall time, because other work on the machine slows the wall clock only.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

STEPS = {"lenet": 100, "cnn": 40, "mlp": 400}
BATCH = 32


def bench_command(profile):
    """Builds our side once and returns the command that runs it."""
    build = ["cargo", "bench", "-p", "fl-client", "--bench", "training", "--no-run", "--message-format=json"]
    lines = subprocess.run(build + ["--profile", profile], check=True, stdout=subprocess.PIPE, text=True).stdout
    for line in lines.splitlines():
        message = json.loads(line) if line.startswith("{") else {}
        if message.get("target", {}).get("name") == "training" and message.get("executable"):
            return message["executable"]
    sys.exit("cargo built no bench called `training`")


def ours(program, name):
    out = subprocess.run([program, "--json", "--once", name], check=True, stdout=subprocess.PIPE, text=True).stdout
    found = json.loads(out)
    return found["samples_per_second"], found["samples_per_cpu_second"]


def models(torch):
    nn = torch.nn
    return {
        "lenet": lambda: nn.Sequential(
            nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
        "cnn": lambda: nn.Sequential(
            nn.Conv2d(1, 32, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 10)),
        "mlp": lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 10)),
    }


class Theirs:
    def __init__(self, torch, name):
        self.torch, self.steps = torch, STEPS[name]
        torch.manual_seed(1)
        self.model = models(torch)[name]()
        self.optimiser = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.x, self.y = torch.rand(3200, 1, 28, 28), torch.randint(0, 10, (3200,))
        self.fit(self.steps // 4)

    def fit(self, steps):
        for step in range(steps):
            at = step * BATCH % 3200
            self.optimiser.zero_grad()
            answer = self.model(self.x[at:at + BATCH])
            loss = self.torch.nn.functional.cross_entropy(answer, self.y[at:at + BATCH])
            loss.backward()
            self.optimiser.step()
            loss.item()

    def measure(self):
        wall, cpu = time.perf_counter(), time.thread_time()
        self.fit(self.steps)
        samples = self.steps * BATCH
        return samples / (time.perf_counter() - wall), samples / (time.thread_time() - cpu)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--profile", default="bench")
    parser.add_argument("--program", help="a bench that is built already")
    parser.add_argument("models", nargs="*", help="lenet, cnn, mlp; all by default")
    options = parser.parse_args()
    names = options.models or list(STEPS)
    unknown = [name for name in names if name not in STEPS]
    if unknown:
        sys.exit(f"no model is called {unknown[0]}; there are {', '.join(STEPS)}")
    try:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        import torch
    except ImportError as error:
        torch = None
        print(f"PyTorch cannot be imported ({error}): only our own figures follow; `pip install torch` for both")
    if torch:
        torch.set_num_threads(1)
        print(f"PyTorch {torch.__version__}, one thread, batch {BATCH}, median of {options.repeat}, taking turns")
    program = options.program or bench_command(options.profile)
    print(f"{'model':6} {'ours/s':>9} {'theirs/s':>9} {'ratio':>6}   {'ours/cpu s':>10} {'theirs/cpu s':>12} {'ratio':>6}")
    for name in names:
        mine, other = [], []
        rival = Theirs(torch, name) if torch else None
        for _ in range(options.repeat):
            mine.append(ours(program, name))
            if rival:
                other.append(rival.measure())
        median = lambda rows, column: statistics.median(row[column] for row in rows)
        cells = [name.ljust(6)]
        for column, width in ((0, 9), (1, 10)):
            own = median(mine, column)
            cells.append(f"{own:{width}.0f}")
            if rival:
                their = median(other, column)
                cells.append(f"{their:{width + (column * 2)}.0f} {own / their:6.2f}  ")
        print(" ".join(cells))


if __name__ == "__main__":
    main()
