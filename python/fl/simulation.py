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
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Optional, Union

PathLike = Union[str, "os.PathLike[str]"]
_CALL = "simulation.json"  # in the folder: what a later call is compared with


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
        folder: The folder of the federation, new or empty, for `fl-server report FOLDER` and `fl-server export FOLDER`. A
            simulation that was interrupted there is resumed by the same call. Without `folder`, a temporary one is deleted.

    Returns:
        One list for each column of docs/reference/report-columns.md, with one value for each round:
        `pandas.DataFrame(fl.simulate(..))`.

    Raises:
        FileNotFoundError: If `run` or `script` is not a file.
        ValueError: If there are fewer clients than `cohort.min`.
        FileExistsError: If `folder` holds a finished run, another simulation or other files.
        RuntimeError: If the server or a client fails, or fewer than `cohort.min` clients can still answer in a round; with
            the end of its log.
    """
    if isinstance(arguments, str):
        raise TypeError(f"`arguments` is a list of texts, such as {[arguments]}, and not a text")
    run, script = Path(run).resolve(), Path(script).resolve()
    for name, path in (("run", run), ("script", script)):
        if not path.is_file():
            raise FileNotFoundError(f"`{name}`: there is no file {path}")
    plan = json.loads(_call("fl-server", "check", run, "--without-weights", "--format", "json"))
    if clients < plan["min"]:
        raise ValueError(f"{clients} clients are fewer than `cohort.min` of {run}, which is {plan['min']}")
    call = {"run.toml": run.read_text("utf-8"), "clients": clients, "script": str(script), "arguments": list(arguments)}
    with contextlib.ExitStack() as stack:
        watchdog = stack.enter_context(_Watchdog())
        if folder is None:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fl-simulate-"))).resolve()
            watchdog.watch(place)
        else:
            place = Path(folder).resolve()
        if _is_resumed(place, call):
            print(f"resuming the run of {place}", flush=True)
        else:
            with _deleted_on_error(place):
                _create(place, run.parent, plan["task"], call)
        configs = {config.parent.name: config for config in sorted(place.glob("client-*/client.toml"))}
        if not Path(plan["weights"]).exists():
            _call("fl-client", "init", "--config", [*configs.values()][0], "-o", plan["weights"])
        return _serve(stack, watchdog, place, run, configs, plan["min"])


def _is_resumed(place: Path, call: dict[str, Any]) -> bool:
    """Whether the folder holds this simulation, unfinished. Raises FileExistsError if it holds anything else."""
    if not place.exists() or (place.is_dir() and not any(place.iterdir())):
        return False
    remedy = "delete it, or give `folder` another name"
    if not (place / _CALL).is_file():
        raise FileExistsError(f"{place} is not an empty folder, and holds no simulation: {remedy}")
    before = json.loads((place / _CALL).read_text("utf-8"))
    if changed := [name for name in call if call[name] != before[name]]:
        raise FileExistsError(f"{place} holds another simulation ({', '.join(changed)} changed): {remedy}")
    status = json.loads(_call("fl-server", "status", place, "--format", "json"))
    if status["serving"]:
        raise FileExistsError(f"{place} holds a simulation that is running: wait for its end, or {remedy}")
    if any(run["state"] == "done" for run in status["runs"]):
        show = f"`fl-server report {place}` shows it"
        raise FileExistsError(f"{place} holds this run, and it is finished: {show}; to train again, {remedy}")
    return True


def _create(place: Path, start: Path, task: str, call: dict[str, Any]) -> None:
    """Makes a federation whose clients start the script in the folder `start`."""
    _call("fl-server", "init", place, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
    issue = ["issue", "client", "--count", call["clients"], "--fed", place, "--server", "127.0.0.1:7070"]
    _call("fl-server", *issue, "--out", place)  # the server takes a free port, and `run` gets it
    for i, config in enumerate(sorted(place.glob("client-*/client.toml"))):
        given = [text.replace("{i}", str(i)).replace("{n}", str(call["clients"])) for text in call["arguments"]]
        # A client starts its command in its own folder.
        command = ["sh", "-c", 'cd "$0" && exec "$@"', str(start), sys.executable, call["script"], *given]
        with open(config, "a", encoding="utf-8") as file:
            file.write(f"\n[tasks.{_toml(task)}]\nlearner = {{ command = {_toml(command)} }}\n")
    (place / _CALL).write_text(json.dumps(call), "utf-8")


@contextlib.contextmanager
def _deleted_on_error(place: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise


def _serve(
    stack: contextlib.ExitStack,
    watchdog: _Watchdog,
    federation: Path,
    run: Path,
    configs: dict[str, Path],
    least: int,
) -> dict[str, list[Any]]:
    processes: dict[Path, subprocess.Popen[bytes]] = {}  # by their logs
    stack.push(lambda error, *_: _end(processes.values(), 0 if error else 10))

    def start(log: Path, *command: object, **options: Any) -> subprocess.Popen[bytes]:
        # Every client trains at the same time: threads beyond the cores only slow each other down.
        environment = {"OMP_NUM_THREADS": "1", **os.environ}
        errors = stack.enter_context(open(log, "wb"))
        processes[log] = subprocess.Popen(list(map(str, command)), stderr=errors, bufsize=0, env=environment, **options)
        watchdog.watch(processes[log].pid)
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
            gone = [name for name, log in logs.items() if log in processes and processes[log].poll() is not None]
            before, short = short, _short_round(federation, least, len(configs), gone)
            if short and before == short:
                member = [*short.left, *logs][0]
                only = f"only {short.possible} of {short.asked} clients can answer"
                end = f"the end of the log of {member}:\n{_tail(logs[member])}"
                raise RuntimeError(f"round {short.number} needs {least} updates, and {only}; {end}")
    report = json.loads(_call("fl-server", "report", federation, "--format", "json"))
    rounds: dict[str, list[Any]] = report["rounds"]
    return rounds


class _ShortRound(NamedTuple):
    """An open round, or one that waits for clients, in which too few clients can answer."""

    number: int
    attempt: int
    asked: int
    possible: int  # answers so far, and those that the server waits for
    left: list[str]


def _short_round(federation: Path, least: int, clients: int, gone: list[str]) -> Optional[_ShortRound]:
    command = [_program("fl-server"), "status", str(federation), "--format", "json"]
    asked = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    status = json.loads(asked.stdout) if asked.returncode == 0 else {}
    serving = status.get("serving") or {}
    now = serving.get("round")
    if not now:  # clients whose processes have ended do not come back
        left = clients - len(gone)
        is_short = serving.get("waiting") and left < least
        return _ShortRound(status["runs"][0]["closed"] + 1, 0, clients, left, gone) if is_short else None
    possible = now["answered"] + len(now["waits_for"])
    if possible >= least:
        return None
    given_up = [member["client"] for member in now["given_up"]]
    return _ShortRound(now["round"], now["attempt"], now["asked"], possible, given_up)


class _Warnings:
    """Shows what goes wrong in clients, of which the server says little."""

    def __init__(self, logs: Iterable[Path]) -> None:
        self.shown = dict.fromkeys(logs, 0)  # bytes of each log
        self.said: set[tuple[Path, str]] = set()

    def show(self) -> None:
        for log in filter(Path.exists, self.shown):
            new = log.read_bytes()[self.shown[log] :].rpartition(b"\n")[0]
            self.shown[log] += len(new)
            for line in new.decode(errors="replace").splitlines():
                # The server prints who leaves a round. What `fl` leaves out of a result, it says in each round.
                warning = re.search(r" (?:WARN|ERROR) (?!left round )(.*)", line)
                warning = warning or re.search(r" INFO (fl: `.*)", line)
                if warning and (log, warning[1]) not in self.said:
                    self.said.add((log, warning[1]))
                    print(f"{log.parent.name}: {warning[1]}", file=sys.stderr, flush=True)


class _Watchdog:
    """Ends the programs and deletes the temporary folder if this process ends without doing so, such as by a signal."""

    # The standard input ends with this process, however that ends. The shell polls, because `wait` takes only its own children.
    _SCRIPT = """
        trap '' HUP INT TERM
        while read -r line; do
            case $line in
                done) exit ;;
                /*) folder=$line ;;
                *) programs="$programs $line" ;;
            esac
        done
        kill $programs
        seconds=10
        for program in $programs; do
            while [ $seconds -gt 0 ] && kill -0 $program; do sleep 1; seconds=$((seconds - 1)); done
        done
        kill -s KILL $programs
        [ -z "$folder" ] || rm -rf -- "$folder"
    """

    def __enter__(self) -> _Watchdog:
        self.process = subprocess.Popen(
            ["sh", "-c", self._SCRIPT],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,  # out of reach of a signal to the process group
        )
        return self

    def watch(self, item: Union[int, Path, str]) -> None:
        """A process id, a folder that is deleted, or `done`."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(f"{item}\n".encode())

    def __exit__(self, *_: object) -> None:
        self.watch("done")
        self.process.communicate()


def _end(processes: Collection[subprocess.Popen[bytes]], patience_s: float) -> None:
    """Ends programs that do not end by themselves, as they do when the run is over."""

    def wait(seconds: float) -> None:
        until = time.monotonic() + seconds
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))

    try:
        wait(patience_s)
        for process in processes:
            process.terminate()
        wait(30)
    finally:  # after a second interrupt too
        for process in processes:
            process.kill()  # has no effect on one that has ended
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
