def pair():
    """The operator by the kernel of the library, and by the fastest that a search of torch.compile finds."""
    run = calls()
    # The search needs a GPU; without one, the operator is compiled as usual.
    mode = "max-autotune-no-cudagraphs" if options.device == "cuda" else None
    return run, torch.compile(run, mode=mode)
