"""Gives traces of programs that ran without a GPU invented kernels, so that a report can be made of them.

Every innermost operator gets a launch and a kernel. Names, steps, layers and shapes are real; all GPU times are
invented: no test may depend on them. For tests only.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

GPU = {
    "id": 0,
    "name": "NVIDIA A100-SXM4-40GB",
    "totalGlobalMem": 42505273344,
    "computeMajor": 8,
    "computeMinor": 0,
    "maxThreadsPerMultiprocessor": 2048,
    "regsPerMultiprocessor": 65536,
    "warpSize": 32,
    "sharedMemPerMultiprocessor": 167936,
    "numSms": 108,
}
KERNEL_US = 20.0
"""How long every kernel takes."""


def innermost(events: list[dict]) -> list[dict]:
    """Operators that contain no other operator of their thread."""
    ops = [e for e in events if e.get("cat") == "cpu_op" and e["name"].startswith("aten::")]
    ops.sort(key=lambda e: (e["tid"], e["ts"], -e["dur"]))
    return [
        op
        for op, after in zip(ops, [*ops[1:], None])
        if after is None or after["tid"] != op["tid"] or after["ts"] >= op["ts"] + op["dur"]
    ]


def invent(trace: dict) -> dict:
    """The trace with a launch and a kernel for every innermost operator."""
    events = [e for e in trace["traceEvents"] if isinstance(e.get("ts"), (int, float))]
    free_from = 0.0
    for number, op in enumerate(sorted(innermost(events), key=lambda e: e["ts"]), start=1):
        launch = op["ts"] + op["dur"] / 4
        start = max(launch + 5.0, free_from)
        free_from = start + KERNEL_US
        shared = {"correlation": number, "External id": number}
        events.append(
            {
                "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel",
                "pid": op["pid"], "tid": op["tid"], "ts": launch, "dur": op["dur"] / 4, "args": shared,
            }
        )
        events.append(
            {
                "ph": "X", "cat": "kernel", "name": f"invented_{op['name'].removeprefix('aten::')}_kernel",
                "pid": 0, "tid": 7, "ts": start, "dur": KERNEL_US,
                "args": {
                    **shared, "device": 0, "context": 1, "stream": 7, "grid": [216, 1, 1], "block": [128, 1, 1],
                },
            }
        )  # fmt: skip
    return {**trace, "deviceProperties": [GPU], "traceEvents": events}


def main() -> None:
    """Rewrites every trace in the folders that are given, and what processes say of GPUs there."""
    for folder in map(Path, sys.argv[1:]):
        for path in folder.glob("process-*.json"):
            path.write_text(json.dumps({**json.loads(path.read_text()), "cuda": True}))
        for path in sorted(folder.glob("*.pt.trace.json*")):
            is_packed = path.suffix == ".gz"
            data = gzip.decompress(path.read_bytes()) if is_packed else path.read_bytes()
            data = json.dumps(invent(json.loads(data))).encode()
            path.write_bytes(gzip.compress(data, 1) if is_packed else data)


if __name__ == "__main__":
    main()
