def pair():
    """The norm over the last dimension in single operators, and the fused one."""
    rows, width = (reduced(n) if options.small else n for n in {{ sizes }})
    x = torch.randn(rows, width, device=options.device).to(torch.{{ dtype }})
    weight, bias = torch.ones_like(x[0]), torch.zeros_like(x[0])
    eps = 1e-6

    def layer_norm():
        mean = x.mean(-1, keepdim=True)
        centered = x - mean
        variance = centered.pow(2).mean(-1, keepdim=True)
        return centered / torch.sqrt(variance + eps) * weight + bias

    def rms_norm():
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight

    if {{ has_mean }}:
        return layer_norm, lambda: F.layer_norm(x, (width,), weight, bias, eps)
    return rms_norm, lambda: F.rms_norm(x, (width,), weight, eps)
