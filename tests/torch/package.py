"""The Python package by itself: `profile()`, reports, `advise_handler()`, and the callbacks."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path

import invent_kernels
import torch

sys.path.insert(0, str(Path(__file__).with_name("programs")))
from common import Net

import pyprof_advise

work = Path(sys.argv[1])


def train(steps: int) -> Net:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        net(torch.ones(4, 16)).square().mean().backward()
        optimizer.step()
    return net


def invent(folder: Path) -> None:
    sys.argv = ["invent_kernels", str(folder)]
    invent_kernels.main()


def check_profile() -> None:
    """A block is recorded with its steps and layers; without a GPU the report says so."""
    net = Net()
    with pyprof_advise.profile(work / "profile") as recording:
        for _ in range(2):
            net(torch.ones(4, 16)).sum().backward()
            recording.step()
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in net.modules())
    try:
        recording.report().to("json")
    except pyprof_advise.AdviseError as error:
        assert "no kernels" in str(error), error
    else:
        raise AssertionError("a report without a GPU")
    invent(work / "profile")
    report = json.loads(recording.report().to("json"))
    assert {"head", "blocks.*.fc"} <= {row["name"] for row in report["layers"]}, report["layers"]
    page = recording._repr_html_()
    assert page.startswith("<iframe srcdoc=") and "&lt;!" in page[:200], page[:200]
    saved = recording.report().save(work / "advice.md")
    assert saved.read_text().startswith("# ")
    assert "blocks" in str(recording.report())


def check_handler() -> None:
    """Traces of the program's own profiler are written, and the failure of a report stays a message."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        with torch.profiler.profile(
            schedule=torch.profiler.schedule(wait=0, warmup=1, active=2, repeat=1),
            on_trace_ready=pyprof_advise.advise_handler(work / "handler"),
        ) as profiler:
            for _ in range(4):
                train(1)
                profiler.step()
    assert len(list((work / "handler").glob("*.pt.trace.json"))) == 1
    assert "no kernels" in said.getvalue(), said.getvalue()


def check_callbacks() -> None:
    """A training between `begin` and `end` leaves two windows and a manifest; callbacks are those of the
    frameworks."""
    from lightning.pytorch import Callback
    from pyprof_advise import hf, lightning
    from pyprof_advise._callback import Session
    from transformers import TrainerCallback

    session = Session(work / "session", report=None, skip=2, steps=2)
    session.begin()
    train(12)
    session.end()
    files = json.loads((work / "session" / "manifest.json").read_text())["files"]
    assert [file["window"] for file in files] == ["light", "detailed"], files
    assert sorted(path.name for path in (work / "session").glob("process-*")) == []
    assert isinstance(hf.AdviseCallback(work), TrainerCallback)
    assert isinstance(lightning.AdviseCallback(work), Callback)


check_profile()
check_handler()
check_callbacks()
print("checked")
