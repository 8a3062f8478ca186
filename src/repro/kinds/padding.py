def padded(name, arguments):
    """K and N of the product become multiples of 64; the number of rows stays."""
    up = lambda n: (n + 63) // 64 * 64  # noqa: E731
    tensors = [a for a in arguments if isinstance(a, Spec)]
    left, right = [a for a in tensors if len(a.shape) >= 2][-2:]
    n = right.shape[-2 if name == "linear" else -1]
    left.shape[-1] = up(left.shape[-1])
    right.shape[-2:] = map(up, right.shape[-2:])
    for bias in tensors:
        if bias is not left and bias is not right and bias.shape and bias.shape[-1] == n:
            bias.shape[-1] = up(n)
    for tensor in tensors:
        tensor.is_exact = False
    return arguments


def pair():
    return calls(), calls(padded)
