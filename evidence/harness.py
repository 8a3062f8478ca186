#!/usr/bin/env python3
"""Before and after: does a rule's promise hold?

Each file beside this one is a pair: a program that a rule should find fault with, and the same
program after its advice. For a pair this harness

  1. records both with torch.profiler (shapes, a schedule with warm-up),
  2. runs pyprof-advise on the trace of *before* and reads what its rule promises,
  3. compares the promise with the time that *after* gave back,
  4. appends a row to results.json, and renders docs/evidence.md from it.

    python evidence/harness.py                          every pair, on a GPU
    python evidence/harness.py tf32 pinned_copies       some
    python evidence/harness.py --device cpu --dry-run   no GPU: do both run, and compute the same?
    python evidence/harness.py --device cpu             no GPU: a rehearsal, as far as it goes: both are
                                                        recorded, and the trace is handed over; it holds
                                                        no kernel, so nothing is judged or measured
    python evidence/harness.py --render                 docs/evidence.md again
    python evidence/harness.py --render -               the page to standard output

A pair has this form, and needs nothing else:

  RULE      the rule it is about
  SETTINGS  {"full": {...}, "dry": {...}}: sizes on a GPU, and sizes for a laptop
  SAME      how near both must come to each other (relative to the largest value); None where the
            advice changes the result on purpose
  build(device, settings) -> state     everything both need
  before(state) -> tensor, after(state) -> tensor     one step; `after` follows the advice
"""

import argparse
import datetime
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
RESULTS = HERE / "results.json"
PAGE = ROOT / "docs" / "evidence.md"

WARM_UP = 5
STEPS = 10
REPEATS = 5


def pairs(names=()):
    """The pairs by name, as modules."""
    found = {}
    for path in sorted(HERE.glob("*.py")):
        if path.stem != "harness" and (not names or path.stem in names):
            found[path.stem] = path
    unknown = set(names) - set(found)
    if unknown:
        sys.exit(f"no such pair: {', '.join(sorted(unknown))}")
    return found


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rule_of(path):
    """The rule of a pair, without importing torch."""
    for line in path.read_text().splitlines():
        if line.startswith('RULE = "'):
            return line.split('"')[1]
    sys.exit(f"{path.name} names no rule")


# ------------------------------------------------------------------------------------- recording


def synchronize(device):
    import torch

    if device == "cuda":
        torch.cuda.synchronize()


def has_gpu():
    import torch

    return torch.cuda.is_available()


def fresh(module, device, settings):
    """A state that is the same every time."""
    import torch

    torch.manual_seed(0)
    return module.build(device, settings)


def timed(step, state, device):
    """Wall time of a step in ns: the median of some runs without a profiler."""
    import time

    for _ in range(WARM_UP):
        step(state)
    synchronize(device)
    taken = []
    for _ in range(REPEATS):
        start = time.perf_counter_ns()
        for _ in range(STEPS):
            step(state)
        synchronize(device)
        taken.append((time.perf_counter_ns() - start) / STEPS)
    return statistics.median(taken)


def record(step, state, device, file):
    """The trace of STEPS steps behind a warm-up."""
    from torch.profiler import ProfilerActivity, profile, schedule

    activities = [ProfilerActivity.CPU]
    if device == "cuda":
        activities.append(ProfilerActivity.CUDA)
    plan = schedule(wait=1, warmup=WARM_UP, active=STEPS, repeat=1)

    def keep(prof):
        prof.export_chrome_trace(str(file))

    with profile(activities=activities, record_shapes=True, schedule=plan, on_trace_ready=keep) as prof:
        for _ in range(1 + WARM_UP + STEPS):
            step(state)
            synchronize(device)
            prof.step()


def run_advise(advise, trace):
    """What pyprof-advise says of a trace: exit status, output, complaints."""
    command = [advise, str(trace), "--format", "json", "--top", "1000", "--quiet"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        sys.exit(f"{advise} cannot be started ({error}): name it with --advise or PYPROF_ADVISE")
    return said.returncode, said.stdout, said.stderr


def promised(advise, trace, rule):
    """What the rule promises for a trace; see `promise_in`."""
    status, output, complaints = run_advise(advise, trace)
    if status != 0:
        sys.exit(f"{advise} ended with {status} on {trace}:\n{complaints}")
    return promise_in(json.loads(output), rule)


def promise_in(report, rule):
    """What a rule promises per step, in ns: low and high, both None when it names no saving or says
    nothing. `others` are the rules that spoke: a sharper one may have silenced it."""
    steps = report["summary"]["steps"] or STEPS
    findings = report["findings"] + report["minor"]
    own = [finding for finding in findings if finding["rule"] == rule]
    savings = [finding["saving"] for finding in own if finding["saving"]]
    return {
        "spoke": bool(own),
        "low": sum(s["low_ns"] for s in savings) / steps if savings else None,
        "high": sum(s["high_ns"] for s in savings) / steps if savings else None,
        "others": sorted({finding["rule"] for finding in findings} - {rule}),
    }


def agreement(promise, before_ns, given_back):
    """How a promise and what was given back compare: a word of WORDS."""
    if not promise["spoke"]:
        return "silent"
    if promise["high"] is None:
        return "unpriced"
    # Runs differ by a few per cent; a promise is not refuted by what a second run might undo.
    slack = 0.03 * before_ns
    if given_back < promise["low"] - slack:
        return "less"
    if given_back > promise["high"] + slack:
        return "more"
    return "yes"


def recorded(trace):
    """What a trace holds: operators, kernels, steps, and operators with shapes."""
    count = {"operators": 0, "kernels": 0, "steps": 0, "shapes": 0}
    for event in json.loads(trace.read_text())["traceEvents"]:
        category = event.get("cat")
        if category == "cpu_op":
            count["operators"] += 1
            count["shapes"] += "Input Dims" in event.get("args", {})
        elif category == "kernel":
            count["kernels"] += 1
        elif category == "user_annotation":
            count["steps"] += event["name"].startswith("ProfilerStep#")
    return count


def rehearse(name, module, advise, traces):
    """The road of `measure` on a CPU, as far as it goes: record, look, hand over. Nothing is judged,
    because a CPU runs no kernels, and nothing is kept as a result."""
    settings = module.SETTINGS["dry"]
    counts = []
    for which, step in (("before", module.before), ("after", module.after)):
        trace = traces / f"{name}-{which}.pt.trace.json"
        record(step, fresh(module, "cpu", settings), "cpu", trace)
        count = recorded(trace)
        if count["steps"] != STEPS or not count["shapes"]:
            sys.exit(f"{name}: {which} was recorded with {count}, not with {STEPS} steps and shapes")
        counts.append(count)
        status, _, complaints = run_advise(advise, trace)
        # 2 is the exit status for "nothing could be judged"; a judgement would be made up.
        if count["kernels"] or status != 2 or "no kernel" not in complaints:
            sys.exit(f"{name}: {advise} ended with {status} on a trace of a CPU:\n{complaints}")
    before, after = (f"{count['operators']:,}" for count in counts)
    return (
        f"{name}: recorded {STEPS} steps, {before} operators before and {after} after; "
        f"a CPU trace holds no kernel, so `{module.RULE}` is neither judged nor measured"
    )


def versions():
    import torch

    driver = "unknown"
    try:
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        driver = subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        pass
    return {
        "gpu": torch.cuda.get_device_name(),
        "driver": driver,
        "torch": torch.__version__,
        "date": datetime.date.today().isoformat(),
    }


def measure(name, module, advise, traces):
    """One row of the results."""
    settings = module.SETTINGS["full"]
    state = fresh(module, "cuda", settings)
    before_ns = timed(module.before, state, "cuda")
    trace = traces / f"{name}-before.pt.trace.json"
    record(module.before, state, "cuda", trace)
    promise = promised(advise, trace, module.RULE)
    state = fresh(module, "cuda", settings)
    after_ns = timed(module.after, state, "cuda")
    record(module.after, state, "cuda", traces / f"{name}-after.pt.trace.json")
    given_back = before_ns - after_ns
    row = {
        "pair": name,
        "rule": module.RULE,
        **versions(),
        "before_ns": round(before_ns),
        "after_ns": round(after_ns),
        "predicted_low_ns": None if promise["low"] is None else round(promise["low"]),
        "predicted_high_ns": None if promise["high"] is None else round(promise["high"]),
        "measured_ns": round(given_back),
        "agree": agreement(promise, before_ns, given_back),
    }
    if not promise["spoke"]:
        row["spoke_instead"] = promise["others"]
    return row


def dry_run(name, module, device):
    """Both versions, a few steps each; the largest difference relative to the largest value."""
    settings = module.SETTINGS["dry"]
    results = []
    for step in (module.before, module.after):
        state = fresh(module, device, settings)
        for _ in range(3):
            result = step(state)
        synchronize(device)
        results.append(result.detach().float().cpu())
    first, second = results
    if module.SAME is None:
        return f"{name}: both run; they compute different things on purpose"
    if first.shape != second.shape:
        sys.exit(f"{name}: {tuple(first.shape)} before, {tuple(second.shape)} after")
    scale = first.abs().max().clamp(min=1e-12)
    difference = float((first - second).abs().max() / scale)
    if not difference <= module.SAME:
        sys.exit(f"{name}: before and after differ by {difference:.2g}, more than {module.SAME:.2g}")
    return f"{name}: both run and agree within {module.SAME:.2g} (largest difference {difference:.1e})"


# ------------------------------------------------------------------------------------- rendering


def results():
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else []


def milliseconds(ns):
    return "-" if ns is None else f"{ns / 1e6:.3g} ms"


WORDS = {
    "yes": "yes",
    "less": "no: less than estimated",
    "more": "no: more than estimated",
    "unpriced": "the rule fired without an estimate",
    "silent": "the rule did not speak",
}


def verdict(row):
    """The last cell of a row."""
    others = ", ".join(f"`{rule}`" for rule in row.get("spoke_instead", [])[:3])
    return WORDS[row["agree"]] + (f"; {others} did" if others else "")


def page(rows):
    """docs/evidence.md."""
    lines = [
        "<!-- Generated: `python3 evidence/harness.py --render` renews this page. -->",
        "",
        "# Are the estimated savings right?",
        "",
        "`evidence/` holds pairs of small PyTorch programs: one that a rule should find fault with, and the",
        "same one after its advice. The harness beside them records both on a GPU, lets `pyprof-advise` examine",
        "the first, and compares its estimated saving per step with what the second saves.",
        "",
        "```sh",
        "python3 evidence/harness.py                         # on a GPU, with PyTorch 2.x",
        "python3 evidence/harness.py --device cpu --dry-run  # without one: do both versions compute the same?",
        "python3 evidence/harness.py --device cpu            # without one: a rehearsal of recording and handing over",
        "```",
        "",
        "## Measured",
        "",
    ]
    if rows:
        head = ["Pair", "Rule", "GPU", "Driver", "PyTorch", "Date", "Before", "After", "Promised", "Given back", "Holds"]
        lines += ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
        for row in rows:
            low, high = row["predicted_low_ns"], row["predicted_high_ns"]
            promise = "-" if high is None else f"{milliseconds(low)} to {milliseconds(high)}"
            cells = [
                f"`{row['pair']}`",
                f"`{row['rule']}`",
                row["gpu"],
                row["driver"],
                row["torch"],
                row["date"],
                milliseconds(row["before_ns"]),
                milliseconds(row["after_ns"]),
                promise,
                milliseconds(row["measured_ns"]),
                verdict(row),
            ]
            lines.append("| " + " | ".join(str(c).replace("|", "\\|") for c in cells) + " |")
    else:
        lines.append("Nothing yet: no GPU was at hand when these pairs were written. The savings in reports rest on")
        lines.append("the sources each rule names, not on these programs.")
    measured = {row["pair"] for row in rows}
    missing = {name: path for name, path in pairs().items() if name not in measured}
    if missing:
        lines += ["", "## Not yet measured", ""]
        lines += ["| Pair | Rule | What changes |", "| --- | --- | --- |"]
        for name, path in missing.items():
            about = path.read_text().split('"""')[1].strip().splitlines()[0].rstrip(".")
            lines.append(f"| [`{name}`](../evidence/{path.name}) | `{rule_of(path)}` | {about} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="PAIR")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--dry-run", action="store_true", help="small sizes; compare results, record nothing")
    parser.add_argument("--advise", default=os.environ.get("PYPROF_ADVISE", "pyprof-advise"))
    parser.add_argument("--traces", type=pathlib.Path, help="keep the traces in this folder")
    parser.add_argument("--render", nargs="?", const=str(PAGE), metavar="FILE")
    options = parser.parse_args()
    if options.render:
        text = page(results())
        if options.render == "-":
            sys.stdout.write(text)
        else:
            pathlib.Path(options.render).write_text(text)
        return
    chosen = pairs(options.names)
    if options.dry_run:
        for name, path in chosen.items():
            print(dry_run(name, load(path), options.device), flush=True)
        return
    if options.device == "cuda" and not has_gpu():
        sys.exit("no GPU for PyTorch here; `--device cpu` rehearses without one, and measures nothing")
    with tempfile.TemporaryDirectory() as scratch:
        traces = options.traces or pathlib.Path(scratch)
        traces.mkdir(parents=True, exist_ok=True)
        if options.device == "cpu":
            for name, path in chosen.items():
                print(rehearse(name, load(path), options.advise, traces), flush=True)
            return
        rows = results()
        for name, path in chosen.items():
            row = measure(name, load(path), options.advise, traces)
            print(json.dumps(row), flush=True)
            rows.append(row)
            RESULTS.write_text(json.dumps(rows, indent=1) + "\n")
    PAGE.write_text(page(rows))


if __name__ == "__main__":
    main()
