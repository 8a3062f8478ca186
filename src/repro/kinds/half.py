def halved(name, arguments):
    """fp32 operands become bf16; fp16 on a GPU without bf16."""
    has_bf16 = options.device == "cpu" or torch.cuda.get_device_capability() >= (8, 0)
    return converted(arguments, torch.float32, torch.bfloat16 if has_bf16 else torch.float16)


def converted(arguments, old, new):
    for argument in arguments:
        if isinstance(argument, list):
            converted(argument, old, new)
        elif isinstance(argument, Spec) and argument.dtype is old:
            argument.dtype = new
    return arguments


def pair():
    return calls(), calls(halved)
