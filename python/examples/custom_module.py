"""PyProf's example of a custom module: `wrap` gives its forward pass a range with its arguments."""

import torch

import pyprof_advise as pyprof

pyprof.init(enable_function_stack=True)


class Foo(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.n = torch.nn.Parameter(torch.ones(size))
        self.m = torch.nn.Parameter(torch.ones(size))

    def forward(self, x):
        return self.n * x + self.m


pyprof.wrap(Foo, "forward")

device = "cuda" if torch.cuda.is_available() else "cpu"
foo = Foo(4).to(device)
x = torch.ones(4, device=device)
with torch.autograd.profiler.emit_nvtx(enabled=device == "cuda"):
    z = foo(x)
print(z.detach().sum().item())
