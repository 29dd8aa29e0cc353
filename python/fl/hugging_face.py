"""`transformers.Trainer` as a trainer of a federation."""

from __future__ import annotations

from typing import Any

from . import Job, Train, evaluate, rounds


class HuggingFaceCallback:
    """Federates a `transformers.Trainer`: `fl.HuggingFaceCallback(trainer).run()` in place of `trainer.train()`.

    Learning rate, epochs or steps, batch size and seed are the run's; everything else is as in the trainer's arguments.
    `examples` is the length of the training set. With an `eval_dataset` the client evaluates, too.
    """

    def __init__(self, trainer: Any) -> None:
        self.trainer, self.job = trainer, Job(None, {"round": 1, "rounds": 1, "seed": 0}, Train())
        trainer.add_callback(self)
        if trainer.eval_dataset is not None:
            evaluate(self._evaluate)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("on_"):  # the other events of a `TrainerCallback`
            return lambda *args, **kwargs: None
        raise AttributeError(name)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.job.report(state.global_step, state.max_steps)
        control.should_training_stop = control.should_training_stop or self.job.stopped

    def _evaluate(self, _: Any) -> dict[str, Any]:
        figures = {name[5:]: value for name, value in self.trainer.evaluate().items() if name.startswith("eval_")}
        timings = [name for name in figures if name.endswith(("_time", "_per_second", "runtime"))]
        return {"examples": len(self.trainer.eval_dataset), **{n: v for n, v in figures.items() if n not in timings}}

    def run(self, **options: Any) -> None:
        """Trains in every round; `options` are those of `rounds`."""
        trainer, args = self.trainer, self.trainer.args
        for self.job in rounds(trainer.model, **options):
            with self.job as job:
                args.learning_rate, args.per_device_train_batch_size = job.train.learning_rate, job.train.batch_size
                args.num_train_epochs, args.max_steps = job.train.epochs or 1, job.train.steps or -1
                args.seed = job.seed % 2**32
                trainer._train_batch_size = args.train_batch_size  # transformers 5 reads the arguments only once
                trainer.optimizer = trainer.lr_scheduler = None  # made anew by `train`
                loss = trainer.train().training_loss
                job.done(examples=len(trainer.train_dataset), loss=loss)
