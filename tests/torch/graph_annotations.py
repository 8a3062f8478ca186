"""Writes a trace of replays of an annotated CUDA graph with PyTorch's own exporter.

Activities, times and graph nodes are invented: there is no GPU here. What `mark_kernels` records and how
`export_chrome_trace(cuda_graph_annotations=...)` writes it is PyTorch's. For tests only.
"""

import sys

from torch.cuda import _graph_annotations
from torch.cuda.graph_annotations import get_kernel_annotations
from torch.profiler._chrome_trace_export import export_chrome_trace


class Activity:
    """What the exporter asks of an activity of Kineto."""

    def __init__(self, kind, name, start, length, track, metadata):
        self.values = {"type": kind, "name": name, "timestamp": start, "duration": length, "metadata_json": metadata}
        self.values |= {"device_id": track[0], "resource_id": track[1], "correlation_id": 0, "linked_correlation_id": 0}
        self.values |= {"flow_id": 0, "flow_type": 0, "flow_start": False, "linked_activity": None}

    def __getattr__(self, name):
        value = self.values[name]
        return lambda: value


class Result:
    def __init__(self, activities):
        self.activities = activities

    def trace_activities(self):
        return self.activities


GRAPH = 3 << 32
"""The executable graph, in the upper half of its nodes' ids."""
KERNELS = ["embedding_kernel"] + ["rms_norm_kernel", "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64"] * 4
COLLECTIVE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"

annotate = _graph_annotations._merge_annotation
for node in range(1, 9):
    # Inner regions come first; those of the backward pass have their phase.
    annotate(GRAPH | node, {"name": f"blocks.{(node - 1) // 2}"} | ({"autograd_phase": "backward"} if node > 6 else {}))
    annotate(GRAPH | node, {"name": "model", "stream": 60})
# Of PyTorch's collectives under capture: numbers, which the exporter writes as text.
annotate(GRAPH | 9, {"Collective name": "allreduce", "In msg nelems": 1024, "Out msg nelems": 1024, "Group size": 2,
                     "dtype": "BFloat16"})

now = 1_800_000_000_000_000_000
activities = []
for replay in (1, 2, 3):
    metadata = f'"cbid": 311, "correlation": {replay}'
    activities.append(Activity("cuda_runtime", "cudaGraphLaunch", now, 5_000, (4242, 4242), metadata))
    now += 10_000
    for node, name in enumerate(KERNELS + [COLLECTIVE]):
        metadata = (f'"device": 0, "context": 1, "stream": {11 + node % 2}, "correlation": {replay}, '
                    f'"grid": [8, 1, 1], "block": [128, 1, 1], "graph id": 3, "graph node id": {GRAPH | node}')
        activities.append(Activity("kernel", name, now, 20_000, (0, 11 + node % 2), metadata))
        now += 21_000
export_chrome_trace(Result(activities), sys.argv[1], None, get_kernel_annotations(), graph_lanes=sys.argv[2])
