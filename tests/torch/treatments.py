"""Every treatment by itself: applied to a small program it changes what it says, and undone it leaves nothing."""

from __future__ import annotations

import copy
import gc
import importlib.util
import pickle
import re
import sys
import types
from pathlib import Path
from typing import Callable

import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.nn.attention import SDPBackend
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


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(16, 48)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.fc(x)[None].chunk(3, dim=-1)
        return nn.functional.scaled_dot_product_attention(q, k, v)


class OnGpu(Program):
    """Takes this machine for one with a GPU: what treatments set there can be set on a CPU too."""

    def needs_gpu(self, why: str) -> None:
        """There is one."""

    def needs_capability(self, least: tuple[int, int], why: str) -> None:
        """It is new enough."""


class Seen:
    """What a small program has computed, and what it was made of."""

    def __init__(self) -> None:
        self.values: list[float] = []
        self.model: nn.Module = nn.Identity()
        self.optimizer: torch.optim.Optimizer | None = None
        self.loader: DataLoader | None = None
        self.types: set[torch.dtype] = set()
        self.keeps_gradients = False
        self.channels_last = False

    def look(self, _module: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        """A hook of a layer."""
        self.types.add(output.dtype)
        self.channels_last |= inputs[0].dim() == 4 and inputs[0].is_contiguous(memory_format=torch.channels_last)


def train(make: type[nn.Module] = Net, shape: tuple[int, ...] = (16,), **loading: object) -> Seen:
    """Three steps."""
    seen = Seen()
    torch.manual_seed(0)
    seen.model = model = make()
    first = next(part for part in model.modules() if isinstance(part, (nn.Linear, nn.Conv2d)))
    hook = first.register_forward_hook(seen.look)
    seen.optimizer = optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    seen.loader = DataLoader(TensorDataset(torch.randn(12, *shape)), batch_size=4, **loading)
    for (inputs,) in seen.loader:
        optimizer.zero_grad(set_to_none=False)
        seen.keeps_gradients |= any(parameter.grad is not None for parameter in model.parameters())
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        seen.values.append(float(loss.detach()))
    hook.remove()
    return seen


def images() -> Seen:
    return train(Images, (3, 8, 8))


def infer() -> Seen:
    """Calls of a model without an optimizer, as the recorder tells treatments of them."""
    seen = Seen()
    torch.manual_seed(0)
    seen.model = model = Net().eval()
    hook = model.head.register_forward_hook(seen.look)
    with torch.no_grad():
        for _ in range(2):
            if PROGRAM is not None:
                PROGRAM.model_called(model)
            seen.values.append(float(model(torch.ones(4, 16)).norm()))
    hook.remove()
    return seen


def workers() -> Seen:
    return train(num_workers=1)


def transformer() -> Seen:
    """A model of transformers inside of another module."""
    from transformers import BertConfig, BertModel

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(16, 16)
            sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
            config = BertConfig(**sizes, vocab_size=8, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
            config._attn_implementation = "eager"
            self.bert = BertModel(config)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.bert(inputs_embeds=self.fc(x)[None]).last_hidden_state * x

    return train(Classifier)


def distributed() -> Seen:
    import os

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29561", RANK="0", WORLD_SIZE="1")
    torch.distributed.init_process_group("gloo", rank=0, world_size=1)
    try:
        return train(lambda: nn.parallel.DistributedDataParallel(Net()))
    finally:
        torch.distributed.destroy_process_group()


def compiled(_seen: Seen) -> bool:
    return counters["stats"]["unique_graphs"] > 0


def has_transformers() -> bool:
    return importlib.util.find_spec("transformers") is not None


def default(name: str) -> Callable[[Seen], object]:
    return lambda seen: seen.optimizer.defaults[name]


def loader(**expected: object) -> Callable[[Seen], bool]:
    return lambda seen: all(getattr(seen.loader, name) == value for name, value in expected.items())


PROGRAM: Program | None = None
"""The program that is treated."""

CASES: dict[str, tuple[Callable[[], Seen], str, Callable[[Seen], object]]] = {
    "attn_implementation": (
        transformer,
        'BertModel: attn_implementation="sdpa"',
        lambda seen: seen.model.bert.config._attn_implementation == "sdpa",
    ),
    "autocast_bf16": (train, "Net under autocast", lambda seen: seen.types == {torch.bfloat16}),
    "autocast_fp16": (infer, "Net under autocast", lambda seen: torch.float16 in seen.types),
    "autocast_fp16_scaled": (train, "GradScaler around", lambda seen: seen.types == {torch.float16}),
    "channels_last": (images, "Images.to(memory_format=torch.channels_last)", lambda seen: seen.channels_last),
    "compile_blocks": (train, "2 blocks of class Block", compiled),
    "compile_model": (train, "torch.compile(Net)", compiled),
    "compile_reduce_overhead": (train, 'torch.compile(Net, mode="reduce-overhead")', compiled),
    "cudnn_benchmark": (images, "benchmark = True", lambda _: torch.backends.cudnn.benchmark),
    "ddp_bucket_views": (
        distributed,
        "DistributedDataParallel(gradient_as_bucket_view=True)",
        lambda seen: seen.model.gradient_as_bucket_view,
    ),
    "ddp_larger_buckets": (
        distributed,
        "DistributedDataParallel(bucket_cap_mb=100)",
        lambda seen: seen.model.bucket_bytes_cap == 100 * 2**20,
    ),
    # The command sets its variable; tests/repo/evidence.rs tries treatments that are nothing else.
    "expandable_segments": (train, "expandable_segments:True", lambda _: True),
    "foreach_optimizer": (train, "AdamW(foreach=True)", default("foreach")),
    "fused_optimizer": (train, "AdamW(fused=True)", default("fused")),
    "gc_freeze": (train, "gc.freeze()", lambda _: gc.get_freeze_count() > 0),
    "loader_persistent_workers": (
        workers, "DataLoader(persistent_workers=True)", loader(num_workers=1, persistent_workers=True)
    ),
    "loader_pin_memory": (train, "DataLoader(pin_memory=True)", loader(pin_memory=True)),
    "loader_prefetch": (workers, "DataLoader(prefetch_factor=8)", loader(num_workers=1, prefetch_factor=8)),
    "loader_workers": (train, "DataLoader(num_workers=", lambda seen: seen.loader.num_workers > 0),
    "sdpa_cudnn": (
        lambda: train(Attention),
        "cuDNN attention first",
        lambda _: torch._C._get_sdp_priority_order()[0] == SDPBackend.CUDNN_ATTENTION.value,
    ),
    "set_to_none": (train, "zero_grad(set_to_none=True)", lambda seen: not seen.keeps_gradients),
    "tf32": (train, "set_float32_matmul_precision", lambda _: torch.get_float32_matmul_precision() == "high"),
    "tf32_convolutions": (images, "allow_tf32 = True", lambda _: torch.backends.cudnn.allow_tf32),
}
"""For each treatment a program, a part of what it says to have changed, and whether that is so."""

NEED_GPU = {
    "autocast_fp16", "autocast_fp16_scaled", "compile_reduce_overhead", "expandable_segments", "loader_pin_memory",
    "sdpa_cudnn", "tf32", "tf32_convolutions",
}  # fmt: skip
"""Treatments that are refused without a GPU."""

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
        torch._C._get_sdp_priority_order(),
        gc.get_freeze_count() > 0,
    ]
    values = (getattr(owner, name, None) for owner, name in WATCHED)
    return settings + [value for value in values if isinstance(value, types.FunctionType)]


def tolerance(path: Path) -> float:
    return float(re.search(r"^# tolerance = (\S+)$", path.read_text(), re.MULTILINE)[1])


def check(name: str) -> None:
    """A treatment is applied, has its effect, computes the same within its tolerance, and is undone."""
    global PROGRAM
    run, expected, has_effect = CASES[name]
    path = FOLDER / f"{name}.py"
    if name in NEED_GPU and not torch.cuda.is_available():
        try:
            load(path).apply(Program())
        except Refused as refused:
            assert len(str(refused)) > 10, refused
        else:
            raise AssertionError(f"{name} is not refused without a GPU")
    PROGRAM = None
    untreated = run()
    assert not untreated.values or len(untreated.values) >= 2
    before = state()
    torch._dynamo.reset()
    counters.clear()
    PROGRAM = program = OnGpu()
    load(path).apply(program)
    treated = run()
    assert any(expected in change for change in program.changes), (name, program.changes)
    assert has_effect(treated), name
    limit = tolerance(path)
    for ours, theirs in zip(treated.values, untreated.values):
        assert abs(ours - theirs) <= limit * abs(theirs), (name, treated.values, untreated.values)
    program.undo()
    assert state() == before, name
    counters.clear()
    assert not has_effect(run()) or name == "expandable_segments", f"{name} is not undone"


def check_copies() -> None:
    """A copy of a treated model computes with its own weights, and a pickled one is the plain model."""
    program = Program()
    load(FOLDER / "autocast_bf16.py").apply(program)
    model = train().model
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
    global PROGRAM
    from pyprof_advise._steps import ModuleSteps

    PROGRAM, program = None, Program()
    load(FOLDER / "autocast_bf16.py").apply(program)
    steps = ModuleSteps(lambda stream: None)
    steps.on_call = program.model_called
    steps.install()
    infer()
    steps.remove()
    assert program.changes == {"Net under autocast": 1}, program.changes
    program.undo()


def check_lines() -> None:
    """Lines name what the program has: its optimizer, and the place of its blocks."""

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16))

    for name, lines in [
        ("fused_optimizer", "SGD(..., fused=True)"),
        ("compile_blocks", "for block in model.encoder:\n    block.compile()"),
    ]:
        program, model = Program(), Outer()
        load(FOLDER / f"{name}.py").apply(program)
        torch.optim.SGD(model.parameters())
        assert program.own_lines == [lines], program.own_lines
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
    autocast(program, torch.float16, says=False)
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
torch.compile(Net())(torch.ones(4, 16))
# A program that is advised to allow TF32 in convolutions has switched it off.
torch.backends.cudnn.allow_tf32 = False
names = sorted(path.stem for path in FOLDER.glob("*.py"))
assert names == sorted(CASES), f"a treatment without a case, or the reverse: {set(names) ^ set(CASES)}"
for name in names:
    if name == "attn_implementation" and not has_transformers():
        print("attn_implementation: skipped, transformers is not installed")
        continue
    check(name)
check_copies()
check_inference()
check_lines()
check_scaling()
print("checked")
