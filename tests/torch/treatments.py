"""Every treatment by itself: applied to a small program it changes what it says, and undone it leaves nothing."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import types
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(Path(__file__).with_name("programs")))
from common import Net

import pyprof_advise
from pyprof_advise._trial import load
from pyprof_advise.treatment import Program, Refused

FOLDER = Path(pyprof_advise.__file__).with_name("treatments")


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x).mean((2, 3))


class Config:
    _attn_implementation = "eager"


class Attention(Net):
    def __init__(self) -> None:
        super().__init__()
        self.config = Config()

    def set_attn_implementation(self, name: str) -> None:
        self.config._attn_implementation = name


def train(model: nn.Module, shape: tuple[int, ...] = (4, 16), **loading: object) -> nn.Module:
    """Three steps."""
    optimizer = torch.optim.AdamW(model.parameters())
    loader = DataLoader(TensorDataset(torch.ones(12, *shape[1:])), batch_size=shape[0], **loading)
    for (inputs,) in loader:
        optimizer.zero_grad(set_to_none=False)
        model(inputs).square().mean().backward()
        optimizer.step()
    return model


def images() -> None:
    model = train(Images(), (4, 3, 8, 8))
    assert model.conv.weight.is_contiguous(memory_format=torch.channels_last)


def infer() -> None:
    model = Net().eval()
    with torch.no_grad():
        for _ in range(2):
            model(torch.ones(4, 16))


def workers() -> None:
    train(Net(), num_workers=1)


def attention() -> None:
    model = train(Attention())
    assert model.config._attn_implementation == "sdpa"


def distributed() -> None:
    import os

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29561", RANK="0", WORLD_SIZE="1")
    torch.distributed.init_process_group("gloo", rank=0, world_size=1)
    try:
        train(nn.parallel.DistributedDataParallel(Net()))
    finally:
        torch.distributed.destroy_process_group()


def compiled() -> None:
    train(Net())


REFUSED = "refused without a GPU"
CASES = {
    "attn_implementation": (attention, "attn_implementation"),
    "autocast_bf16": (lambda: train(Net()), "Net under autocast"),
    "autocast_fp16": (lambda: train(Net()), REFUSED),
    "autocast_fp16_scaled": (lambda: train(Net()), REFUSED),
    "channels_last": (images, "channels_last"),
    "compile_blocks": (compiled, "2 blocks of class Block"),
    "compile_model": (compiled, "torch.compile(Net)"),
    "compile_reduce_overhead": (compiled, REFUSED),
    "cudnn_benchmark": (lambda: None, None),
    "ddp_bucket_views": (distributed, "gradient_as_bucket_view=True"),
    "ddp_larger_buckets": (distributed, "bucket_cap_mb=100"),
    "expandable_segments": (lambda: None, REFUSED),
    "foreach_optimizer": (lambda: train(Net()), "AdamW(foreach=True)"),
    "fused_optimizer": (lambda: train(Net()), "AdamW(fused=True)"),
    "gc_freeze": (lambda: train(Net()), "gc.freeze()"),
    "loader_persistent_workers": (workers, "persistent_workers=True"),
    "loader_pin_memory": (lambda: None, REFUSED),
    "loader_prefetch": (workers, "prefetch_factor=8"),
    "loader_workers": (lambda: train(Net()), "num_workers="),
    "sdpa_cudnn": (lambda: None, REFUSED),
    "set_to_none": (lambda: train(Net()), "zero_grad(set_to_none=True)"),
    "tf32": (lambda: None, REFUSED),
    "tf32_convolutions": (lambda: None, REFUSED),
}
"""For each treatment a program, and a part of what it says to have changed; None where that depends on torch."""

WATCHED = [
    *((kind, name) for kind in (DataLoader, nn.Module, nn.parallel.DistributedDataParallel) for name in dir(kind)),
    *((torch.optim.Optimizer, name) for name in dir(torch.optim.Optimizer)),
    *((kind, "__init__") for kind in vars(torch.optim).values() if isinstance(kind, type)),
    (torch.autograd, "backward"),
]


def state() -> list[object]:
    """What treatments may have replaced."""
    settings: list[object] = [
        torch.get_float32_matmul_precision(),
        torch.backends.cudnn.benchmark,
        torch.backends.cudnn.allow_tf32,
        gc.get_freeze_count() > 0,
    ]
    values = (getattr(owner, name, None) for owner, name in WATCHED)
    return settings + [value for value in values if isinstance(value, types.FunctionType)]


def check(name: str) -> None:
    run, expected = CASES[name]
    before = state()
    program = Program()
    refused = False
    try:
        load(FOLDER / f"{name}.py").apply(program)
        run()
    except Refused as error:
        refused = True
        assert len(str(error)) > 10, error
    if not torch.cuda.is_available():
        assert refused == (expected == REFUSED) or expected is None, (name, refused)
    if not refused and expected is not None and expected != REFUSED:
        assert any(expected in change for change in program.changes), (name, program.changes)
    program.undo()
    assert state() == before, name


def check_copies() -> None:
    """A copy of a treated model computes with its own weights, and a pickled one is the plain model."""
    program = Program()
    load(FOLDER / "autocast_bf16.py").apply(program)
    model = train(Net())
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
    inputs = torch.ones(4, 16)
    assert twin(inputs).abs().sum() == 0 and model(inputs).abs().sum() > 0
    again = pickle.loads(pickle.dumps(model))
    assert torch.allclose(again(inputs), model(inputs), atol=0.1)
    program.undo()
    assert "forward" not in vars(model)


def check_inference() -> None:
    """Without an optimizer, a model is treated when it is called."""
    from pyprof_advise._steps import ModuleSteps

    program = Program()
    load(FOLDER / "autocast_bf16.py").apply(program)
    steps = ModuleSteps(lambda stream: None)
    steps.on_call = program.model_called
    steps.install()
    infer()
    steps.remove()
    assert program.changes == {"Net under autocast": 1}, program.changes
    program.undo()


class Recorder(torch.optim.SGD):
    """Keeps the gradients that it gets."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        self.gradients: list[torch.Tensor] = []

    def step(self, closure: object = None) -> None:
        held = [p.grad for group in self.param_groups for p in group["params"]]
        self.gradients.append(torch.cat([gradient.flatten().clone() for gradient in held]))
        super().step()


def scaled_training(step: object, *, schedule: bool = False) -> tuple[Program, Recorder, list[float]]:
    """Steps under fp16 autocast and a GradScaler; `step` does what a program does with a loss."""
    from pyprof_advise._autocast import autocast
    from pyprof_advise._scaling import Scaling

    program = Program()
    autocast(program, torch.float16, lambda device: None, says=False)
    Scaling(program).install()
    losses: list[float] = []
    try:
        model, optimizer = made_for_scaling()
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10) if schedule else None
        for _ in range(4):
            optimizer.zero_grad()
            loss = model(torch.ones(4, 16)).square().mean()
            losses.append(float(loss.detach()))
            step(model, optimizer, loss)
            if scheduler is not None:
                scheduler.step()
    finally:
        program.undo()
    return program, optimizer, losses


def made_for_scaling() -> tuple[nn.Module, Recorder]:
    torch.manual_seed(0)
    model = Net()
    return model, Recorder(model.parameters(), lr=1e-3)


def check_scaling() -> None:
    """A GradScaler from outside: the optimizer, clipping and accumulation see the gradients that they would."""

    def plain(model: nn.Module, optimizer: Recorder, loss: torch.Tensor) -> None:
        loss.backward()
        optimizer.step()

    def clipped(model: nn.Module, optimizer: Recorder, loss: torch.Tensor) -> None:
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        assert norm < 100, norm
        optimizer.step()

    def accumulated(model: nn.Module, optimizer: Recorder, loss: torch.Tensor) -> None:
        loss.backward()
        (model(torch.ones(4, 16) * 2).square().mean()).backward()
        optimizer.step()

    for step in (plain, clipped, accumulated):
        program, optimizer, losses = scaled_training(step, schedule=step is plain)
        assert any("GradScaler" in change for change in program.changes), program.changes
        model, expected = made_for_scaling()
        for loss_of_treated in losses:
            expected.zero_grad()
            loss = model(torch.ones(4, 16)).square().mean()
            assert abs(float(loss) - loss_of_treated) < 2e-2 * abs(float(loss)) + 1e-3, step
            step(model, expected, loss)
        assert len(optimizer.gradients) == len(expected.gradients) == 4, step
        for ours, theirs in zip(optimizer.gradients, expected.gradients):
            assert torch.allclose(ours, theirs, rtol=5e-2, atol=2e-3), (step, ours, theirs)

    def changes_gradients(model: nn.Module, optimizer: Recorder, loss: torch.Tensor) -> None:
        loss.backward()
        for parameter in model.parameters():
            parameter.grad.clamp_(-1, 1)
        optimizer.step()

    def closure(model: nn.Module, optimizer: Recorder, loss: torch.Tensor) -> None:
        loss.backward()
        optimizer.step(lambda: loss)

    def second_order(model: nn.Module, optimizer: Recorder, loss: torch.Tensor) -> None:
        loss.backward(create_graph=True)

    def own_scaler(model: nn.Module, optimizer: Recorder, loss: torch.Tensor) -> None:
        torch.amp.GradScaler("cpu").scale(loss).backward()

    def second_optimizer(model: nn.Module, optimizer: Recorder, loss: torch.Tensor) -> None:
        loss.backward()
        optimizer.step()
        other = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.ones(4, 16)).mean().backward()
        other.step()

    for step, why in [
        (changes_gradients, "changes gradients itself"),
        (closure, "closure"),
        (second_order, "gradients of gradients"),
        (own_scaler, "has a GradScaler already"),
        (second_optimizer, "several optimizers"),
    ]:
        try:
            scaled_training(step)
        except Refused as refused:
            assert why in str(refused), refused
        else:
            raise AssertionError(f"{step} is not refused")


# Compiling for the first time replaces functions of torch.
train(torch.compile(Net()))
names = sorted(path.stem for path in FOLDER.glob("*.py"))
assert names == sorted(CASES), f"a treatment without a case, or the reverse: {set(names) ^ set(CASES)}"
for name in names:
    check(name)
check_copies()
check_inference()
check_scaling()
print("checked")
