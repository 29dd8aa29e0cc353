"""Federates a training script: the trainer's side of docs/reference/trainers.md, in one file without dependencies.

    import fl

    for job in fl.rounds(model):  # loads the round's weights into the model
        loss = train(model, job.batches(loader), lr=job.train.learning_rate)
        job.done(examples=len(data), loss=loss)

`fl-client` starts the script and keeps it for the whole run. Without a client, the loop runs once, from the script's own
weights. A model is a `torch.nn.Module`, a dict of arrays (numpy, torch, JAX or any writable buffer) that the training
changes in place, or any object with `state_dict()` and `load_state_dict()`.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import itertools
import json
import math
import mmap
import multiprocessing
import os
import re
import select
import sys
import sysconfig
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

__all__ = ["HuggingFaceCallback", "Job", "Stopped", "Train", "Weights", "attach", "device", "evaluate"]
__all__ += ["keras", "lightning", "rounds", "simulate", "tree", "yolo"]

VERSION = 1
Item = TypeVar("Item")
Evaluator = Callable[[Any], Mapping[str, Any]]
# Name in a safetensors file -> name in numpy and torch, format of `struct`, bytes per value.
TYPES = {
    "F32": ("float32", "f", 4), "F16": ("float16", "e", 2), "BF16": ("bfloat16", "H", 2), "F64": ("float64", "d", 8),
    "I64": ("int64", "q", 8), "I32": ("int32", "i", 4), "U8": ("uint8", "B", 1), "BOOL": ("bool", "?", 1),
    "I8": ("int8", "b", 1), "I16": ("int16", "h", 2), "U16": ("uint16", "H", 2), "U32": ("uint32", "I", 4), "U64": ("uint64", "Q", 8),
}  # fmt: skip
# numpy has no bfloat16, so a raw buffer of 16 bits is an integer; a C `long` has 8 bytes
_NAMES = {"l": "I64", "L": "U64", **{word: dtype for dtype, names in TYPES.items() for word in names[:2]}}
BEFORE = "before.safetensors"  # in the work folder: local tensors as they were before the round
COMPILED = "_orig_mod."  # in a name, of a module that `torch.compile` wraps
NAME, METRICS = 64, 32  # longest name of a metric in bytes, and most metrics of an answer
FIGURES = ("examples", "loss", "accuracy", "correct")  # the others are metrics
RESERVED = (*FIGURES, "perplexity", "round", "version")
MODELS = "a torch.nn.Module, a dict of arrays by name, or an object with state_dict() and load_state_dict()"


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
    return _slots(data, 8 + int.from_bytes(data[:8], "little"))


def create_safetensors(
    path: str | Path, tensors: Iterable[tuple[str, str, Sequence[int]]], notes: Mapping[str, str] | None = None
) -> dict[str, Slot]:
    """Maps a safetensors file with room for these tensors (name, type, shape). Writing to a slot changes the file."""
    header: dict[str, Any] = {"__metadata__": notes} if notes else {}
    end = 0
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
    data[: 8 + len(text)] = len(text).to_bytes(8, "little") + text
    return _slots(data, 8 + len(text))


def _slots(data: memoryview, begin: int) -> dict[str, Slot]:
    header, body = json.loads(bytes(data[8:begin])), data[begin:]
    header.pop("__metadata__", None)
    return {name: Slot(t["dtype"], tuple(t["shape"]), body[slice(*t["data_offsets"])]) for name, t in header.items()}


def _describe(name: str, value: Any) -> tuple[str, tuple[int, ...]]:
    """Type and shape of a tensor. Raises TypeError for another value, or a type that cannot be federated."""
    if hasattr(value, "dtype"):
        kind, shape = str(getattr(value.dtype, "name", value.dtype)).rpartition(".")[2], tuple(value.shape)
    else:
        try:
            view = memoryview(value)
        except TypeError:
            why = f"`{name}` of the model is a {type(value).__name__}, not a tensor or array; a model is {MODELS}"
            raise TypeError(why) from None
        kind, shape = "read-only" if view.readonly else view.format, view.shape or ()
    if kind not in _NAMES:
        raise TypeError(f"tensor `{name}` has type {kind}; a federation takes {', '.join(TYPES)}")
    return _NAMES[kind], shape


def _view(value: Any, slot: Slot) -> Any:
    """A slot as an array like `value`: of torch, or of numpy for every other framework."""
    if hasattr(value, "detach"):
        return sys.modules["torch"].frombuffer(slot.data, dtype=value.dtype).reshape(slot.shape)
    if hasattr(value, "dtype"):
        numpy, own = sys.modules["numpy"], getattr(value.dtype, "as_numpy_dtype", value.dtype)  # TensorFlow has its own
        kind = numpy.dtype(own if slot.dtype == "BF16" else TYPES[slot.dtype][0])
        return numpy.frombuffer(slot.data, kind.newbyteorder("<")).reshape(slot.shape)
    return slot.data


def _copy(value: Any, slot: Slot, out: bool = False) -> None:
    """Copies a slot into a tensor, or with `out` the tensor into the slot."""
    there, array = _view(value, slot), hasattr(value, "dtype")
    if hasattr(value, "assign") and not out:  # a variable of TensorFlow or Keras
        value.assign(there)
        return
    here: Any = value.detach() if hasattr(value, "detach") else value if array else memoryview(value).cast("B")
    target, source = (there, here) if out else (here, there)
    target[... if array else slice(None)] = source


def _new(value: Any, slot: Slot) -> Any:
    """A new array like `value` with the values of a slot."""
    if hasattr(value, "detach"):
        return sys.modules["torch"].empty_like(value.detach()).copy_(_view(value, slot))
    # JAX makes a changed copy in this way.
    return value.at[...].set(_view(value, slot)) if hasattr(value, "at") else _view(value, slot).copy()


def _single(value: Any) -> Any:
    """A tensor or array in single precision; another buffer as it is."""
    return value.float() if hasattr(value, "detach") else value.astype("float32") if hasattr(value, "dtype") else value


def _place(value: Any) -> Any:
    """Equal for tensors that share their memory."""
    return (value.data_ptr(), tuple(value.shape), value.stride()) if hasattr(value, "data_ptr") else id(value)


def _named(model: Any) -> dict[str, Any]:
    """What the model holds, by name. Raises TypeError for what is no model."""
    is_object = hasattr(model, "state_dict") and hasattr(model, "load_state_dict") and not isinstance(model, type)
    why = instead(model)
    named = None if why else model if isinstance(model, dict) else model.state_dict() if is_object else None
    if not isinstance(named, Mapping):
        what = f"the class {model.__name__}" if isinstance(model, type) else f"of type {type(model).__name__}"
        raise TypeError(f"fl.rounds takes {MODELS}; what it was given is {what}{why}")
    if other := [name for name in named if not isinstance(name, str)]:
        raise TypeError(f"the model names a tensor {other[0]!r}, which is no text; a model is {MODELS}")
    return {name.replace(COMPILED, ""): value for name, value in named.items()}


def _state(model: Any, named: dict[str, Any] | None = None) -> dict[str, Any]:
    """The model's tensors by name. Of tensors that share their memory, only the first; no empty ones."""
    first: dict[Any, tuple[str, Any]] = {}
    for name, value in (_named(model) if named is None else named).items():
        # Without what is no tensor, such as `_extra_state`. In a dict, that is an error.
        is_tensor = isinstance(model, dict) or hasattr(model, "fl_kinds") or hasattr(value, "shape")
        if is_tensor and math.prod(_describe(name, value)[1]):
            first.setdefault(_place(value), (name, value))
    return dict(first.values())


def _versions(model: Any) -> dict[str, int] | None:
    """How often each parameter of a torch module that is to be trained was written; None for other models.

    A step that rounding swallows counts. What replaces a parameter or writes to its `data` does not, but changes values.
    """
    if not (hasattr(model, "named_parameters") and "torch" in sys.modules):
        return None
    trained = ((n, p) for n, p in model.named_parameters() if p.requires_grad and not p.is_inference())
    return {name.replace(COMPILED, ""): parameter._version for name, parameter in trained}


def _load(model: Any, slots: Mapping[str, Slot]) -> None:
    """Copies tensors into the model."""
    state = _state(model, named := _named(model))
    slots = {name: slot for name, slot in slots.items() if math.prod(slot.shape)}
    for name, slot in slots.items():
        if name not in state or _describe(name, state[name]) != (slot.dtype, slot.shape):
            raise ValueError(f"tensor `{name}` of the run, {slot.dtype} {list(slot.shape)}, is not in the model")
    if hasattr(model, "named_parameters"):  # a torch.nn.Module copies from the views
        own = {name.replace(COMPILED, ""): name for name in model.state_dict()}
        # A batch norm of older torch sets the counter that it does not get to zero.
        counters = {own[name]: value for name, value in named.items() if name.endswith("num_batches_tracked")}
        new = {own[name]: _view(state[name], slot) for name, slot in slots.items()}
        model.load_state_dict({**counters, **new}, strict=False)
        return
    new: dict[Any, Any] = {}
    for name, slot in slots.items():
        value, is_array = state[name], hasattr(state[name], "dtype")
        if isinstance(model, dict) or not is_array:
            # The errors are of arrays that cannot be written, such as those of JAX.
            with contextlib.suppress(*(TypeError, ValueError, RuntimeError) if is_array else ()):
                _copy(value, slot)
                continue
        new[_place(value)] = _new(value, slot)
    replaced = {name: new[place] for name, value in named.items() if (place := _place(value)) in new}
    model.update(replaced) if isinstance(model, dict) else model.load_state_dict({**named, **replaced})


class _Link:
    """Messages to and from the client."""

    def __init__(self, reader: int, writer: int) -> None:
        self.reader, self.writer, self.rest, self.poller = reader, writer, b"", select.poll()
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


def evaluate(function: Evaluator) -> Evaluator:
    """Decorator of the function that evaluates the model on this client's held-out examples.

    It takes the model and returns `examples`, `loss`, of a classifier `accuracy` or `correct`, and further metrics. A
    torch module is in evaluation mode meanwhile, and computes no gradients.
    """
    global _evaluator
    _evaluator = function
    return function


def device() -> str:
    """Where to compute, as client.toml says: "cpu" or "cuda:N". Under torchrun, each process has its own GPU.

    A worker process, such as one of a `DataLoader`, has the answer too.
    """
    rank, torch = os.environ.get("LOCAL_RANK"), sys.modules.get("torch")
    if "FL_TRAINER_DEVICE" not in os.environ and rank is None:
        _connect()
    wanted = os.environ.get("FL_TRAINER_DEVICE", "auto")
    found = f"cuda:{rank or 0}" if torch and torch.cuda.is_available() else "cpu"
    return found if wanted == "auto" or (rank and wanted != "cpu") else wanted


def _is_worker() -> bool:
    """Whether another process of the script has the trainer's descriptors: the one that started this one."""
    if os.environ.get("FL_TRAINER_PROCESS", str(os.getpid())) != str(os.getpid()):
        return True
    # The script, which a worker imports before it knows its parent. joblib's loky builds on multiprocessing.
    is_importing = hasattr(multiprocessing.current_process(), "_inheriting")
    return is_importing or (multiprocessing.parent_process() is not None and "LOCAL_RANK" not in os.environ)


def _connect() -> _Link | None:
    """The link to the client; None without one, and in a worker process."""
    global _link
    if _is_worker():
        return None
    if _link is None and {"FL_TRAINER", "FL_ATTACH"} & os.environ.keys():
        _link = Link(*(connected() if "FL_ATTACH" in os.environ else _pipes()))
    if _link:
        # For the processes that this one starts.
        os.environ.update(FL_TRAINER_PROCESS=str(os.getpid()), FL_TRAINER_DEVICE=str(_link.start.get("device", "auto")))
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


def _number(value: Any) -> float:
    """A finite number, which may be a tensor."""
    try:
        number = float(value)
    except Exception as error:  # each framework has its own for what is no single number
        raise ValueError(f"is no number, but a {type(value).__name__}") from error
    if not math.isfinite(number):
        raise ValueError(f"is {number}; the figures of a round must be finite")
    return number


def _metric(name: Any, value: Any) -> Any:
    """A metric as the protocol has it: a number, or of a pair an object of value and weight."""
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name.encode()) <= NAME:
        raise ValueError(f"has a name that is not a text of 1 to {NAME} printable bytes")
    if name in RESERVED:
        raise ValueError("is a name of the server; give the metric another one")
    if not isinstance(value, (tuple, list)):
        return _number(value)
    if len(value) != 2 or _number(value[1]) <= 0:
        raise ValueError(f"is {value}; a metric is a number, or a pair of a number and a positive weight")
    return {"value": _number(value[0]), "weight": _number(value[1])}


def _correct(name: str, value: Any, examples: float) -> float:
    """The number of examples classified correctly, of themselves or of their share."""
    share = _number(value) / (1 if name == "accuracy" else max(examples, 1))
    if not -1e-6 < share < 1 + 1e-6:  # rounded sums of weights may pass 1
        bound = "a share from 0 to 1, not percent" if name == "accuracy" else f"at most the {examples:g} examples"
        raise ValueError(f"is {value}; it is {bound}")
    return min(max(_number(value) * (examples if name == "accuracy" else 1), 0), examples)


def _answer(figures: Mapping[str, Any], own: Sequence[str] = FIGURES) -> dict[str, Any]:
    """The fields of `fitted` or `evaluated`, whose `own` are no metrics. A metric that cannot be sent is left out, and named."""
    if not isinstance(figures, Mapping) or not {"examples", "loss"} <= figures.keys():
        raise ValueError(f"a function marked by fl.evaluate returns a dict with `examples` and `loss`, not {figures}")
    fields: dict[str, Any] = {"metrics": {}}
    for name in [*(name for name in own if name in figures), *(name for name in figures if name not in own)]:
        try:
            if name in ("examples", "loss"):
                fields[name] = _number(figures[name])
            elif name in own:
                fields["correct"] = _correct(name, figures[name], fields["examples"])
            elif len(fields["metrics"]) == METRICS:
                raise ValueError(f"is one more than the {METRICS} metrics of an answer")
            else:
                fields["metrics"][name] = _metric(name, figures[name])
        except ValueError as error:
            if name in ("examples", "loss"):
                raise ValueError(f"`{name}` {error}") from error
            print(f"fl: `{name}` {error}; it is left out", file=sys.stderr)
    return {**fields, "examples": int(fields["examples"])}


def _evaluated(model: Any, measured: Any = contextlib.nullcontext) -> dict[str, Any]:
    with contextlib.ExitStack() as stack:
        if hasattr(model, "named_parameters"):
            stack.enter_context(sys.modules["torch"].no_grad())
            # Frameworks give `train` and `eval` other meanings, such as a whole training.
            for module in list(model.modules()):
                stack.callback(setattr, module, "training", module.training)
                module.training = False
            stack.enter_context(measured())
        figures = _evaluator(getattr(model, "fl_subject", lambda: model)()) if _evaluator else {}
        if not isinstance(figures, Mapping) or "perplexity" not in figures:
            return _answer(figures)
        # The server computes it from the mean loss of all clients.
        rest = {name: value for name, value in figures.items() if name != "perplexity"}
        return {**_answer(rest), "language": True}


def _text(error: BaseException) -> str:
    """An exception as the message of `failed`: a line with the innermost place in the user's code.

    The client of a notebook does not see the traceback, and gets it instead.
    """
    if _link and _link.reader == _link.writer:
        return "".join(traceback.format_exception(type(error), error, error.__traceback__)[-60:])
    libraries = (os.path.realpath(sysconfig.get_path("stdlib")) + os.sep, os.path.realpath(__file__))
    places = [(at.filename, at.lineno) for at in traceback.extract_tb(error.__traceback__)]
    users = [at for at in places if not re.search("-packages/|<frozen ", at[0])]
    own = [at for at in users if not os.path.realpath(at[0]).startswith(libraries)] or places
    where = "".join(f" ({os.path.basename(file)}:{line})" for file, line in own[-1:])
    return f"{type(error).__name__}: {f'{error}'.strip().partition(chr(10))[0]}{where}"


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

    `seed`, of 32 bits, is for every random choice, and `seed64` for what takes more. `train` and `extra` are `[train]` and
    `[train.extra]` of the run, `client` is this client's name. Inside `with job:`, an exception ends the round, and the
    loop continues with the next one. Elsewhere, it ends the script: the client reports it, and starts the script again for
    the next round.
    """

    def __init__(self, session: _Session | None, message: Mapping[str, Any], train: Train) -> None:
        self.round, self.rounds, self.seed64 = (int(message[key]) for key in ("round", "rounds", "seed"))
        self.seed = self.seed64 % 2**32  # numpy and what builds on it take no more
        self.train, self.extra, self.client = train, message.get("extra") or {}, session.client if session else ""
        self.stopped = self.answered = self._inside = False
        self._callback: Any = None
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

        Its length is their number; attributes, such as `dataset`, are the loader's. A loader may have no length, as one of
        an `IterableDataset`. `set_epoch` of its sampler, such as a `DistributedSampler`, is called before each pass with a
        number of its own, without which every pass and every round would have the same order. A pass without a batch is
        an error.
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
        with contextlib.suppress(Exception):  # each framework has its own for what has no length
            return self.train.steps or (self.train.epochs or 1) * len(iterable)
        return 0

    def report(self, done: int, total: int = 0) -> None:
        """Tells the client, at most twice a second, that `done` of `total` steps are done, and updates `stopped`."""
        if self._session and time.monotonic() - self._reported > 0.5:
            self._reported = time.monotonic()
            self._session.send(type="progress", done=done, total=max(done, total))
        self.stopped = self.stopped or bool(self._session and self._session.stop_arrived())

    def callback(self) -> Callback:
        """A callback for the loop of a framework: progress, mean loss and stop. See `fl.callbacks.Callback`."""
        self._callback = callback = Callback(self)
        return callback

    def done(
        self, *, examples: int, loss: Any, squared_gradients: Any = None, unchanged_ok: Any = None, **metrics: Any
    ) -> None:
        """Returns the model's weights with the number of examples and the mean training loss.

        A metric is a number, which weighs as the examples in the mean over clients, or a pair of value and weight.
        `squared_gradients` is wanted if `wants_squared_gradients`: for each trained tensor, the mean over the steps of its
        squared gradient. It stays on this machine, where the run's compression chooses by it what to send.
        A training that changes no trained value makes the client leave the round, unless `unchanged_ok` is true: for a
        script that had nothing to train. Of a torch module, `fl` sees whether the training wrote to a parameter.
        """
        if self.answered:
            raise RuntimeError(f"round {self.round} has an answer already")
        try:
            fields = _answer({"examples": examples, "loss": loss, **metrics}, FIGURES[:2])
        except ValueError as error:  # no reason to end the script
            print(f"fl: round {self.round}: {error}", file=sys.stderr)
            return self.fail(str(error))
        if self._callback and not self._callback.steps:
            print(f"fl: round {self.round}: job.callback() was never called; pass it to the training", file=sys.stderr)
        if self._session is None:
            print("fl: trained:", json.dumps(fields), file=sys.stderr)
        elif self.stopped or self._session.stop_arrived():
            return self.fail("stopped")
        else:
            self._session.write()
            if self._session.kept:
                self._session.kept.save(self.round, leads=self._session.link is not None)
            if self.wants_squared_gradients and squared_gradients is not None:
                single = {name: _single(value) for name, value in squared_gradients.items()}
                self._session.save(self._session.fit["squared_gradients"], single)
                fields["squared_gradients"] = True
            fields["unchanged_ok"] = self._session.wrote() if unchanged_ok is None else bool(unchanged_ok)
            self._session.send(type="fitted", **fields)
        self.answered = True

    def fail(self, message: str) -> None:
        """Leaves the round. The client logs the message, and the server shows its first line."""
        if self._session is not None and not self.answered:
            if before := self._session.files.get(BEFORE):
                _load(self._session.model, before)
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
        batches = itertools.islice(self._passes(), self._job.train.steps)
        return self._job.progress(batches, self._job._total(self._loader))

    def _passes(self) -> Iterator[Item]:
        loader, batch_sampler = self._loader, getattr(self._loader, "batch_sampler", None)
        parts: list[Any] = [loader, getattr(loader, "sampler", None), getattr(batch_sampler, "sampler", None)]
        for number in itertools.count() if self._job.train.steps else range(self._job.train.epochs or 1):
            for part in parts:
                if hasattr(part, "set_epoch"):
                    part.set_epoch((self._job.seed + number) % 2**31)
            is_empty = True
            for batch in loader:
                is_empty = False
                yield batch
            if is_empty:
                why = "with drop_last, fewer examples than a batch make none; an iterator has one pass: give a list or a loader"
                raise ValueError(f"the loader of job.batches has no batch in pass {number + 1}; {why}")

    def __len__(self) -> int:
        return self._job.train.steps or (self._job.train.epochs or 1) * len(self._loader)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class _Session:
    """The conversation with the client about one model."""

    def __init__(self, model: Any, link: _Link | None, dist: Any, keep: Any = None) -> None:
        self.given, self.link, self.dist, self.client = model, link, dist, ""
        self.kept = None if keep is None else Kept(keep)
        wrappers = {"DistributedDataParallel": "module", "DataParallel": "module", "OptimizedModule": "_orig_mod"}
        while kept := wrappers.get(type(model).__name__):  # the last: torch.compile
            model = getattr(model, kept)
        self.model = model
        # Not in a group, whose processes would measure unequal numbers of batches.
        self.measured = Statistics(model).measured if Statistics and not dist else contextlib.nullcontext
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

    def save(self, file: str, state: Mapping[str, Any], notes: Mapping[str, str] | None = None) -> dict[str, Slot]:
        """Copies tensors into a file, which is made once for each run."""
        if self.link and file not in self.files:
            tensors = [(n, *_describe(n, v)) for n, v in state.items()]
            self.files[file] = create_safetensors(self.folder / file, tensors, notes)
        for name, slot in self.files.get(file, {}).items():
            _copy(state[name], slot, out=True)
        return self.files.get(file, {})

    def hello(self, weights: bool) -> None:
        file, state = "hello.safetensors" if weights else None, _state(self.model)
        if not state:
            raise TypeError(f"the model has no array with a value; a model is {MODELS}")
        keys = ("name", "dtype", "shape", "kind")
        kinds = dict.fromkeys(_versions(self.model) or (), "parameter")
        if hasattr(self.model, "named_buffers"):
            kinds.update({name.replace(COMPILED, ""): "buffer" for name, _ in self.model.named_buffers()})
        kinds.update(getattr(self.model, "fl_kinds", dict)())
        if file:
            self.save(file, state, {"format": "pt", "fl.kinds": json.dumps(kinds)})
        tensors = [dict(zip(keys, (name, *_describe(name, value), kinds.get(name)))) for name, value in state.items()]
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
        self.save(self.fit["result"], self.of("trained", "buffer", "counter", "local"))

    def wrote(self) -> bool | None:
        """Whether the training wrote to a parameter, or had none to train; None if that is not known."""
        after = _versions(self.model)
        return None if after is None else not after or after != self.versions

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
                self.client, self.files, self.place = message["client"], {}, message.get("kept")
                self.roles = {tensor["name"]: tensor["role"] for tensor in message["tensors"]}
                self.load(message.get("base"), "frozen")
                self.load(message.get("local"), "local")
            if message["type"] not in ("fit", "evaluate"):  # such as a `stop` that crossed an answer
                continue
            try:
                self.load(message["weights"], "trained", "buffer", "counter")
                if message["type"] == "evaluate":
                    self.send(type="evaluated", **_evaluated(self.given, self.measured))
                else:
                    self.save(BEFORE, self.of("local"))
                    train = {key: value for key, value in message["train"].items() if key in Train.__dataclass_fields__}
                    if self.kept:
                        self.kept.load(self.place, message["round"])
                    self.versions = _versions(self.model)  # before the training
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


def rounds(model: Any, *, weights: bool = True, alone: Train | None = None, keep: Any = None) -> Iterator[Job]:
    """Yields a job for every round in which this client takes part, until the run is over.

    Args:
        model: Its tensors are replaced before each job, and returned by `job.done`. Local and frozen ones stay.
        weights: Whether the client gets the model's present weights, to make the first weights of a run or to compare
            them with the run's base. False spares a large model the file.
        alone: What the job of a script without a client has in `job.train`.
        keep: An optimizer, scheduler or GradScaler of PyTorch, made before the loop, or a list of them. Each training then
            begins with their state after this client's last answered one, also after a restart. The state is of this
            client's own steps and is not averaged: on different data, it pulls each client towards its own optimum.
    """
    dist = _group()
    leads = dist is None or dist.get_rank() == 0
    link = _connect() if leads else None
    if leads and _is_worker() and {"FL_TRAINER", "FL_ATTACH"} & os.environ.keys():
        why = "the loop over fl.rounds belongs to the process that starts this one"
        raise RuntimeError(f'{why}; in the script, put the loop under `if __name__ == "__main__":`')
    if link is None and (leads or "FL_TRAINER" not in os.environ):
        if leads:
            _Session(model, None, None, keep).hello(False)  # refuses what is no model
            print("fl: no client: one round, from the script's own weights, on this machine alone", file=sys.stderr)
        yield Job(None, {"round": 1, "rounds": 1, "seed": 0}, alone or Train())
        if leads and _evaluator:
            print("fl: evaluated:", json.dumps(_evaluated(model)), file=sys.stderr)
        return
    session, hook = _Session(model, link, dist, keep), sys.excepthook
    sys.excepthook = lambda kind, error, trace: session.leave(error) or hook(kind, error, trace)
    atexit.register(session.leave)
    if "IPython" in sys.modules:
        after_each_cell(lambda error: session.left and session.leave(error))
    session.hello(weights)
    try:
        yield from session.jobs()
    except GeneratorExit:  # by `break` or by an error, which only the hooks can distinguish
        session.left = True
    else:
        session.leave()


Statistics: Any = None
Link: Any = _Link
instead: Any = lambda _: ""
with contextlib.suppress(ImportError):  # a copied file is without them
    from .adapters import Weights, instead, keras, lightning, tree, yolo
    from .batch_norm import Statistics
    from .callbacks import Callback, Link
    from .hugging_face import HuggingFaceCallback
    from .kept import Kept
    from .notebook import after_each_cell, attach, connected
    from .simulation import simulate
