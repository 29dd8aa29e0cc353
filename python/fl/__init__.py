"""Federates a training script: the trainer's side of docs/reference/trainers.md, in one file without dependencies.

    import fl

    for job in fl.rounds(model):  # loads the round's weights into the model
        loss = train(model, job.batches(loader), lr=job.train.learning_rate)
        job.done(examples=len(data), loss=loss)

`fl-client` starts the script and keeps it for the whole run. Without a client, the loop runs once, from the script's own
weights. A model is a `torch.nn.Module`, a dict of arrays (numpy, torch or any writable buffer) that the training changes
in place, or any object with `state_dict()` and `load_state_dict()`.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import itertools
import json
import math
import mmap
import os
import select
import socket
import struct
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

__all__ = ["HuggingFaceCallback", "Job", "Stopped", "Train", "attach", "device", "evaluate", "rounds", "simulate"]

VERSION = 1
Item = TypeVar("Item")
Evaluator = Callable[[Any], Mapping[str, Any]]
# Name in a safetensors file -> name in numpy and torch, format of `struct`, bytes per value.
TYPES = {
    "F32": ("float32", "f", 4), "F16": ("float16", "e", 2), "BF16": ("bfloat16", "H", 2), "F64": ("float64", "d", 8),
    "I64": ("int64", "q", 8), "I32": ("int32", "i", 4), "U8": ("uint8", "B", 1), "BOOL": ("bool", "?", 1),
}  # fmt: skip
# numpy has no bfloat16; a C `long` has 8 bytes
_NAMES = {"uint16": "BF16", "l": "I64", **{word: dtype for dtype, names in TYPES.items() for word in names[:2]}}
BEFORE = "before.safetensors"  # in the work folder: local tensors as they were before the round


class Stopped(Exception):
    """The answer of this round is no longer wanted. `job.progress` raises it inside `with job:`, which handles it."""


class Slot(NamedTuple):
    """A tensor in a mapped safetensors file."""

    dtype: str
    shape: tuple[int, ...]
    data: memoryview


def read_safetensors(path: str | Path) -> dict[str, Slot]:
    """Maps a safetensors file. Writing to a slot does not change the file."""
    with open(path, "rb") as file:
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    return _slots(data, 8 + struct.unpack_from("<Q", data)[0])


def create_safetensors(path: str | Path, tensors: Iterable[tuple[str, str, Sequence[int]]]) -> dict[str, Slot]:
    """Maps a safetensors file with room for these tensors (name, type, shape). Writing to a slot changes the file."""
    header, end = {}, 0
    for name, dtype, shape in sorted(tensors, key=lambda t: (-TYPES[t[1]][2], t[0])):  # so that each is aligned
        begin, end = end, end + math.prod(shape) * TYPES[dtype][2]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    total = 8 + len(text) + end
    with open(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
        file.truncate(total)
        if hasattr(os, "posix_fallocate"):  # a full disk is an error here, and would be a SIGBUS below
            os.posix_fallocate(file.fileno(), 0, total)
        data = memoryview(mmap.mmap(file.fileno(), total))
    data[: 8 + len(text)] = struct.pack("<Q", len(text)) + text
    return _slots(data, 8 + len(text))


def _slots(data: memoryview, begin: int) -> dict[str, Slot]:
    header, body = json.loads(bytes(data[8:begin])), data[begin:]
    header.pop("__metadata__", None)
    return {name: Slot(t["dtype"], tuple(t["shape"]), body[slice(*t["data_offsets"])]) for name, t in header.items()}


def _describe(name: str, value: Any) -> tuple[str, tuple[int, ...]]:
    """Type and shape of a tensor. Raises TypeError for another value, or a type that cannot be federated."""
    if hasattr(value, "dtype"):
        kind, shape = getattr(value.dtype, "name", str(value.dtype)).replace("torch.", ""), tuple(value.shape)
    else:
        try:
            view = memoryview(value)
        except TypeError:
            raise TypeError(f"`{name}` of the model is a {type(value).__name__}, not a tensor or array") from None
        kind, shape = "read-only" if view.readonly else view.format, view.shape or ()
    if kind not in _NAMES:
        raise TypeError(f"tensor `{name}` has type {kind}; a federation takes {', '.join(TYPES)}")
    return _NAMES[kind], shape


def _view(value: Any, slot: Slot) -> Any:
    """A slot as an array like `value`."""
    if hasattr(value, "detach"):
        return sys.modules["torch"].frombuffer(slot.data, dtype=value.dtype).reshape(slot.shape)
    if hasattr(value, "dtype"):
        return sys.modules["numpy"].frombuffer(slot.data, value.dtype.newbyteorder("<")).reshape(slot.shape)
    return slot.data


def _copy(value: Any, slot: Slot, out: bool = False) -> None:
    """Copies a slot into a tensor, or with `out` the tensor into the slot."""
    there, array = _view(value, slot), hasattr(value, "dtype")
    here: Any = value.detach() if hasattr(value, "detach") else value if array else memoryview(value).cast("B")
    target, source = (there, here) if out else (here, there)
    target[... if array else slice(None)] = source


def _single(value: Any) -> Any:
    """A tensor or array in single precision; another buffer as it is."""
    return value.float() if hasattr(value, "detach") else value.astype("float32") if hasattr(value, "dtype") else value


def _state(model: Any) -> dict[str, Any]:
    """The model's tensors by name. Of tensors that share their memory, only the first; no empty ones."""
    # Without what is no tensor, such as `_extra_state`. In a dict, that is an error.
    state = model if isinstance(model, dict) else {n: v for n, v in model.state_dict().items() if hasattr(v, "shape")}
    first: dict[Any, tuple[str, Any]] = {}
    for name, value in state.items():
        shape = _describe(name, value)[1]
        place = (value.data_ptr(), shape, value.stride()) if hasattr(value, "data_ptr") else id(value)
        if math.prod(shape):
            first.setdefault(place, (name, value))
    return dict(first.values())


def _load(model: Any, slots: Mapping[str, Slot]) -> None:
    """Copies tensors into the model."""
    state = _state(model)
    for name, slot in slots.items():
        if name not in state or _describe(name, state[name]) != (slot.dtype, slot.shape):
            raise ValueError(f"tensor `{name}` of the run, {slot.dtype} {list(slot.shape)}, is not in the model")
    if hasattr(model, "named_parameters"):  # a torch.nn.Module copies from the views
        model.load_state_dict({name: _view(state[name], slot) for name, slot in slots.items()}, strict=False)
    else:
        for name, slot in slots.items():
            _copy(state[name], slot)
        if hasattr(model, "load_state_dict"):  # its `state_dict` may have made copies
            model.load_state_dict({**model.state_dict(), **state})


class _Link:
    """Messages to and from the client."""

    def __init__(self, reader: int, writer: int) -> None:
        self.reader, self.writer, self.rest = reader, writer, b""
        self.poller = select.poll()
        self.poller.register(reader, select.POLLIN)
        self.start = self.read() or {}
        if self.start.get("type") != "start" or self.start["version"] < VERSION:
            raise RuntimeError(self.start.get("message") or f"not `start` of version {VERSION} or newer: {self.start}")

    def send(self, **message: Any) -> None:
        data = json.dumps(message, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        with contextlib.suppress(ConnectionError):  # of a client that is gone: the next read returns `bye`
            while data:
                data = data[os.write(self.writer, data) :]

    def read(self, timeout_s: float | None = None) -> dict[str, Any] | None:
        """The next message; `bye` from the end of the pipe on; None after `timeout_s`."""
        while b"\n" not in self.rest:
            if not self.poller.poll(None if timeout_s is None else timeout_s * 1000):
                return None
            with contextlib.suppress(ConnectionError):  # the next read then finds the end
                data = os.read(self.reader, 1 << 16)
                self.rest = self.rest + data if data else b'{"type":"bye"}\n'
        line, _, rest = self.rest.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        if message["type"] != "bye":
            self.rest = rest
        return message


_link: _Link | None = None
_evaluator: Evaluator | None = None


def attach(path: str | Path) -> None:
    """Makes `rounds` connect to a client with `learner = { attach = "trainer.sock" }`: for notebooks and debuggers.

    The socket is in the state folder of the client, from the first round on. `FL_ATTACH=PATH` in the environment is the same.
    """
    os.environ["FL_ATTACH"] = os.path.abspath(path)


def evaluate(function: Evaluator) -> Evaluator:
    """Decorator of the function that evaluates the model on this client's held-out examples.

    It takes the model and returns `examples`, `loss`, of a classifier `accuracy` or `correct`, and further metrics. A
    torch module is in evaluation mode meanwhile, and computes no gradients.
    """
    global _evaluator
    _evaluator = function
    return function


def device() -> str:
    """Where to compute, as client.toml says: "cpu" or "cuda:N". Under torchrun, each process has its own GPU."""
    link, torch = _connect() if "LOCAL_RANK" not in os.environ else None, sys.modules.get("torch")
    found = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if torch and torch.cuda.is_available() else "cpu"
    wanted = str(link.start.get("device", "auto")) if link else "auto"
    return found if wanted == "auto" else wanted


def _connect() -> _Link | None:
    """The link to the client; None without one."""
    global _link
    if _link is None and "FL_ATTACH" in os.environ:
        connection = socket.socket(socket.AF_UNIX)
        print(f"fl: attaching to {os.environ['FL_ATTACH']} as soon as a client listens there", file=sys.stderr)
        while connection.connect_ex(os.environ["FL_ATTACH"]):
            time.sleep(0.5)
        _link = _Link(connection.fileno(), connection.detach())
    elif _link is None and "FL_TRAINER" in os.environ:
        _link = _Link(*_pipes())
    return _link


def _pipes() -> tuple[int, int]:
    """The pipes of the process that the client started: this one, or an ancestor, such as torchrun, that keeps them."""
    if not os.environ["FL_TRAINER"]:
        raise RuntimeError("the run is over: a script that a client starts has one loop over `fl.rounds`")
    pid, command = os.getpid(), os.getpid()
    with contextlib.suppress(OSError):  # no /proc, or a process of another user
        while b"\0FL_TRAINER=" in b"\0" + Path(f"/proc/{pid}/environ").read_bytes():
            command, pid = pid, int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    if command != os.getpid():
        return os.open(f"/proc/{command}/fd/3", os.O_RDONLY), os.open(f"/proc/{command}/fd/4", os.O_WRONLY)
    for descriptor in (3, 4):
        os.set_inheritable(descriptor, False)
    return 3, 4


def _group() -> Any:
    """`torch.distributed`, if this process is one of several that train one model."""
    dist = sys.modules.get("torch.distributed")
    if dist and dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        return dist
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise RuntimeError("one of several processes: call torch.distributed.init_process_group() before fl.rounds()")
    return None


def _answer(figures: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `fitted` or `evaluated`. A number may be a tensor; a metric, a pair of value and weight."""
    if not isinstance(figures, Mapping) or not {"examples", "loss"} <= figures.keys():
        raise ValueError(f"a function marked by fl.evaluate returns a dict with `examples` and `loss`, not {figures}")
    numbers = {n: [float(x) for x in (v if isinstance(v, tuple) else (v,))] for n, v in figures.items()}
    for name, number in numbers.items():
        if not all(map(math.isfinite, number)):
            raise ValueError(f"`{name}` is {number[0]}; the figures of a round must be finite")
    fields: dict[str, Any] = {"examples": int(numbers.pop("examples")[0]), "loss": numbers.pop("loss")[0]}
    accuracy = numbers.pop("accuracy", None)
    correct = numbers.pop("correct", accuracy and [accuracy[0] * fields["examples"]])
    if correct:
        fields["correct"] = round(correct[0])
    fields["metrics"] = {n: {"value": v[0], "weight": v[1]} if v[1:] else v[0] for n, v in numbers.items()}
    return fields


def _evaluated(model: Any) -> dict[str, Any]:
    with contextlib.ExitStack() as stack:
        if hasattr(model, "named_parameters"):
            stack.enter_context(sys.modules["torch"].no_grad())
            stack.callback(model.train, model.training)
            model.eval()
        return _answer(_evaluator(model) if _evaluator else {})


def _text(error: BaseException) -> str:
    """An exception as the message of `failed`: a line for the server, then the end of the traceback."""
    lines = "".join(traceback.format_exception(type(error), error, error.__traceback__)).splitlines()
    at = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{os.path.basename(at.filename)}, line {at.lineno}, in {at.name}"
    return "\n".join([f"{type(error).__name__}: {error} ({place})", *lines[-20:]])


@dataclasses.dataclass(frozen=True)
class Train:
    """`[train]` of the run. One of `epochs` and `steps` is None."""

    epochs: int | None = 1
    steps: int | None = None
    batch_size: int = 32
    learning_rate: float = 0.05
    momentum: float = 0.0
    weight_decay: float = 0.0
    proximal: float = 0.0
    clip_norm: float | None = None
    optimizer: str | dict[str, dict[str, Any]] = "sgd"
    state: str = "fresh"
    micro_batch: int | None = None
    precision: str = "f32"
    warmup: int = 0
    decay: str = "constant"
    floor: float = 0.0
    span: str = "round"


class Job:
    """The training of one round: `round` of `rounds`, from the round's weights.

    `seed` is for every random choice, `train` and `extra` are `[train]` and `[train.extra]` of the run, `client` is this
    client's name. Inside `with job:`, an exception ends the round, and the loop goes on with the next one. Elsewhere, it
    ends the script: the client reports it, and starts the script again for the next round.
    """

    def __init__(self, session: _Session | None, message: Mapping[str, Any], train: Train) -> None:
        self.round, self.rounds, self.seed = (int(message[key]) for key in ("round", "rounds", "seed"))
        self.train, self.extra, self.client = train, message.get("extra") or {}, session.client if session else ""
        self.stopped = self.answered = self._inside = False
        self._session, self._steps, self._reported = session, 0, -math.inf
        self.wants_squared_gradients = bool(message.get("squared_gradients"))
        left = math.inf if message.get("deadline_s") is None else float(message["deadline_s"])
        self._deadline = time.monotonic() + left

    @property
    def left(self) -> float:
        """Seconds until the deadline of the round; infinite without one."""
        return self._deadline - time.monotonic()

    def batches(self, loader: Iterable[Item]) -> _Batches[Item]:
        """The batches of the round: `train.steps`, or `train.epochs` passes over `loader`; with progress.

        Its length is their number; attributes, such as `dataset`, are the loader's.
        """
        return _Batches(self, loader)

    def progress(self, iterable: Iterable[Item], total: int | None = None) -> Iterator[Item]:
        """Iterates, and reports the progress of the training to the client.

        As soon as the answer is no longer wanted, it raises `Stopped` inside `with job:`, and ends early elsewhere.
        """
        for item in iterable:
            self.report(self._steps, self._total(iterable) if total is None else total)
            if self.stopped:
                break
            yield item
            self._steps += 1
        if self.stopped and self._inside:
            raise Stopped(f"round {self.round} is over")

    def _total(self, iterable: Any) -> int:
        return self.train.steps or (self.train.epochs or 1) * (len(iterable) if hasattr(iterable, "__len__") else 0)

    def report(self, done: int, total: int = 0) -> None:
        """Tells the client, at most twice a second, that `done` of `total` steps are done, and updates `stopped`."""
        if self._session and time.monotonic() - self._reported > 0.5:
            self._reported = time.monotonic()
            self._session.send(type="progress", done=done, total=max(done, total))
        self.stopped = self.stopped or bool(self._session and self._session.stop_arrived())

    def done(
        self, *, examples: int, loss: Any, squared_gradients: dict[str, Any] | None = None, **metrics: Any
    ) -> None:
        """Returns the model's weights with the number of examples and the mean training loss.

        A metric is a number, which weighs as the examples in the mean over clients, or a pair of value and weight.
        `squared_gradients` is wanted if `wants_squared_gradients`: for each trained tensor, the mean over the steps of its
        squared gradient. It stays on this machine, where the run's compression chooses by it what to send.
        """
        if self.answered:
            raise RuntimeError(f"round {self.round} has an answer already")
        try:
            fields = _answer({"examples": examples, "loss": loss, **metrics})
        except ValueError as error:  # no reason to end the script
            print(f"fl: round {self.round}: {error}", file=sys.stderr)
            return self.fail(str(error))
        if self._session is None:
            print("fl: trained:", json.dumps(fields), file=sys.stderr)
        elif self.stopped or self._session.stop_arrived():
            return self.fail("stopped")
        else:
            self._session.write()
            if self.wants_squared_gradients and squared_gradients is not None:
                single = {name: _single(value) for name, value in squared_gradients.items()}
                self._session.save(self._session.fit["squared_gradients"], single)
                fields["squared_gradients"] = True
            self._session.send(type="fitted", **fields)
        self.answered = True

    def fail(self, message: str) -> None:
        """Leaves the round. The client logs the message, and the server shows its first line."""
        if self._session is not None and not self.answered:
            _load(self._session.model, self._session.files.get(BEFORE, {}))
            self._session.send(type="failed", message=message)
        self.answered = True

    def __enter__(self) -> Job:
        self._inside = True
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if self._session is None or not isinstance(error, Exception):
            return False
        if not isinstance(error, Stopped):
            traceback.print_exception(kind, error, trace)
        self.fail("stopped" if isinstance(error, Stopped) else _text(error))
        return self._session.dist is None  # the other processes of a group cannot go on without this one


class _Batches(Generic[Item]):
    """The batches of a round, in place of the loader."""

    def __init__(self, job: Job, loader: Iterable[Item]) -> None:
        self._job, self._loader = job, loader

    def __iter__(self) -> Iterator[Item]:
        train = self._job.train
        passes = itertools.repeat(self._loader, *([] if train.steps else [train.epochs or 1]))
        batches = itertools.islice(itertools.chain.from_iterable(passes), train.steps)
        return self._job.progress(batches, len(self))

    def __len__(self) -> int:
        return self._job._total(self._loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class _Session:
    """The conversation with the client about one model."""

    def __init__(self, model: Any, link: _Link | None, dist: Any) -> None:
        self.given, self.link, self.dist, self.client = model, link, dist, ""
        self.model = model.module if type(model).__name__ == "DistributedDataParallel" else model
        self.roles: dict[str, str] = {}
        self.fit: Mapping[str, Any] = {}  # the message of the round
        self.files: dict[str, dict[str, Slot]] = {}  # what `save` has made
        self.job: Any = None
        self.pid, self.left, self.folder = os.getpid(), False, Path(link.start["folder"] if link else "")

    def send(self, **message: Any) -> None:
        if self.link:
            self.link.send(**message)

    def of(self, *roles: str) -> dict[str, Any]:
        """The model's tensors of these roles."""
        return {name: value for name, value in _state(self.model).items() if self.roles.get(name) in roles}

    def save(self, file: str, state: Mapping[str, Any]) -> dict[str, Slot]:
        """Copies tensors into a file, which is made once for each run."""
        if self.link and file not in self.files:
            self.files[file] = create_safetensors(self.folder / file, [(n, *_describe(n, v)) for n, v in state.items()])
        for name, slot in self.files.get(file, {}).items():
            _copy(state[name], slot, out=True)
        return self.files.get(file, {})

    def hello(self, weights: bool) -> None:
        file, state, keys = "hello.safetensors" if weights else None, _state(self.model), ("name", "dtype", "shape")
        if file:
            self.save(file, state)
        tensors = [dict(zip(keys, (name, *_describe(name, value)))) for name, value in state.items()]
        self.send(type="hello", version=VERSION, tensors=tensors, weights=file, evaluates=_evaluator is not None)

    def next(self) -> dict[str, Any]:
        """The next message, in every process of a group. Collective operations time out: hence once a minute."""
        box: list[dict[str, Any] | None] = [None]
        while box[0] is None:
            box = [self.link.read(60 if self.dist else None) if self.link else None]
            if self.dist:
                self.dist.broadcast_object_list(box, 0)
        return box[0]

    def stop_arrived(self) -> bool:
        """Whether the client wants no answer. In a group always false: one process cannot end a round alone."""
        message = self.link.read(0) if self.link and not self.dist else None
        return message is not None and message["type"] in ("stop", "bye")

    def load(self, file: str | None, *roles: str) -> None:
        """Copies the tensors of a file into the model, in every process of a group."""
        if file and self.link:
            slots = read_safetensors(self.folder / file).items()  # a base may have other tensors too
            _load(self.model, {name: slot for name, slot in slots if self.roles.get(name, "trained") in roles})
        for name, tensor in _state(self.model).items() if self.dist else ():
            if self.roles.get(name) in roles:
                flat = tensor.detach().contiguous().reshape(-1)
                self.dist.broadcast(flat.view(sys.modules["torch"].uint8), 0)
                tensor.copy_(flat.reshape(tensor.shape))

    def write(self) -> None:
        """Copies the model's tensors into the file of the result, the same file in every round."""
        first = self.link and self.fit["result"] not in self.files
        slots = self.save(self.fit["result"], self.of("trained", "buffer", "counter", "local"))
        given = read_safetensors(self.folder / self.fit["weights"]).items() if first else ()
        if first and all(slots[name].data == slot.data for name, slot in given):
            print("fl: the training changed no tensor; are these the arrays that it trains?", file=sys.stderr)

    def leave(self, error: BaseException | None = None) -> Any:
        """Ends the conversation. After an error without `bye`, so that the client starts the script again."""
        global _link
        if self.link is None or os.getpid() != self.pid:
            return None
        if self.job and self.link.reader != self.link.writer:  # else a notebook, which may attach again in this round
            self.job.fail(_text(error) if error else "the script left the loop over `fl.rounds`")
        if error is None:
            self.send(type="bye")
        for descriptor in {self.link.reader, self.link.writer}:
            os.close(descriptor)
        self.link, _link, os.environ["FL_TRAINER"] = None, None, ""

    def jobs(self) -> Iterator[Job]:
        while (message := self.next())["type"] != "bye":
            if message["type"] == "join":
                self.client, self.files = message["client"], {}
                self.roles = {tensor["name"]: tensor["role"] for tensor in message["tensors"]}
                self.load(message.get("base"), "frozen")
                self.load(message.get("local"), "local")
            if message["type"] not in ("fit", "evaluate"):  # such as a `stop` that crossed an answer
                continue
            try:
                self.load(message["weights"], "trained", "buffer", "counter")
                if message["type"] == "evaluate":
                    self.send(type="evaluated", **_evaluated(self.given))
                else:
                    self.save(BEFORE, self.of("local"))
                    train = {key: value for key, value in message["train"].items() if key in Train.__dataclass_fields__}
                    self.fit, self.job = message, Job(self, message, Train(**train))
                    yield self.job
                    self.job.fail("the script went on to the next round without `job.done()`")
            except Exception as error:
                traceback.print_exc()
                self.send(type="failed", message=_text(error))
                if self.dist:  # the other processes wait for this one
                    raise
        if message.get("message"):
            print("fl: the client ended the conversation:", message["message"], file=sys.stderr)


def rounds(model: Any, *, weights: bool = True, alone: Train | None = None) -> Iterator[Job]:
    """Yields a job for every round in which this client takes part, until the run is over.

    Args:
        model: Its tensors are replaced before each job, and returned by `job.done`. Local and frozen ones stay.
        weights: Whether the client gets the model's present weights, to make the first weights of a run or to compare
            them with the run's base. False spares a large model the file.
        alone: What the job of a script without a client has in `job.train`.
    """
    dist = _group()
    leads = dist is None or dist.get_rank() == 0
    link = _connect() if leads else None
    if link is None and (leads or "FL_TRAINER" not in os.environ):
        if leads:
            print("fl: no client: one round, from the script's own weights, on this machine alone", file=sys.stderr)
        yield Job(None, {"round": 1, "rounds": 1, "seed": 0}, alone or Train())
        if leads and _evaluator:
            print("fl: evaluated:", json.dumps(_evaluated(model)), file=sys.stderr)
        return
    session, hook = _Session(model, link, dist), sys.excepthook
    sys.excepthook = lambda kind, error, trace: session.leave(error) or hook(kind, error, trace)
    atexit.register(session.leave)
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell:  # where the error of a cell is not the end of the script
        shell.events.register("post_run_cell", lambda cell: session.left and session.leave(cell.error_in_exec))
    session.hello(weights)
    try:
        yield from session.jobs()
    except GeneratorExit:  # by `break` or by an error, which only the hooks can distinguish
        session.left = True
    else:
        session.leave()


with contextlib.suppress(ImportError):  # a copied file is without them
    from .hugging_face import HuggingFaceCallback
    from .simulation import simulate
