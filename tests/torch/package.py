"""The Python package by itself: `profile()`, reports, `advise_handler()`, and the callbacks."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import warnings
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
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with pyprof_advise.profile(work / "profile") as recording:
            for _ in range(2):
                net(torch.ones(4, 16)).sum().backward()
                recording.step()
    said = [str(warning.message) for warning in warned if warning.filename == __file__]
    assert any("there will be no report" in text for text in said), said
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in net.modules())
    try:
        recording.report().to("json")
    except pyprof_advise.AdviseError as error:
        assert "torch found no GPU" in str(error), error
    else:
        raise AssertionError("a report without a GPU")
    assert recording._repr_html_().startswith("<pre>nothing to analyze: ")
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
    assert "torch found no GPU" in said.getvalue(), said.getvalue()


def windows(folder: Path) -> list[str]:
    """The windows in the manifest of a folder, from which the states of processes are gone."""
    assert not list(folder.glob("process-*"))
    files = json.loads((folder / "manifest.json").read_text())["files"]
    return [file["window"] for file in files]


def check_session() -> None:
    """A training between `begin` and `end` leaves two windows."""
    from pyprof_advise._callback import Session

    session = Session(work / "session", report=None, skip=2, steps=2)
    session.begin()
    train(12)
    session.end()
    assert windows(work / "session") == ["light", "detailed"]


def check_hugging_face() -> None:
    """The callback records a training of the Trainer; the failure of its report stays a message."""
    import os

    os.environ["HF_HUB_OFFLINE"] = "1"
    from pyprof_advise.hf import AdviseCallback
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    config = GPT2Config(
        n_layer=2, n_head=2, n_embd=16, vocab_size=64, n_positions=16, bos_token_id=0, eos_token_id=0
    )
    arguments = TrainingArguments(
        str(work / "trainer"), max_steps=14, report_to=[], save_strategy="no", logging_strategy="no",
        use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    data = [{"input_ids": [1, 2, 3], "labels": [1, 2, 3]}] * 128
    callback = AdviseCallback(work / "hf", skip=2, steps=2)
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        Trainer(GPT2LMHeadModel(config), arguments, train_dataset=data, callbacks=[callback]).train()
    assert windows(work / "hf") == ["light", "detailed"]
    assert "torch found no GPU" in said.getvalue(), said.getvalue()


def check_unreadable() -> None:
    """The report of the profiles that can be read is there, with a warning about the others."""
    invented = sorted((work / "profile").glob("*.json"))
    trace = next(path for path in invented if path.name != "manifest.json")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        report = pyprof_advise.advise(trace, work / "gone.sqlite")
        assert report.to("text").strip()
        saved = report.save(work / "others.md")
    assert "gone.sqlite" in saved.read_text()
    said = [str(warning.message) for warning in warned if warning.filename == __file__]
    assert len(said) == 2 and all("left out: " in text for text in said), said
    try:
        str(pyprof_advise.advise(work / "gone.sqlite"))
    except pyprof_advise.AdviseError as error:
        assert "there is no such file" in str(error), error
    else:
        raise AssertionError("a report of nothing")


def check_lightning() -> None:
    """The callback records a training of Lightning's Trainer."""
    import logging

    from lightning.pytorch import LightningModule, Trainer
    from pyprof_advise.lightning import AdviseCallback

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Lit(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
            return self.net(batch).square().mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    trainer = Trainer(
        max_steps=14, accelerator="cpu", default_root_dir=work, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
        callbacks=[AdviseCallback(work / "lightning", report=None, skip=2, steps=2)],
    )  # fmt: skip
    trainer.fit(Lit(), torch.utils.data.DataLoader(torch.randn(64, 16), batch_size=4))
    assert windows(work / "lightning") == ["light", "detailed"]


check_profile()
check_unreadable()
check_handler()
check_session()
check_hugging_face()
check_lightning()
print("checked")
