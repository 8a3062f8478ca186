//! Collectives by their names in operators, kernels and recorded arguments.

/// Names of collectives without separators, with their kind; the first match counts, because most names
/// contain "reduce".
const NAMES: [(&str, &str); 11] = [
    ("alltoall", "all_to_all"),
    ("allreduce", "all_reduce"),
    ("crossdevicereduce", "all_reduce"),
    ("allgather", "all_gather"),
    ("reducescatter", "reduce_scatter"),
    ("sendrecv", "send_recv"),
    ("broadcast", "broadcast"),
    ("barrier", "barrier"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("reduce", "reduce"),
];

/// The collective named by an operator (`_allgather_base`), a kernel (`ncclDevKernel_AllReduce_Sum_f32_RING_LL`)
/// or an argument (`reduce_scatter`): `all_reduce`, `all_gather`, `reduce_scatter`, `all_to_all`, `send_recv`,
/// `broadcast`, `barrier`, `gather`, `scatter` or `reduce`.
pub fn collective_in(name: &str) -> Option<&'static str> {
    let letters: String = name
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|c| c.to_ascii_lowercase())
        .collect();
    let found = NAMES.iter().find(|(word, _)| letters.contains(word));
    found.map(|(_, collective)| *collective)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collectives_are_found_in_names() {
        for (name, wanted) in [
            ("all_reduce", Some("all_reduce")),
            ("allreduce_", Some("all_reduce")),
            ("_allgather_base", Some("all_gather")),
            ("nccl:reduce_scatter", Some("reduce_scatter")),
            ("all_to_all_single", Some("all_to_all")),
            ("cross_device_reduce_1stage", Some("all_reduce")),
            ("ncclDevKernel_Broadcast_RING_LL", Some("broadcast")),
            (
                "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t",
                Some("send_recv"),
            ),
            ("gather", Some("gather")),
            ("reduce", Some("reduce")),
            ("record_param_comms", None),
            ("send", None),
        ] {
            assert_eq!(collective_in(name), wanted, "{name}");
        }
    }
}
