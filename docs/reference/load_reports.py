"""Loads the reports of a run with pandas and polars.

    fl-server report fed --format json -o run.json
    fl-server report fed --format parquet --by participation -o run.parquet
    python docs/reference/load_reports.py run.json run.parquet

Needs pandas with pyarrow, and polars.
"""

import json
import sys

import pandas as pd
import polars as pl
import pyarrow.parquet as pq


def main(json_file, parquet_file):
    with open(json_file, encoding="utf-8") as file:
        report = json.load(file)
    print(report["run"]["name"], report["run"]["state"], "balanced" if report["balanced"] else "NOT BALANCED")

    # Every table of the JSON is an object of columns.
    rounds = pd.DataFrame(report["rounds"])
    rounds["megabytes"] = (rounds["socket_up"] + rounds["socket_down"]).cumsum() / 1e6
    print(rounds[["round", "accuracy", "megabytes", "bits_up", "bits_down"]].tail())

    tensors = pl.DataFrame(report["tensors"])
    print(tensors.group_by("direction", "tensor").agg(pl.col("bytes").sum()).sort("bytes", descending=True))

    # Parquet: types as documented, units and meaning in the metadata.
    participations = pd.read_parquet(parquet_file)
    share = participations.groupby("client")[["update", "refused", "socket_up", "socket_down"]].sum()
    print(share.sort_values("socket_up", ascending=False).head())

    lines = pl.read_parquet(parquet_file)
    print(lines.group_by("round").agg(pl.col("finish_seconds").max(), pl.col("retries").sum()).sort("round").tail())

    about = json.loads(pq.read_metadata(parquet_file).metadata[b"fl.columns"])
    print("finish_seconds:", about["finish_seconds"]["about"], "Unit:", about["finish_seconds"]["unit"])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
