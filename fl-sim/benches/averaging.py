"""Federated averaging of `cnn`, ours beside PyTorch, and what moves PyTorch's accuracy: scaling, order, partial batches.

    pip install torch safetensors
    python3 fl-sim/benches/averaging.py target/release/fl-sim ../shared/data/fashion-mnist [--seeds 101 .. 105] [--rounds 10]

For each seed all runs have the same first weights (PyTorch's), split (Dirichlet(0.5), equal sizes), learning rate and rounds,
in float32. Only the variants named differ. Ours runs as a federation over sockets, PyTorch as a loop over the clients.
"""

import argparse
import gzip
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

LIKE_OURS = lambda x: (x / 255 - 0.2860) / 0.3530
# What differs from the first: scaling of the values, seed of the order of batches, whether an epoch's partial batch is trained on.
VARIANTS = {
    "PyTorch": {},
    "another order of batches": {"order": 1},
    "the partial batch left out": {"partial": False},
    "values 0 to 1": {"scale": lambda x: x / 255},
    "values -1 to 1": {"scale": lambda x: (x / 255 - 0.5) / 0.5},
}
EXPERIMENT = """
seeds = [{seed}]
[workload]
learner = "cnn"
clients = {clients}
data = {{ idx = {{ dir = "{data}", split = {{ file = "{split}" }} }} }}
[run]
rounds = {rounds}
[run.cohort]
min = {clients}
target = {clients}
deadline = "60min"
[run.train]
batch_size = {batch}
learning_rate = {rate}
[[variant]]
name = "fp32"
model = "{model}"
compression = {{ uplink = {{ default = {{}} }}, downlink = {{ default = {{}} }} }}
"""


def network():
    layers = {
        "conv1": nn.Conv2d(1, 32, 5), "relu1": nn.ReLU(), "pool1": nn.MaxPool2d(2), "conv2": nn.Conv2d(32, 64, 5),
        "relu2": nn.ReLU(), "pool2": nn.MaxPool2d(2), "flat": nn.Flatten(), "fc1": nn.Linear(1024, 512),
        "relu3": nn.ReLU(), "fc2": nn.Linear(512, 10)}
    model = nn.Sequential()
    for name, layer in layers.items():
        model.add_module(name, layer)
    return model


def read(data, prefix):
    def values(name, begin):
        return torch.frombuffer(bytearray(gzip.open(next(data.glob(name))).read()), dtype=torch.uint8)[begin:]

    return values(f"{prefix}-images*", 16).reshape(-1, 1, 28, 28).float(), values(f"{prefix}-labels*", 8).long()


def split(labels, options, seed):
    """The indices of each client: its classes' shares from Dirichlet(0.5), as long as a class lasts."""
    torch.manual_seed(seed)
    left = [torch.nonzero(labels == c).flatten()[torch.randperm(int((labels == c).sum()))].tolist() for c in range(10)]
    clients = []
    for _ in range(options.clients):
        shares = torch.distributions.Dirichlet(torch.full((10,), 0.5)).sample()
        own = []
        while len(own) < options.images:
            c = int(torch.multinomial(shares + 1e-6, 1))
            if left[c]:
                own.append(left[c].pop())
        clients.append(own)
    return clients


def averaging(first, clients, train, test, options, seed, scale=LIKE_OURS, order=0, partial=True):
    """Accuracy after each of the last four rounds, in percent."""
    images, labels = scale(train[0]), train[1]
    tested, model = scale(test[0]), network()
    weights, curve = first, []
    for turn in range(options.rounds):
        mean = {name: torch.zeros_like(value) for name, value in weights.items()}
        for number, own in enumerate(clients):
            model.load_state_dict(weights)
            optimizer = torch.optim.SGD(model.parameters(), options.learning_rate)
            torch.manual_seed(hash((seed, turn, number, order)) % 2**63)
            batches = torch.tensor(own)[torch.randperm(len(own))].split(options.batch)
            for batch in batches if partial or len(batches[-1]) == options.batch else batches[:-1]:
                optimizer.zero_grad()
                F.cross_entropy(model(images[batch]), labels[batch]).backward()
                optimizer.step()
            for name, value in model.state_dict().items():
                mean[name] += value / len(clients)
        weights = mean
        if turn < options.rounds - 4:
            continue
        model.load_state_dict(weights)
        with torch.no_grad():
            right = sum(int((model(x).argmax(1) == y).sum()) for x, y in zip(tested.split(500), test[1].split(500)))
        curve.append(100 * right / len(test[1]))
    return curve


def ours(first, clients, options, seed, place):
    save_file(first, place / "first.safetensors")
    rows = {index: client for client, own in enumerate(clients) for index in own}
    lines = "".join(f"{index},{rows.get(index, '')}\n" for index in range(60000))
    (place / "clients.csv").write_text("index,client\n" + lines)
    (place / "experiment.toml").write_text(EXPERIMENT.format(
        seed=seed, clients=options.clients, data=options.data.resolve(), split=place / "clients.csv", rounds=options.rounds,
        batch=options.batch, rate=options.learning_rate, model=place / "first.safetensors"))
    command = [options.program, "experiment", place / "experiment.toml", "--format", "json"]
    trials = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    trial = trials[0] if isinstance(trials, list) else trials["trials"][0]
    return [100 * line["accuracy"] for line in trial["score"]["rounds"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=Path, help="fl-sim")
    parser.add_argument("data", type=Path, help="folder of the four files of Fashion-MNIST")
    parser.add_argument("--seeds", type=int, nargs="+", default=[101, 102, 103, 104, 105])
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--images", type=int, default=1000, help="of each client")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=0.05)
    options = parser.parse_args()
    torch.set_num_threads(1)
    train, test = read(options.data, "train"), read(options.data, "t10k")
    results = {}
    for seed in options.seeds:
        clients = split(train[1], options, seed)
        first = {name: value.clone() for name, value in network().state_dict().items()}
        with tempfile.TemporaryDirectory() as place:
            runs = {"ours": ours(first, clients, options, seed, Path(place))}
        for name, variant in VARIANTS.items():
            runs[name] = averaging(first, clients, train, test, options, seed, **variant)
            print(f"seed {seed}, {name}: {runs[name][-1]:.2f} %, ours {runs['ours'][-1]:.2f} %", flush=True)
        results[seed] = runs
    print("\n| run | last round | mean of the last 3 | last round minus ours, by seed | round to round |")
    print("|---|---|---|---|---|")
    for name in next(iter(results.values())):
        curves = [runs[name] for runs in results.values()]
        last, three = [curve[-1] for curve in curves], [statistics.mean(curve[-3:]) for curve in curves]
        steps = [abs(b - a) for curve in curves for a, b in zip(curve[-4:], curve[-3:])]
        minus = [f"{runs[name][-1] - runs['ours'][-1]:+.2f}" for runs in results.values()]
        print(f"| {name} | {statistics.mean(last):.2f} % | {statistics.mean(three):.2f} % | {', '.join(minus)} | "
              f"{statistics.mean(steps):.2f} |")


main()
