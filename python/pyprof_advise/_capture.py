"""Decides when to record: after warm-up, a light window, then a detailed one."""

from __future__ import annotations

import json
import sys
import threading
from typing import TYPE_CHECKING, Any, Callable

import torch

from . import _guard
from ._clock import ClockRecorder
from ._hooks import live_objects
from ._host import CProfileRecorder, PySpy, Scalene
from ._loaders import Loaders
from ._record import Ranks, Record, write_json
from ._settings import SKIP
from ._steps import PATIENCE, Boundary, ModuleSteps, OptimizerSteps, ReplaySteps, Stream
from ._switches import switches
from ._windows import NsysRecorder, TorchRecorder

if TYPE_CHECKING:
    from torch import nn

    from ._settings import Settings, Window

START_FILE = "start.json"
"""In a job of several ranks, rank 0 says in this file at which step all of them begin."""
AGREED_AHEAD = 3
"""Steps between that decision and the beginning."""
PAUSE = 2
"""Steps between two windows, in which ranks that wrote their trace at different speeds meet again."""
RETRY = 10
"""Steps after which recording is tried again, while the program's own profiler runs."""
UNLESS_TRAINING = 10
"""How much longer to count calls of a model in a program that has an optimizer, but has not used it yet."""


class Capture:
    """Records the windows of one process."""

    def __init__(self, settings: Settings, record: Record) -> None:
        self.settings = settings
        self.record = record
        self.on_done: Callable[[], None] | None = None
        self._optimizers = OptimizerSteps(self._optimizer_stepped)
        self._modules = ModuleSteps(self._module_called)
        self._replays = ReplaySteps(self._graph_replayed, self._modules.is_inside)
        self._boundary = Boundary(self._between_steps)
        self._loaders = Loaders()
        self._unrecorded: dict[str, int | None] = {}
        self._windows: list[Window] = list(settings.windows)
        self._leader: Stream | None = None
        self._recorder: TorchRecorder | NsysRecorder | ClockRecorder | CProfileRecorder | None = None
        self._spy: PySpy | Scalene | None = None
        self._wait_until = 0
        self._agreed: int | None = None
        self._has_optimizer: bool | None = None
        self._active = False
        self._lock = threading.Lock()

    def watch_models(
        self, called: Callable[[nn.Module], None], returned: Callable[[nn.Module, Any], None]
    ) -> None:
        """Before `install`: tells of calls of models, and of what they return."""
        self._modules.on_call, self._modules.on_result = called, returned

    def install(self) -> None:
        """Begins to count steps."""
        self._active = True
        self._optimizers.install()
        self._modules.install()
        self._replays.install()
        self._loaders.install()

    def stop(self, state: str, reason: str | None = None) -> None:
        """Removes every hook. A window that is open is written if it holds a whole step."""
        if not self._active:
            return
        self._active = False
        recorder, self._recorder = self._recorder, None
        if recorder is not None and recorder.finish():
            self._add_window(recorder)
        self._remove_hooks()
        spy, self._spy = self._spy, None
        if spy is not None:
            spy.stop()
            self.record.host.append(spy.entry)
        self.record.state, self.record.reason = state, reason
        self.record.write()
        if self.on_done is not None:
            self.on_done()

    def forget(self) -> None:
        """Removes every hook and leaves an open window as it is: after a fork, in the child."""
        self._active = False
        self._recorder = self._spy = None
        self._remove_hooks()

    def _remove_hooks(self) -> None:
        self._boundary.forget()
        self._optimizers.remove()
        self._modules.remove()
        self._replays.remove()
        self._loaders.remove()
        _guard.release()

    def _optimizer_stepped(self, stream: Stream) -> None:
        """Inside `Optimizer.step`: only marks that a step has ended."""
        if self._leader is None:
            # Calls of models are counted only in programs that do not use an optimizer.
            self._modules.remove()
            self._replays.restart()
        if self._leads(stream):
            self._safely(lambda: self._boundary.await_in(threading.get_ident()))

    def _module_called(self, stream: Stream) -> None:
        """Before the call of a model, which begins a step."""
        if self._leader is None:
            self._replays.restart()
        if self._leads(stream):
            self._safely(self._between_steps)

    def _graph_replayed(self, stream: Stream) -> None:
        """Before the replay of a CUDA graph, which begins a step."""
        if self._leads(stream):
            self._safely(self._between_steps)

    def _leads(self, stream: Stream) -> bool:
        """Whether a step that has ended is one of those to record, or comes right before them."""
        if not self._active:
            return False
        if self._leader is not None:
            if stream is not self._leader:
                return False
            self.record.steps = stream.count
            return self._recorder is not None or stream.count >= self._wait_until
        self.record.steps = max(self.record.steps, stream.count)
        if stream.count & (stream.count - 1) == 0:
            self.record.write()
        with self._lock:
            if self._leader is not None or not self._may_begin(stream):
                return False
            self._leader = stream
        self.record.steps_are = stream.what
        if not stream.is_of_module:
            self._modules.remove()
        return True

    def _may_begin(self, stream: Stream) -> bool:
        if stream.count < (SKIP if self.settings.skip is None else self.settings.skip):
            return False
        if stream.is_of_module and self._is_training(stream):
            return False
        if Ranks.here() is None:
            return stream.is_warm(self.settings.skip)
        return self._agree(stream)

    def _is_training(self, stream: Stream) -> bool:
        """Whether there is an optimizer, which will take steps when the program has validated its model."""
        if not stream.is_warm(self.settings.skip):
            return False
        unless = 1 if stream.is_of_graph else UNLESS_TRAINING
        if stream.count >= unless * max(self.settings.skip or 0, PATIENCE):
            return False
        if self._has_optimizer is None:
            self._has_optimizer = bool(live_objects(torch.optim.Optimizer))
        return self._has_optimizer

    def _agree(self, stream: Stream) -> bool:
        """All ranks begin at the same step: one that writes its trace makes the others wait."""
        if self._agreed is None:
            file = self.settings.folder / START_FILE
            ranks = Ranks.here()
            if ranks is not None and ranks.rank == 0:
                if not stream.is_warm(self.settings.skip):
                    return False
                ahead = AGREED_AHEAD if self.settings.skip is None else 0
                self._agreed = stream.count + ahead
                write_json(file, {"step": self._agreed})
            elif self.settings.skip is not None:
                self._agreed = self.settings.skip
            elif file.exists():
                self._agreed = int(json.loads(file.read_text(encoding="utf-8"))["step"])
            elif stream.count >= 2 * PATIENCE:
                # Rank 0 is on another machine, or takes other steps.
                self._agreed = stream.count
        return self._agreed is not None and stream.count >= self._agreed

    def _between_steps(self) -> None:
        """Between two steps of the leader."""
        self._safely(self._advance)

    def _advance(self) -> None:
        leader = self._leader
        if not self._active or leader is None:
            return
        if self._recorder is None and not self._spies():
            self._boundary.forget()
            self._wait_until = leader.count + 1
        elif self._recorder is None:
            self._open(leader)
        elif self._recorder.step():
            recorder, self._recorder = self._recorder, None
            self._add_window(recorder)
            self._wait_until = leader.count + PAUSE
            self._boundary.forget()
            _guard.release()
            if self._windows:
                self.record.write()
            else:
                self.stop("done")

    def _spies(self) -> bool:
        """Whether the profiler of the host samples, if one is wanted. In a job of several ranks none is used."""
        kind = {"py-spy": PySpy, "scalene": Scalene}.get(self.settings.host_profiler or "")
        if kind is None or Ranks.here() is not None:
            return True
        if self._spy is None:
            self._spy = kind(self.settings.folder, self._who())
            self._spy.start()
        return self._spy.is_ready()

    def _open(self, leader: Stream) -> None:
        if _guard.is_profiling():
            # The program's own profiler; it will not run for ever.
            self._boundary.forget()
            self._wait_until = leader.count + RETRY
            return
        window = self._windows.pop(0)
        self.record.state = "recording"
        if self.record.began is None:
            self.record.began = leader.count
            self._unrecorded = measured(leader)
        self.record.write()
        if window == "host":
            self._recorder = CProfileRecorder(self.settings, self._who())
        elif self.settings.recorder == "nsys":
            self._recorder = NsysRecorder(self.settings, leader.count)
        elif self.settings.recorder == "clock":
            self._recorder = ClockRecorder(self.settings)
        else:
            path = self.settings.folder / f"{self._who()}-{window}.pt.trace.json"
            metadata = {
                "window": window,
                "first_step": leader.count + 1,
                "steps_are": leader.what,
                "loaders": self._loaders.seen,
                "environment": switches(),
                "unrecorded": self._unrecorded,
            }
            self._recorder = TorchRecorder(
                window, self.settings, path, metadata, self._loaders.workers
            )
        _guard.watch(self._program_profiles)
        self._recorder.start()

    def _who(self) -> str:
        ranks = Ranks.here()
        return f"process{self.record.pid}" if ranks is None else f"rank{ranks.rank}"

    def _add_window(
        self, recorder: TorchRecorder | NsysRecorder | ClockRecorder | CProfileRecorder
    ) -> None:
        if isinstance(recorder, CProfileRecorder):
            self.record.host.append(recorder.entry)
            return
        if isinstance(recorder, ClockRecorder):
            self.record.trial = recorder.result()
            return
        leader = self._leader
        last = leader.count if leader is not None else 0
        steps = list(range(last - recorder.steps, last))
        if isinstance(recorder, TorchRecorder) and recorder.file is not None:
            self.record.add_window(recorder.window, recorder.file, steps)

    def _program_profiles(self) -> None:
        """The program starts a profiler while a window is open: there can be only one."""
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.abandon()
        self.stop("stopped", "the program started a profiler of its own")

    def _safely(self, act: Callable[[], None]) -> None:
        """Never lets an error of ours reach the program."""
        try:
            act()
        except Exception as error:
            self._recorder = None
            print(f"pyprof-advise: recording stopped: {error!r}", file=sys.stderr)
            try:
                self.stop("stopped", f"{type(error).__name__}: {error}")
            except Exception:
                self.forget()


def measured(leader: Stream) -> dict[str, int | None]:
    """What is known of the program before anything is recorded, which makes its host slower."""
    torch = sys.modules.get("torch")
    reserved = None
    if torch is not None and torch.cuda.is_initialized():
        reserved = int(torch.cuda.max_memory_reserved())
    return {"step_ns": leader.median_ns(), "memory_reserved_bytes": reserved}
