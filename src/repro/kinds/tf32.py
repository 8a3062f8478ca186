def pair():
    """The same operators, without and with TF32."""
    run = calls()

    def switched(on):
        def step():
            torch.backends.cuda.matmul.allow_tf32 = on
            torch.backends.cudnn.allow_tf32 = on
            return run()

        return step

    return switched(False), switched(True)
