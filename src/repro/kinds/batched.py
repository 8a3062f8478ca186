def eightfold(name, arguments):
    """Eight times the images, the rows, or the products of a batch."""
    tensors = [argument for argument in arguments if isinstance(argument, Spec)]
    if "conv" in name:
        more = images(name, arguments)
    elif "softmax" in name or "norm" in name:
        more = tensors[:1]
    else:
        left, right = [tensor for tensor in tensors if len(tensor.shape) >= 2][-2:]
        if len(right.shape) == 2:
            # One weight for all of them. What is added may have its rows too.
            others = [t for t in tensors if t is not right and len(t.shape) == 2 and t.shape[0] == left.shape[0]]
            more = others if left in others else [left, *others]
        else:
            more = [tensor for tensor in tensors if len(tensor.shape) > 2]
    for tensor in more:
        tensor.resize([8 * tensor.shape[0], *tensor.shape[1:]])
    return arguments


def pair():
    """Eight of the operators one after the other, and as one with eight times the work."""
    steps = [calls() for _ in range(8)]

    def before():
        for step in steps:
            step()

    return before, calls(eightfold)
