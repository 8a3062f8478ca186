def pair():
    """The same operators one by one, and fused by the compiler."""
    run = calls()
    return run, torch.compile(run)
