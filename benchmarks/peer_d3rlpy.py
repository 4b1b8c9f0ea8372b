"""The other side of benchmarks/peers.py: times d3rlpy's updates, in a virtual environment of its own.

Reads lines of JSON {"algorithm", "updates"} and answers each with {"update", "with_batch"}: seconds of one update on a
batch that is at hand, and of one for which the batch is drawn first. The first line says sizes and threads.
"""

from __future__ import annotations

import json
import sys
import time

import d3rlpy
import numpy as np
import torch
from d3rlpy.dataset import InfiniteBuffer, MDPDataset
from d3rlpy.models import VectorEncoderFactory


def dataset(sizes: dict) -> MDPDataset:
    """Random rows in episodes of 500 steps."""
    random, rows = np.random.default_rng(0), sizes["rows"]
    ends = (np.arange(rows) % 500 == 499).astype(np.float32)
    return MDPDataset(
        random.normal(size=(rows, sizes["observations"])).astype(np.float32),
        random.uniform(-1, 1, (rows, sizes["actions"])).astype(np.float32),
        random.normal(size=(rows, 1)).astype(np.float32),
        ends,
    )


def learner(name: str, sizes: dict, data: MDPDataset):
    """d3rlpy's algorithm with its defaults but for sizes; CQL with a penalty of constant weight, as ours."""
    encoder = VectorEncoderFactory(sizes["hidden"][name])
    common = {"batch_size": sizes["batch"], "actor_encoder_factory": encoder, "critic_encoder_factory": encoder}
    config = {
        "td3bc": lambda: d3rlpy.algos.TD3PlusBCConfig(**common),
        "iql": lambda: d3rlpy.algos.IQLConfig(**common, value_encoder_factory=encoder),
        "cql": lambda: d3rlpy.algos.CQLConfig(**common, n_action_samples=10, alpha_learning_rate=0.0),
    }[name]()
    algorithm = config.create(device="cpu:0")
    algorithm.build_with_dataset(data)
    return algorithm


def main() -> None:
    lines = iter(sys.stdin.readline, "")
    sizes = json.loads(next(lines))
    torch.set_num_threads(sizes["threads"])
    clock = {"wall": time.perf_counter, "processor": time.process_time}[sizes["clock"]]
    data = dataset(sizes)
    assert isinstance(data.buffer, InfiniteBuffer)
    learners = {name: learner(name, sizes, data) for name in sizes["hidden"]}
    ready = {"d3rlpy": d3rlpy.__version__, "torch": torch.__version__, "threads": torch.get_num_threads()}
    print(json.dumps(ready), flush=True)
    for line in lines:
        asked = json.loads(line)
        algorithm, updates = learners[asked["algorithm"]], asked["updates"]
        batch = data.sample_transition_batch(sizes["batch"])
        started = clock()
        for _ in range(updates):
            algorithm.update(batch)
        alone = clock() - started
        started = clock()
        for _ in range(updates):
            algorithm.update(data.sample_transition_batch(sizes["batch"]))
        drawn = clock() - started
        print(json.dumps({"update": alone / updates, "with_batch": drawn / updates}), flush=True)


if __name__ == "__main__":
    main()
