"""`transformers.Trainer` as a trainer of a federation."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from . import Job, Train, evaluate, rounds
from .callbacks import Callback

TIMES = ("_time", "_per_second", "runtime")  # ends of the names of figures that are no metrics


class HuggingFaceCallback(Callback):
    """Federates a `transformers.Trainer`: `fl.HuggingFaceCallback(trainer).run()` in place of `trainer.train()`.

    Learning rate, epochs or steps, batch size and seed are the run's; everything else is as in the trainer's arguments. Without
    a client, all are the arguments'.
    `examples` is the length of the training set, or of all sets of a dict. A streamed set without a length counts with the
    examples of the steps; they are `steps` of the run, or `max_steps` of the trainer's arguments.

    With an `eval_dataset` the client evaluates, too. Of a dict of sets, a figure that each of them has, such as the loss,
    is also a mean over their examples.
    """

    def __init__(self, trainer: Any) -> None:
        super().__init__(Job(None, {"round": 1, "rounds": 1, "seed": 0}, Train()))
        self.trainer = trainer
        self.max_steps = getattr(trainer.args, "max_steps", -1)
        trainer.add_callback(self)
        if trainer.eval_dataset is not None and trainer.eval_dataset != {}:
            evaluate(self._evaluate)

    def _evaluate(self, _: Any) -> dict[str, Any]:
        found = {name[5:]: value for name, value in self.trainer.evaluate().items() if name.startswith("eval_")}
        sets = self.trainer.eval_dataset
        # The loss of a language model is of tokens.
        language = {"perplexity": None} if getattr(self.trainer.model, "can_generate", bool)() else {}
        if not isinstance(sets, Mapping):
            return {"examples": _evaluated(sets, found), **_metrics(found), **language}
        of_sets, metrics = {}, {}
        for name in sorted(sets, key=len, reverse=True):  # `eval_NAME_loss`, and a name may begin with another
            own = {key[len(name) + 1 :]: found.pop(key) for key in list(found) if key.startswith(f"{name}_")}
            of_sets[name] = (_evaluated(sets[name], own), _metrics(own))
            metrics.update({f"{name}_{key}": (value, of_sets[name][0]) for key, value in of_sets[name][1].items()})
        examples = sum(count for count, _ in of_sets.values())
        shared = set.intersection(
            *({key for key in own if hasattr(own[key], "__float__")} for _, own in of_sets.values())
        )
        means = {
            key: sum(count * own[key] for count, own in of_sets.values()) / max(examples, 1) for key in sorted(shared)
        }
        return {"examples": examples, **means, **metrics, **language}

    def run(self, **options: Any) -> None:
        """Trains in every round; `options` are those of `rounds`."""
        trainer, args = self.trainer, self.trainer.args
        for self.job in rounds(trainer.model, **options):
            self.steps = 0
            with self.job as job:
                length, train = _length(trainer.train_dataset), job.train
                own = {"learning_rate": train.learning_rate, "per_device_train_batch_size": train.batch_size}
                own["num_train_epochs"] = train.epochs or 1
                own["max_steps"] = train.steps or (self.max_steps if length is None else -1)
                alone = job._session is None and "alone" not in options
                for name, value in () if alone else own.items():
                    if value != getattr(args, name, value):
                        print(
                            f"fl: {name} of the run, {value}, replaces the script's {getattr(args, name)}",
                            file=sys.stderr,
                        )
                    setattr(args, name, value)
                args.seed = job.seed
                trainer._train_batch_size = args.train_batch_size  # transformers 5 reads the arguments only once
                trainer.optimizer = trainer.lr_scheduler = None  # made anew by `train`
                loss = trainer.train().training_loss
                if length is None:
                    each = args.train_batch_size * getattr(args, "gradient_accumulation_steps", 1)
                    length = trainer.state.global_step * each * getattr(args, "world_size", 1)
                job.done(examples=length, loss=loss)


def _length(dataset: Any) -> int | None:
    """The examples of a set or of a dict of sets; None if one is streamed."""
    if isinstance(dataset, Mapping):
        lengths = [_length(one) for one in dataset.values()]
        return None if None in lengths else sum(length or 0 for length in lengths)
    try:
        return len(dataset)
    except Exception:  # each framework has its own for what has no length
        return None


def _evaluated(dataset: Any, figures: Mapping[str, Any]) -> int:
    """The examples of an evaluation with these figures."""
    length = _length(dataset)
    if length is None and "samples_per_second" in figures:
        length = round(figures["samples_per_second"] * figures["runtime"])
    return sum(1 for _ in dataset) if length is None else length


def _metrics(figures: Mapping[str, Any]) -> dict[str, Any]:
    if "loss" not in figures:
        raise ValueError("trainer.evaluate() returned no `eval_loss`; the evaluation sets need labels")
    return {name: value for name, value in figures.items() if not name.endswith(TIMES)}
