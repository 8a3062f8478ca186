def single(name, arguments):
    """fp64 operands become fp32."""
    for argument in arguments:
        if isinstance(argument, list):
            single(name, argument)
        elif isinstance(argument, Spec) and argument.dtype is torch.float64:
            argument.dtype = torch.float32
    return arguments


def pair():
    return calls(), calls(single)
