def pair():
    """Norms of eight tensors of each of these sizes, one by one, and all together."""
    arguments = [argument for call in CALLS for argument in prepared(call)[1][:1]]
    tensors = [given.make() for given in arguments if isinstance(given, Spec) for _ in range(8)]

    def before():
        return [torch.linalg.vector_norm(tensor) for tensor in tensors]

    return before, lambda: torch._foreach_norm(tensors)
