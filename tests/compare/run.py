#!/usr/bin/env python3
"""Compares what two builds of pyprof-advise write for the same profiles.

    tests/compare/run.py OLD_BINARY NEW_BINARY [--jobs N] [--only TEXT] [--keep DIR]

Every output of every profile below $PYPROF_ADVISE_SHARED is written by both programs: all report
formats, `--why`, `parse`, `prof`, `export`, `merge`, `diff` and `scrub`. The changes listed in
`intended.toml` are applied to the output of the old program; what differs after that is printed, and
the exit status is 1. What the old program wrote is kept in a cache beside the old binary.

Not compared: help, error texts, the output of `rules`, `costs` and `schema`, and the fingerprints of SARIF,
which are hashes of rule ids. Runs of blanks and of dashes in text tables count as one, and the order of
lines does not count where something was renamed, because names are sorted.
"""

import argparse
import concurrent.futures
import difflib
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
REPORT_FORMATS = ["markdown", "html", "text", "json", "sarif", "github"]
DIFF_FORMATS = ["markdown", "html", "json"]
PAIRS = [
    ("mfu_2gpu_before.sqlite", "mfu_2gpu_after.sqlite"),
    ("saf_False_b.json.gz", "saf_True_b.json.gz"),
    ("saf_True_c.json.gz", "saf_True_b.json.gz"),
    ("tl_h100_owlv2.json.gz", "tl_mi300_owlv2.json.gz"),
    ("tl_h100_qwen.json.gz", "tl_mi300_qwen.json.gz"),
    ("lm_net.sql", "da6bcc3_net.sql"),
    ("../profiles_pairs/incredere_t4/fp32.json.gz", "../profiles_pairs/incredere_t4/amp.json.gz"),
    ("../profiles_pairs/ao_vit/1_basic.json.gz", "../profiles_pairs/ao_vit/4_tuned.json.gz"),
    ("../profiles_pairs/lightllm/plain_rank0.json.gz", "../profiles_pairs/lightllm/overlap_rank0.json.gz"),
    ("../profiles_pairs/moe/one_before", "../profiles_pairs/moe/one_after"),
    ("../profiles_pairs/aiprof/1_baseline.sqlite", "../profiles_pairs/aiprof/2_workers.sqlite"),
]
WHY = ["tensor-cores/gemm-unaligned", "host/gpu-idle"]


def cases(profiles):
    """Every command line to compare: a name and the arguments; OUT stands for a file it writes."""
    pairs = profiles.parent / "profiles_pairs"
    files = [p for p in sorted(profiles.iterdir()) if p.name != "README.md"]
    files += [p for p in sorted(pairs.rglob("*")) if p.is_file() and p.name != "README.md"]
    for path in files:
        name = path.relative_to(profiles.parent).as_posix()
        for form in REPORT_FORMATS:
            yield f"{name} {form}", [path, "--format", form]
        for rule in WHY:
            yield f"{name} why {rule}", [path, "--why", rule]
        yield f"{name} export", ["export", path]
        if path.is_dir():
            continue
        yield f"{name} gpu", [path, "--gpu", "a100-sxm4-40gb", "--format", "json"]
        yield f"{name} parse", ["parse", path]
        yield f"{name} parse jsonl", ["parse", path, "--format", "jsonl"]
        yield f"{name} prof", ["prof", path, "-c", "all", "--csv"]
        yield f"{name} prof columns", ["prof", path, "-w", "150"]
        yield f"{name} scrub", ["scrub", path, "OUT"]
    for before, after in PAIRS:
        for form in DIFF_FORMATS:
            arguments = ["diff", profiles / before, profiles / after, "--format", form]
            yield f"{before} {after} diff {form}", arguments
    reports = [f"REPORT:{p}" for p in sorted((profiles / "dlrm_8ranks").iterdir())]
    for form in REPORT_FORMATS:
        yield f"dlrm_8ranks merge {form}", ["merge", *reports, "--format", form]
    yield "reports export", ["export", *reports]


def output(binary, arguments, folder):
    """Standard output, then the file written, then the exit status, of one command."""
    out = pathlib.Path(folder) / "out"
    line = []
    for index, argument in enumerate(map(str, arguments)):
        if argument.startswith("REPORT:"):
            profile = pathlib.Path(argument.removeprefix("REPORT:"))
            report = pathlib.Path(folder) / f"{index:02}-{profile.name.split('.')[0]}.json"
            made = subprocess.run([binary, "-q", profile, "--format", "json", "-o", report], capture_output=True)
            assert made.returncode == 0, made.stderr
            argument = str(report)
        line.append(str(out) if argument == "OUT" else argument)
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "NO_COLOR": "1"}
    done = subprocess.run(
        [binary, *line], capture_output=True, stdin=subprocess.DEVNULL, env=environment, cwd=folder
    )
    written = hashlib.sha256(out.read_bytes()).hexdigest().encode() if out.exists() else b""
    # Exempt: what is said on standard error.
    text = done.stdout.replace(str(folder).encode(), b"FOLDER")
    return text + b"\n" + written + b"\nexit status " + str(done.returncode).encode() + b"\n"


def cached(binary, name, arguments, cache):
    stored = cache / hashlib.sha256(name.encode()).hexdigest()
    if not stored.exists():
        with tempfile.TemporaryDirectory() as folder:
            made = output(binary, arguments, folder)
        part = stored.with_suffix(f".{os.getpid()}")
        part.write_bytes(made)
        part.replace(stored)
    return stored.read_bytes()


class Intended:
    """The committed list: words that were renamed, and lines a program may add or drop."""

    def __init__(self, path):
        listed = tomllib.loads(path.read_text())
        words = {}
        for table in listed.get("words", {}).values():
            words.update(table)
        # HTML writes the slash of a rule id as an entity.
        words.update({old.replace("/", "&#x2f;"): new.replace("/", "&#x2f;") for old, new in words.items()})
        whole = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
        # A word ends where neither a letter nor a dash or dot leads into another word.
        self.words = re.compile(rf"(?<![\w.-])(?:{whole})(?![\w-])") if words else None
        self.renamed = words
        # A key of JSON stands in quotes in front of a colon; the text of a report is no key.
        self.keys = listed.get("json", {})
        self.patterns = [(re.compile(p["from"]), p["to"], p.get("in")) for p in listed.get("pattern", [])]

    def apply(self, name, text):
        if self.words:
            text = self.words.sub(lambda match: self.renamed[match.group()], text)
        if re.search(" (json|gpu|sarif)$", name):
            key = lambda match: f'"{self.keys.get(match.group(1), match.group(1))}":'
            text = re.sub(r'"(\w+)":', key, text)
        for pattern, to, where in self.patterns:
            if where is None or re.search(where, name):
                text = pattern.sub(to, text)
        return text


def aligned(text):
    """Without the alignment of text tables, which is exempt."""
    text = re.sub(r'("ruleAndPlace/v1": )"[^"]*"', r"\1...", text)
    lines = (re.sub(r"[ \t]+", " ", re.sub(r"[-─]{3,}", "---", line)).strip().rstrip(",") for line in text.splitlines())
    return [line for line in lines if line]


def compare(old, new, name, arguments, cache, intended, keep):
    before = cached(old, name, arguments, cache).decode(errors="replace")
    with tempfile.TemporaryDirectory() as folder:
        after = output(new, arguments, folder).decode(errors="replace")
    if before == after:
        return None
    expected, found = aligned(intended.apply(name, before)), aligned(after)
    # A renamed key or fact may stand elsewhere in a sorted list: then the same lines come in another order.
    if sorted(expected) == sorted(found):
        return None
    difference = list(difflib.unified_diff(expected, found, "expected", "found", lineterm="", n=0))
    if keep:
        file = pathlib.Path(keep) / (re.sub(r"[^\w.-]+", "_", name) + ".diff")
        file.write_text("\n".join(difference))
    return difference


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", default="", help="a regular expression: compare only cases whose name matches")
    parser.add_argument("--keep", help="folder for one file per difference")
    options = parser.parse_args()
    shared = os.environ.get("PYPROF_ADVISE_SHARED")
    if not shared:
        parser.error("PYPROF_ADVISE_SHARED is not set: it names the folder with `profiles`")
    old, new = (str(pathlib.Path(p).resolve()) for p in (options.old, options.new))
    digest = hashlib.sha256(pathlib.Path(old).read_bytes()).hexdigest()[:12]
    cache = pathlib.Path(old).parent / f"compare-cache-{digest}"
    cache.mkdir(exist_ok=True)
    if options.keep:
        pathlib.Path(options.keep).mkdir(parents=True, exist_ok=True)
    intended = Intended(HERE / "intended.toml")
    wanted = [c for c in cases(pathlib.Path(shared).resolve() / "profiles") if re.search(options.only, c[0])]
    differing = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        jobs = {pool.submit(compare, old, new, *case, cache, intended, options.keep): case[0] for case in wanted}
        for job in concurrent.futures.as_completed(jobs):
            difference = job.result()
            if difference:
                differing += 1
                if differing <= 20:
                    print(f"=== {jobs[job]}: {len(difference)} lines differ")
                    print("\n".join(line[:300] for line in difference[:12]))
    print(f"{len(wanted) - differing} of {len(wanted)} outputs are as intended")
    sys.exit(differing > 0)


if __name__ == "__main__":
    main()
