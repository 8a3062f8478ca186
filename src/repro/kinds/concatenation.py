def pair():
    """A tensor that grows by eight parts, one concatenation each, and all parts concatenated once."""
    start, part, axis = {{ start }}, {{ part }}, {{ axis }}
    if options.small:
        start, part = [reduced(n) for n in start], [reduced(n) for n in part]
    dtype = torch.{{ dtype }}
    first = torch.randn(start, device=options.device).to(dtype)
    parts = [torch.randn(part, device=options.device).to(dtype) for _ in range(8)]

    def before():
        whole = first
        for more in parts:
            whole = torch.cat([whole, more], axis)
        return whole

    return before, lambda: torch.cat([first, *parts], axis)
