def pair():
    """A step of AdamW over parameters of these sizes: one by one or with foreach, and fused."""
    lists = [argument for call in CALLS for argument in call["arguments"] if argument["kind"] == "list"]
    first = next(argument for argument in lists if any(item["kind"] == "tensor" for item in argument["items"]))

    def optimizer(**which):
        parameters = [made(specs(item)).requires_grad_() for item in first["items"]]
        for parameter in parameters:
            parameter.grad = torch.randn_like(parameter)
        return torch.optim.AdamW(parameters, lr=1e-3, **which)

    return optimizer(foreach=True).step, optimizer(fused=True).step
