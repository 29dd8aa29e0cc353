"""Rounds without training beside Flower: seconds of a round, and processor time of the server.

    python3 fl-sim/benches/flower/rounds.py target/release/fl-sim [--load CLIENTS VALUES ..] [--rounds 11] [--times 5]

`fl-sim load` and a Flower federation take turns. Flower is its engine of `start_server` and `start_client` with FedAvg, TLS on both
sides, float32 and no evaluation; its clients return the model unchanged, and run in processes that share their code. Where Flower
is not installed, the script installs it into a virtual environment beside itself and goes on there. Prints a table for
docs/benchmarks.md: the median of the turns, and the least and the most.
"""

import argparse
import json
import logging
import multiprocessing
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

FLOWER = "flwr==1.41.0"
PORT = 18090
LOADS = [(10, 1_000_000), (100, 100_000), (10, 10_000_000)]


def in_environment():
    """Restarts the script where Flower is installed."""
    try:
        import flwr  # noqa: F401

        return
    except ImportError:
        folder = Path(__file__).parent / ".venv"
    python = folder / "bin" / "python"
    if Path(sys.executable) == python:
        raise SystemExit(f"{FLOWER} is not in {folder}; remove the folder and try again")
    if not python.exists():
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", FLOWER, "numpy"], check=True)
    os.execv(python, [str(python), *sys.argv])


def certificates(folder):
    """An authority and a certificate of localhost, in files."""

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=bench")
    openssl("req", *key, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=localhost")
    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names"]
    openssl("x509", "-req", "-in", "server.csr", *signed, "-out", "server.pem")
    return [(folder / name).read_bytes() for name in ("ca.pem", "server.pem", "server.key")]


def server(files, clients, values, rounds, results):
    import flwr as fl
    import numpy as np
    from flwr.common import ndarrays_to_parameters

    ends = []

    class Timed(fl.server.strategy.FedAvg):
        def configure_fit(self, server_round, parameters, client_manager):
            usage = resource.getrusage(resource.RUSAGE_SELF)
            ends.append((time.monotonic(), usage.ru_utime + usage.ru_stime))
            return super().configure_fit(server_round, parameters, client_manager)

    strategy = Timed(
        fraction_evaluate=0.0,
        min_fit_clients=clients,
        min_available_clients=clients,
        min_evaluate_clients=0,
        initial_parameters=ndarrays_to_parameters([np.zeros(values, np.float32)]),
    )
    # The last round only ends the one before.
    config = fl.server.ServerConfig(num_rounds=rounds + 1)
    fl.server.start_server(
        server_address=f"127.0.0.1:{PORT}",
        strategy=strategy,
        config=config,
        grpc_max_message_length=8 * values + 2**20,
        certificates=tuple(files),
    )
    # The first round is a warm-up.
    times, cpu = zip(*ends[1:])
    seconds = [after - before for before, after in zip(times, times[1:])]
    results.put((statistics.median(seconds), (cpu[-1] - cpu[0]) / (len(cpu) - 1)))


def client(authority, values):
    import flwr as fl

    class Unchanged(fl.client.NumPyClient):
        def fit(self, parameters, config):
            return parameters, 600, {}

    fl.client.start_client(
        server_address=f"localhost:{PORT}",
        client=Unchanged().to_client(),
        grpc_max_message_length=8 * values + 2**20,
        root_certificates=authority,
    )


def flower(files, clients, values, rounds):
    """Seconds of a round and of the server's processors in a round."""
    results = multiprocessing.Queue()
    serving = multiprocessing.Process(target=server, args=(files, clients, values, rounds, results))
    serving.start()
    while True:
        try:
            socket.create_connection(("127.0.0.1", PORT)).close()
            break
        except OSError:
            time.sleep(0.1)
    running = [multiprocessing.Process(target=client, args=(files[0], values)) for _ in range(clients)]
    for process in running:
        process.start()
    measured = results.get()
    serving.join()
    for process in running:
        process.terminate()
        process.join()
    return measured


def ours(program, clients, values, rounds):
    command = [program, "--format", "json", "load", "--codec", "dense", "--rounds", str(rounds)]
    command += ["--clients", str(clients), "--values", str(values)]
    measured = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return measured["median"], measured["server_cpu"]


def shown(times):
    """Milliseconds: the median, and in brackets the least and the most."""
    low, middle, high = (f"{1e3 * time:,.0f}" for time in (min(times), statistics.median(times), max(times)))
    return f"{middle} ({low} to {high})"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=Path)
    parser.add_argument("--load", type=int, nargs=2, action="append", metavar=("CLIENTS", "VALUES"))
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--times", type=int, default=5)
    args = parser.parse_args()
    in_environment()
    import flwr  # noqa: F401  (before the processes fork, so that they share it)

    logging.getLogger("flwr").setLevel(logging.ERROR)
    multiprocessing.set_start_method("fork")
    program = args.program.resolve()
    print("| clients, values | ours, ms: round | server CPU | Flower, ms: round | server CPU | ratio: round | server CPU |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        files = certificates(Path(folder))
        for clients, values in args.load or LOADS:
            turns = []
            for _ in range(args.times):
                turns.append((ours(program, clients, values, args.rounds), flower(files, clients, values, args.rounds)))
                print(f"{clients} x {values}: {turns[-1]}", file=sys.stderr)
            columns = [[turn[side][of] for turn in turns] for side in (0, 1) for of in (0, 1)]
            ratios = [statistics.median(columns[of]) / statistics.median(columns[2 + of]) for of in (0, 1)]
            cells = [f"{clients} x {values:,}", *map(shown, columns), *(f"{ratio:.2f}" for ratio in ratios)]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
