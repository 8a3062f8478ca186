# /// treatment
# title = "cuDNN's attention kernels first"
# rules = ["layers/flash-attention-2-on-hopper"]
# lines = """
# from torch.nn.attention import SDPBackend, sdpa_kernel
# backends = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
# with sdpa_kernel(backends, set_priority=True):
#     output = model(inputs)
# """
# where = "around the calls of the model"
# kind = "attention"
# tolerance = 1e-2
# ///
"""scaled_dot_product_attention takes the kernels of cuDNN where they exist, else those it takes anyway."""

import inspect

from pyprof_advise.treatment import Program


def apply(program: Program) -> None:
    program.needs_gpu("cuDNN's attention needs a GPU")
    from torch.nn.attention import SDPBackend, sdpa_kernel

    if "set_priority" not in inspect.signature(sdpa_kernel).parameters:
        program.refuse("this torch cannot put cuDNN's attention first: version 2.6 or later is needed")
    first = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    context = sdpa_kernel(first, set_priority=True)
    context.__enter__()
    program.on_undo(lambda: context.__exit__(None, None, None))
    program.changed("cuDNN attention first")
