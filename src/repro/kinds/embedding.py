def pair():
    """The gradient of the table: all rows, and those of the indices. Indices are drawn evenly."""
    rows, width, count = (reduced(n) if options.small else n for n in {{ sizes }})
    weight = torch.randn(rows, width, device=options.device).to(torch.{{ dtype }}).requires_grad_()
    indices = torch.randint(rows, (count,), device=options.device)
    gradient = torch.randn(count, width, device=options.device).to(torch.{{ dtype }})

    def backward(sparse):
        return lambda: torch.autograd.grad(F.embedding(indices, weight, sparse=sparse), weight, gradient)

    return backward(False), backward(True)
