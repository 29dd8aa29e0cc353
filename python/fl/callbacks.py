"""Trainings in loops that are not the script's: a callback for frameworks, and the sign of life of a process that computes."""

from __future__ import annotations

import contextlib
import glob
import math
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
    """Progress, mean loss and stop of a round, for a loop of a framework. `job.callback()` makes one for its round.

    | loop | use |
    |---|---|
    | Keras | `model.fit(.., callbacks=[job.callback()])` |
    | Lightning, transformers | `Trainer(.., callbacks=[job.callback()])` |
    | Ultralytics | `model.add_callback("on_train_batch_end", job.callback())` |
    | any other | `if callback.step(loss): break` after each step |

    The framework ends its training after the step in which the answer is no longer wanted.
    """

    state_key = "fl"  # of Lightning

    def __init__(self, job: Job) -> None:
        self.job, self.steps, self._total, self._sum, self._count = job, 0, 0, 0.0, 0
        self._mean: Any = None
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
        if self._mean is None and not self._count:
            raise ValueError("job.callback() was never given a loss; pass it to the training, or call `step(loss)`")
        return float(self._sum / self._count if self._mean is None else self._mean)

    def set_model(self, model: Any) -> None:  # Keras
        self._model = model

    def set_params(self, params: Any) -> None:  # Keras
        self._total = (params.get("steps") or 0) * (params.get("epochs") or 1)

    def on_train_batch_end(self, *given: Any, logs: Any = None) -> None:
        if len(given) == 1:  # Keras: the batch, and the means so far
            self._mean = (logs or {}).get("loss", self._mean)
            self._model.stop_training = self.step(total=self._total) or self._model.stop_training
            return
        trainer, _, outputs = given[:3]  # Lightning: with what the training step returned
        total = trainer.max_steps if trainer.max_steps > 0 else trainer.num_training_batches * (trainer.max_epochs or 0)
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        trainer.should_stop = self.step(loss, total=int(total) if 0 < total < 1e18 else 0) or trainer.should_stop

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # transformers
        control.should_training_stop = self.step(total=state.max_steps) or control.should_training_stop

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:  # transformers
        self._mean = (logs or {}).get("train_loss", (logs or {}).get("loss", self._mean))

    def __call__(self, trainer: Any) -> None:  # Ultralytics
        self._mean = sum(trainer.tloss.values() if isinstance(trainer.tloss, dict) else trainer.tloss.reshape(-1))
        trainer.stop = self.step(total=trainer.epochs * len(trainer.train_loader)) or trainer.stop

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("on_", "setup", "teardown", "state_dict", "load_state_dict")):  # of the frameworks
            return lambda *args, **kwargs: None
        raise AttributeError(name)


class Link(_Link):
    """Sends progress in the place of a training or evaluation that reports nothing, each second in which the process computes."""

    def __init__(self, reader: int, writer: int) -> None:
        self.lock, self.progress = threading.Lock(), {"type": "progress", "done": 0}
        self.is_taken = self.asked = False  # by a loop; whether the client waits for an answer
        super().__init__(reader, writer)
        threading.Thread(target=self._pulse, name="fl-pulse", daemon=True).start()

    def read(self, timeout_s: float | None = None) -> dict[str, Any] | None:
        message = super().read(timeout_s)
        if message and message["type"] in ("fit", "evaluate"):
            self.asked, self.progress = True, {"type": "progress", "done": 0}
        return message

    def send(self, **message: Any) -> None:
        kind = message["type"]
        if kind == "hello" and self.is_taken:
            raise RuntimeError("a script that a client starts has one loop over `fl.rounds`; this is a second model")
        with self.lock:
            self.is_taken = True
            self.progress = message if kind == "progress" else self.progress
            self.asked = self.asked and kind in ("progress", "hello")
            if self.asked or kind != "progress":  # which has no place after an answer
                super().send(**message)

    def _pulse(self) -> None:
        own, group = time.process_time(), math.inf
        while fl._link is self or not self.is_taken:
            time.sleep(EVERY_S)
            before, own = own, time.process_time()
            used = own - before
            if self.asked and used < COMPUTES * EVERY_S:  # it waits, perhaps for the workers of a loader
                before, group = group, _group_s()
                used = group - before
            elif self.asked:
                group = math.inf  # not looked at since then
            if self.asked and used > COMPUTES * EVERY_S:
                self.send(**self.progress)


def _group_s() -> float:
    """Processor time of this process group, with that of its ended processes."""
    group, ticks = str(os.getpgrp()), 0
    for path in glob.iglob("/proc/[0-9]*/stat"):
        with contextlib.suppress(OSError):  # of a process that has ended
            fields = Path(path).read_text(errors="replace").rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15])) if fields[2] == group else 0
    return ticks / os.sysconf("SC_CLK_TCK")
