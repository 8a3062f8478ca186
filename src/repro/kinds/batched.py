def pair():
    """Eight of the products one after the other, and as one with eight times the work."""
    count = 8
    steps = [calls() for _ in range(count)]
    name = CALLS[0]["operator"]
    tensors = [specs(argument) for argument in CALLS[0]["arguments"]]
    left, right = [t for t in tensors if isinstance(t, Spec) and len(t.shape) >= 2][-2:]
    if name == "linear":
        right.shape = [*right.shape[:-2], right.shape[-1], right.shape[-2]]
        right.is_exact = False
    one, two = left.make(), right.make()
    if one.dim() == 2 and two.dim() == 2:
        # One weight for all of them: more rows.
        many = one.repeat(count, 1)
    else:
        many, two = one.repeat(count, *[1] * (one.dim() - 1)), two.repeat(count, *[1] * (two.dim() - 1))

    def before():
        for step in steps:
            step()

    return before, lambda: torch.matmul(many, two)
