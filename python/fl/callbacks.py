"""Trainings in loops that are not the script's: a callback for frameworks, and the sign of life of a process that computes."""

from __future__ import annotations

import contextlib
import glob
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fl

from . import _Link, _single

if TYPE_CHECKING:
    from . import Job

EVERY_S = 1.0  # between two looks at the processor time
# Share of one core: background threads of libraries need less, a training on a GPU needs more for its launches alone.
COMPUTES = 0.02


class Callback:
    """Progress, mean loss and stop of a round, for a loop of a framework. Made by `job.callback()`, for this round alone.

    | loop | use |
    |---|---|
    | Keras | `model.fit(.., callbacks=[job.callback()])` |
    | Lightning | `Trainer(.., callbacks=[job.callback()])` |
    | transformers | `Trainer(.., callbacks=[job.callback()])` |
    | Ultralytics | `model.add_callback("on_train_batch_end", job.callback())` |
    | any other | `if callback.step(loss): break` after each step |

    The framework ends its training after the step in which the answer is no longer wanted.
    """

    def __init__(self, job: Job) -> None:
        self.job, self.steps = job, 0
        self._total, self._sum, self._count, self._mean = 0, 0.0, 0, None
        self._model: Any = None

    def step(self, loss: Any = None, *, total: int = 0) -> bool:
        """Reports one more step of `total`, 0 if unknown, with its loss. Returns whether the training is to end."""
        self.steps += 1
        if loss is not None:  # added where it is: a GPU does not wait for the number
            self._sum = self._sum + (_single(loss.detach()) if hasattr(loss, "detach") else loss)
            self._count += 1
        self.job.report(self.steps, total or self.job.train.steps or 0)
        return self.job.stopped

    @property
    def loss(self) -> float:
        """Mean loss of the steps; of Keras and Ultralytics, the mean that they show for the last epoch."""
        if not self.steps:
            raise ValueError("job.callback() was never called; pass it to the training, or call its `step(loss)`")
        if self._mean is None and not self._count:
            raise ValueError("job.callback() was given no loss; pass one to `step(loss)`, or return it from the training step")
        return float(self._sum / self._count if self._mean is None else self._mean)

    # Keras, which calls it with the batch and the means so far, and Lightning, which calls it with what the training step returned.
    def on_train_batch_end(self, *given: Any, logs: Any = None) -> None:
        if len(given) == 1 or isinstance(given[0], int):
            self._mean = (logs or {}).get("loss", self._mean)
            if self.step(total=self._total):
                self._model.stop_training = True
            return
        trainer, _, outputs = given[:3]
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        batches = trainer.num_training_batches * (trainer.max_epochs or 1)
        is_known = 0 < batches < float("inf") and trainer.max_steps < 0
        if self.step(loss, total=int(batches) if is_known else max(trainer.max_steps, 0)):
            trainer.should_stop = True

    def set_model(self, model: Any) -> None:
        self._model = model

    def set_params(self, params: Any) -> None:
        self._total = (params.get("steps") or 0) * (params.get("epochs") or 1)

    # Lightning
    state_key = "fl"

    def state_dict(self) -> dict[str, Any]:
        return {}

    # transformers
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        stop = self.step(total=state.max_steps)
        control.should_training_stop = control.should_training_stop or stop

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        self._mean = (logs or {}).get("train_loss", (logs or {}).get("loss", self._mean))

    # Ultralytics
    def __call__(self, trainer: Any) -> None:
        losses = trainer.tloss.values() if isinstance(trainer.tloss, dict) else trainer.tloss.reshape(-1)
        self._mean = sum(losses)
        trainer.stop = self.step(total=trainer.epochs * len(trainer.train_loader)) or trainer.stop

    def __getattr__(self, name: str) -> Any:
        if name.startswith("on_") or name in ("setup", "teardown", "load_state_dict"):  # the frameworks' other events
            return lambda *args, **kwargs: None
        raise AttributeError(f"{type(self).__name__} has no {name}")


class Link(_Link):
    """Tells the client that the process computes, while a training or evaluation reports nothing."""

    def __init__(self, reader: int, writer: int) -> None:
        self.lock, self.asked = threading.Lock(), False  # whether the client waits for an answer
        self.progress: dict[str, Any] = {}
        super().__init__(reader, writer)
        threading.Thread(target=self._pulse, name="fl-pulse", daemon=True).start()

    def read(self, timeout_s: float | None = None) -> dict[str, Any] | None:
        message = super().read(timeout_s)
        if message and message["type"] in ("fit", "evaluate"):
            self.asked, self.progress = True, {"type": "progress", "done": 0}
        return message

    def send(self, **message: Any) -> None:
        with self.lock:
            if message["type"] == "progress":
                self.progress = message
            elif message["type"] != "hello":
                self.asked = False
            if self.asked or message["type"] != "progress":  # which has no place after an answer
                super().send(**message)

    def _pulse(self) -> None:
        own, group = time.process_time(), _group_s()
        while not time.sleep(EVERY_S) and fl._link in (None, self):  # None: this one is not there yet, or the run is over
            before, own = own, time.process_time()
            computes = own - before > COMPUTES * EVERY_S
            if not computes and self.asked:  # a process that waits for others, such as the workers of a loader
                before, group = group, _group_s()
                computes = group - before > COMPUTES * EVERY_S
            if computes and self.asked:
                self.send(**self.progress)


def _group_s() -> float:
    """Processor time of this process group, with that of its ended processes."""
    group, ticks = str(os.getpgrp()), 0
    for path in glob.iglob("/proc/[0-9]*/stat"):
        with contextlib.suppress(OSError):  # of a process that has ended
            fields = Path(path).read_text(errors="replace").rpartition(")")[2].split()
            if fields[2] == group:
                ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")
