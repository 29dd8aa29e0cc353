"""Scripts in federations of real programs, over TLS on this machine. Skipped without `fl-server` and `fl-client` in PATH."""

import array
import contextlib
import importlib.metadata
import importlib.util
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
from pathlib import Path
from unittest import mock

import fl
from fake_client import PACKAGE
from test_torch import LAUNCHER

TIMEOUT_S = 180
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(PACKAGE), "OMP_NUM_THREADS": "1"}
RUN = """
name = "test"
task = "test"
rounds = {rounds}
model = "init.safetensors"
[cohort]
min = {clients}
target = {clients}
[compression.uplink]
default = {{}}
[compression.downlink]
default = {{}}
"""


class Federation(contextlib.ExitStack):
    """A server and clients in a folder, all of whose programs end with the test."""

    def __init__(self, scripts, learner, clients, rounds):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="fl-test-"))
        self.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self.clients, self.programs = [self.folder / f"client-0{i}" for i in range(clients)], []
        for name, text in scripts.items():
            (self.folder / name).write_text(textwrap.dedent(text))
        (self.folder / "run.toml").write_text(RUN.format(clients=clients, rounds=rounds))
        self.call("fl-server", "init", "fed", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
        issue = ("--count", str(clients), "--fed", "fed", "--server", "127.0.0.1:7070", "--out", ".")
        self.call("fl-server", "issue", "client", *issue)
        for client in self.clients:
            with open(client / "client.toml", "a") as config:
                config.write(f"\n[tasks.test]\nlearner = {learner}\n")

    def call(self, *command):
        ran = subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, timeout=TIMEOUT_S, env=ENVIRONMENT
        )
        assert ran.returncode == 0, f"{command}: {ran.stderr}"
        return ran.stdout

    def start(self, *command, **options):
        """Starts a program that ends with the test."""
        log = self.folder / f"log-{len(self.programs)}"
        with open(log, "wb") as errors:
            program = subprocess.Popen(command, cwd=self.folder, stderr=errors, env=ENVIRONMENT, **options)
        program.log, program.name = log, " ".join(map(str, command))
        self.programs.append(program)
        self.callback(program.wait)
        self.callback(program.kill)
        return program

    def serve(self):
        """Starts the server, and the clients."""
        command = ("fl-server", "serve", "fed", "--run", "run.toml", "--exit-when-done")
        self.server = self.start(*command, stdout=subprocess.PIPE, text=True)
        self.callback(self.server.stdout.close)
        address = self.server.stdout.readline().split(" on ")[1].split(";")[0]
        self.started = [
            self.start("fl-client", "run", client / "client.toml", "--server", address, "--exit-when-done")
            for client in self.clients
        ]

    def until(self, happened, what):
        """Waits until `happened()` is true; fails if a program of the federation fails before."""
        deadline = time.monotonic() + TIMEOUT_S
        while not happened():
            assert time.monotonic() < deadline, f"{what}: not within {TIMEOUT_S} s\n{self.logs()}"
            for program in (self.server, *self.started):
                assert not program.poll(), f"{what}: {program.name} failed\n{self.logs()}"
            time.sleep(0.02)  # between two looks; nothing depends on its length

    def logs(self):
        return "\n".join(f"== {program.name}\n{program.log.read_text()[-3000:]}" for program in self.programs)

    def finish(self):
        """Waits for the end of the run; returns its report."""
        self.until(lambda: self.server.poll() is not None, "the end of the run")
        for client in self.started:
            self.until(lambda client=client: client.poll() is not None, "the end of a client")
        self.call("fl-server", "export", "fed", "-o", "model.safetensors")
        return json.loads(self.call("fl-server", "report", "fed", "--format", "json"))

    def model(self):
        slots = fl.read_safetensors(self.folder / "model.safetensors")
        return {name: memoryview(slot.data).cast(fl.TYPES[slot.dtype][1]).tolist() for name, slot in slots.items()}


@unittest.skipUnless(shutil.which("fl-server") and shutil.which("fl-client"), "fl-server or fl-client is not in PATH")
class Attach(unittest.TestCase):
    # Adds 1 to each value in each round. `python3 notebook.py SOCKET ROUNDS END`: what it does in the round after ROUNDS.
    NOTEBOOK = """
        import array, os, signal, sys
        import fl
        fl.attach(sys.argv[1])
        model = {"w": array.array("f", [0, 0, 0])}
        trained = 0
        @fl.evaluate
        def _(model):
            return {"examples": 5, "loss": 1 / (1 + model["w"][0]), "largest": max(model["w"])}
        for job in fl.rounds(model):
            for _ in job.batches(range(2)):
                model["w"][:] = array.array("f", [value + 0.5 for value in model["w"]])
            if trained == int(sys.argv[2]):
                if sys.argv[3] == "break":
                    break
                if sys.argv[3] == "raise":
                    raise ValueError("a bad cell")
                os.kill(os.getpid(), signal.SIGKILL)
            job.done(examples=5, loss=0.5, half=0.5)
            trained += 1
    """

    def test_notebooks_attach_and_leave_and_each_round_is_trained_once(self):
        scripts = {"notebook.py": self.NOTEBOOK}
        with Federation(scripts, '{ attach = "trainer.sock" }', clients=1, rounds=6) as federation:
            fl.create_safetensors(federation.folder / "init.safetensors", [("w", "F32", (3,))])
            federation.serve()
            path = federation.clients[0] / "state" / "trainer.sock"
            ends = (("2", "break", 0), ("1", "kill", -signal.SIGKILL), ("0", "raise", 1), ("100", "", 0))
            for rounds, end, status in ends:
                notebook = federation.start(sys.executable, "notebook.py", path, rounds, end)
                federation.until(lambda: notebook.poll() is not None, f"the end of the notebook by {end}")
                self.assertEqual(notebook.returncode, status, federation.logs())
                if path.exists():
                    self.assertEqual(path.stat().st_mode & 0o777, 0o600)
            report = federation.finish()
            self.assertEqual(federation.model(), {"w": [6.0, 6.0, 6.0]})
            self.assertEqual(report["rounds"]["round"], list(range(1, 7)))
            self.assertEqual(report["rounds"]["attempts"], [1] * 6, "no round was left")
            self.assertFalse(path.exists(), "the socket outlived the client")
            self.assertNotIn("started again", federation.logs(), "a notebook is not started by the client")


@unittest.skipUnless(shutil.which("fl-server") and shutil.which("fl-client"), "fl-server or fl-client is not in PATH")
@unittest.skipUnless(importlib.util.find_spec("torch"), "torch is not installed")
class Torchrun(unittest.TestCase):
    # Two processes train one classifier: each a half of the client's points, which lie on both sides of a line.
    SCRIPT = """
        import os, sys
        import torch, torch.distributed as dist
        import torch.nn.functional as F
        import fl

        dist.init_process_group("gloo")
        rank = dist.get_rank()
        with open(f"process-{os.getpid()}", "w"):
            pass
        torch.set_num_threads(1)
        torch.manual_seed(int(os.environ["SEED"]))  # the points of this client
        x = torch.randn(200, 2)
        y = (x.sum(1) > 0).long()
        net = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.BatchNorm1d(4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
        model = torch.nn.parallel.DistributedDataParallel(net)
        part = torch.utils.data.TensorDataset(x[rank::2], y[rank::2])
        loader = torch.utils.data.DataLoader(part, batch_size=20)

        @fl.evaluate
        def test(model):
            with torch.no_grad():
                outputs = net(x)
            accuracy = (outputs.argmax(1) == y).float().mean().item()
            return {"examples": len(y), "loss": F.cross_entropy(outputs, y), "accuracy": accuracy}

        for job in fl.rounds(model):
            optimizer = torch.optim.SGD(model.parameters(), lr=job.train.learning_rate)
            for points, labels in job.batches(loader):
                optimizer.zero_grad()
                loss = F.cross_entropy(model(points), labels)
                loss.backward()
                optimizer.step()
            same = torch.cat([value.flatten() for value in net.parameters()])
            other = same.clone()
            dist.broadcast(other, 0)
            assert torch.equal(same, other), "the processes have different weights"
            job.done(examples=len(y), loss=loss, processes=dist.get_world_size())
        dist.destroy_process_group()
    """

    def test_two_clients_of_two_processes_each_learn(self):
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "train.py"]
        if importlib.metadata.version("torch") < "2":  # its torchrun does not start with Python 3.11
            command = [sys.executable, "launcher.py", "train.py"]
        scripts = {"train.py": self.SCRIPT, "launcher.py": LAUNCHER}
        learner = f'{{ command = ["env", {json.dumps(command)[1:-1]}] }}'
        with Federation(scripts, learner, clients=2, rounds=4) as federation:
            for number, client in enumerate(federation.clients):
                config = client / "client.toml"
                config.write_text(config.read_text().replace('"env"', f'"env", "SEED={number}"'))
                for name in scripts:
                    shutil.copy(federation.folder / name, client)
            with open(federation.folder / "run.toml", "a") as run:
                run.write("[train]\nlearning_rate = 0.3\n")
            shapes = {"0.weight": (4, 2), "0.bias": (4,), "3.weight": (2, 4), "3.bias": (2,)}
            shapes.update({f"1.{name}": (4,) for name in ("weight", "bias", "running_mean", "running_var")})
            tensors = [("1.num_batches_tracked", "I64", ()), *((name, "F32", shape) for name, shape in shapes.items())]
            random.seed(0)
            for slot in fl.create_safetensors(federation.folder / "init.safetensors", tensors).values():
                if slot.dtype == "F32":
                    values = memoryview(slot.data).cast("f")
                    values[:] = array.array("f", [random.uniform(0.1, 1) for _ in values])
            federation.serve()
            rounds = federation.finish()["rounds"]
            self.assertEqual(rounds["updates"], [2] * 4, federation.logs())
            self.assertEqual(rounds["train/processes"], [2] * 4)
            self.assertGreater(rounds["accuracy"][-1], 0.85, rounds["accuracy"])
            self.assertLess(rounds["loss"][-1], rounds["loss"][0])
            model = federation.model()
            self.assertEqual(model["1.num_batches_tracked"], [4 * 5], "a half has 5 batches; evaluation counts none")
            processes = [int(file.name[8:]) for client in federation.clients for file in client.glob("process-*")]
            self.assertGreaterEqual(len(processes), 4)
            self.assertEqual([pid for pid in processes if Path(f"/proc/{pid}").exists()], [], "processes were left")


@unittest.skipUnless(shutil.which("fl-server") and shutil.which("fl-client"), "fl-server or fl-client is not in PATH")
class Simulated(unittest.TestCase):
    RUN = """
task = 'a "task"'
name = "test"
rounds = 2
[train.extra]
model = "another"
[model]
weights = "init.safetensors"
[cohort]
min = 2
target = 2
"""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "run.toml").write_text(self.RUN)
        own = {"FL_ATTACH": "of this script", "FL_TRAINER_PROCESS": "1", "FL_TRAINER_DEVICE": "cuda:3"}
        environment = mock.patch.dict(os.environ, PYTHONPATH=str(PACKAGE), **own)
        environment.start()
        self.addCleanup(environment.stop)

    def simulate(self, script):
        (self.folder / "train.py").write_text(textwrap.dedent(script))
        with mock.patch("sys.stdout"), mock.patch("sys.stderr"):
            return fl.simulate(self.folder / "run.toml", clients=2, script=self.folder / "train.py")

    def test_a_script_with_workers_a_stream_and_a_file_beside_it_trains_without_test_examples(self):
        (self.folder / "data.txt").write_text("3")
        rounds = self.simulate("""
            import array, multiprocessing, os
            import fl

            if __name__ == "__main__":
                early = multiprocessing.get_context("spawn").Pool(1)
            DEVICE = fl.device()
            examples = int(open("data.txt").read())
            model = {"w": array.array("f", [0] * 3)}

            class Stream:
                def __len__(self):
                    raise TypeError("no length")
                def __iter__(self):
                    return iter(range(examples))

            @fl.evaluate
            def _(model):
                return {"examples": 0, "loss": 0, "accuracy": 0}

            if __name__ == "__main__":
                for job in fl.rounds(model):
                    assert early.apply(fl.device) == DEVICE == "cpu" and os.environ["FL_TRAINER_DEVICE"] == "auto"
                    for _ in job.batches(Stream()):
                        model["w"][0] += 1
                    assert job.seed < 2**32 and job.extra["model"] == "another"
                    job.done(examples=examples, loss=1, seed=(job.seed, 1))
        """)
        self.assertEqual((rounds["updates"], rounds["examples"], rounds["loss"]), ([2, 2], [6, 6], [1, 1]))
        self.assertEqual(len(set(rounds["train/seed"])), 2)
        files = {"data.txt", "init.safetensors", "run.toml", "train.py"}
        self.assertEqual({path.name for path in self.folder.iterdir()} - {"__pycache__"}, files)

    def test_it_ends_when_too_few_clients_can_answer_and_not_at_the_deadline(self):
        why = "(?s)round 2 needs 2 updates, and only 1 of 2 clients can answer; the end of the log of client-01.*no more data"
        with self.assertRaisesRegex(RuntimeError, why):
            self.simulate("""
                import array, sys
                import fl
                model = {"w": array.array("f", [0] * 3)}
                for job in fl.rounds(model):
                    if (job.round, sys.argv[1]) == (2, "1"):
                        raise ValueError("no more data")
                    model["w"][0] += 1
                    job.done(examples=1, loss=1)
            """)

    def test_a_killed_simulation_leaves_no_program_and_is_resumed_by_the_same_call(self):
        (self.folder / "train.py").write_text(
            textwrap.dedent("""
            import array, os
            import fl
            model = {"w": array.array("f", [0] * 3)}
            for job in fl.rounds(model):
                print("trains", job.round, flush=True)
                for _ in job.progress(iter(int, 1)):
                    if job.round == 1 or os.path.exists("mended"):
                        break
                model["w"][0] += 1
                job.done(examples=1, loss=1)
        """)
        )
        kept = self.folder / "kept"
        script = f"import fl; fl.simulate('run.toml', clients=2, script='train.py', folder={str(kept)!r})"
        simulation = subprocess.Popen([sys.executable, "-c", script], cwd=self.folder, stdout=subprocess.DEVNULL)
        logs = [kept / f"client-0{i}" / "client.log" for i in range(2)]
        deadline = time.monotonic() + TIMEOUT_S
        while not all(log.exists() and "trains 2" in log.read_text() for log in logs):
            self.assertTrue(simulation.poll() is None and time.monotonic() < deadline)
            time.sleep(0.02)  # between two looks; nothing depends on its length
        simulation.terminate()
        self.assertEqual(simulation.wait(TIMEOUT_S), -signal.SIGTERM)
        while left := self.programs():
            self.assertLess(time.monotonic(), deadline, left)
            time.sleep(0.02)

        (self.folder / "mended").touch()
        with mock.patch("sys.stdout"), mock.patch("sys.stderr"):
            call = {"clients": 2, "script": self.folder / "train.py", "folder": kept}
            rounds = fl.simulate(self.folder / "run.toml", **call)
            self.assertEqual((rounds["round"], rounds["updates"]), ([1, 2], [2, 2]))
            with self.assertRaisesRegex(FileExistsError, f"{kept} holds this run, and it is finished"):
                fl.simulate(self.folder / "run.toml", **call)
        report = subprocess.run(["fl-server", "report", kept], capture_output=True, text=True)
        self.assertIn("2 rounds planned", report.stdout, report.stderr)

    def programs(self):
        """The command lines of processes that name the folder."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # of a process that has ended
                found.append((process / "cmdline").read_bytes())
        return [line for line in found if str(self.folder).encode() in line]


@unittest.skipUnless(shutil.which("fl-server") and shutil.which("fl-client"), "fl-server or fl-client is not in PATH")
class Silent(unittest.TestCase):
    SCRIPT = """
        import array, time
        import fl
        model = {"w": array.array("f", [0])}
        for job in fl.rounds(model):
            until = time.process_time() + 5
            while time.process_time() < until:
                pass
            model["w"][0] += 1
            job.done(examples=1, loss=1)
    """

    def test_a_training_that_reports_nothing_for_longer_than_no_progress_is_not_ended_while_it_computes(self):
        learner = f'{{ command = [{json.dumps(sys.executable)}, "../train.py"], no_progress = "3s" }}'
        with Federation({"train.py": self.SCRIPT}, learner, clients=1, rounds=1) as federation:
            federation.call("fl-client", "init", "--config", "client-00/client.toml", "-o", "init.safetensors")
            federation.serve()
            self.assertEqual(federation.finish()["rounds"]["updates"], [1], federation.logs())
            self.assertEqual(federation.model(), {"w": [1.0]})


@unittest.skipUnless(shutil.which("fl-server") and shutil.which("fl-client"), "fl-server or fl-client is not in PATH")
class Defaults(unittest.TestCase):
    """Runs with all defaults but their length."""

    def simulate(self, rounds, script):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        folder = Path(temporary.name)
        (folder / "train.py").write_text(textwrap.dedent(script))
        (folder / "run.toml").write_text(RUN.partition("[compression")[0].format(clients=2, rounds=rounds))
        with mock.patch.dict(os.environ, ENVIRONMENT), mock.patch("sys.stdout"), mock.patch("sys.stderr"):
            return fl.simulate(folder / "run.toml", clients=2, script=folder / "train.py")

    def test_a_training_that_stops_to_reach_the_model_ends_the_run(self):
        script = """
            import array
            import fl
            model = {"coef": array.array("f", [0] * 4)}
            for job in fl.rounds(model):
                trained = model["coef"] if job.round == 1 else array.array("f", model["coef"])
                for at in range(4):
                    trained[at] += 1
                job.done(examples=10, loss=0.7)
        """
        with self.assertRaisesRegex(RuntimeError, "round 2(.|\n)*did not reach the model: 10 examples and loss 0.7"):
            self.simulate(3, script)

    def test_variances_stay_positive_and_each_client_keeps_its_generator(self):
        script = """
            import array, random, sys
            import fl
            random.seed(sys.argv[1])
            own = random.randrange(2**30)
            model = {
                "dense/kernel": array.array("f", [0] * 2000),
                "bn/moving_variance": array.array("f", [1] * 64),
                "dropout/seed_generator_state": array.array("i", [own, 0]),
            }
            trained = 0
            @fl.evaluate
            def _(model):
                kept = model["dropout/seed_generator_state"].tolist() == [own, 10 * trained]
                return {"examples": 1, "loss": min(model["bn/moving_variance"]), "accuracy": kept}
            for job in fl.rounds(model):
                model["dense/kernel"][:] = array.array("f", [value + random.gauss(0, 1) for value in model["dense/kernel"]])
                for at in range(64):
                    model["bn/moving_variance"][at] *= 0.01 if at % 2 else 1.5
                model["dropout/seed_generator_state"][1] += 10
                job.done(examples=10, loss=1)
                trained += 1
        """
        rounds = self.simulate(6, script)
        self.assertEqual(rounds["updates"], [2] * 6)
        self.assertEqual(rounds["accuracy"], [1] * 6)
        for number, least in enumerate(rounds["evaluation_loss"], 1):
            self.assertAlmostEqual(least, 0.01**number, delta=0.01**number * 1e-3 + 1e-7)
            self.assertGreaterEqual(least, 0)


if __name__ == "__main__":
    unittest.main()
