"""A whole federation on this machine: the programs of the wheel, real sockets and certificates."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Optional, Union

PathLike = Union[str, "os.PathLike[str]"]


def simulate(
    run: PathLike,
    *,
    clients: int,
    script: PathLike,
    arguments: Sequence[str] = ("{i}", "{n}"),
    folder: Optional[PathLike] = None,
) -> dict[str, list[Any]]:
    """Trains a run with `clients` processes of `script` on this machine, and returns the table of its rounds.

    Args:
        run: The run.toml. If the file of its first weights is missing, it is made from the script's model.
        clients: Number of clients. `cohort.min` of the run must not exceed it.
        script: The training script, with a loop over `fl.rounds`. It runs in the folder of `run`.
        arguments: Arguments of the script: `{i}` is the client's number from 0, `{n}` the number of clients.
        folder: Where the federation stays, for `fl-server report` and `export`. Otherwise it is deleted.

    Returns:
        One list for each column of docs/reference/report-columns.md, with one value for each round:
        `pandas.DataFrame(fl.simulate(..))`.

    Raises:
        RuntimeError: If the server or a client fails, or all clients leave the same round; with the end of its log.
    """
    with contextlib.ExitStack() as stack:
        place = Path(folder or stack.enter_context(tempfile.TemporaryDirectory(prefix="fl-simulate-"))).resolve()
        federation, run = place / "federation", Path(run).resolve()
        _call("fl-server", "init", federation, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
        issue = ["issue", "client", "--count", clients, "--fed", federation, "--server", "127.0.0.1:7070"]
        _call("fl-server", *issue, "--out", place)  # the server takes a free port, and `run` gets it
        text = run.read_text(encoding="utf-8")
        configs = []
        for i, config in enumerate(sorted(place.glob("client-*/client.toml"))):
            given = [argument.replace("{i}", str(i)).replace("{n}", str(clients)) for argument in arguments]
            command = json.dumps([sys.executable, str(Path(script).resolve()), *given])
            with open(config, "a", encoding="utf-8") as file:
                file.write(f"\n[tasks.{_key(text, 'task')}]\nlearner = {{ command = {command} }}\n")
            configs.append(config)
        weights = run.parent / _key(text, "model|weights")
        if not weights.exists():
            _call("fl-client", "init", "--config", configs[0], "-o", weights)
        return _serve(stack, federation, run, configs)


def _serve(stack: contextlib.ExitStack, federation: Path, run: Path, configs: Sequence[Path]) -> dict[str, list[Any]]:
    command = [_program("fl-server"), "serve", str(federation), "--run", str(run), "--exit-when-done"]
    server = _start(stack, command, federation / "server.log", stdout=subprocess.PIPE)
    processes = {federation / "server.log": server}
    assert server.stdout is not None
    output, ended = stack.enter_context(server.stdout), False
    warnings = _Warnings(config.parent / "client.log" for config in configs)
    while not ended:
        line = output.readline() if select.select([output], [], [], 1)[0] else None
        if line == b"":
            ended = server.wait() is not None
        elif line and (address := re.match(rb"serving .* on ([^;\s]+)", line)):
            for config in configs:
                client = [
                    _program("fl-client"),
                    "run",
                    str(config),
                    "--exit-when-done",
                    "--server",
                    address[1].decode(),
                ]
                log = config.parent / "client.log"
                processes[log] = _start(stack, client, log, stdout=subprocess.DEVNULL)
        elif line:
            print(line.decode(errors="replace"), end="", flush=True)
        warnings.show()
        for log, process in processes.items():
            if process.poll():
                raise RuntimeError(f"{log.stem}: exit status {process.returncode}\n{_end(log)}")
    report = json.loads(_call("fl-server", "report", federation, "--format", "json"))
    rounds: dict[str, list[Any]] = report["rounds"]
    return rounds


class _Warnings:
    """Shows what goes wrong in clients, of which the server says little."""

    def __init__(self, logs: Iterable[Path]) -> None:
        self.shown = dict.fromkeys(logs, 0)  # bytes of each log
        self.left: dict[str, set[Path]] = {}  # who left each round

    def show(self) -> None:
        for log in filter(Path.exists, self.shown):
            new = log.read_bytes()[self.shown[log] :].rpartition(b"\n")[0]
            self.shown[log] += len(new)
            for line in new.decode(errors="replace").splitlines():
                if left := re.search(r" WARN leaving this round round=(\d+)", line):
                    self.left.setdefault(left[1], set()).add(log)
                elif warning := re.search(
                    r" (?:WARN|ERROR) (?!the learner failed)(.*)", line
                ):  # the server prints that
                    print(f"{log.parent.name}: {warning[1]}", file=sys.stderr, flush=True)
        for number, clients in self.left.items():
            if len(clients) == len(self.shown):
                raise RuntimeError(f"all clients left round {number}; the end of the log of one:\n{_end(min(clients))}")


def _start(stack: contextlib.ExitStack, command: Sequence[str], log: Path, **options: Any) -> subprocess.Popen[bytes]:
    """Starts a program whose errors go to `log`, and which ends with the stack."""
    # Every client trains at the same time: threads beyond the cores only slow each other down.
    own = ("FL_TRAINER", "FL_ATTACH")  # of a script or a notebook that has a client of its own
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    environment = {"OMP_NUM_THREADS": "1", **inherited}
    errors = stack.enter_context(open(log, "wb"))
    process = subprocess.Popen(command, stderr=errors, bufsize=0, env=environment, **options)
    stack.push(lambda error, *_: _stop(process, 0 if error else 10))
    return process


def _stop(process: subprocess.Popen[bytes], patience_s: float) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(patience_s)  # when the run is over, each program ends by itself
    process.terminate()
    process.wait()


def _program(name: str) -> str:
    """The program of the wheel, or of the path."""
    found = shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)
    if found is None:
        raise RuntimeError(f"there is no program `{name}` beside {sys.executable} and none in PATH; install the wheel")
    return found


def _call(program: str, *arguments: object) -> str:
    command = [_program(program), *map(str, arguments)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr}")
    return done.stdout


def _key(text: str, names: str) -> str:
    """The value of a key of run.toml that is a text. Python has a reader of TOML only since 3.11."""
    found = re.search(rf"""^\s*(?:{names})\s*=\s*["']([^"']+)["']""", text, re.M)
    if found is None:
        raise RuntimeError(f"run.toml has no `{names}`")
    return found[1]


def _end(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-20:])
