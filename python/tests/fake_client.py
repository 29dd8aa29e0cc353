"""A client in Python that speaks docs/reference/trainers.md with a script, for the tests of `fl`."""

import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import fl

PACKAGE = Path(fl.__file__).parent.parent
TRAIN = {"epochs": 1, "steps": None, "batch_size": 32, "learning_rate": 0.05, "momentum": 0.0}
TIMEOUT_S = 120


def _high(descriptor):
    """The same file at a descriptor of 10 or more, out of the way of 3 and 4."""
    high = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    return high


class FakeClient:
    """Starts a script as `fl-client` does, and says and hears one message at a time."""

    def __init__(self, script, command=None, env=None, start=True, interpreter=sys.executable):
        self.folder = Path(tempfile.mkdtemp(prefix="fl-test-"))
        self.script = self.folder / "train.py"
        self.script.write_text(textwrap.dedent(script))
        self.work = self.folder / "trainer"
        self.work.mkdir()
        self.errors = self.folder / "stderr"
        reader, self.writer = map(_high, os.pipe())
        self.reader, writer = map(_high, os.pipe())
        held = []
        while not held or held[-1] <= 4:  # so that 3 and 4 are free for `dup2` in the child
            held.append(os.open("/dev/null", os.O_RDONLY))

        def redirect():
            os.dup2(reader, 3)
            os.dup2(writer, 4)

        with open(self.errors, "wb") as errors:
            self.process = subprocess.Popen(
                [part.replace("{script}", str(self.script)) for part in command or [interpreter, "{script}"]],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                cwd=self.folder,
                preexec_fn=redirect,
                pass_fds=(3, 4),
                start_new_session=True,
                env={
                    **os.environ,
                    "PYTHONPATH": str(PACKAGE),
                    "FL_TRAINER": "1",
                    "FL_TRAINER_FOLDER": str(self.work),
                    **(env or {}),
                },
            )
        for descriptor in (reader, writer, *held):
            os.close(descriptor)
        self.rest = b""
        if start:
            self.say(type="start", version=1, folder=str(self.work), task="test", device="cpu", unknown_field=1)

    def say(self, **message):
        os.write(self.writer, json.dumps(message, separators=(",", ":")).encode() + b"\n")

    def hear(self, *types):
        """The next message, which must be of one of these types; None at the end of the pipe. Skips `progress`."""
        while True:
            while b"\n" not in self.rest:
                ready, _, _ = select.select([self.reader], [], [], TIMEOUT_S)
                assert ready, f"nothing was heard for {TIMEOUT_S} s; {self.stderr()}"
                data = os.read(self.reader, 1 << 16)
                if not data:
                    assert not types, f"the pipe ended; {self.stderr()}"
                    return None
                self.rest += data
            line, _, self.rest = self.rest.partition(b"\n")
            message = json.loads(line)
            if message["type"] == "progress" and "progress" not in types:
                continue
            assert message["type"] in types, f"{message}; {self.stderr()}"
            return message

    def join(self, roles=None, **fields):
        """Hears `hello` and says `join` with the tensors of it, which are trained unless `roles` has another role."""
        hello = self.hear("hello")
        self.tensors = [{**t, "role": (roles or {}).get(t["name"], "trained")} for t in hello["tensors"]]
        self.traveling = [t for t in self.tensors if t["role"] in ("trained", "buffer", "counter")]
        given = {"run": "r", "client": "camera-07", "rounds": 3, "seed": 42, "base": None, "local": None}
        self.say(type="join", tensors=self.tensors, **{**given, **fields})
        return hello

    def weights(self, values, name="model.safetensors"):
        """Writes tensors as a file of the work folder: bytes by name."""
        described = {t["name"]: t for t in self.tensors}
        slots = fl.create_safetensors(
            self.work / name, [(n, described[n]["dtype"], described[n]["shape"]) for n in values]
        )
        for tensor, data in values.items():
            slots[tensor].data[:] = data

    def fit(self, number=1, **fields):
        """Asks for a round."""
        message = {"round": number, "rounds": 3, "seed": 2**64 - 1, "deadline_s": 100.0, "train": TRAIN, "extra": {}}
        names = {"weights": "model.safetensors", "result": "update.safetensors"}
        self.say(type="fit", **{**message, **names, **fields})

    def result(self):
        """The bytes of each tensor that the script returned."""
        slots = fl.read_safetensors(self.work / "update.safetensors")
        return {name: bytes(slot.data) for name, slot in slots.items()}

    def stderr(self):
        return self.errors.read_text()

    def end(self):
        """Closes the pipe; returns the exit status."""
        os.close(self.writer)
        self.writer = None
        return self.process.wait(TIMEOUT_S)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        for descriptor in {self.writer, self.reader} - {None}:
            os.close(descriptor)
        for path in sorted(self.folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        self.folder.rmdir()
