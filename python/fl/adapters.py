"""Models of any framework: by two functions that give and take its arrays, and ready-made ones for some frameworks."""

from __future__ import annotations

import contextlib
import copy
import inspect
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Optional

from . import RESERVED, Job, Train, _describe, device, evaluate, rounds
from .hugging_face import _length

Arrays = Mapping[str, Any]
Function = Callable[[Any], Any]
ROLES = ("trained", "buffer", "counter", "local", "frozen")
LIGHTNING = "use fl.lightning(module, trainer=lambda job: Trainer(..), data=..)"
TREES = "boosted trees and forests have no weights of fixed shapes, so there is nothing to average"
# The beginning of a module's name -> what to use in place of an object from there.
INSTEAD = {
    **dict.fromkeys(("xgboost", "lightgbm", "catboost", "sklearn.tree", "sklearn.ensemble"), TREES),
    **dict.fromkeys(("lightning", "pytorch_lightning"), LIGHTNING),
    **dict.fromkeys(("flax", "equinox"), "use fl.rounds(fl.tree(model))"),
    "keras": "use fl.rounds(fl.keras(model))",
    "transformers": "use fl.HuggingFaceCallback(trainer).run()",
    "fastai": "use fl.rounds(learn.model)",
    "sklearn": "use a dict of its arrays, as examples/scikit does",
}


def instead(model: Any) -> str:
    """What to use in place of an object that `fl.rounds` cannot take, after a colon; empty for others."""
    if hasattr(model, "task_map"):  # of Ultralytics, a module that trains another one
        return ": use fl.yolo(model, data=..)"
    if isinstance(model, dict):
        is_nested = any(isinstance(value, (dict, list, tuple)) for value in model.values())
        return ": a nested dict goes through fl.rounds(fl.tree(tree))" if is_nested else ""
    if isinstance(model, type) or hasattr(model, "load_state_dict"):
        return ""
    modules = [f"{kind.__module__}." for kind in type(model).__mro__]
    known = (use for package, use in INSTEAD.items() if any(module.startswith(f"{package}.") for module in modules))
    return ": " + next(known, "any other model takes fl.Weights(get, set)")


class Weights:
    """A model of any framework, by two functions: `fl.rounds(fl.Weights(get, set))`.

    Args:
        get: Returns the model's arrays, of numpy or torch, by name: at each call the same names, types and shapes.
        set: Takes such a dict, with all names, and puts the values into the model. The arrays are new ones.
        roles: Role of a name: "trained", "buffer" (averaged, such as running statistics), "counter", "local" (stays on this
            client) or "frozen". A dict, or a function of the name; None stands for the default of docs/reference/run-toml.md.
        subject: Returns what a function marked by `fl.evaluate` is given, in place of this object.

    A `set` that leaves a value out, and a `get` with other names than before, are errors, which name it.
    """

    def __init__(self, get: Callable[[], Any], set: Function, roles: Any = None, subject: Any = None) -> None:
        for name, function in (("get", get), ("set", set)):
            if not callable(function):
                raise TypeError(f"`{name}` of fl.Weights is a function, not a {type(function).__name__}")
        self.get, self.set, self.roles, self.fl_subject = get, set, roles, subject or (lambda: self)
        self.first: dict[str, Any] = {}

    def fl_kinds(self) -> dict[str, str]:
        kept, other = copy.deepcopy(self.state_dict()), copy.deepcopy(self.state_dict())
        for value in other.values():  # so that a `set` that does nothing shows before the first round
            with contextlib.suppress(TypeError):  # of an array that cannot be written, such as one of JAX
                flat = value.reshape(-1) if hasattr(value, "dtype") else value
                flat[0] = flat[0] + 1
        self.load_state_dict(other)
        self.load_state_dict(kept)
        names = self.state_dict() if callable(self.roles) else self.roles or ()
        found = {name: self.roles(name) if callable(self.roles) else self.roles[name] for name in names}
        for name, role in found.items():
            if name not in self.first or role not in (*ROLES, None):
                raise ValueError(f"`roles` says {role!r} for `{name}`; a name of `get` has one of {', '.join(ROLES)}")
        return {name: "parameter" if role == "trained" else role for name, role in found.items() if role}

    def state_dict(self) -> dict[str, Any]:
        if not isinstance(arrays := self.get(), Mapping):
            raise TypeError(f"`get` of fl.Weights returns a dict of arrays by name, not a {type(arrays).__name__}")
        arrays = {name: value.detach() if hasattr(value, "detach") else value for name, value in arrays.items()}
        now = {name: _describe(name, value) for name, value in arrays.items()}
        self.first = self.first or now
        if other := sorted(now.items() ^ self.first.items()):
            raise ValueError(f"`get` of fl.Weights returned other names, types or shapes than before: `{other[0][0]}`")
        return arrays

    def load_state_dict(self, state: Arrays) -> None:
        self.set(dict(state))
        for name, value in self.state_dict().items():
            pair = [value, state[name]]
            if hasattr(value, "detach"):
                pair = [one.contiguous().reshape(-1).view(sys.modules["torch"].uint8).cpu().numpy() for one in pair]
            elif hasattr(value, "dtype"):
                pair = [sys.modules["numpy"].ascontiguousarray(one).reshape(-1).view("u1") for one in pair]
            if memoryview(pair[0]) != memoryview(pair[1]):
                why = "after it, `get` returns another value. A variable that `set` replaces is declared global or nonlocal"
                raise ValueError(f"`set` of fl.Weights left out `{name}`: {why}")


def keras(model: Any) -> Weights:
    """A Keras 3 model of any backend: `fl.rounds(fl.keras(model))`. A function marked by `fl.evaluate` is given the model.

    Names are the variables' paths. Variables that are not trained, such as running statistics, are buffers; states of random
    generators and metrics stay out.
    """
    import keras as framework

    if not hasattr(framework, "ops"):
        raise ImportError(f"fl.keras needs Keras 3; this environment has {framework.__version__}")
    if not isinstance(model, framework.Model):
        raise TypeError(f"fl.keras takes a keras.Model, not a {type(model).__name__}")
    variables = {variable.path: variable for variable in model.weights}
    if not variables or len(variables) < len(model.weights):
        why = "two variables of one path: name its layers" if variables else "no variables yet: begin with keras.Input"
        raise ValueError(f"the Keras model has {why}")
    trained = {variable.path for variable in model.trainable_weights}
    return Weights(
        lambda: {name: framework.ops.convert_to_numpy(variable) for name, variable in variables.items()},
        lambda arrays: [variable.assign(arrays[name]) for name, variable in variables.items()],
        lambda name: "trained" if name in trained else "buffer",
        lambda: model,
    )


class tree(Weights):
    """A pytree of JAX: the variables of Flax linen or Haiku, an Equinox model, an nnx module.

        weights = fl.tree(params)
        for job in fl.rounds(weights):
            weights.tree, loss = train(weights.tree)
            job.done(examples=n, loss=loss)

    Names are paths. Floating-point arrays are federated; keys, integers and whatever is no array stay what they are. Trained
    is, of linen's variables, `params`, of an nnx module its `Param`, and of a pair (params, state) the first item: the rest is
    averaged as buffers. `roles` is that of `fl.Weights`. An optimizer's state is refused: the script keeps it. An nnx module is changed in place. A function marked by `fl.evaluate` is given the tree.
    """

    def __init__(self, tree: Any, roles: Any = None) -> None:
        nnx: Any = sys.modules.get("flax.nnx")
        self.tree, self.nnx = tree, nnx if nnx and isinstance(tree, nnx.Module) else None
        flat = nnx.to_flat_state(nnx.state(tree, nnx.Param)) if self.nnx else ()
        trained = tuple("/".join(map(str, path)) + "/" for path, _ in flat)
        if type(tree) is tuple and len(tree) == 2 and not (hasattr(tree[1], "dtype") or type(tree[1]) in (tuple, list)):
            trained = ("0/",)  # and not of two layers
        elif isinstance(tree, Mapping) and "params" in tree:
            trained = ("params/",)
        role = (lambda name: "trained" if f"{name}/".startswith(trained) else "buffer") if trained else None
        super().__init__(self._arrays, self._replace, roles or role, lambda: self.tree)
        if not self.state_dict():
            raise TypeError(f"fl.tree takes a pytree with floating-point arrays of JAX, not a {type(tree).__name__}")

    def _leaves(self) -> tuple[list[tuple[str, Any]], Any]:
        from jax import tree_util

        if "simple" not in inspect.signature(tree_util.keystr).parameters:
            raise ImportError("fl.tree needs JAX 0.4.36 or newer")
        tree = self.nnx.state(self.tree) if self.nnx else self.tree
        # Once: a tree that gets an optimizer's state later has other names than before.
        is_state = lambda node: not self.first and type(node).__module__.startswith("optax")
        if not self.first and any(map(is_state, tree_util.tree_leaves(tree, is_leaf=is_state))):
            why = "give it params and statistics, such as {'params': state.params, 'batch_stats': state.batch_stats}"
            raise TypeError(
                f"fl.tree does not take the state of an optimizer, which a {type(self.tree).__name__} holds; {why}"
            )
        flat, structure = tree_util.tree_flatten_with_path(tree)
        named = [(tree_util.keystr(path, simple=True, separator="/"), leaf) for path, leaf in flat]
        return [(name.removesuffix("/value") if self.nnx else name, leaf) for name, leaf in named], structure

    def _arrays(self) -> dict[str, Any]:
        from jax import numpy

        leaves = ((name, leaf) for name, leaf in self._leaves()[0] if hasattr(leaf, "dtype"))
        return {n: sys.modules["numpy"].asarray(a) for n, a in leaves if numpy.issubdtype(a.dtype, numpy.floating)}

    def _replace(self, arrays: Arrays) -> None:
        from jax import device_put

        leaves, structure = self._leaves()
        for at, (name, leaf) in enumerate(leaves):
            place = getattr(leaf, "sharding", None)
            leaves[at] = (name, device_put(arrays[name], place) if name in arrays else leaf)
        tree = structure.unflatten([leaf for _, leaf in leaves])
        if self.nnx:
            self.nnx.update(self.tree, tree)
        else:
            self.tree = tree


def lightning(module: Any, trainer: Any = None, data: Any = None, validation: Any = None, **options: Any) -> None:
    """Federates a LightningModule: `fl.lightning(module, lambda job: Trainer(..), data)` in place of `Trainer(..).fit(module, data)`.

    `trainer` makes a new Trainer for each round. `data` is a loader or a LightningDataModule, `validation` a loader; both may be
    those of the module. With validation data the client evaluates: of what `validation_step` logs, the first name with `loss`
    is the loss, and the first with `acc` the accuracy. For several devices, start the script by torchrun.
    """
    if "LightningModule" not in {kind.__name__ for kind in type(module).__mro__}:
        raise TypeError(f"fl.lightning takes a LightningModule, not a {type(module).__name__}")
    if not callable(trainer):
        raise TypeError(f"`trainer` of fl.lightning is lambda job: Trainer(..), not a {type(trainer).__name__}")
    torch, several = sys.modules["torch"], int(os.environ.get("WORLD_SIZE", "1")) > 1
    if several and not torch.distributed.is_initialized():
        torch.distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    of_module = {"datamodule": data} if hasattr(data, "train_dataloader") else None
    hooks = [type(of).val_dataloader.__module__ for of in (module, data) if hasattr(of, "val_dataloader")]

    def made(job: Job) -> Any:
        one = trainer(job)
        if not hasattr(one, "callback_metrics"):
            raise TypeError(f"`trainer` of fl.lightning returns a new Trainer, not a {type(one).__name__}")
        if one.world_size > 1 and not several:
            raise ValueError(f"a Trainer of {one.world_size} devices starts the script again: start it by torchrun")
        return one

    def test(_: Any) -> dict[str, Any]:
        one = made(Job(None, {"round": 1, "rounds": 1, "seed": 0}, Train()))
        found = one.validate(module, **(of_module or {"dataloaders": validation}), verbose=False)
        figures = {name: value for of in found for name, value in of.items()}
        loss, accuracy = (next((name for name in figures if word in name), None) for word in ("loss", "acc"))
        if loss is None:
            raise ValueError(f"validation_step logs no loss, only {list(figures)}; call self.log('val_loss', loss)")
        own = {"loss": figures.pop(loss), **({"accuracy": figures.pop(accuracy)} if accuracy else {})}
        return {"examples": _examples(one.val_dataloaders), **own, **figures}

    if validation is not None or any(not name.startswith(("lightning.", "pytorch_lightning.")) for name in hooks):
        evaluate(test)
    for job in rounds(module, **options):
        with job:
            one, callback = made(job), job.callback()
            one.callbacks.append(callback)
            torch.manual_seed(job.seed)
            one.fit(module, **(of_module or {"train_dataloaders": data, "val_dataloaders": validation}))
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
    the `val` images; metrics have Ultralytics' names. All rounds share a folder. In the end, `model` has this client's weights.
    """
    if not hasattr(model, "task_map"):
        raise TypeError(f"fl.yolo takes an Ultralytics model, such as YOLO('yolo11n.pt'), not a {type(model).__name__}")
    base_trainer, base_validator = (model.task_map[model.task][kind] for kind in ("trainer", "validator"))
    given = {**model.overrides, **arguments, "mode": "train", "task": model.task}
    given["data"] = data or given.get("data")
    if not given["data"]:
        raise TypeError("fl.yolo needs `data`, such as data='data.yaml'")
    net: Any = None
    place: dict[str, Any] = {}
    rows = ""  # of results.csv, which a new trainer deletes

    class Trainer(base_trainer):  # type: ignore[misc, valid-type]
        def setup_model(self) -> Any:
            if net is None:
                return super().setup_model()
            self.model, net.criterion = net, None  # and not a new model from the checkpoint

        def validate(self) -> tuple[dict[str, float], float]:
            return {}, 0.0  # the client evaluates the model of the round

        save_model = final_eval = lambda self: None

    class Validator(base_validator):  # type: ignore[misc, valid-type]
        total = 0.0

        def preprocess(self, batch: Any) -> Any:
            self.batch = super().preprocess(batch)
            return self.batch

        def postprocess(self, outputs: Any) -> Any:
            found = net.loss(self.batch, tuple(outputs) if isinstance(outputs, list) else outputs)[1]
            self.total += float(sum(found.values()) if isinstance(found, dict) else found.sum())
            return super().postprocess(outputs)

    with tempfile.TemporaryDirectory() as folder:  # a model for the classes of the data
        first = Trainer(overrides={**given, "device": given.get("device") or device(), "project": folder})
        if getattr(first, "ddp", False):
            raise ValueError("fl.yolo takes one device: for several, Ultralytics starts processes that fl cannot reach")
        first.setup_model()
        first.set_model_attributes()
        net = first.model

    @evaluate
    def _(_: Any) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            own = {"device": device(), **given, "rect": True, "plots": False, "mode": "val"}
            validator = Validator(save_dir=Path(folder), args=own)
            figures = dict(validator(model=copy.deepcopy(net)))
        accuracy = {"accuracy": figures["metrics/accuracy_top1"]} if "metrics/accuracy_top1" in figures else {}
        loss = validator.total / len(validator.dataloader)
        return {"examples": len(validator.dataloader.dataset), "loss": loss, **accuracy, **figures}

    for job in rounds(net):
        with job:
            train, epochs = job.train, given.get("epochs") or job.train.epochs or 1
            left = given.get("close_mosaic", 10) - epochs * (job.rounds - job.round)
            own = {"batch": train.batch_size, "lr0": train.learning_rate, "lrf": 1.0, "seed": job.seed % 2**31}
            fixed = {"epochs": epochs, "close_mosaic": min(max(left, 0), epochs), **place}
            fixed.update({"warmup_epochs": 0.0} if job.round > 1 else {})
            trainer = Trainer(overrides={"name": job.client or None, "device": device(), **own, **given, **fixed})
            place = {"project": str(trainer.save_dir.parent), "name": trainer.save_dir.name, "exist_ok": True}
            if rows:
                trainer.csv.write_text(rows)
            callback = job.callback()
            trainer.add_callback("on_train_batch_end", callback)
            trainer.train()
            rows = trainer.csv.read_text()
            losses = {name: float(value) for name, value in trainer.label_loss_items(trainer.tloss).items()}
            job.done(examples=len(trainer.train_loader.dataset), loss=callback.loss, **losses)
    net.args, net.task = dict(vars(first.args)), model.task  # as of a loaded checkpoint, which `model.export` expects
    model.model, model.predictor = net.eval(), None
