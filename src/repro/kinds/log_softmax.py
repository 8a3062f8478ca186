def pair():
    """What is computed twice or in two steps, and log_softmax once."""
    logits = next(argument for argument in prepared(CALLS[0])[1] if isinstance(argument, Spec)).make()
    twice = {{ twice }}

    def before():
        if twice:
            return F.log_softmax(F.log_softmax(logits, dim=-1), dim=-1)
        return torch.log(torch.softmax(logits, dim=-1))

    return before, lambda: F.log_softmax(logits, dim=-1)
