def pair():
    """Copies from pageable memory, which the host waits for, and from pinned memory, which it does not."""
    if options.device == "cpu" and not options.small:
        raise SystemExit("copies between host and GPU need a GPU: `--small` shows that the script runs without one")
    count = max(1, {{ bytes }} // 4 // (64 if options.small else 1))
    pageable, pinned = torch.randn(count), torch.randn(count)
    if options.device == "cuda":
        pinned = pinned.pin_memory()
    on_gpu = torch.empty(count, device=options.device)
    if {{ to_host }}:
        return lambda: pageable.copy_(on_gpu), lambda: pinned.copy_(on_gpu, non_blocking=True)
    return lambda: on_gpu.copy_(pageable), lambda: on_gpu.copy_(pinned, non_blocking=True)
