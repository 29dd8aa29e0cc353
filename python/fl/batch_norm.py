"""Running statistics of batch normalization in an evaluation."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from . import _text

MEASURED, MEASURED_BYTES = 1024, 64 << 20  # examples, and bytes of inputs, after which no further batch is kept


class Statistics:
    """Running statistics of batch normalization, measured on the model that is evaluated.

    Those of a round are averages over its clients' trainings, while its weights lack what compression has not sent yet: they
    describe another model. So an evaluation computes them anew, from inputs of the last training of this process, and takes
    them back afterwards. Where a training calls no module that holds all parameters, those of the round stay.
    """

    def __init__(self, model: Any) -> None:
        self.inputs: list[tuple[Any, Any]] = []
        self.norms: list[Any] = []
        self.module: Any = None  # whose inputs they are
        self.examples = self.bytes = self.first = 0
        self.is_used = False
        if hasattr(model, "named_parameters") and "torch" in sys.modules:
            modules = list(model.modules()) if any(self._norms(model)) else []
            everything = len(list(model.parameters()))
            for module in (module for module in modules if len(list(module.parameters())) == everything):
                register = module.register_forward_pre_hook
                with_kwargs = "with_kwargs" in inspect.signature(register).parameters  # torch 2.0 and newer
                register(self, **({"with_kwargs": True} if with_kwargs else {}))

    def _norms(self, model: Any) -> Iterator[Any]:
        kind = sys.modules["torch"].nn.modules.batchnorm._NormBase
        return (m for m in model.modules() if isinstance(m, kind) and m.running_var is not None)

    def __reduce__(self) -> Any:
        """In a copy or a file of the model: what returns None, so that neither has the inputs or needs this package."""
        return getattr, (contextlib.nullcontext(), "__exit__")

    def __call__(self, module: Any, args: Any, kwargs: Any = MappingProxyType({})) -> None:
        compiler = getattr(sys.modules["torch"], "compiler", None)  # which leaves a hook out that does nothing
        if not module.training or (compiler and compiler.is_compiling()):
            return
        if self.is_used:  # by an evaluation: this is the next training
            self.inputs, self.module, self.examples, self.bytes, self.is_used = [], None, 0, 0, False
        if self.module is None:
            self.module = module
            self.norms = [norm for norm in self._norms(module) if norm.training]
        if self.module is module and self.examples < MEASURED and self.bytes < MEASURED_BYTES:
            self.first = 0
            self.inputs.append((self._copied(args), self._copied(kwargs)))
            self.examples += max(self.first, 1)

    def _copied(self, value: Any) -> Any:
        if type(value) in (list, tuple):
            return type(value)(self._copied(item) for item in value)
        if isinstance(value, Mapping):
            return {name: self._copied(item) for name, item in value.items()}
        if hasattr(value, "detach"):
            value = value.detach().clone()
            self.first = self.first or (len(value) if value.dim() else 1)
            self.bytes += value.numel() * value.element_size()
        return value

    @contextlib.contextmanager
    def measured(self) -> Iterator[None]:
        """Inside, the statistics are those of the model as it is. Every module is in evaluation mode."""
        self.is_used = True
        kept = [
            (n, n.momentum, n.running_mean.clone(), n.running_var.clone(), n.num_batches_tracked.clone())
            for n in self.norms
        ]

        def take_back() -> None:
            for norm, momentum, mean, var, batches in kept:
                norm.momentum, norm.training = momentum, False
                norm.running_mean.copy_(mean)
                norm.running_var.copy_(var)
                norm.num_batches_tracked.copy_(batches)

        try:
            for norm in self.norms:
                norm.reset_running_stats()
                norm.momentum, norm.training = None, True  # None: a mean over the batches
            for args, kwargs in self.inputs:
                self.module(*args, **kwargs)
            for norm in self.norms:
                norm.training = False
        except Exception as error:  # of a module that cannot compute in evaluation mode from these inputs
            take_back()
            print(f"fl: running statistics are not measured: {_text(error)}", file=sys.stderr)
            self.inputs, self.norms, kept = [], [], []
        try:
            yield
        finally:
            take_back()
