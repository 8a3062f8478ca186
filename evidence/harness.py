#!/usr/bin/env python3
"""Before and after: do the estimates of rules hold?

Each pair beside this file is a program that a rule should have a finding for, and the same program after its
advice. The machinery is that of the product:

  1. `pyprof-advise try` records the program and takes the estimate from the report,
  2. runs it again and again, alternating before and after, and compares the steps by the statistics of `diff`,
  3. `pyprof-advise repro`, where it has a script for the rule, times the operators of the finding alone,
  4. rows go into results.json, from which docs/evidence.md and the citations of rules are made.

    python evidence/harness.py                          every pair, on a GPU
    python evidence/harness.py tf32 pinned_copies       some
    python evidence/harness.py --in-turn                quick: one recording, and both versions in turn in one process
    python evidence/harness.py --device cpu             no GPU: the same with small sizes, and nothing is kept
    python evidence/harness.py --device cpu --dry-run   do both run, and compute the same?
    python evidence/harness.py --check                  exit status 1 where an estimate missed
    python evidence/harness.py --render                 docs/evidence.md again
    python evidence/harness.py --render -               the page to standard output

The exit status is 1 where an estimate misses what was measured, also after measuring. A pair has this form:

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
PROGRAMS = ("harness", "program", "calibrate")
"""Files that are no pairs."""
VARIABLE = "PYPROF_ADVISE_EVIDENCE"
"""`after` in runs that follow the advice."""

SKIP, STEPS, ROUNDS = 10, 20, 5
TIMED = 20
"""Steps of a round where both versions run in turn in one process."""


def pairs(names=()):
    """The pairs by name, as modules."""
    found = {}
    for path in sorted(HERE.glob("*.py")):
        if path.stem not in PROGRAMS and (not names or path.stem in names):
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


# ------------------------------------------------------------------------------------- measuring


def synchronize(device):
    import torch

    if device == "cuda":
        torch.cuda.synchronize()


def fresh(module, device, settings):
    """A state that is the same every time."""
    import torch

    torch.manual_seed(0)
    return module.build(device, settings)


TREATMENT = """# /// treatment
# title = "The advice of {pair}"
# rules = ["{rule}"]
# lines = "after(state)"
# where = "in place of before(state)"
# tolerance = {tolerance}
{changes}# environment = {{ {variable} = "after" }}
# ///


def apply(program):
    program.changed("after() in place of before()")
"""


def treatment(name, module):
    """The advice of a pair as a treatment of `try`: program.py reads the variable."""
    changes = '# changes_results = "the advice changes the result on purpose"\n' if module.SAME is None else ""
    tolerance = 1.0 if module.SAME is None else module.SAME
    return TREATMENT.format(
        pair=name, rule=module.RULE, tolerance=tolerance, changes=changes, variable=VARIABLE
    )


def started(command, **more):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, **more)
    except OSError as error:
        sys.exit(f"{command[0]} cannot be started ({error}): name it with --advise or PYPROF_ADVISE")


def tried(name, module, options, folder):
    """What `try` says of a pair, and the report that it takes the estimate from; None without a GPU."""
    own = folder / name
    own.mkdir()
    (own / "after.py").write_text(treatment(name, module))
    on_gpu = options.device == "cuda"
    skip, steps, rounds = (SKIP, STEPS, ROUNDS) if on_gpu else (2, 4, 1)
    report = folder / f"{name}.report.json"
    program = [sys.executable, str(HERE / "program.py"), name, "--device", options.device]
    said = started(
        [options.advise, "try", "after", "--treatments", str(own), "--format", "json", "--report", str(report)]
        + ["--skip", str(skip), "--steps", str(steps), "--rounds", str(rounds), "--quiet", "--"]
        + program
        + ([] if on_gpu else ["--dry"])
    )
    if said.returncode != 0:
        sys.exit(f"{name}: `try` ended with {said.returncode}:\n{said.stderr}")
    trial = json.loads(said.stdout)
    if not trial["treatments"]:
        sys.exit(f"{name}: nothing was measured: {trial['verdict']} {trial['not_tried']}\n{said.stderr}")
    return trial, json.loads(report.read_text()) if report.exists() else None


def rules_of(report):
    return {finding["rule"] for finding in report["findings"] + report["minor"]}


WORDS = {
    "yes": "yes",
    "less": "no: less than estimated",
    "more": "no: more than estimated",
    "silent": "no: the rule has no finding",
    "nothing": "yes: no finding, and nothing to save",
    "unpriced": "the finding has no estimate",
    "unknown": "too few runs",
    "operators": "the operators alone",
}
MISSED = ("less", "more", "silent")


def agreement(low, high, saving, noise, fired=True):
    """How an estimate in ns and a measured saving with its noise compare: a word of WORDS."""
    if not fired:
        return "nothing" if noise is not None and saving <= noise else "silent"
    if high is None:
        return "unpriced"
    if noise is None:
        return "unknown"
    if saving + noise < low:
        return "less"
    return "more" if saving - noise > high else "yes"


def trial_row(name, rule, trial, report):
    """The row of a pair as a whole: steps without and with the advice."""
    tried_row = trial["treatments"][0]
    before, after = trial["untreated"]["step_ns"], tried_row["treated"]["step_ns"]
    noise = None if tried_row["noise"] is None else tried_row["noise"] * before
    estimate = tried_row["estimate_low_ns"], tried_row["estimate_high_ns"]
    return {
        "pair": name,
        "rule": rule,
        "how": "try",
        **environment(trial["versions"]),
        **compared(rule, report, before, after, noise, estimate),
        "outcome": tried_row["outcome"],
        "same": tried_row["check"]["text"],
    }


def compared(rule, report, before, after, noise, estimate):
    """The times of a row in ns, and how they compare with the estimate of a report."""
    low, high = estimate
    fired = rule in rules_of(report)
    return {
        "before_ns": round(before),
        "after_ns": round(after),
        "predicted_low_ns": None if low is None else round(low),
        "predicted_high_ns": None if high is None else round(high),
        "measured_ns": round(before - after),
        "noise_ns": None if noise is None else round(noise),
        "agree": agreement(low, high, before - after, noise, fired),
        "fired_instead": [] if fired else sorted(rules_of(report)),
    }


def alone(saving, summary):
    """What a fix could save of a step without any others, as `try` computes it: both ends in ns."""
    steps = summary["steps"] * max(summary["devices"], 1)
    weight = summary["step_weight"] if saving["kind"] == "gpu" else 1.0
    ends = []
    for end in ("low", "high"):
        own, counted, step = saving[f"{end}_ns"], saving[f"counted_{end}_ns"], saving[f"step_{end}_ns"]
        ends.append(step * max(own / counted, 1.0) if counted > 0 else own * weight / steps)
    return ends


def estimated(rule, report):
    """Both ends of the saving that a report estimates for a rule; None without an estimate."""
    found = [f["saving"] for f in report["findings"] + report["minor"] if f["rule"] == rule and f["saving"]]
    if not found or report["summary"]["step_ns"] is None:
        return None, None
    ends = [alone(saving, report["summary"]) for saving in found]
    counted = [sum(saving[f"step_{end}_ns"] for saving in found) for end in ("low", "high")]
    return tuple(max(counted[end], *(each[end] for each in ends)) for end in (0, 1))


def half_width(before, after):
    """Half of Welch's 95 % interval of a difference of means."""
    shares = [statistics.variance(side) / len(side) for side in (before, after)]
    if sum(shares) == 0:
        return 0.0
    freedom = sum(shares) ** 2 / sum(share**2 / (len(side) - 1) for share, side in zip(shares, (before, after)))
    # Quantiles of Student's distribution; between them the next smaller number of degrees counts.
    table = {1: 12.71, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 10: 2.228, 15: 2.131}
    return table[max(degrees for degrees in table if degrees <= max(freedom, 1))] * sum(shares) ** 0.5


def in_turn_row(name, rule, options, folder):
    """The row of a pair by one recording, and by both versions in turn in one process."""
    report = folder / f"{name}.report.json"
    program = [sys.executable, str(HERE / "program.py"), name]
    # `run` lets the program end by itself.
    recorded = [*program, "--steps", "100"]
    said = started([options.advise, "run", "--format", "json", "-o", str(report), "--quiet", "--", *recorded])
    if not report.exists():
        sys.exit(f"{name}: `run` ended with {said.returncode}:\n{said.stderr}")
    report = json.loads(report.read_text())
    said = started([*program, "--time", str(ROUNDS)])
    if said.returncode != 0:
        sys.exit(f"{name}: the program ended with {said.returncode}:\n{said.stderr}")
    times = json.loads(said.stdout)
    before, after = (statistics.mean(times[which]) for which in ("before", "after"))
    noise = half_width(times["before"], times["after"])
    import torch

    return {
        "pair": name,
        "rule": rule,
        "how": "in turn",
        **environment({"torch": torch.__version__}),
        **compared(rule, report, before, after, noise, estimated(rule, report)),
    }


def repro_row(name, rule, options, folder, versions):
    """The row of the operators of a finding alone; None where `repro` has no script for it."""
    script = folder / f"{name}.repro.py"
    report = folder / f"{name}.report.json"
    said = started([options.advise, "repro", rule, str(report), "-o", str(script), "--quiet"])
    if said.returncode != 0:
        print(f"{name}: no script: {said.stderr.strip()}", file=sys.stderr)
        return None
    said = started([sys.executable, str(script), "--json"])
    if said.returncode != 0:
        print(f"{name}: the script of `repro` ended with {said.returncode}:\n{said.stderr}", file=sys.stderr)
        return None
    times = json.loads(said.stdout.splitlines()[0])
    before, after = times["before_s"] * 1e9, times["after_s"] * 1e9
    return {
        "pair": name,
        "rule": rule,
        "how": "repro",
        **environment(versions),
        "before_ns": round(before),
        "after_ns": round(after),
        "predicted_low_ns": None,
        "predicted_high_ns": None,
        "measured_ns": round(before - after),
        "noise_ns": round(times["spread"] * before),
        "agree": "operators",
    }


def environment(versions):
    import torch

    driver = "unknown"
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        driver = subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        pass
    return {
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "driver": driver,
        "torch": versions.get("torch"),
        "date": datetime.date.today().isoformat(),
    }


def rehearsed(name, module, options, folder):
    """All of it on a CPU with small sizes: what is left out is the report, because a CPU runs no kernels."""
    trial, report = tried(name, module, options, folder)
    row = trial["treatments"][0]
    if row["check"]["result"] != "same" and module.SAME is not None:
        sys.exit(f"{name}: {row['check']['text']}")
    if report is not None:
        sys.exit(f"{name}: a report, although a CPU runs no kernels")
    return (
        f"{name}: before and after were recorded and tried, {row['check']['text']}; nothing is estimated or "
        f"kept, because a CPU runs no kernels of `{module.RULE}`"
    )


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


def results(path=RESULTS):
    return json.loads(path.read_text()) if path.exists() else []


def milliseconds(ns):
    return "-" if ns is None else f"{ns / 1e6:.3g} ms"


def verdict(row):
    """The last cell of a row."""
    others = ", ".join(f"`{rule}`" for rule in row.get("fired_instead", [])[:3])
    return WORDS[row["agree"]] + (f"; findings of {others}" if others else "")


def missed(rows):
    """A line for each row whose estimate misses what was measured."""
    lines = []
    for row in rows:
        if row["agree"] in MISSED:
            estimate = f"{milliseconds(row['predicted_low_ns'])} to {milliseconds(row['predicted_high_ns'])}"
            measured = f"{milliseconds(row['measured_ns'])} +- {milliseconds(row['noise_ns'])}"
            lines.append(
                f"{row['rule']}: {WORDS[row['agree']]} (estimated {estimate}, measured {measured} by pair "
                f"{row['pair']} on {row['gpu']})"
            )
    return lines


INTRO = """<!-- Generated: `python3 evidence/harness.py --render` renews this page. -->

# Are the estimated savings right?

`evidence/` holds pairs of small PyTorch programs: one that a rule should have a finding for, and the same one
after its advice. The harness beside them lets [`try`](try.md) record and measure both on a GPU, and compares the
estimated saving per step with the measured one. [`repro`](repro.md) times the operators of the finding alone.

```sh
python3 evidence/harness.py                         # on a GPU, with PyTorch 2.x
python3 evidence/harness.py --device cpu            # on a CPU: small sizes, nothing is kept
python3 evidence/harness.py --device cpu --dry-run  # do both versions compute the same?
python3 evidence/harness.py --check                 # exit status 1 where an estimate missed
```

An estimate holds when its range and the measured saving with its noise, Welch's 95 % interval, overlap. Rules cite
what was measured of them, in [rules.md](rules.md) and in findings.

## Measured
"""


def page(rows):
    """docs/evidence.md."""
    lines = [INTRO]
    if rows:
        head = ["Pair", "Rule", "How", "GPU", "Driver", "PyTorch", "Date", "Before", "After", "Estimated"]
        head += ["Measured", "Noise", "Holds"]
        lines += ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
        for row in rows:
            low, high = row["predicted_low_ns"], row["predicted_high_ns"]
            cells = [
                f"`{row['pair']}`",
                f"`{row['rule']}`",
                f"`{row['how']}`",
                row["gpu"],
                row["driver"],
                row["torch"],
                row["date"],
                milliseconds(row["before_ns"]),
                milliseconds(row["after_ns"]),
                "-" if high is None else f"{milliseconds(low)} to {milliseconds(high)}",
                milliseconds(row["measured_ns"]),
                milliseconds(row["noise_ns"]),
                verdict(row),
            ]
            lines.append("| " + " | ".join(str(c).replace("|", "\\|") for c in cells) + " |")
        remarks = [f"- `{row['pair']}`: {row['remark']}" for row in rows if row.get("remark")]
        lines += ["", *remarks] if remarks else []
    else:
        lines.append("Nothing yet: no pair has been run on a GPU. The savings in reports rest on")
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
    parser.add_argument("--dry-run", action="store_true", help="small sizes; compare results, measure nothing")
    parser.add_argument("--advise", default=os.environ.get("PYPROF_ADVISE", "pyprof-advise"))
    parser.add_argument("--in-turn", action="store_true", help="quick: both versions in turn in one process")
    parser.add_argument("--results", type=pathlib.Path, default=RESULTS, metavar="FILE")
    parser.add_argument("--check", action="store_true", help="exit with status 1 where an estimate missed")
    parser.add_argument("--render", nargs="?", const=str(PAGE), metavar="FILE")
    options = parser.parse_args()
    if options.check:
        lines = missed(results(options.results))
        print("\n".join(lines) if lines else "no estimate missed what was measured")
        sys.exit(1 if lines else 0)
    if options.render:
        text = page(results(options.results))
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
    import torch

    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("no GPU for PyTorch here; `--device cpu` does the same with small sizes, and keeps nothing")
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        if options.device == "cpu":
            for name, path in chosen.items():
                print(rehearsed(name, load(path), options, folder), flush=True)
            return
        rows = results(options.results)
        new = []
        for name, path in chosen.items():
            module = load(path)
            if options.in_turn:
                new.append(in_turn_row(name, module.RULE, options, folder))
                print(json.dumps(new[-1]), flush=True)
                options.results.write_text(json.dumps(rows + new, indent=1) + "\n")
                continue
            trial, report = tried(name, module, options, folder)
            if report is None:
                sys.exit(f"{name}: the recording has no report")
            alone = repro_row(name, module.RULE, options, folder, trial["versions"])
            for row in (trial_row(name, module.RULE, trial, report), alone):
                if row is not None:
                    new.append(row)
                    print(json.dumps(row), flush=True)
            options.results.write_text(json.dumps(rows + new, indent=1) + "\n")
    if options.results == RESULTS:
        PAGE.write_text(page(rows + new))
    lines = missed(new)
    if lines:
        sys.exit("\n".join(lines))


if __name__ == "__main__":
    main()
