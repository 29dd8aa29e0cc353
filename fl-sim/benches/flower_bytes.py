"""Bytes that a Flower federation moves: FedAvg, float32, through a counting TCP proxy on the loopback.

    pip install flwr numpy
    python3 fl-sim/benches/flower_bytes.py [--values 159010] [--clients 8] [--rounds 10] [--evaluate 1.0]

The clients return the model unchanged, because the number of bytes does not depend on the values. The script counts the
TCP payload of the gRPC connections in both directions, without TLS. `--evaluate 1.0` is Flower's default: each round
sends the model twice, for training and for evaluation.
"""

import argparse
import multiprocessing
import socket
import threading
import time

import numpy as np

SERVER, PROXY = 18080, 18081


def server(port, values, clients, rounds, evaluate):
    import flwr as fl
    from flwr.common import ndarrays_to_parameters

    start = [np.zeros(values, np.float32)]
    strategy = fl.server.strategy.FedAvg(
        fraction_evaluate=evaluate,
        min_fit_clients=clients,
        min_available_clients=clients,
        min_evaluate_clients=clients if evaluate else 0,
        initial_parameters=ndarrays_to_parameters(start),
    )
    config = fl.server.ServerConfig(num_rounds=rounds)
    fl.server.start_server(server_address=f"127.0.0.1:{port}", strategy=strategy, config=config)


def client(port):
    import flwr as fl

    class Unchanged(fl.client.NumPyClient):
        def fit(self, parameters, config):
            return parameters, 600, {}

        def evaluate(self, parameters, config):
            return 0.0, 100, {"accuracy": 0.0}

    fl.client.start_client(server_address=f"127.0.0.1:{port}", client=Unchanged().to_client(), insecure=True)


def proxy(port, target, totals):
    listener = socket.create_server(("127.0.0.1", port))

    def pump(source, sink, direction):
        try:
            while data := source.recv(65536):
                totals[direction].append(len(data))
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    while True:
        inner, _ = listener.accept()
        outer = socket.create_connection(("127.0.0.1", target))
        threading.Thread(target=pump, args=(inner, outer, "up"), daemon=True).start()
        threading.Thread(target=pump, args=(outer, inner, "down"), daemon=True).start()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--values", type=int, default=159_010)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--evaluate", type=float, default=1.0)
    args = parser.parse_args()
    totals = {"up": [], "down": []}
    multiprocessing.set_start_method("spawn")
    arguments = (SERVER, args.values, args.clients, args.rounds, args.evaluate)
    serving = multiprocessing.Process(target=server, args=arguments)
    serving.start()
    while True:
        try:
            socket.create_connection(("127.0.0.1", SERVER)).close()
            break
        except OSError:
            time.sleep(0.2)
    threading.Thread(target=proxy, args=(PROXY, SERVER, totals), daemon=True).start()
    time.sleep(0.5)
    clients = [multiprocessing.Process(target=client, args=(PROXY,)) for _ in range(args.clients)]
    for process in clients:
        process.start()
    serving.join()
    time.sleep(1)
    for process in clients:
        process.terminate()
    up, down, model = sum(totals["up"]), sum(totals["down"]), 4 * args.values
    print(
        f"model {model} B; up {up} B, down {down} B, together {(up + down) / 2**20:.1f} MiB, "
        f"{(up + down) / model:.1f} models"
    )


if __name__ == "__main__":
    main()
