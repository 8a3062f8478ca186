def pair():
    """Fused attention by the kernel that ran, and by the one that is to be tried. Masks are left out."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    batch, heads, shared, queries, keys, width = (reduced(n) if options.small else n for n in {{ sizes }})
    dtype = torch.{{ dtype }}
    make = lambda heads, rows: torch.randn(batch, heads, rows, width, device=options.device).to(dtype)  # noqa: E731
    q, k, v = make(heads, queries), make(shared, keys), make(shared, keys)
    # Fewer heads of keys and values than of queries take PyTorch 2.5.
    more = {"enable_gqa": True} if shared != heads else {}

    def by(name):
        backend = getattr(SDPBackend, name)

        def step():
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v, is_causal={{ causal }}, **more)

        return step

    # A CPU has these two.
    return (by("MATH"), by("FLASH_ATTENTION")) if options.device == "cpu" else (by("{{ present }}"), by("{{ other }}"))
