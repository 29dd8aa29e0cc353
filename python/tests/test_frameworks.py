"""The scripts of examples/frameworks in a federation of three clients, against a loop over three clients in the framework alone.

Each test needs its framework and the programs, and says so where it is skipped. `.ci/frameworks` installs all frameworks.
"""

import importlib.util
import math
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import types
import unittest
from pathlib import Path
from unittest import mock

import fl
from fake_client import PACKAGE, FakeClient

EXAMPLES = PACKAGE.parent / "examples" / "frameworks"
CLIENTS, ROUNDS = 3, 4
LOSSLESS = "".join(f"\n[compression.{way}]\ndefault = {{}}\n" for way in ("uplink", "downlink"))
# Loaded by every Python of the federation: the number of a round is its seed, as in the loop without a federation.
SEEDS = """
import fl
begin = fl.Job.__init__
fl.Job.__init__ = lambda self, session, message, train: begin(self, session, {**message, "seed": message["round"]}, train)
"""
TORCHRUN = """
import subprocess, sys
launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
sys.exit(subprocess.call([*launcher, "inner.py", *sys.argv[1:]], close_fds=False))
"""


class Federated:
    """A run of a script in a folder of its own: the table of its rounds, and the tensors of its last model."""

    def __init__(self, name, run, rounds=ROUNDS, script=None, inner=""):
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            (folder / f"{name}.py").write_text(script or (EXAMPLES / f"{name}.py").read_text())
            (folder / "inner.py").write_text(inner)
            plan = (EXAMPLES / "run.toml").read_text().replace("rounds = 4", f"rounds = {rounds}")
            (folder / "run.toml").write_text(plan + run)
            (folder / "sitecustomize.py").write_text(textwrap.dedent(SEEDS))
            environment = {"PYTHONPATH": f"{folder}:{PACKAGE}", "YOLO_OFFLINE": "true", "OMP_NUM_THREADS": "1"}
            with mock.patch.dict(os.environ, environment), mock.patch("sys.stdout"), mock.patch("sys.stderr"):
                call = {"clients": CLIENTS, "script": folder / f"{name}.py", "folder": folder / "federation"}
                self.rounds = fl.simulate(folder / "run.toml", **call)
            file = folder / "model.safetensors"
            subprocess.run(["fl-server", "export", folder / "federation", "-o", file], check=True, capture_output=True)
            import numpy

            slots = fl.read_safetensors(file)
            self.model = {
                name: numpy.frombuffer(slot.data, fl.TYPES[slot.dtype][0]).reshape(slot.shape).copy()
                for name, slot in slots.items()
            }


class Plain:
    """The same scripts in this process, with a module `fl` of a few lines that only averages by the framework's own means."""

    def __init__(self, name, script, get, set):
        self.script = compile(script, name, "exec")
        self.get, self.set, self.models, self.losses = get, set, {}, []
        self.answers, self.turn, self.name = {}, threading.Condition(), name
        if "torch" in sys.modules or importlib.util.find_spec("torch"):
            importlib.import_module("torch").set_num_threads(1)  # as in the clients of `fl.simulate`
        self.now = 0  # the client that computes
        threads = [threading.Thread(target=self.client, args=(i,), daemon=True) for i in range(CLIENTS)]
        self.error = None
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.error:
            raise self.error

    def client(self, i):
        try:
            self.wait(i)
            if "keras" in sys.modules:
                sys.modules["keras"].backend.clear_session()
            stub = types.ModuleType("fl")
            stub.evaluate, stub.device = lambda function: function, lambda: "cpu"
            stub.keras = lambda model: model
            stub.tree = lambda tree: tree if hasattr(tree, "train") else types.SimpleNamespace(tree=tree)
            stub.rounds = lambda model, **_: self.rounds(i, model)
            stub.yolo = lambda *given, **named: self.yolo(i, *given, **named)
            stub.lightning = lambda *given, **named: self.lightning(i, *given, **named)
            with mock.patch.dict(sys.modules, fl=stub), mock.patch("sys.argv", [self.name, str(i), str(CLIENTS)]):
                exec(self.script, {"__name__": "__main__"})
        except BaseException as error:
            self.error = self.error or error
        finally:
            self.now = None if self.error else self.now
            self.pass_on(i)

    def wait(self, i):
        with self.turn:
            self.turn.wait_for(lambda: self.now in (i, None))
        if self.now is None:
            raise RuntimeError("another client has failed") from self.error

    def pass_on(self, i):
        with self.turn:
            self.now = None if self.now is None else (i + 1) % CLIENTS
            self.turn.notify_all()

    def rounds(self, i, model):
        self.models[i] = model
        if i == 0:
            self.first = self.model = self.get(model)
        for number in range(1, ROUNDS + 1):
            self.set(model, self.model)
            job = fl.Job(None, {"round": number, "rounds": ROUNDS, "seed": number}, fl.Train(learning_rate=0.1))
            job.done = lambda examples, loss, **_: self.answers.update({i: (examples, loss, self.get(model))})
            yield job
            if len(self.answers) == CLIENTS:
                self.average()
            self.pass_on(i)
            self.wait(i)

    def average(self):
        total = sum(examples for examples, _, _ in self.answers.values())
        self.losses.append(sum(examples * float(loss) for examples, loss, _ in self.answers.values()) / total)
        self.model = {
            name: sum(examples * model[name].astype("float64") for examples, _, model in self.answers.values()) / total
            for name in self.model
        }
        self.model = {name: value.astype("float32") for name, value in self.model.items()}
        self.answers = {}

    def lightning(self, i, module, trainer, data, validation):
        import torch

        for job in self.rounds(i, module):
            torch.manual_seed(job.seed)
            trainer(job).fit(module, data, validation)
            job.done(examples=len(data.dataset), loss=0)

    def yolo(self, i, model, data, **arguments):
        """By callbacks of Ultralytics: weights into the model that it trains, and out of it before its final validation."""
        import ultralytics

        with tempfile.TemporaryDirectory() as folder:
            base = ultralytics.models.yolo.detect.DetectionTrainer
            own = {"project": folder, "device": "cpu", **arguments}
            first = base(overrides={"model": "yolov8n.yaml", "data": data, **own})
            first.setup_model()
            net = first.model
            for job in self.rounds(i, net):
                late = {"close_mosaic": 1, "warmup_epochs": 0 if job.round > 1 else 3}
                model = ultralytics.YOLO("yolov8n.yaml")
                model.add_callback("on_train_start", lambda trainer: trainer.model.load_state_dict(net.state_dict()))
                model.add_callback(
                    "on_train_epoch_end", lambda trainer: net.load_state_dict(trainer.model.state_dict())
                )
                model.train(data=data, epochs=1, batch=32, lrf=1.0, seed=job.seed, val=False, **own, **late)
                job.done(examples=48, loss=0)


def torch_get(model):
    model = getattr(model, "module", model)
    return {
        name: value.detach().numpy().copy()
        for name, value in model.state_dict().items()
        if value.dtype.is_floating_point
    }


def torch_set(model, arrays):
    import torch

    own = model.state_dict()
    model.load_state_dict({**own, **{name: torch.tensor(value) for name, value in arrays.items()}})


def keras_get(model):
    return dict(zip([variable.path for variable in model.weights], model.get_weights()))


def tree_leaves(model):
    import jax

    tree = model.tree if hasattr(model, "tree") else importlib.import_module("flax.nnx").state(model)
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return tree, {jax.tree_util.keystr(path): leaf for path, leaf in leaves if hasattr(leaf, "dtype")}


def tree_get(model):
    import numpy

    return {name: numpy.array(leaf) for name, leaf in tree_leaves(model)[1].items() if "float" in str(leaf.dtype)}


def tree_set(model, arrays):
    import jax

    tree, _ = tree_leaves(model)
    new = jax.tree_util.tree_map_with_path(
        lambda path, leaf: (
            jax.numpy.asarray(arrays.get(jax.tree_util.keystr(path), leaf))
            if jax.tree_util.keystr(path) in arrays
            else leaf
        ),
        tree,
    )
    if hasattr(model, "tree"):
        model.tree = new
    else:
        importlib.import_module("flax.nnx").update(model, new)


# Of the way that training has moved the model. Adam divides by the root of the mean square: the rounding of a gradient that is
# near zero, such as that of a bias before a normalization, becomes a part of a step.
SGD, ADAM, YOLO = 1e-4, 0.05, 2e-3
KERAS = (keras_get, lambda model, arrays: model.set_weights(list(arrays.values())))
TORCH, TREE = (torch_get, torch_set), (tree_get, tree_set)


def plain_name(name):
    """A path of JAX, such as `['params'][0].weight`, as `fl` writes it."""
    parts = name.replace("['", "/").replace("']", "").replace("[", "/").replace("]", "").replace(".", "/").strip("/")
    return parts.removesuffix("/value")


@unittest.skipUnless(shutil.which("fl-server") and shutil.which("fl-client"), "fl-server or fl-client is not in PATH")
class Frameworks(unittest.TestCase):
    def equal(self, name, needs, means, tolerance=SGD, change=("", "")):
        """The federated model is that of a loop over clients, to rounding, under the names of the framework."""
        if missing := [package for package in needs if not importlib.util.find_spec(package)]:
            self.skipTest(f"{', '.join(missing)} is not installed")
        script = (EXAMPLES / f"{name}.py").read_text()
        self.assertIn(change[0], script)
        script = script.replace(*change) if change[0] else script
        with tempfile.TemporaryDirectory() as folder:
            self.addCleanup(os.chdir, os.getcwd())
            os.chdir(folder)  # where a script writes
            plain = Plain(name, script, *means)
            os.chdir("/")
        federated = Federated(name, LOSSLESS, script=script)
        expected = {plain_name(key): value for key, value in plain.model.items()} if means is TREE else plain.model
        floats = {key: value for key, value in federated.model.items() if value.dtype.kind == "f"}
        self.assertEqual(floats.keys(), expected.keys())
        first = {plain_name(key) if means is TREE else key: value for key, value in plain.first.items()}
        apart = math.sqrt(sum(((floats[key] - value) ** 2).sum() for key, value in expected.items()))
        moved = math.sqrt(sum(((first[key] - value) ** 2).sum() for key, value in expected.items()))
        self.assertLess(apart / moved, tolerance)
        self.assertEqual(federated.rounds["updates"], [CLIENTS] * ROUNDS)
        return federated

    def test_keras(self):
        self.equal("keras_cnn", ["keras", os.environ.get("KERAS_BACKEND", "tensorflow")], KERAS)

    def test_flax_nnx(self):
        self.equal("flax_nnx", ["flax", "optax"], TREE)

    def test_flax_linen(self):
        self.equal("flax_linen", ["flax", "optax"], TREE)

    def test_equinox(self):
        self.equal("equinox_mlp", ["equinox", "optax"], TREE, ADAM)

    def test_haiku(self):
        self.equal("haiku_cnn", ["haiku", "optax"], TREE)

    def test_lightning(self):
        self.equal("lightning_mlp", ["lightning"], TORCH)

    def test_sentence_transformers(self):
        if missing := [name for name in ("sentence_transformers", "datasets") if not importlib.util.find_spec(name)]:
            self.skipTest(f"{', '.join(missing)} is not installed")
        losses = Federated("sentence_transformer", LOSSLESS).rounds["evaluation_loss"]
        self.assertLess(losses[-1], losses[0])

    def test_lightning_in_two_processes_of_each_client(self):
        if not importlib.util.find_spec("lightning"):
            self.skipTest("lightning is not installed")
        script = (EXAMPLES / "lightning_mlp.py").read_text()
        one = Federated("lightning_mlp", LOSSLESS).rounds
        script = script.replace("**quiet)", 'accelerator="cpu", devices=2, strategy="ddp", **quiet)')
        two = Federated("lightning_mlp", LOSSLESS, script=TORCHRUN, inner=script).rounds
        self.assertEqual(two["updates"], [CLIENTS] * ROUNDS)
        self.assertEqual(two["examples"], one["examples"])
        self.assertLess(two["loss"][-1], two["loss"][0])

    def test_yolo(self):
        change = ('optimizer="AdamW", lr0=0.002', 'optimizer="SGD", lr0=0.01')
        federated = self.equal("yolo", ["ultralytics"], TORCH, YOLO, change)
        from ultralytics.nn.tasks import DetectionModel

        state = {name: importlib.import_module("torch").tensor(value) for name, value in federated.model.items()}
        DetectionModel("yolov8n.yaml", nc=2, verbose=False).load_state_dict(state, strict=True)

    def test_monai(self):
        self.equal("monai_unet", ["monai"], TORCH, ADAM)

    def test_timm(self):
        self.equal("timm_resnet", ["timm"], TORCH, ADAM)

    def test_fastai(self):
        self.equal("fastai_mlp", ["fastai"], TORCH, ADAM)

    def test_accelerate(self):
        self.equal("accelerate_mlp", ["accelerate"], TORCH, ADAM)


class Stops(unittest.TestCase):
    """A training of many epochs ends soon after its answer is no longer wanted, and the script trains the next round."""

    def stopped(self, name, needs, change, endless):
        if missing := [package for package in needs if not importlib.util.find_spec(package)]:
            self.skipTest(f"{', '.join(missing)} is not installed")
        script = (EXAMPLES / f"{name}.py").read_text()
        self.assertIn(change, script)
        own = {"YOLO_OFFLINE": "true", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "{script}", "0", "3"]
        with FakeClient(script.replace(change, endless), command=command, env=own) as client:
            hello = client.join()
            slots = fl.read_safetensors(client.work / hello["weights"])
            client.weights({tensor["name"]: slots[tensor["name"]].data for tensor in client.traveling})
            for number in (1, 2):
                client.fit(number)
                self.assertEqual(client.hear("progress")["type"], "progress")
                client.say(type="stop")
                self.assertEqual(client.hear("failed")["message"], "stopped")

    def test_keras(self):
        needs = ["keras", os.environ.get("KERAS_BACKEND", "tensorflow")]
        self.stopped("keras_cnn", needs, "epochs=job.train.epochs", "epochs=10**6")

    def test_lightning(self):
        self.stopped("lightning_mlp", ["lightning"], "max_epochs=job.train.epochs", "max_epochs=10**6")

    def test_yolo(self):
        self.stopped("yolo", ["ultralytics"], "imgsz=96", "imgsz=96, epochs=10**6")


@unittest.skipUnless(importlib.util.find_spec("jax"), "JAX is not installed")
class Trees(unittest.TestCase):
    def kinds(self, tree, *roles):
        weights = fl.tree(tree, *roles)
        return dict.fromkeys(weights.state_dict()) | weights.fl_kinds()

    def test_roles_follow_the_shape_of_the_tree(self):
        from jax import numpy, random

        one, count = numpy.ones(3), numpy.arange(3)
        self.assertEqual(self.kinds([(one, one), (one, one)]), dict.fromkeys(["0/0", "0/1", "1/0", "1/1"]))
        self.assertEqual(self.kinds(((one, one), (one, one))), dict.fromkeys(["0/0", "0/1", "1/0", "1/1"]))
        self.assertEqual(self.kinds((one, one)), {"0": None, "1": None})
        self.assertEqual(self.kinds(({"w": one}, {"mean": one})), {"0/w": "parameter", "1/mean": "buffer"})
        linen = {"params": {"w": one}, "batch_stats": {"mean": one}, "key": random.key(0), "count": count}
        self.assertEqual(self.kinds(linen), {"params/w": "parameter", "batch_stats/mean": "buffer"})
        self.assertEqual(self.kinds({"w": one}, {"w": "local"}), {"w": "local"})

    def test_what_is_no_model_is_refused(self):
        from jax import numpy

        for wrong in (None, {"a": numpy.arange(3)}, object()):
            with self.assertRaisesRegex(TypeError, "fl.tree takes a pytree with floating-point arrays of JAX, not a"):
                fl.tree(wrong)
        if importlib.util.find_spec("optax"):
            state = importlib.import_module("optax").adam(0.1).init({"w": numpy.ones(3)})
            with self.assertRaisesRegex(TypeError, "the state of an optimizer, which a dict holds"):
                fl.tree({"params": {"w": numpy.ones(3)}, "opt_state": state})


@unittest.skipUnless(os.environ.get("FL_FRAMEWORKS"), "a long test, of .ci/frameworks")
class Codec(unittest.TestCase):
    """Ten rounds with the default codec are within 3 points of ten without compression."""

    def within_three_points(self, name, needs, figure, train=""):
        if missing := [package for package in needs if not importlib.util.find_spec(package)]:
            self.skipTest(f"{', '.join(missing)} is not installed")
        plain, default = (Federated(name, train + run, rounds=10).rounds for run in (LOSSLESS, ""))
        sent = [sum(rounds["socket_up"]) + sum(rounds["socket_down"]) for rounds in (plain, default)]
        last = [
            sum(rounds[figure][-3:]) / 3 for rounds in (plain, default)
        ]  # of the last three, as one round alone is noisy
        row = [f"{100 * value:.1f}" for value in last] + [f"{sent[0] / sent[1]:.1f} times fewer bytes"]
        print(f"\n| {name} | {figure} | {' | '.join(row)} |", file=sys.stderr)
        self.assertTrue(all(map(math.isfinite, default["loss"])))
        self.assertGreater(last[1], last[0] - 0.03)

    def test_yolo(self):
        self.within_three_points("yolo", ["ultralytics"], "evaluation/metrics/mAP50(B)", "epochs = 5\n")

    def test_keras(self):
        self.within_three_points("keras_cnn", ["keras"], "accuracy")

    def test_flax(self):
        self.within_three_points("flax_nnx", ["flax", "optax"], "accuracy")

    def test_monai(self):
        self.within_three_points("monai_unet", ["monai"], "evaluation/dice")


# A model of 10 tensors of a million values by {kind}, whose training adds 1 to one tensor.
OVERHEAD = """
import sys
import fl
import numpy as np
names = [f"layer{i}" for i in range(10)]
if sys.argv[1] == "fl.Weights":
    values = {name: np.ones((1000, 1000), "float32") for name in names}
    model = fl.Weights(lambda: values, values.update)
    step = lambda: values["layer0"].__iadd__(1)
elif sys.argv[1] == "fl.tree":
    import jax
    model = fl.tree({name: jax.numpy.ones((1000, 1000)) for name in names})
    step = lambda: model.tree.update(layer0=model.tree["layer0"] + 1)
elif sys.argv[1] == "fl.keras":
    import keras
    net = keras.Sequential([keras.Input((1000,)), *(keras.layers.Dense(1000, use_bias=False) for _ in names)])
    model, step = fl.keras(net), lambda: net.weights[0].assign_add(net.weights[0] * 0 + 1)
else:
    import torch
    model = torch.nn.ParameterDict({name: torch.nn.Parameter(torch.ones(1000, 1000)) for name in names})
    step = lambda: model["layer0"].data.add_(1)
for job in fl.rounds(model):
    step()
    job.done(examples=1, loss=1, unchanged_ok=True)
"""


@unittest.skipUnless(os.environ.get("FL_FRAMEWORKS"), "a measurement, of .ci/frameworks")
class Overhead(unittest.TestCase):
    def test_seconds_of_a_round_of_ten_million_values_without_training(self):
        data = os.urandom(40_000_000)
        for kind in ("torch", "fl.Weights", "fl.tree", "fl.keras"):
            with FakeClient(OVERHEAD, command=[sys.executable, "{script}", kind]) as client:
                client.join()
                client.weights({tensor["name"]: data[:4_000_000] for tensor in client.traveling})
                seconds, files = [], []
                for number in range(1, 9):
                    begin = time.perf_counter()
                    client.fit(number)
                    client.hear("fitted")
                    seconds.append(time.perf_counter() - begin)
                    begin = time.perf_counter()
                    (client.folder / "file").write_bytes(data)
                    (client.folder / "file").read_bytes()
                    files.append(time.perf_counter() - begin)
            median, file = sorted(seconds[1:])[3], sorted(files[1:])[3]
            print(f"\n| {kind} | {median:.3f} s | {median / file:.1f} |", file=sys.stderr)


if __name__ == "__main__":
    unittest.main()
