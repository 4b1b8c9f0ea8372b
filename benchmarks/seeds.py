"""Put the results of several finished runs into one Markdown table and one JSON file.

Run with: make seeds
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from phyb.storage.files import read_json, write_json


def markdown(results: list[dict]) -> str:
    """One row per run, and the mean with the standard deviation over runs."""
    lines = [
        "| seed | score | return ± standard error | regret | CVaR 10 % | under the belief | lower bound | seconds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in results:
        lines.append(
            f"| {r['seed']} | {r['normalized_score']:.2f} | {r['mean_return']:.2f} ± {r['std_error']:.2f} "
            f"| {r['regret']:.2f} | {r['cvar_10']:.1f} | {r['belief_return']:.1f} ± {r['belief_std_error']:.1f} "
            f"| {'yes' if r['belief_is_lower_bound'] else 'NO'} | {sum(r['wall_seconds'].values()):.0f} |"
        )
    scores = np.array([r["normalized_score"] for r in results])
    lines.append(f"| mean ± std | **{scores.mean():.2f} ± {scores.std(ddof=1):.2f}** |" + " |" * 6)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="finished run folders")
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write")
    arguments = parser.parse_args()
    results = [read_json(run / "result.json") for run in arguments.runs]
    write_json(arguments.out, results)
    print(markdown(results))


if __name__ == "__main__":
    main()
