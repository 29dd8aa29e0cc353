"""Seconds of a federated round beside an epoch of the plain script: examples/pytorch, one client with all images.

    pip install torch, and a wheel of python/build
    python3 fl-sim/benches/epochs.py ../shared/data/cifar10 [--repeat 3]

Both scripts have the same model, images, batch size and optimizer, one thread, and evaluate after each epoch or round. They
take turns. The time runs from the first evaluation to the fifth, so neither start counts. A round adds the model's way
through the files, compression, TLS in both directions and the server.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "pytorch"
FEDERATION = """
import fl, sys
fl.simulate("run.toml", clients=1, script="train.py", arguments=[sys.argv[1], "0", "1"])
"""


def seconds(command, folder, mark):
    """Mean seconds from one printed line that begins with `mark` to the next."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    times = [time.monotonic() for line in process.stdout if line.startswith(mark)]
    if process.wait() != 0 or len(times) < 2:
        raise SystemExit(f"{' '.join(command)}: exit status {process.returncode}, {len(times)} lines `{mark}`")
    return (times[-1] - times[0]) / (len(times) - 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder of CIFAR-10, binary version")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    data = str(options.data.resolve())
    ratios = []
    with tempfile.TemporaryDirectory(prefix="fl-epochs-") as place:
        for name in ("plain.py", "train.py", "run.toml"):
            shutil.copy(EXAMPLE / name, place)
        run = Path(place) / "run.toml"
        run.write_text(run.read_text().replace("min = 4", "min = 1").replace("target = 4", "target = 1"))
        for turn in range(options.repeat):
            plain = seconds([sys.executable, "plain.py", data], place, "epoch")
            federated = seconds([sys.executable, "-c", FEDERATION, data], place, "model")
            ratios.append(federated / plain)
            print(f"turn {turn + 1}: epoch {plain:.2f} s, round {federated:.2f} s, ratio {ratios[-1]:.3f}", flush=True)
    print(f"ratio: median {statistics.median(ratios):.3f}, from {min(ratios):.3f} to {max(ratios):.3f}")


if __name__ == "__main__":
    main()
