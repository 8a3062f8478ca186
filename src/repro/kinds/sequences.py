def pair():
    """Attention of eight batches one after the other, and in one call."""
    batch, heads, shared, queries, keys, width = (reduced(n) if options.small else n for n in {{ sizes }})
    dtype = torch.{{ dtype }}
    make = lambda heads, rows: torch.randn(8 * batch, heads, rows, width, device=options.device).to(dtype)  # noqa: E731
    q, k, v = make(heads, queries), make(shared, keys), make(shared, keys)
    more = {"enable_gqa": True} if shared != heads else {}
    parts = list(zip(q.chunk(8), k.chunk(8), v.chunk(8)))

    def attention(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal={{ causal }}, **more)

    def before():
        return [attention(*part) for part in parts]

    return before, lambda: attention(q, k, v)
