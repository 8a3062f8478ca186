"""Gives traces of programs that ran without a GPU invented kernels, so that a report can be made of them.

Every innermost operator gets a launch and a kernel. Names, steps, layers and shapes are real; all GPU times are
invented: no test may depend on them. For tests only.
"""

from __future__ import annotations

import bisect
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


WAITS = {"aten::_local_scalar_dense", "aten::nonzero"}
"""Operators in which the host waits for a GPU: they copy a number or a size to it."""
COPY_US = 2.0
"""How long such a copy takes."""


def invent(trace: dict, kernel_us: float = KERNEL_US, waits: bool = False) -> dict:
    """The trace with a launch and a kernel for every innermost operator. With `waits`, operators that read from the
    GPU also copy and synchronize: everything the host did afterwards happens later by as much as it waited."""
    events = [e for e in trace["traceEvents"] if isinstance(e.get("ts"), (int, float))]
    # When the host launches, and when it waits.
    moments = [(op["ts"] + op["dur"] / 4, False, op) for op in innermost(events)]
    if waits:
        waiting = [e for e in events if e.get("cat") == "cpu_op" and e["name"] in WAITS]
        moments += [(op["ts"] + op["dur"] * 15 / 16, True, op) for op in waiting]
    new = []
    free_from = shift = 0.0
    waited: list[tuple[float, float]] = []
    for number, (at, is_wait, op) in enumerate(sorted(moments, key=lambda m: m[0]), start=1):
        call = {"ph": "X", "cat": "cuda_runtime", "pid": op["pid"], "tid": op["tid"], "ts": at + shift}
        work = {"ph": "X", "pid": 0, "tid": 7}
        place = {"device": 0, "context": 1, "stream": 7}
        shared = {"correlation": 2 * number, "External id": number}
        start = max(at + shift + 5.0, free_from)
        if not is_wait:
            free_from = start + kernel_us
            name = f"invented_{op['name'].removeprefix('aten::')}_kernel"
            args = {**shared, **place, "grid": [216, 1, 1], "block": [128, 1, 1]}
            new.append({**work, "cat": "kernel", "name": name, "ts": start, "dur": kernel_us, "args": args})
            new.append({**call, "name": "cudaLaunchKernel", "dur": op["dur"] / 4, "args": shared})
            continue
        free_from = start + COPY_US
        args = {**shared, **place, "bytes": 8}
        name = "Memcpy DtoH (Device -> Pageable)"
        new.append({**work, "cat": "gpu_memcpy", "name": name, "ts": start, "dur": COPY_US, "args": args})
        new.append({**call, "name": "cudaMemcpyAsync", "dur": 0.0, "args": shared})
        wait = free_from - at - shift
        args = {"correlation": 2 * number + 1, "External id": number}
        new.append({**call, "name": "cudaStreamSynchronize", "dur": wait, "args": args})
        shift += wait
        waited.append((at, shift))
    points = [at for at, _ in waited]

    def later(time: float) -> float:
        before = bisect.bisect_left(points, time)
        return time + (waited[before - 1][1] if before else 0.0)

    for event in events:
        end = later(event["ts"] + event.get("dur", 0.0))
        event["ts"] = later(event["ts"])
        if "dur" in event:
            event["dur"] = end - event["ts"]
    return {**trace, "deviceProperties": [GPU], "traceEvents": events + new}


def main() -> None:
    """Rewrites every trace in the folders that are given, and what processes say of GPUs there.
    `--waits KERNEL_US`: see `invent`."""
    folders, options = sys.argv[1:], {}
    if folders[0] == "--waits":
        options = {"kernel_us": float(folders[1]), "waits": True}
        folders = folders[2:]
    for folder in map(Path, folders):
        for path in folder.glob("process-*.json"):
            path.write_text(json.dumps({**json.loads(path.read_text()), "cuda": True}))
        for path in sorted(folder.glob("*.pt.trace.json*")):
            is_packed = path.suffix == ".gz"
            data = gzip.decompress(path.read_bytes()) if is_packed else path.read_bytes()
            data = json.dumps(invent(json.loads(data), **options)).encode()
            path.write_bytes(gzip.compress(data, 1) if is_packed else data)


if __name__ == "__main__":
    main()
