"""How much of a window its threads ran, and how much they waited for a free CPU, as Linux counts it."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

MAX_WORKERS = 256
"""Most worker processes that are looked at."""
QUOTAS = (
    ("/sys/fs/cgroup/cpu.max", None),
    ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu/cpu.cfs_period_us"),
)
"""Files with the limit of a container: quota and period, in one file or in two."""


class Times(NamedTuple):
    """Sums over threads, in ns."""

    ran: int = 0
    """On a CPU."""
    ready: int = 0
    """Ready to run, while other threads had the CPUs."""


class Scheduling:
    """The times of the thread that takes steps and of worker processes, from one moment to another."""

    def __init__(self, workers: list[int]) -> None:
        self._began = time.perf_counter_ns()
        self._thread_id = threading.get_native_id()
        self._thread = self._of_thread()
        self._workers = {pid: of_process(pid) for pid in workers[:MAX_WORKERS]}

    def until_now(self) -> dict[str, Any]:
        """What the reader of the trace takes. Without Linux's counters, only the number of CPUs."""
        found: dict[str, Any] = {"cpus": cpus()}
        before, after = self._thread, self._of_thread()
        if before is None or after is None or self._thread_id != threading.get_native_id():
            return found
        found["window_ns"] = time.perf_counter_ns() - self._began
        found["thread"] = {"ran_ns": after.ran - before.ran, "ready_ns": after.ready - before.ready}
        # A worker that ended meanwhile, or began, would count with a part of its time.
        both = [(was, now) for pid, was in self._workers.items() if was and (now := of_process(pid))]
        if both:
            found["workers"] = {
                "ran_ns": sum(now.ran - was.ran for was, now in both),
                "ready_ns": sum(now.ready - was.ready for was, now in both),
            }
        return found

    def _of_thread(self) -> Times | None:
        return read_times(Path(f"/proc/self/task/{self._thread_id}/schedstat"))


def read_times(path: Path) -> Times | None:
    """The counters of a thread; None where there are none."""
    try:
        ran, ready, _ = path.read_text(encoding="ascii").split()
        return Times(int(ran), int(ready))
    except (OSError, ValueError):
        return None


def of_process(pid: int) -> Times | None:
    """The sums over the threads of a process; None if it has ended."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return None
    times = [found for task in tasks if (found := read_times(task / "schedstat"))]
    if not times:
        return None
    return Times(sum(t.ran for t in times), sum(t.ready for t in times))


def cpus() -> int | None:
    """How many CPUs this process may use, by its affinity and the limit of its container. Ranks share those of a
    machine."""
    affinity = getattr(os, "sched_getaffinity", None)
    count = len(affinity(0)) if affinity is not None else os.cpu_count()
    with contextlib.suppress(ValueError):
        ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        if count is not None and ranks > 1 and count == os.cpu_count():
            count = max(1, count // ranks)
    for first, second in QUOTAS:
        with contextlib.suppress(OSError, ValueError, IndexError, ZeroDivisionError):
            numbers = Path(first).read_text(encoding="ascii").split()
            if second is not None:
                numbers += Path(second).read_text(encoding="ascii").split()
            quota, period = int(numbers[0]), int(numbers[1])
            if quota > 0 and count is not None:
                count = min(count, max(1, -(-quota // period)))
    return count
