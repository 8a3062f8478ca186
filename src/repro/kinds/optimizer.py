def pair():
    """A step of the optimizer over parameters of these sizes: one by one or with foreach, and fused."""
    items = [item for call in CALLS for item in call["arguments"] if item["kind"] == "list"]
    items = next((list_["items"] for list_ in items if any(i["kind"] == "tensor" for i in list_["items"])), None)
    if items is None:
        # One by one, the profile has calls with one parameter each.
        items = [item for call in CALLS for item in call["arguments"][:1] if item["kind"] == "tensor"]
    items = [item for item in items if item["kind"] == "tensor" and "float" in item["dtype"]]
    if not items:
        raise SystemExit("the profile has no parameters with a type of floating-point numbers")

    def optimizer(**which):
        parameters = [(small(Spec(item)) if options.small else Spec(item)).make().requires_grad_() for item in items]
        for parameter in parameters:
            parameter.grad = torch.randn_like(parameter)
        return torch.optim.{{ optimizer }}(parameters, **{{ settings }}, **which)

    return optimizer(foreach={{ foreach }}).step, optimizer(fused=True).step
