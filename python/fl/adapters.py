"""Models of any framework: by two functions that give and take its arrays, and ready-made ones for some frameworks."""

from __future__ import annotations

import copy
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Optional, Union

from . import RESERVED, Job, Train, _describe, device, evaluate, rounds
from .hugging_face import _length

Arrays = Mapping[str, Any]
KINDS = {"trained": "parameter", "buffer": "buffer", "counter": "counter", "local": "local", "frozen": "frozen"}
TREES = "boosted trees and forests have no weights of fixed shapes, so there is nothing to average"
# The first part of a module's name -> what to use in place of an object from there.
INSTEAD = {
    "keras": "use fl.rounds(fl.keras(model))",
    "flax": "use fl.rounds(fl.tree(model))",
    "equinox": "use fl.rounds(fl.tree(model))",
    "ultralytics": "use fl.yolo(model, data=..)",
    "lightning": "use fl.lightning(module, trainer=lambda job: Trainer(..), data=..)",
    "pytorch_lightning": "use fl.lightning(module, trainer=lambda job: Trainer(..), data=..)",
    "transformers": "use fl.HuggingFaceCallback(trainer).run()",
    "fastai": "use fl.rounds(learn.model)",
    "sklearn": "use a dict of its arrays, as examples/scikit does",
    **dict.fromkeys(("xgboost", "lightgbm", "catboost"), TREES),
}


def instead(model: Any) -> Optional[str]:
    """What to use in place of an object that `fl.rounds` cannot take; None for others."""
    if hasattr(model, "task_map"):  # of Ultralytics, a module that trains another one
        return INSTEAD["ultralytics"]
    if isinstance(model, dict):
        is_nested = any(isinstance(value, (dict, list, tuple)) for value in model.values())
        return "of a nested dict, use fl.rounds(fl.tree(tree))" if is_nested else None
    if isinstance(model, type) or hasattr(model, "load_state_dict"):
        return None
    modules = [kind.__module__ for kind in type(model).__mro__]
    if any(module.startswith(("sklearn.tree", "sklearn.ensemble")) for module in modules):
        return TREES
    known = (INSTEAD[package] for module in modules if (package := module.partition(".")[0]) in INSTEAD)
    return next(known, "any other model takes fl.Weights(get, set)")


class Weights:
    """A model of any framework, by two functions: `fl.rounds(fl.Weights(get, set))`.

    Args:
        get: Returns the arrays of the model by name: of numpy or torch, of the same names, types and shapes at each call.
        set: Takes such a dict, with all names of `get`, and puts the values into the model. The arrays are its own.
        roles: Role of a name: "trained", "buffer" (averaged, such as running statistics), "counter", "local" (stays on
            this client) or "frozen". A dict, or a function of the name; None stands for the default of docs/reference/run-toml.md.
        subject: Returns what a function marked by `fl.evaluate` is given, in place of this object.

    A `set` that leaves a value out, and a `get` with other names, types or shapes than before, are errors, which name it.
    """

    def __init__(
        self,
        get: Callable[[], Arrays],
        set: Callable[[dict[str, Any]], object],
        roles: Union[Mapping[str, str], Callable[[str], Optional[str]], None] = None,
        subject: Optional[Callable[[], Any]] = None,
    ) -> None:
        if not callable(get) or not callable(set):
            wrong, name = (get, "get") if not callable(get) else (set, "set")
            raise TypeError(f"`{name}` of fl.Weights is a {type(wrong).__name__}; it is a function")
        self.get, self.set, self.subject = get, set, subject
        self.role = roles.get if isinstance(roles, Mapping) else roles or (lambda name: None)
        self.first: dict[str, Any] = {}
        if isinstance(roles, Mapping) and (unknown := [name for name in roles if name not in self.state_dict()]):
            raise ValueError(f"`roles` of fl.Weights names `{unknown[0]}`, which `get` does not return")

    @property
    def fl_subject(self) -> Any:
        return self if self.subject is None else self.subject()

    def fl_kinds(self) -> dict[str, str]:
        roles = {name: role for name in self.state_dict() if (role := self.role(name)) is not None}
        if wrong := [name for name, role in roles.items() if role not in KINDS]:
            raise ValueError(f"`roles` says {roles[wrong[0]]!r} for `{wrong[0]}`; a role is one of {', '.join(KINDS)}")
        return {name: KINDS[role] for name, role in roles.items()}

    def state_dict(self) -> dict[str, Any]:
        arrays = self.get()
        if not isinstance(arrays, Mapping):
            raise TypeError(f"`get` of fl.Weights returned a {type(arrays).__name__}; it returns a dict of arrays by name")
        arrays = {name: value.detach() if hasattr(value, "detach") else value for name, value in arrays.items()}
        described = {name: _describe(name, value) for name, value in arrays.items()}
        if other := {**self.first, **described}.items() - (self.first or described).items() | self.first.items() - described.items():
            raise ValueError(f"`get` of fl.Weights returned another `{sorted(other)[0][0]}` than before, or none")
        self.first = described
        return arrays

    def load_state_dict(self, state: Arrays) -> None:
        self.set(dict(state))
        after = self.state_dict()
        for name, value in state.items():
            if not _equal(after[name], value):
                raise ValueError(f"`set` of fl.Weights left out `{name}`: after it, `get` returns another value")


def _equal(one: Any, other: Any) -> bool:
    """Whether two arrays have the same bits, or torch the same values."""
    if hasattr(one, "detach"):
        return bool(one.equal(other) or (one != one).equal(other != other))
    numpy = sys.modules["numpy"]
    bits = [numpy.ascontiguousarray(array).reshape(-1).view("u1") for array in (one, other)]
    return bool(numpy.array_equal(*bits))


def keras(model: Any) -> Weights:
    """A Keras 3 model of any backend: `for job in fl.rounds(fl.keras(model))`. A function marked by `fl.evaluate` is given it.

    Names are the variables' paths. Variables that are not trained, such as running statistics, are buffers; states of random
    generators and metrics stay out.
    """
    from keras import Model, ops

    if not isinstance(model, Model):
        raise TypeError(f"fl.keras takes a keras.Model, not a {type(model).__name__}; a torch module goes to fl.rounds itself")
    variables = {variable.path: variable for variable in model.weights}
    if not variables or len(variables) < len(model.weights):
        why = "two variables of one path; give its layers names" if variables else "no variables yet; build it, by an Input"
        raise ValueError(f"the Keras model has {why}")
    trained = {variable.path for variable in model.trainable_weights}

    def set(arrays: Arrays) -> None:
        for name, variable in variables.items():
            variable.assign(arrays[name])

    return Weights(
        lambda: {name: ops.convert_to_numpy(variable) for name, variable in variables.items()},
        set,
        lambda name: "trained" if name in trained else "buffer",
        lambda: model,
    )


class Tree(Weights):
    """A pytree as `fl.tree` makes it: `tree` is the present one."""

    def __init__(self, tree: Any, roles: Any) -> None:
        self.tree, nnx = tree, sys.modules.get("flax.nnx")
        self.nnx: Any = nnx if nnx and isinstance(tree, nnx.Module) else None
        is_linen, is_tuple = isinstance(tree, Mapping) and "params" in tree, type(tree) in (tuple, list)
        first = "params/" if is_linen else "0/"
        trained = {"/".join(map(str, at)) for at, of in nnx.to_flat_state(nnx.state(tree, nnx.Param))} if self.nnx else set()

        def role(name: str) -> Optional[str]:
            if not (self.nnx or is_linen or is_tuple):
                return None
            return "trained" if name in trained or (not self.nnx and name.startswith(first)) else "buffer"

        super().__init__(self._arrays, self._replace, roles or role, lambda: self.tree)
        if not self.state_dict():
            raise TypeError(f"fl.tree takes a pytree with floating-point arrays of JAX or numpy, not a {type(tree).__name__}")

    def _leaves(self) -> tuple[list[tuple[str, Any]], Any]:
        from jax import tree_util

        flat, structure = tree_util.tree_flatten_with_path(self.nnx.state(self.tree) if self.nnx else self.tree)
        names = [tree_util.keystr(path, simple=True, separator="/") for path, _ in flat]
        names = [name.removesuffix("/value") for name in names] if self.nnx else names
        return list(zip(names, (leaf for _, leaf in flat))), structure

    def _arrays(self) -> dict[str, Any]:
        from jax import numpy

        leaves = ((name, leaf) for name, leaf in self._leaves()[0] if hasattr(leaf, "dtype"))
        return {n: sys.modules["numpy"].asarray(a) for n, a in leaves if numpy.issubdtype(a.dtype, numpy.floating)}

    def _replace(self, arrays: Arrays) -> None:
        from jax import device_put

        leaves, structure = self._leaves()
        new = [device_put(arrays[name], getattr(leaf, "sharding", None)) if name in arrays else leaf for name, leaf in leaves]
        tree = structure.unflatten(new)
        if self.nnx:
            self.nnx.update(self.tree, tree)
        else:
            self.tree = tree


def tree(tree: Any, roles: Any = None) -> Tree:
    """A pytree of JAX: the parameters of Flax linen or Haiku, an Equinox model, an nnx module.

        weights = fl.tree(params)
        for job in fl.rounds(weights):
            weights.tree, loss = train(weights.tree)
            job.done(examples=n, loss=loss)

    Names are paths. Floating-point arrays are federated; keys, integers and whatever is no array stay what they are. Trained
    is, of linen's variables, `params`, of an nnx module its `Param`, and of a tuple the first item, such as of (params, state):
    the rest is averaged as buffers. `roles` is that of `fl.Weights`. An optimizer's state does not belong in the tree: the
    script keeps it. An nnx module is changed in place. A function marked by `fl.evaluate` is given the tree.
    """
    return Tree(tree, roles)


def lightning(module: Any, trainer: Any = None, data: Any = None, validation: Any = None, **options: Any) -> None:
    """Federates a LightningModule: `fl.lightning(module, lambda job: Trainer(..), data)` in place of `trainer.fit(module, data)`.

    `trainer` makes a new Trainer for each round. `data` is a loader or a LightningDataModule, `validation` a loader; both may be
    those of the module. With validation data the client evaluates: of what `validation_step` logs, the first name with `loss`
    is the loss, and the first with `acc` the accuracy. For several devices, start the script by torchrun.
    """
    names = {kind.__name__ for kind in type(module).__mro__}
    if "LightningModule" not in names:
        raise TypeError(f"fl.lightning takes a LightningModule, not a {type(module).__name__}; a torch module goes to fl.rounds")
    if not callable(trainer):
        what = f"a {type(trainer).__name__}; give a function that makes one for each round: lambda job: Trainer(..)"
        raise TypeError(f"`trainer` of fl.lightning is {what}")
    torch, several = sys.modules["torch"], int(os.environ.get("WORLD_SIZE", "1")) > 1
    if several and not torch.distributed.is_initialized():
        torch.distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    from_data = {"datamodule": data} if hasattr(data, "train_dataloader") else {}
    has_validation = validation is not None or any(
        not getattr(type(of), "val_dataloader", len).__module__.startswith(("lightning", "pytorch_lightning", "builtins"))
        for of in (module, data)
    )

    def made(job: Job) -> Any:
        one = trainer(job)
        if not hasattr(one, "fit"):
            raise TypeError(f"`trainer` of fl.lightning returned a {type(one).__name__}; it returns a new Trainer")
        if one.world_size > 1 and not several:
            raise ValueError(f"a Trainer of {one.world_size} devices starts the script again; start it by torchrun")
        return one

    def test(_: Any) -> dict[str, Any]:
        one = made(Job(None, {"round": 1, "rounds": 1, "seed": 0}, Train()))
        found = one.validate(module, **(from_data or {"dataloaders": validation}), verbose=False)
        figures = {name: value for of in found for name, value in of.items()}
        loss, accuracy = (next((n for n in figures if word in n), None) for word in ("loss", "acc"))
        if loss is None:
            raise ValueError(f"validation_step logs no loss, only {list(figures)}; call self.log('val_loss', loss)")
        own = {"examples": _examples(one.val_dataloaders), "loss": figures.pop(loss)}
        return {**own, **({"accuracy": figures.pop(accuracy)} if accuracy else {}), **figures}

    if has_validation:
        evaluate(test)
    for job in rounds(module, **options):
        with job:
            one, callback = made(job), job.callback()
            one.callbacks.append(callback)
            torch.manual_seed(job.seed)
            loaders = from_data or {"train_dataloaders": data, "val_dataloaders": validation}
            one.fit(module, **loaders)
            figures = {name: value for name, value in one.callback_metrics.items() if name not in RESERVED}
            job.done(examples=_examples(one.train_dataloader), loss=callback.loss, **figures)


def _examples(loaders: Any) -> int:
    """The examples of the data set of a loader, or of several."""
    if isinstance(loaders, (list, tuple, Mapping)):
        return sum(map(_examples, loaders.values() if isinstance(loaders, Mapping) else loaders))
    length = _length(getattr(loaders, "dataset", loaders))
    return len(loaders) if length is None else length


def yolo(model: Any, data: Any = None, **arguments: Any) -> None:
    """Federates an Ultralytics model: `fl.yolo(model, data="data.yaml", imgsz=640)` in place of `model.train(..)`.

    `arguments` are those of `model.train`. What they leave out is the run's: `epochs` of each round, `batch`, `seed`, and `lr0`,
    which counts if `optimizer` is named. Warm-up is in round 1 alone, and mosaics end with the last rounds. The client evaluates
    the `val` images: metrics have Ultralytics' names. All rounds share one run folder. Afterwards, `model` has the weights of
    this client's last training.
    """
    if not hasattr(model, "task_map"):
        raise TypeError(f"fl.yolo takes an Ultralytics model, such as YOLO('yolo11n.pt'), not a {type(model).__name__}")
    kinds, net, run, rows = model.task_map[model.task], None, {}, ""
    given = {**model.overrides, **arguments, "data": data or model.overrides.get("data"), "mode": "train", "task": model.task}

    class Trainer(kinds["trainer"]):  # type: ignore[misc]
        def setup_model(self) -> Any:
            if net is None:
                return super().setup_model()
            self.model, net.criterion = net, None  # and not a new model from the checkpoint

        def validate(self) -> tuple[dict[str, float], float]:
            return {}, 0.0  # the client evaluates the model of the round

        save_model = final_eval = lambda self: None

    class Validator(kinds["validator"]):  # type: ignore[misc]
        losses = 0.0

        def preprocess(self, batch: Any) -> Any:
            self.batch = super().preprocess(batch)
            return self.batch

        def postprocess(self, outputs: Any) -> Any:
            found = net.loss(self.batch, tuple(outputs) if isinstance(outputs, list) else outputs)[1]
            self.losses += float(sum(found.values()) if isinstance(found, dict) else found.sum())
            return super().postprocess(outputs)

    with tempfile.TemporaryDirectory() as folder:  # a model for the classes of the data
        first = Trainer(overrides={**given, "project": folder, "device": device()})
        if getattr(first, "ddp", False):
            raise ValueError("fl.yolo trains on one device: Ultralytics starts processes for several, which fl cannot reach")
        first.setup_model()
        first.set_model_attributes()
        net = first.model

    @evaluate
    def _(_: Any) -> dict[str, Any]:
        own = {"device": device(), "rect": True, **given, "plots": False, "mode": "val"}
        with tempfile.TemporaryDirectory() as folder:
            validator = Validator(save_dir=Path(folder), args=own)
            figures = dict(validator(model=copy.deepcopy(net)))
        top1 = figures.get("metrics/accuracy_top1")
        loss, accuracy = validator.losses / len(validator.dataloader), {} if top1 is None else {"accuracy": top1}
        return {"examples": len(validator.dataloader.dataset), "loss": loss, **accuracy, **figures}

    for job in rounds(net):
        with job:
            epochs, train = given.get("epochs", job.train.epochs or 1), job.train
            left = given.get("close_mosaic", 10) - epochs * (job.rounds - job.round)
            own = {"epochs": epochs, "batch": train.batch_size, "lr0": train.learning_rate, "lrf": 1.0, "seed": job.seed % 2**31}
            fixed = {"close_mosaic": min(max(left, 0), epochs), **({"warmup_epochs": 0.0} if job.round > 1 else {}), **run}
            trainer = Trainer(overrides={"name": job.client or None, "device": device(), **own, **given, **fixed})
            run = {"project": str(trainer.save_dir.parent), "name": trainer.save_dir.name, "exist_ok": True}
            if rows:  # which a new trainer deletes
                trainer.csv.write_text(rows)
            callback = job.callback()
            trainer.add_callback("on_train_batch_end", callback)
            trainer.train()
            rows = trainer.csv.read_text()
            losses = {name: float(value) for name, value in trainer.label_loss_items(trainer.tloss).items()}
            job.done(examples=len(trainer.train_loader.dataset), loss=callback.loss, **losses)
    model.model, model.predictor = net, None
