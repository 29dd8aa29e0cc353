"""A whole federation on this machine: the programs of the wheel, real sockets and certificates."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Optional, Union

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
        clients: Number of clients, at least `cohort.min` of the run.
        script: The training script, with a loop over `fl.rounds`. It runs in the folder of `run`.
        arguments: Arguments of the script: `{i}` is the client's number from 0, `{n}` the number of clients.
        folder: Where the federation stays, for `fl-server report` and `export`. Otherwise it is deleted.

    Returns:
        One list for each column of docs/reference/report-columns.md, with one value for each round:
        `pandas.DataFrame(fl.simulate(..))`.

    Raises:
        ValueError: If there are fewer clients than `cohort.min`.
        RuntimeError: If the server or a client fails, or fewer than `cohort.min` clients can still answer in a round; with
            the end of its log.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(_signals_raise())
        run = Path(run).resolve()
        plan = json.loads(_call("fl-server", "check", run, "--without-weights", "--format", "json"))
        if clients < plan["min"]:
            raise ValueError(f"{clients} clients are fewer than `cohort.min` of {run}, which is {plan['min']}")
        place = Path(folder or stack.enter_context(tempfile.TemporaryDirectory(prefix="fl-simulate-"))).resolve()
        federation = place / "federation"
        _call("fl-server", "init", federation, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
        issue = ["issue", "client", "--count", clients, "--fed", federation, "--server", "127.0.0.1:7070"]
        _call("fl-server", *issue, "--out", place)  # the server takes a free port, and `run` gets it
        configs = sorted(place.glob("client-*/client.toml"))
        for i, config in enumerate(configs):
            given = [argument.replace("{i}", str(i)).replace("{n}", str(clients)) for argument in arguments]
            # A client starts its command in its own folder.
            command = ["sh", "-c", 'cd "$0" && exec "$@"', run.parent, sys.executable, Path(script).resolve(), *given]
            with open(config, "a", encoding="utf-8") as file:
                file.write(
                    f"\n[tasks.{_toml(plan['task'])}]\nlearner = {{ command = {_toml(list(map(str, command)))} }}\n"
                )
        if not Path(plan["weights"]).exists():
            _call("fl-client", "init", "--config", configs[0], "-o", plan["weights"])
        return _serve(stack, federation, run, {config.parent.name: config for config in configs}, plan["min"])


def _serve(
    stack: contextlib.ExitStack, federation: Path, run: Path, configs: dict[str, Path], least: int
) -> dict[str, list[Any]]:
    processes: dict[Path, subprocess.Popen[bytes]] = {}  # by their logs
    stack.push(lambda error, *_: _end(processes.values(), 0 if error else 10))

    def start(log: Path, *command: object, **options: Any) -> subprocess.Popen[bytes]:
        # Every client trains at the same time: threads beyond the cores only slow each other down.
        environment = {"OMP_NUM_THREADS": "1", **os.environ}
        errors = stack.enter_context(open(log, "wb"))
        processes[log] = subprocess.Popen(list(map(str, command)), stderr=errors, bufsize=0, env=environment, **options)
        return processes[log]

    command = (_program("fl-server"), "serve", federation, "--run", run, "--exit-when-done")
    server = start(federation / "server.log", *command, stdout=subprocess.PIPE)
    assert server.stdout is not None
    output, ended = stack.enter_context(server.stdout), False
    short: Optional[_ShortRound] = None
    logs = {name: config.parent / "client.log" for name, config in configs.items()}
    warnings = _Warnings(logs.values())
    while not ended:
        line = output.readline() if select.select([output], [], [], 1)[0] else None
        if line == b"":
            ended = server.wait() is not None
        elif line and (address := re.match(rb"serving .* on ([^;\s]+)", line)):
            for name, config in configs.items():
                client = (_program("fl-client"), "run", config, "--exit-when-done", "--server", address[1].decode())
                start(logs[name], *client, stdout=subprocess.DEVNULL)
        elif line:
            print(line.decode(errors="replace"), end="", flush=True)
        warnings.show()
        for log, process in processes.items():
            if process.poll():
                raise RuntimeError(f"{log.stem}: exit status {process.returncode}\n{_tail(log)}")
        if line is None:  # for a second; a round that can still close has other members a moment later
            before, short = short, _short_round(federation, least)
            if short and before == short:
                member = [*short.left, *logs][0]
                only = f"only {short.possible} of {short.asked} clients can answer"
                end = f"the end of the log of {member}:\n{_tail(logs[member])}"
                raise RuntimeError(f"round {short.number} needs {least} updates, and {only}; {end}")
    report = json.loads(_call("fl-server", "report", federation, "--format", "json"))
    rounds: dict[str, list[Any]] = report["rounds"]
    return rounds


class _ShortRound(NamedTuple):
    """An open round in which too few clients can answer."""

    number: int
    attempt: int
    asked: int
    possible: int  # answers so far, and those that the server waits for
    left: list[str]


def _short_round(federation: Path, least: int) -> Optional[_ShortRound]:
    command = [_program("fl-server"), "status", str(federation), "--format", "json"]
    asked = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    serving = json.loads(asked.stdout)["serving"] if asked.returncode == 0 else None
    now = (serving or {}).get("round")
    if not now or now["answered"] + len(now["waits_for"]) >= least:
        return None
    left = [member["client"] for member in now["given_up"]]
    return _ShortRound(now["round"], now["attempt"], now["asked"], now["answered"] + len(now["waits_for"]), left)


class _Warnings:
    """Shows what goes wrong in clients, of which the server says little."""

    def __init__(self, logs: Iterable[Path]) -> None:
        self.shown = dict.fromkeys(logs, 0)  # bytes of each log

    def show(self) -> None:
        for log in filter(Path.exists, self.shown):
            new = log.read_bytes()[self.shown[log] :].rpartition(b"\n")[0]
            self.shown[log] += len(new)
            for line in new.decode(errors="replace").splitlines():
                # The server prints who leaves a round.
                if warning := re.search(r" (?:WARN|ERROR) (?!the learner failed|leaving this round)(.*)", line):
                    print(f"{log.parent.name}: {warning[1]}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _signals_raise() -> Iterator[None]:
    """SIGTERM and SIGHUP become exceptions. By default, this process would end and leave the programs behind."""

    def leave(number: int, _: Any) -> None:
        for other in defaults:
            signal.signal(other, signal.SIG_IGN)  # a second one would leave the programs behind
        raise SystemExit(128 + number)

    numbers = (signal.SIGTERM, signal.SIGHUP) if threading.current_thread() is threading.main_thread() else ()
    defaults = [number for number in numbers if signal.getsignal(number) == signal.SIG_DFL]
    try:
        for number in defaults:
            signal.signal(number, leave)
        yield
    finally:
        for number in defaults:
            signal.signal(number, signal.SIG_DFL)


def _end(processes: Collection[subprocess.Popen[bytes]], patience_s: float) -> None:
    """Ends programs that do not end by themselves, as they do when the run is over."""

    def wait(seconds: float) -> None:
        until = time.monotonic() + seconds
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))

    wait(patience_s)
    for process in processes:
        process.terminate()
    wait(30)
    for process in processes:
        process.kill()  # nothing of one that has ended
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


def _toml(value: Any) -> str:
    """A text, or a list of texts. JSON's escapes of characters beyond 16 bits are not TOML's, which escapes DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-20:])
