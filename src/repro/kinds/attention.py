def pair():
    """Attention with its scores in memory, and the fused operator."""
    batch, queries, keys, width = (reduced(n) if options.small else n for n in {{ sizes }})
    dtype = torch.{{ dtype }}
    make = lambda rows: torch.randn(batch, rows, width, device=options.device).to(dtype)  # noqa: E731
    q, k, v = make(queries), make(keys), make(keys)

    def before():
        return torch.softmax(q @ k.transpose(-2, -1) * width**-0.5, dim=-1) @ v

    def after():
        return F.scaled_dot_product_attention(q[None], k[None], v[None])

    return before, after
