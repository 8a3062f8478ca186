def last(name, arguments):
    """Images and weights have their channels last in memory."""
    for argument in arguments:
        if isinstance(argument, Spec) and len(argument.shape) == 4:
            # The order of the strides, the largest first: batch, height, width, channels.
            argument.order, argument.is_exact = [4, 1, 3, 2], False
    return arguments


def pair():
    return calls(), calls(last)
