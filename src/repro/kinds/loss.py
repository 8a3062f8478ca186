def pair():
    """cross_entropy of all logits in fp32, forward and backward, and the same compiled, in chunks of tokens."""
    rows, classes = (reduced(n) if options.small else n for n in {{ sizes }})
    logits = torch.randn(rows, classes, device=options.device).to(torch.{{ dtype }}).requires_grad_()
    target = torch.randint(classes, (rows,), device=options.device)
    chunks = [slice(start, start + 4096) for start in range(0, rows, 4096)]

    def loss(logits, target):
        return F.cross_entropy(logits.float(), target, reduction="sum")

    compiled = torch.compile(loss)

    def before():
        return torch.autograd.grad(loss(logits, target), logits)

    def after():
        return [torch.autograd.grad(compiled(part := logits[chunk], target[chunk]), part) for chunk in chunks]

    return before, after
