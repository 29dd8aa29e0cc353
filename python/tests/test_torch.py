"""Models of PyTorch. Skipped without it."""

import importlib.metadata
import importlib.util
import math
import os
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

from fake_client import TIMEOUT_S, FakeClient

BARE = {
    name: value for name, value in os.environ.items() if name != "PYTHONPATH"
}  # without `fl`, unless it is installed
MODEL = """
import sys
import torch
import fl

torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1))
"""
TRAIN = (
    MODEL
    + """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(8, 2), torch.randn(8, 1)
@fl.evaluate
def _(model):
    assert not model.training and not torch.is_grad_enabled()
    return {"examples": 8, "loss": (model(x) - y).square().mean()}
for job in fl.rounds(model):
    assert model.training
    for _ in range(2):
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
    job.done(examples=8, loss=loss)
"""
)

# Two processes of a group, as torchrun starts them: without the descriptors 3 and 4, and ended by the first that fails.
LAUNCHER = """
import os, signal, socket, subprocess, sys
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    group = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
ranks = [
    subprocess.Popen([sys.executable, sys.argv[1]], env={**os.environ, **group, "RANK": str(rank), "LOCAL_RANK": str(rank)})
    for rank in range(2)
]
for _ in ranks:
    if os.wait()[1]:
        for rank in ranks:
            rank.send_signal(signal.SIGKILL)
        sys.exit(1)
"""


# Momentum 1 and gradient 1: in training k, the step is k times the rate. {body} is after the step.
KEPT = """
import os, sys
import torch
import fl

model = torch.nn.Linear(1, 1, bias=False)
optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=1.0)
for job in fl.rounds(model, keep=optimizer):
    with job:
        optimizer.zero_grad()
        model(torch.ones(1)).sum().backward()
        optimizer.step()
        if "fails" in job.extra:
            raise ValueError("no more data")
        job.done(examples=1, loss=1)
"""


@unittest.skipUnless(importlib.util.find_spec("torch"), "torch is not installed")
class Kept(unittest.TestCase):
    def step(self, client, number, **fields):
        """How far a training moved the weight."""
        client.weights({"weight": struct.pack("<f", 0)})
        client.fit(number, **fields)
        if "extra" in fields:
            return client.hear("failed")["message"]
        client.hear("fitted")
        return -struct.unpack("<f", client.result()["weight"])[0]

    def test_a_kept_optimizer_goes_on_after_failed_and_repeated_rounds_and_after_a_restart(self):
        with tempfile.TemporaryDirectory() as folder:
            kept = os.path.join(folder, "run.kept")
            with FakeClient(KEPT) as client:
                client.join(kept=kept)
                self.assertEqual([self.step(client, number) for number in (1, 2)], [1, 2])
                self.assertIn("no more data", self.step(client, 3, extra={"fails": True}))
                self.assertEqual(self.step(client, 3), 3, "the failed training left its momentum")
                self.assertEqual(self.step(client, 3), 3, "a repeated round began with its own state")
                self.assertEqual(self.step(client, 7), 4, "rounds may pass without this client")
                os.killpg(client.process.pid, signal.SIGKILL)
            self.assertEqual(sorted(os.listdir(kept)), ["3.pt", "7.pt"])
            with FakeClient(KEPT) as client:
                client.join(kept=kept)
                self.assertEqual(self.step(client, 7), 4, "the round of the killed script is trained again")
                self.assertEqual(self.step(client, 8), 5)
            with open(os.path.join(kept, "8.pt"), "r+b") as file:
                file.truncate(100)
            with FakeClient(KEPT) as client:
                client.join(kept=kept)
                self.assertRegex(self.step(client, 9, extra={}), "RuntimeError: .*8.pt: .*delete the file")
                os.unlink(os.path.join(kept, "8.pt"))
                self.assertEqual(self.step(client, 9), 5)

    def test_a_client_that_stores_nothing_keeps_the_state_in_memory(self):
        with FakeClient(KEPT) as client:
            client.join()
            self.assertEqual([self.step(client, number) for number in (1, 2, 3)], [1, 2, 3])

    def test_what_cannot_be_kept_is_refused(self):
        for wrong in ("model.weight", "[optimizer, 5]", "dict"):
            with FakeClient(KEPT.replace("keep=optimizer", f"keep={wrong}")) as client:
                self.assertIsNone(client.hear())
                client.process.wait(TIMEOUT_S)
                self.assertIn("takes optimizers, schedulers or GradScalers of PyTorch, not a", client.stderr())


@unittest.skipUnless(importlib.util.find_spec("torch"), "torch is not installed")
class Copies(unittest.TestCase):
    def test_a_copy_of_a_trained_model_has_no_inputs_and_a_file_of_it_needs_no_fl(self):
        script = (
            MODEL
            + """
for job in fl.rounds(model):
    model(torch.randn(8, 2))
    job.done(examples=8, loss=1, unchanged_ok=True)
    torch.save(model, "model.pt")
"""
        )
        with FakeClient(script) as client:
            client.join()
            client.weights(
                {t["name"]: bytes(4 * math.prod(t["shape"]) * (1 + (t["dtype"] == "I64"))) for t in client.traveling}
            )
            client.fit()
            client.hear("fitted")
            client.say(type="bye")
            self.assertEqual(client.end(), 0, client.stderr())
            only = ", weights_only=False" if importlib.metadata.version("torch") >= "2" else ""
            load = f"import torch; model = torch.load('model.pt'{only}); print(model(torch.ones(4, 2)).shape)"
            run = subprocess.run(
                [sys.executable, "-c", load], cwd=client.folder, env=BARE, capture_output=True, text=True
            )
            self.assertIn("[4, 1]", run.stdout, run.stderr)


@unittest.skipUnless(importlib.util.find_spec("torch"), "torch is not installed")
class Torch(unittest.TestCase):
    def version(self):
        return int(importlib.metadata.version("torch").partition(".")[0])

    def ones(self, client):
        """The round's weights: each value 1, in every type."""
        one = {"F32": struct.pack("<f", 1), "I64": struct.pack("<q", 1), "BF16": b"\x80\x3f", "F16": b"\x00\x3c"}
        one.update(F64=struct.pack("<d", 1), I32=struct.pack("<i", 1), U8=b"\x01", BOOL=b"\x01")
        count = lambda shape: 1 if not shape else shape[0] * count(shape[1:])  # noqa: E731
        client.weights({t["name"]: one[t["dtype"]] * count(t["shape"]) for t in client.traveling})
        return one

    def test_a_module_with_batch_norm_trains_with_the_optimizer_it_has(self):
        with FakeClient(TRAIN) as client:
            hello = client.join(
                {"1.running_mean": "buffer", "1.running_var": "buffer", "1.num_batches_tracked": "counter"}
            )
            shapes = {t["name"]: (t["dtype"], t["shape"]) for t in hello["tensors"]}
            self.assertEqual(shapes["0.weight"], ("F32", [3, 2]))
            self.assertEqual(shapes["1.num_batches_tracked"], ("I64", []))
            self.ones(client)
            results = []
            for number in (1, 2):
                client.fit(number)
                client.hear("fitted")
                results.append(client.result())
            self.assertEqual(results[0], results[1], "the second round did not begin from the weights of the file")
            self.assertEqual(results[0]["1.num_batches_tracked"], struct.pack("<q", 3))
            for name, data in results[0].items():
                if name not in ("0.bias",):  # batch normalization makes this gradient zero
                    self.assertNotEqual(data, struct.pack("<f", 1) * (len(data) // 4), name)
            client.say(type="evaluate", round=1, weights="model.safetensors")
            self.assertNotIn("correct", client.hear("evaluated"))
            client.fit(3)
            client.hear("fitted")

    def test_fl_sees_whether_the_training_wrote_to_the_module(self):
        for training, wrote in {
            "optimizer = torch.optim.SGD(model.parameters(), lr=0.0); model(x).sum().backward(); optimizer.step()": True,
            "other = copy.deepcopy(model); torch.optim.SGD(other.parameters(), lr=0.1).step()": False,
            "model.train(); model(x)": False,  # running statistics alone
            "model.requires_grad_(False)": True,  # nothing to train
            "model[0].bias.requires_grad_(False); model[0].weight.data += 1": True,
        }.items():
            script = f"""
import copy
import torch
import fl
x = torch.ones(4, 2)
model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
for job in fl.rounds(model):
    {training}
    job.done(examples=4, loss=1)
"""
            with self.subTest(training), FakeClient(script) as client:
                client.join({"1.running_mean": "buffer", "1.running_var": "buffer", "1.num_batches_tracked": "counter"})
                self.ones(client)
                client.fit(1)
                self.assertIs(client.hear("fitted")["unchanged_ok"], wrote)

    def test_every_type_keeps_its_bits(self):
        script = (
            MODEL
            + """
kinds = [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool]
model = {str(kind): torch.zeros(2, 3).to(kind) for kind in kinds}
for job in fl.rounds(model):
    assert all((tensor == 1).all() for tensor in model.values()), model
    job.done(examples=1, loss=0)
"""
        )
        with FakeClient(script) as client:
            client.join()
            self.assertEqual(
                sorted(t["dtype"] for t in client.tensors), sorted("F32 F16 BF16 F64 I64 I32 U8 BOOL".split())
            )
            one = self.ones(client)
            client.fit()
            client.hear("fitted")
            for tensor in client.tensors:
                self.assertEqual(client.result()[tensor["name"]], one[tensor["dtype"]] * 6)

    def test_an_evaluation_calls_no_train_or_eval_of_the_module_and_every_module_is_as_before(self):
        script = (
            MODEL
            + """
class Detector(torch.nn.Sequential):  # frameworks give both names other meanings
    def train(self, *arguments):
        raise RuntimeError("a training begins")
    eval = train

model = Detector(model, torch.nn.Dropout())
model[0][1].training = False  # a frozen normalization
before = [module.training for module in model.modules()]

@fl.evaluate
def _(model):
    assert not any(module.training for module in model.modules())
    torch.nn.Module.train(model)
    return {"examples": 8, "loss": 0.5}

for job in fl.rounds(model):
    assert [module.training for module in model.modules()] == before
    job.done(examples=8, loss=0)
"""
        )
        with FakeClient(script) as client:
            client.join()
            self.ones(client)
            for number in (1, 2):
                client.say(type="evaluate", round=number - 1, weights="model.safetensors")
                client.hear("evaluated")
                client.fit(number)
                client.hear("fitted")

    def test_an_evaluation_measures_running_statistics_and_takes_them_back(self):
        """Also of a module inside another one, as in Lightning; not of frozen ones, nor where the forward pass fails."""
        script = """
import torch
import fl

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.drop, self.norm = torch.nn.Linear(2, 2), torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(2)

    def forward(self, inputs, scale):
        if "CASE" == "fails" and not self.training:
            raise ValueError("trains only")
        return self.norm(self.drop(self.first(inputs["x"])) * scale)

class Task(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Net()

model = Task() if "CASE" == "inside" else Net()
net = getattr(model, "net", model)
x = torch.arange(16.0).reshape(8, 2)

@fl.evaluate
def _(model):
    norm = net.norm
    assert not any(module.training for module in model.modules())
    return {"examples": 8, "loss": 1, "mean": norm.running_mean[0], "var": norm.running_var[0]}

for job in fl.rounds(model):
    if "CASE" == "frozen":
        net.norm.eval()
    for part in x[:4], x[4:]:
        batch = {"x": part.clone()}
        net(batch, scale=2) if "CASE" == "named" else net(batch, 2)
        batch["x"].zero_()  # a loader may write into the same batch again
    assert net.drop.training and net.norm.momentum == 0.1
    job.done(examples=8, loss=1, unchanged_ok=True, batches=net.norm.num_batches_tracked)
"""
        # Each output of the first layer is the sum of its inputs and 1: 2 to 30 in steps of 4, twice that after `scale`. The
        # variance is the mean of those of the two batches.
        measured, ones = {"mean": 32.0, "var": 320 / 3}, {"mean": 1.0, "var": 1.0}
        for case, second, batches in (
            ("plain", measured, 3),
            ("inside", measured, 3),
            ("named", measured if self.version() >= 2 else ones, 3),  # older hooks do not see arguments by name
            ("local", measured, 4),  # as the first training left them, and two batches more
            ("frozen", ones, 1),
            ("fails", ones, 3),
        ):
            with self.subTest(case), FakeClient(script.replace("CASE", case)) as client:
                norm = "net.norm." if case == "inside" else "norm."
                roles = {"running_mean": "buffer", "running_var": "buffer", "num_batches_tracked": "counter"}
                client.join({norm + name: "local" if case == "local" else role for name, role in roles.items()})
                self.ones(client)
                for number in (1, 2):
                    client.say(type="evaluate", round=number - 1, weights="model.safetensors")
                    metrics = client.hear("evaluated")["metrics"]
                    if number == 2:
                        for name, value in second.items():
                            self.assertAlmostEqual(metrics[name], value, 3)
                    client.fit(number)
                    fitted = client.hear("fitted")
                self.assertEqual(fitted["metrics"]["batches"], batches)
                self.assertEqual("not measured: ValueError: trains only (train.py:" in client.stderr(), case == "fails")

    def test_names_and_weights_are_those_below_compiled_and_parallel_modules(self):
        script = (
            MODEL.replace("model =", "net =")
            + """
class OptimizedModule(torch.nn.Module):  # as torch.compile makes it
    def __init__(self, module):
        super().__init__()
        self._orig_mod = module

part = torch.nn.Sequential(OptimizedModule(net[0]), *net[1:])
parallel = torch.nn.DataParallel
model = {"whole": OptimizedModule(net), "part": part, "both": OptimizedModule(parallel(OptimizedModule(net))), "parallel": parallel(net)}
for job in fl.rounds(model[KIND]):
    assert all((value == 1).all() for value in net.state_dict().values())
    with torch.no_grad():
        net[0].weight += 1
    job.done(examples=1, loss=0)
"""
        )
        for kind in ("whole", "part", "both", "parallel"):
            with self.subTest(kind=kind), FakeClient(script.replace("KIND", repr(kind))) as client:
                names = {t["name"] for t in client.join()["tensors"]}
                self.assertTrue({"0.weight", "1.running_mean", "2.bias"} < names, names)
                self.ones(client)
                client.fit()
                client.hear("fitted")
                self.assertEqual(client.result()["0.weight"], struct.pack("<f", 2) * 6)

    def test_an_object_gets_new_tensors_also_of_tied_ones(self):
        script = (
            MODEL
            + """
class Own:
    def __init__(self):
        self.w = torch.zeros(2, requires_grad=True)
    def state_dict(self):
        return {"w": self.w.detach(), "tied": self.w.detach(), "epoch": 3}
    def load_state_dict(self, state):
        assert state["w"] is state["tied"] and state["epoch"] == 3
        self.w = state["w"]

model = Own()
for job in fl.rounds(model):
    model.w = model.w * 3
    job.done(examples=1, loss=0)
"""
        )
        with FakeClient(script) as client:
            self.assertEqual([t["name"] for t in client.join()["tensors"]], ["w"])
            for number in (1, 2):
                self.ones(client)
                client.fit(number)
                client.hear("fitted")
                self.assertEqual(client.result(), {"w": struct.pack("<2f", 3, 3)})

    def test_workers_of_a_data_loader_that_import_the_script_leave_the_pipes_alone(self):
        script = """
import torch
import fl

DEVICE = fl.device()

class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, i):
        assert fl.device() == DEVICE == "cpu"
        return i

if __name__ == "__main__":
    model = torch.nn.Linear(1, 1)
    for job in fl.rounds(model):
        for method in ("spawn", "forkserver"):
            loader = torch.utils.data.DataLoader(Numbers(), num_workers=1, multiprocessing_context=method)
            assert sorted(int(batch) for batch in job.batches(loader)) == [0, 1, 2, 3]
        job.done(examples=1, loss=0)
"""
        with FakeClient(script) as client:
            client.join()
            self.ones(client)
            client.fit()
            client.hear("fitted")

    def test_a_loader_of_streamed_examples_and_one_without_batches(self):
        script = (
            MODEL
            + """
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(5))

for job in fl.rounds(model):
    with job:
        loader = DataLoader(Stream(), 2) if job.round == 1 else DataLoader(TensorDataset(torch.zeros(3)), 4, drop_last=True)
        job.done(examples=1, loss=sum(1 for _ in job.batches(loader)))
"""
        )
        with FakeClient(script) as client:
            client.join()
            self.ones(client)
            client.fit()
            self.assertEqual(client.hear("fitted")["loss"], 3)
            client.fit(2)
            self.assertIn("no batch in pass 1", client.hear("failed")["message"])

    def test_tied_weights_are_named_once(self):
        with FakeClient(
            MODEL + "model[2].weight = model[0].weight\nfor job in fl.rounds(model):\n    pass\n"
        ) as client:
            names = [t["name"] for t in client.join()["tensors"]]
            self.assertIn("0.weight", names)
            self.assertNotIn("2.weight", names)

    def test_in_a_group_the_first_process_speaks_and_the_others_get_its_weights(self):
        script = """
import os, sys
import torch, torch.distributed as dist
import fl

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
torch.set_num_threads(1)
net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)).to(torch.bfloat16 if BF16 else torch.float32)
model = net if BF16 else torch.nn.parallel.DistributedDataParallel(net)
for job in fl.rounds(model):
    mine = torch.cat([value.float().flatten() for value in net.state_dict().values()])
    sums = mine.clone()
    dist.all_reduce(sums)
    assert torch.equal(sums, 2 * mine), (rank, mine)
    assert job.client == "camera-07" and job.seed64 == 2**64 - 1
    if job.round == 2:
        raise ValueError(f"bad data in {rank}")
    with torch.no_grad():
        for value in net.parameters():
            value += 1
    job.done(examples=2, loss=0.5)
"""
        roles = {"1.running_mean": "buffer", "1.running_var": "buffer", "1.num_batches_tracked": "counter"}
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "{script}"]
        if importlib.metadata.version("torch") < "2":  # its torchrun does not start with Python 3.11
            command = [sys.executable, "-c", LAUNCHER, "{script}"]
        for bf16 in (False, True):
            with self.subTest(bf16=bf16), FakeClient(script.replace("BF16", str(bf16)), command=command) as client:
                names = [t["name"] for t in client.join(roles)["tensors"]]
                self.assertIn("0.weight", names)
                one = self.ones(client)
                client.fit(1)
                client.hear("fitted")
                self.assertEqual(client.result()["1.num_batches_tracked"], one["I64"])
                two = b"\x00\x40" if bf16 else struct.pack("<f", 2)
                self.assertEqual(client.result()["0.weight"], two * 6)
                client.fit(2)
                self.assertIn("ValueError: bad data in 0", client.hear("failed")["message"])
                self.assertIsNone(client.hear())
                self.assertNotEqual(client.end(), 0)


if __name__ == "__main__":
    unittest.main()
