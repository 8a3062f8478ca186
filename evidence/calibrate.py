#!/usr/bin/env python3
"""Measures what well-tuned work reaches on the GPU at hand: the constants of `calibration/`.

    python3 evidence/calibrate.py               print the entries of this board
    python3 evidence/calibrate.py --write       write them into calibration/
    python3 evidence/calibrate.py --reachable   print them as `[reachable]` of a GPU file of your own
    python3 evidence/calibrate.py --dry-run --device cpu --board h100-sxm5-80gb
                                                no GPU: does it run? Nothing that it prints is a measurement

It needs Python 3.11 and torch. Work is timed by events in the stream of the GPU, in samples of 20 ms and more
behind a warm-up; a constant is made of medians of samples.
"""

import argparse
import datetime
import pathlib
import re
import statistics
import subprocess
import sys
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
SAMPLES = 5


def board_of(device_name, memory_bytes, folder):
    """The file in gpu_specs/ of a device: its id and contents."""
    fitting = []
    for path in sorted(folder.glob("*.toml")):
        spec = tomllib.loads(path.read_text())
        if device_name in spec["device_names"]:
            # Drivers keep a few per cent of the memory, and boards of one name differ by more.
            off = abs(memory_bytes / (spec["memory"]["size_gb"] * 2**30) - 1)
            fitting.append((off, path.stem, spec))
    if not fitting:
        sys.exit(f"{device_name} is not in gpu_specs/: name its board with --board")
    _, stem, spec = min(fitting, key=lambda entry: entry[:2])
    return stem, spec


class Bench:
    """Times steps on one device."""

    def __init__(self, torch, device, dry):
        self.torch, self.device, self.dry = torch, device, dry

    def sample(self, step, repeats):
        torch = self.torch
        if self.device == "cuda":
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            for _ in range(repeats):
                step()
            end.record()
            end.synchronize()
            return start.elapsed_time(end) / 1e3 / repeats
        start = time.perf_counter()
        for _ in range(repeats):
            step()
        return (time.perf_counter() - start) / repeats

    def seconds(self, step):
        """The median of samples of one step."""
        for _ in range(1 if self.dry else 10):
            step()
        once = self.sample(step, 1 if self.dry else 3)
        repeats = 1 if self.dry else max(1, min(2000, int(2e-2 / max(once, 1e-9))))
        return statistics.median(self.sample(step, repeats) for _ in range(SAMPLES))


def sizes(bench, shapes):
    """The shapes, each dimension divided for a dry run."""
    return [[max(16, n // 64) for n in shape] for shape in shapes] if bench.dry else shapes


def products(bench, shapes, half, spec):
    """The share of the ideal, and of the peak, that 16-bit products MxNxK reach."""
    torch = bench.torch
    peak = spec["tensor_flops"][str(half).removeprefix("torch.")] * 1e12
    bandwidth = spec["memory"]["bandwidth_gbs"] * 1e9
    shares = []
    for m, n, k in sizes(bench, shapes):
        a = torch.randn(m, k, device=bench.device, dtype=half)
        b = torch.randn(n, k, device=bench.device, dtype=half)
        took = bench.seconds(lambda: a @ b.t())
        math = 2 * m * n * k / peak
        ideal = max(math, 2 * (m * k + n * k + m * n) / bandwidth)
        shares.append((ideal / took, math / took))
    return [ideal for ideal, _ in shares], [math for _, math in shares]


# Tokens x outputs x inputs of linear layers of common transformers, forward.
LAYERS = [
    [tokens, *layer]
    for tokens in (2048, 4096, 8192)
    for layer in ((2304, 768), (3072, 768), (3072, 1024), (4096, 1024), (6144, 2048), (4096, 4096), (11008, 4096))
]
LARGE = [[m, n, k] for m in (8192, 16384) for n in (4096, 8192) for k in (4096, 8192)]


def math_share(bench, half, spec):
    """The best of large products, as the sweeps do that the built-in values come from."""
    return max(products(bench, LARGE, half, spec)[1])


def aligned_gemm(bench, half, spec):
    """The lower quartile over layers, because a saving must not be estimated too high."""
    ideal, _ = products(bench, LAYERS, half, spec)
    return statistics.quantiles(ideal, n=4)[0]


def large_gemm(bench, half, spec):
    return statistics.median(products(bench, LARGE, half, spec)[0])


def memory_share(bench, _, spec):
    """Reading and writing 1 GiB in all, many times the last-level cache."""
    torch = bench.torch
    elements = 2**14 if bench.dry else 2**27
    source = torch.zeros(elements, device=bench.device)
    target = torch.empty_like(source)
    took = bench.seconds(lambda: torch.add(source, 1.0, out=target))
    return 8 * elements / took / (spec["memory"]["bandwidth_gbs"] * 1e9)


def attention(bench, half, spec):
    torch = bench.torch
    peak = spec["tensor_flops"][str(half).removeprefix("torch.")] * 1e12
    shares = []
    for batch, heads, length, size in [[1, 2, 64, 16]] if bench.dry else [[8, 16, 2048, 64], [4, 16, 4096, 128]]:
        q, k, v = (torch.randn(batch, heads, length, size, device=bench.device, dtype=half) for _ in range(3))
        took = bench.seconds(lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v))
        shares.append(4 * batch * heads * length * length * size / peak / took)
    return statistics.median(shares)


def aligned_conv(bench, half, spec):
    """3x3 convolutions of a ResNet-50 at batch 64, channels last; the lower quartile."""
    torch = bench.torch
    peak = spec["tensor_flops"][str(half).removeprefix("torch.")] * 1e12
    bandwidth = spec["memory"]["bandwidth_gbs"] * 1e9
    shares = []
    for channels, width in [[64, 56], [128, 28], [256, 14], [512, 7]]:
        batch = 1 if bench.dry else 64
        x = torch.randn(batch, channels, width, width, device=bench.device, dtype=half)
        w = torch.randn(channels, channels, 3, 3, device=bench.device, dtype=half)
        x, w = (t.to(memory_format=torch.channels_last) for t in (x, w))
        took = bench.seconds(lambda: torch.nn.functional.conv2d(x, w, padding=1))
        flops = 2 * batch * width * width * channels * channels * 9
        bytes_moved = 2 * (2 * x.numel() + w.numel())
        shares.append(max(flops / peak, bytes_moved / bandwidth) / took)
    return statistics.quantiles(shares, n=4)[0]


def pinned_copy(bench, _, spec):
    """Copies of 256 MB to the GPU, as a share of 16 lanes before encoding."""
    torch = bench.torch
    pins = bench.device == "cuda"
    host = torch.zeros(2**14 if bench.dry else 2**26, pin_memory=pins)
    target = torch.empty_like(host, device=bench.device)
    took = bench.seconds(lambda: target.copy_(host, non_blocking=True))
    return 4 * host.numel() / took / (16e9 * 2 ** (spec["links"]["pcie_gen"] - 3))


def kernel_ns(bench, _, __):
    """Time per kernel of a CUDA graph of small dependent ones, so that the host has no part in it."""
    torch = bench.torch
    x = torch.zeros(1024, device=bench.device)
    count = 10 if bench.dry else 500

    def many():
        for _ in range(count):
            x.add_(1.0)

    if bench.device != "cuda":
        return bench.seconds(many) / count * 1e9
    many()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        many()
    return bench.seconds(graph.replay) / count * 1e9


def gap_ns(bench, _, __):
    """Median time between kernels that wait in the queue of a stream, as profiles show it."""
    torch = bench.torch
    x = torch.zeros(1024, device=bench.device)
    on_gpu = bench.device == "cuda"
    activity = torch.profiler.ProfilerActivity
    activities = [activity.CPU, activity.CUDA] if on_gpu else [activity.CPU]
    with torch.profiler.profile(activities=activities) as profiler:
        if on_gpu:
            torch.cuda._sleep(50_000_000)  # The host queues all kernels while this one runs.
        for _ in range(20 if bench.dry else 500):
            x.add_(1.0)
        if on_gpu:
            torch.cuda.synchronize()
    kind = torch.autograd.DeviceType.CUDA if on_gpu else torch.autograd.DeviceType.CPU
    ranges = (event.time_range for event in profiler.events() if event.device_type == kind)
    spans = sorted((times.start, times.end) for times in ranges)
    gaps = [1e3 * (start - end) for (_, end), (start, _) in zip(spans, spans[1:])]
    # The first is behind the long kernel. Without a GPU, events may be nested.
    return max(statistics.median(gaps[1:]), 1.0)


MEASURED = {
    "math": math_share,
    "memory": memory_share,
    "attention": attention,
    "aligned_gemm": aligned_gemm,
    "large_gemm": large_gemm,
    "aligned_conv": aligned_conv,
    "pinned_copy": pinned_copy,
    "kernel_ns": kernel_ns,
    "gap_ns": gap_ns,
}


def measure(bench, spec, names):
    """The constants by name. What the board or the architecture lacks is left out."""
    torch = bench.torch
    rates = spec.get("tensor_flops", {})
    half = next((getattr(torch, name) for name in ("bfloat16", "float16") if RATE_OF[name] in rates), None)
    spec = {**spec, "tensor_flops": {name: rates.get(rate) for name, rate in RATE_OF.items()}}
    found = {}
    for name in names:
        needs_half = name not in ("memory", "pinned_copy", "kernel_ns", "gap_ns")
        if needs_half and half is None:
            print(f"{name}: not measured, the board has no rate for 16 bits on Tensor Cores", file=sys.stderr)
            continue
        if name == "pinned_copy" and "pcie_gen" not in spec.get("links", {}):
            print(f"{name}: not measured, the generation of PCI Express is not known", file=sys.stderr)
            continue
        value = MEASURED[name](bench, half, spec)
        is_time = name.endswith("_ns")
        if bench.dry and not is_time:
            value = min(value, 0.999)
        elif not is_time and value > 1:
            sys.exit(f"{name}: {value:.2f} of the peak cannot be; are the rates of the board right?")
        found[name] = f"{value:.0f}" if is_time else f"{value:.3g}"
    return found


RATE_OF = {"bfloat16": "bf16", "float16": "fp16"}


def versions(torch, device):
    if device != "cuda":
        return f"dry run on a CPU, no measurement, torch {torch.__version__}"
    driver = "unknown"
    try:
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        driver = subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        pass
    return f"torch {torch.__version__}, driver {driver}"


def with_entry(text, name, entry):
    """The text of a calibration with the entry of a board in a section, in place of an older one."""
    head = f"[{name}]\n"
    start = text.index(head) + len(head)
    end = text.find("\n[", start)
    end = len(text) if end < 0 else end + 1
    section = text[start:end].rstrip("\n")
    key = entry.split(" = ", 1)[0]
    lines = [line for line in section.split("\n") if not line.startswith(f"{key} ")]
    return text[:start] + "\n".join([*lines, entry]) + "\n" + ("\n" if end < len(text) else "") + text[end:]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--dry-run", action="store_true", help="tiny sizes: does it run?")
    parser.add_argument("--board", help="id of the board in gpu_specs/; by default the one torch names")
    parser.add_argument("--write", action="store_true", help="write the entries into the calibration")
    parser.add_argument("--reachable", action="store_true", help="print `[reachable]` of a GPU file")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "calibration", help="the calibrations")
    options = parser.parse_args()
    import torch

    if options.device == "cpu" and not options.dry_run:
        sys.exit("a CPU has nothing to calibrate: `--dry-run` only shows that this runs")
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("no GPU for torch here; `--dry-run --device cpu --board ID` runs without one")
    if options.dry_run and options.write and options.folder.resolve() == (ROOT / "calibration").resolve():
        sys.exit("a dry run measures nothing: write it to another --folder")
    if options.board:
        board = options.board
        if not re.fullmatch("[a-z0-9-]+", board) or not (ROOT / "gpu_specs" / f"{board}.toml").is_file():
            sys.exit(f"no such board: {board}")
        spec = tomllib.loads((ROOT / "gpu_specs" / f"{board}.toml").read_text())
    elif options.device == "cuda":
        about = torch.cuda.get_device_properties(0)
        board, spec = board_of(about.name, about.total_memory, ROOT / "gpu_specs")
    else:
        sys.exit("name the board with --board")
    path = options.folder / (spec["architecture"].lower().replace(" ", "-") + ".toml")
    calibration = tomllib.loads(path.read_text())
    names = [name for name in MEASURED if name in calibration]
    found = measure(Bench(torch, options.device, options.dry_run), spec, names)
    source = f"evidence/calibrate.py on {datetime.date.today().isoformat()}: {versions(torch, options.device)}"
    if options.reachable:
        print(f"[reachable]  # {source}")
        for name, value in found.items():
            print(f"{name} = {value}")
        return
    text = path.read_text()
    for name, value in found.items():
        entry = f'boards.{board} = {{ value = {value}, source = "{source}" }}'
        text = with_entry(text, name, entry)
        print(f"[{name}]\n{entry}")
    tomllib.loads(text)
    if options.write:
        path.write_text(text)


if __name__ == "__main__":
    main()
