"""A ResNet with BatchNorm in PyTorch on Fashion-MNIST or CIFAR-10: a compressed run against fp32, over real sockets.

    pip install torch, and a wheel of python/build
    python3 fl-sim/benches/resnet.py ../shared/data/fashion-mnist [--seeds 101 102 103] [--clients 10] [--rounds 10]

For each seed the two runs have the same first weights, clients, batches and rounds. A seed decides first weights, split,
and batches. Each client draws its class proportions from Dirichlet(0.5) and then its images, so images may be at two clients.
CIFAR-10 trains on batches 1 to 4 and evaluates on batch 5. Client i evaluates every n-th image from i on, so the average is
over all test images.
The script calls itself as the trainer of each client.
"""

import argparse
import gzip
import json
import lzma
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

RUN = """
name = "resnet"
task = "cifar"
rounds = {rounds}
model = "init.safetensors"
seed = {seed}

[cohort]
min = {clients}
target = {clients}
deadline = "60min"

[train]
epochs = 1
batch_size = 32
learning_rate = {rate}
schedule = "cosine"
"""
FP32 = "\n[compression]\nuplink = { default = {} }\ndownlink = { default = {} }\n"


def contents(file):
    packed = {".xz": lzma.open, ".gz": gzip.open}
    return packed.get(file.suffix, open)(file, "rb").read()


def unpack(folder, cache):
    """Writes `train.pt` and `test.pt`: images `uint8 [n, channels, height, width]` and labels `int64 [n]`."""
    import torch

    def values(data, begin):
        return torch.frombuffer(bytearray(data), dtype=torch.uint8)[begin:]

    cifar = any(folder.glob("data_batch_1.bin*"))
    for name, prefix, batches in (("train", "train", range(1, 5)), ("test", "t10k", range(5, 6))):
        if cifar:
            data = b"".join(contents(next(folder.glob(f"data_batch_{number}.bin*"))) for number in batches)
            rows = values(data, 0).reshape(-1, 3073)
            images, labels = rows[:, 1:].reshape(-1, 3, 32, 32).clone(), rows[:, 0].long()
        else:
            images = values(contents(next(folder.glob(f"{prefix}-images*"))), 16).reshape(-1, 1, 28, 28)
            labels = values(contents(next(folder.glob(f"{prefix}-labels*"))), 8).long()
        torch.save((images, labels), cache / f"{name}.pt")


def trainer(cache, seed, images, width, i, n):
    """The client `i` of `n`: a training script as its user would write it."""
    import fl
    import torch
    import torch.nn.functional as F
    from torch import nn

    class Block(nn.Module):
        def __init__(self, inputs, outputs, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
            self.norm1 = nn.BatchNorm2d(outputs)
            self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
            self.norm2 = nn.BatchNorm2d(outputs)
            self.skip = nn.Conv2d(inputs, outputs, 1, stride) if stride > 1 else nn.Identity()

        def forward(self, x):
            y = F.relu(self.norm1(self.conv1(x)))
            return F.relu(self.norm2(self.conv2(y)) + self.skip(x))

    def prepared(images):
        return (images.float() / 255 - 0.4) / 0.3

    values, labels = torch.load(cache / "train.pt", mmap=True)
    torch.manual_seed(seed)
    stem = [nn.Conv2d(values.shape[1], width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    blocks = [Block(width, width, 1), Block(width, 2 * width, 2), Block(2 * width, 4 * width, 2)]
    model = nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, 10))

    torch.manual_seed(1000 * seed + i)
    classes = torch.distributions.Dirichlet(torch.full((10,), 0.5)).sample()
    weights = classes[labels] / torch.bincount(labels, minlength=10)[labels]
    chosen = torch.multinomial(weights, images, replacement=bool((weights > 0).sum() < images))
    examples = torch.utils.data.TensorDataset(prepared(values[chosen]), labels[chosen])
    loader = torch.utils.data.DataLoader(examples, batch_size=32, shuffle=True, drop_last=True)
    test_values, test_labels = (tensor[i::n] for tensor in torch.load(cache / "test.pt", mmap=True))
    test_values = prepared(test_values)

    @fl.evaluate
    def _(model):
        model.eval()
        with torch.no_grad():
            outputs = torch.cat([model(batch) for batch in test_values.split(500)])
        accuracy = (outputs.argmax(1) == test_labels).float().mean().item()
        return {"examples": len(test_labels), "loss": F.cross_entropy(outputs, test_labels).item(), "accuracy": accuracy}

    for job in fl.rounds(model):
        torch.manual_seed(job.seed)
        model.train()
        optimizer = torch.optim.SGD(model.parameters(), job.train.learning_rate, momentum=0.9, weight_decay=5e-4)
        losses = []
        for inputs, targets in job.batches(loader):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        job.done(examples=images, loss=sum(losses) / len(losses))


def federation(options, cache, seed, compression):
    """One run: accuracy after each round, bytes on the sockets, and bytes of the clients' frames, all and of the buffers."""
    import fl

    with tempfile.TemporaryDirectory(prefix="fl-resnet-") as place:
        run = Path(place) / "run.toml"
        text = RUN.format(rounds=options.rounds, seed=seed, clients=options.clients, rate=options.learning_rate)
        run.write_text(text + compression)
        arguments = ["--trainer", str(cache), str(seed), str(options.images), str(options.width), "{i}", "{n}"]
        table = fl.simulate(run, clients=options.clients, script=__file__, arguments=arguments, folder=place)
        report = ["fl-server", "report", f"{place}/federation", "--format", "json"]
        report = json.loads(subprocess.run(report, check=True, capture_output=True, text=True).stdout)
    totals, tensors = report["totals"], report["tensors"]
    up = [row for row in rows(tensors) if row["direction"] == "up"]
    # The running means and variances of all seven norms travel as one section, whose size no other section has.
    statistics_of_norms = 2 * options.width * (3 + 2 * 2 + 2 * 4)
    buffers = sum(row["bytes"] for row in up if row["parameters"] == statistics_of_norms)
    return {
        "parameters": report["run"]["parameters"],
        "accuracy": table["accuracy"],
        "bytes": totals["socket_up"] + totals["socket_down"],
        "frames": sum(row["bytes"] for row in up),
        "buffers": buffers,
    }


def rows(table):
    return [dict(zip(table, line)) for line in zip(*table.values())]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="folder of Fashion-MNIST or CIFAR-10 (binary); files may be packed by gzip or xz")
    parser.add_argument("--seeds", type=int, nargs="+", default=[101, 102, 103])
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--images", type=int, default=1000, help="images of each client")
    parser.add_argument("--width", type=int, default=32, help="channels of the first block")
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument("--variant", nargs=2, action="append", metavar=("NAME", "TOML"), help="besides fp32; repeatable")
    parser.add_argument("--output", help="file for one JSON line for each run")
    options = parser.parse_args()
    variants = [("fp32", FP32), *(options.variant or [["default", ""]])]
    results = {name: [] for name, _ in variants}
    with tempfile.TemporaryDirectory(prefix="fl-images-") as cache:
        unpack(Path(options.data), Path(cache))
        for seed in options.seeds:
            for name, compression in variants:
                result = {"seed": seed, "variant": name, **federation(options, Path(cache), seed, compression)}
                results[name].append(result)
                print(json.dumps(result), flush=True)
                if options.output:
                    with open(options.output, "a") as file:
                        file.write(json.dumps(result) + "\n")
    fp32 = results.pop("fp32")
    last = [100 * run["accuracy"][-1] for run in fp32]
    print(f"fp32: {statistics.mean(last):.2f} %")
    for name, runs in results.items():
        differences = [100 * run["accuracy"][-1] - other for run, other in zip(runs, last)]
        fewer = min(plain["bytes"] / run["bytes"] for plain, run in zip(fp32, runs))
        buffers = max(run["buffers"] / run["frames"] for run in runs)
        each = ", ".join(f"{difference:+.2f}" for difference in differences)
        print(f"{name}: {statistics.mean(differences):+.2f} points ({each}), at least {fewer:.1f} times fewer bytes,")
        print(f"    buffers at most {100 * buffers:.1f} % of the frames up")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--trainer"]:
        place, *numbers = sys.argv[2:]
        trainer(Path(place), *map(int, numbers))
    else:
        main()
