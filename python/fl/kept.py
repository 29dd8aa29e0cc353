"""What a script keeps from round to round beside the model, such as the state of its optimizer."""

from __future__ import annotations

import copy
import os
import sys
from pathlib import Path
from typing import Any, Optional


class Kept:
    """State of PyTorch objects after each answered round, in a folder that outlives the script.

    A training begins with the state after the last answered round before its own. So a round that is tried again, after an
    error or by a client that was killed, begins with the same state.
    """

    def __init__(self, objects: Any) -> None:
        self.objects = list(objects) if isinstance(objects, (list, tuple)) else [objects]
        for one in self.objects:
            if not (hasattr(one, "state_dict") and hasattr(one, "load_state_dict") and "torch" in sys.modules):
                why = "one of another framework that is made before the loop goes on by itself"
                what = "optimizers, schedulers or GradScalers of PyTorch"
                raise TypeError(f"`keep` of fl.rounds takes {what}, not a {type(one).__name__}; {why}")
        self.first, self.after = copy.deepcopy(self._states()), 0

    def _states(self) -> list[Any]:
        return [one.state_dict() for one in self.objects]

    def load(self, folder: Optional[str], number: int) -> None:
        """Before the training of a round. `folder` may not exist yet; None where this client stores nothing."""
        self.folder = Path(folder) if folder else None
        self.files = {int(file.stem): file for file in self.folder.glob("*.pt")} if self.folder else {}
        before = max((n for n in self.files if n < number), default=0)
        if before != self.after and self.folder:
            path, torch = self.files.get(before), sys.modules["torch"]
            only = {"weights_only": True} if torch.__version__ >= "2" else {}  # whose restricted loader takes floats
            try:
                states = torch.load(path, "cpu", **only) if path else copy.deepcopy(self.first)
                for one, state in zip(self.objects, states):
                    one.load_state_dict(state)
            except Exception as error:  # of whatever kind a damaged file causes in PyTorch
                raise RuntimeError(f"{path}: {error}; delete the file to start with an older state") from error
        self.after = -1  # until the round is answered

    def save(self, number: int, leads: bool) -> None:
        """Before the answer of a round is sent. `leads`: whether this process of a group writes the file."""
        self.after = number
        if self.folder and leads:
            os.makedirs(self.folder, 0o700, exist_ok=True)
            with open(self.folder / "new", "wb") as file:
                sys.modules["torch"].save(self._states(), file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(self.folder / "new", self.folder / f"{number}.pt")
            for old in sorted(self.files.keys() - {number})[:-1]:  # the last may be that of a round that is tried again
                self.files[old].unlink()
