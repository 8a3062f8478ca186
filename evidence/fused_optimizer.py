"""Adam parameter by parameter, replaced by the fused one."""

import torch

RULE = "layers/optimizer-unfused"
SETTINGS = {
    "full": {"tensors": 400, "elements": 262144},
    "dry": {"tensors": 8, "elements": 64},
}
SAME = 1e-3


def build(device, settings):
    def parameters():
        torch.manual_seed(0)
        found = [torch.randn(settings["elements"], device=device) for _ in range(settings["tensors"])]
        for parameter in found:
            parameter.requires_grad_()
            parameter.grad = torch.randn_like(parameter)
        return found

    loop, fused = parameters(), parameters()
    return {
        "loop": (loop, torch.optim.AdamW(loop, lr=1e-3, foreach=False)),
        "fused": (fused, torch.optim.AdamW(fused, lr=1e-3, fused=True)),
    }


def step(state, which):
    parameters, optimizer = state[which]
    optimizer.step()
    # `try` compares what backward() is called on.
    probe = parameters[0].detach().requires_grad_()
    probe.square().mean().backward()
    return parameters[0]


def before(state):
    return step(state, "loop")


def after(state):
    return step(state, "fused")
