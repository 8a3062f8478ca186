#!/usr/bin/env python3
"""Asks the raw rows of a profile, and checks the verdicts against them.

    query.py PROFILE SQL      prints the rows that a query gives
    query.py --check [NAME..] runs the queries of tests/verdicts.toml and compares what they give

PROFILE is a path below $PYPROF_ADVISE_SHARED (`profiles/lm_net.sql`). An SQLite file is asked as it
is. A trace is loaded into one table first: events(ph, cat, name, ts, dur, pid, tid, args), times in
microseconds, `args` as JSON (`json_extract(args, '$.stream')`, `args ->> '$."Input Dims"'`).
Rows are printed one a line, columns separated by `|`, fractions with three digits.
"""

import gzip
import json
import os
import sqlite3
import sys
import tomllib
from pathlib import Path

VERDICTS = Path(__file__).parent.parent / "verdicts.toml"


def opened(path: Path) -> sqlite3.Connection:
    """A connection to the rows of a profile, which is never written to."""
    with path.open("rb") as file:
        head = file.read(16)
    if head.startswith(b"SQLite format 3"):
        return sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    text = gzip.open(path).read() if head[:2] == b"\x1f\x8b" else path.read_bytes()
    # A trace may hold bytes that are not UTF-8, and control characters.
    trace = json.loads(text.decode("utf-8", "replace"), strict=False)
    events = trace["traceEvents"] if isinstance(trace, dict) else trace
    rows = sqlite3.connect(":memory:")
    rows.execute("CREATE TABLE events(ph, cat, name, ts REAL, dur REAL, pid, tid, args)")
    columns = ("ph", "cat", "name", "ts", "dur", "pid", "tid")
    rows.executemany(
        "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            [str(e[c]) if isinstance(e.get(c), (list, dict)) else e.get(c) for c in columns]
            + [json.dumps(e.get("args", {}))]
            for e in events
            if isinstance(e, dict)
        ),
    )
    return rows


def shown(rows: list[tuple[object, ...]]) -> str:
    """The text of rows as `gives` has it."""

    def cell(value: object) -> str:
        return f"{value:.3f}" if isinstance(value, float) else str(value)

    return "\n".join("|".join(cell(value) for value in row) for row in rows)


def check(shared: Path, only: list[str]) -> int:
    entries = tomllib.loads(VERDICTS.read_text())["finding"]
    by_profile: dict[str, list[dict[str, str]]] = {}
    for entry in entries:
        if not only or any(part in entry["profile"] for part in only):
            by_profile.setdefault(entry["profile"], []).append(entry)
    wrong = 0
    for profile, entries in by_profile.items():
        rows = opened(shared / profile)
        for entry in entries:
            try:
                found = shown(rows.execute(entry["query"]).fetchall())
            except sqlite3.Error as error:
                found = f"error: {error}"
            if found.strip() != entry["gives"].strip():
                wrong += 1
                print(f"{profile}: {entry['rule']}: the query gives\n{found}\nexpected\n{entry['gives']}")
        rows.close()
    print(f"{sum(map(len, by_profile.values()))} verdicts, {wrong} of them not borne out by the rows")
    return 1 if wrong else 0


def main() -> int:
    arguments = sys.argv[1:]
    if len(arguments) < 1 or "-h" in arguments or "--help" in arguments:
        print(__doc__)
        return 2
    folder = os.environ.get("PYPROF_ADVISE_SHARED")
    if not folder:
        print("PYPROF_ADVISE_SHARED must name the folder with the profiles", file=sys.stderr)
        return 2
    if arguments[0] == "--check":
        return check(Path(folder), arguments[1:])
    profile, query = arguments
    print(shown(opened(Path(folder) / profile).execute(query).fetchall()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
