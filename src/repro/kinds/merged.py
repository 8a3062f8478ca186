def pair():
    """Products of one input one after the other, and as one product with all weights side by side."""
    rows, inner, columns = (reduced(n) if options.small else n for n in {{ sizes }})
    make = lambda *shape: torch.randn(shape, device=options.device).to(torch.{{ dtype }})  # noqa: E731
    x, weights = make(rows, inner), [make(columns, inner) for _ in range({{ count }})]
    whole = torch.cat(weights)

    def before():
        return [F.linear(x, weight) for weight in weights]

    return before, lambda: F.linear(x, whole).split(columns, dim=-1)
