"""PyProf's example of a custom autograd Function: `wrap` gives its passes ranges with their arguments."""

import torch

import pyprof_advise as pyprof

pyprof.init()


class Foo(torch.autograd.Function):
    @staticmethod
    def forward(ctx, in1, in2):
        return in1 + in2

    @staticmethod
    def backward(ctx, grad):
        return grad, grad


pyprof.wrap(Foo, "forward")
pyprof.wrap(Foo, "backward")

device = "cuda" if torch.cuda.is_available() else "cpu"
x = torch.ones(4, 4, device=device, requires_grad=True)
y = torch.ones(4, 4, device=device, requires_grad=True)
with torch.autograd.profiler.emit_nvtx(enabled=device == "cuda"):
    z = Foo.apply(x, y)
    z.sum().backward()
print(float(z.detach().sum()), float(x.grad.sum()))
