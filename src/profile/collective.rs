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

/// The collectives that [`collective_in`] can find.
pub const COLLECTIVES: [&str; 10] = [
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "send_recv",
    "broadcast",
    "barrier",
    "gather",
    "scatter",
    "reduce",
];

/// The collective named by an operator (`_allgather_base`), a kernel (`ncclDevKernel_AllReduce_Sum_f32_RING_LL`)
/// or an argument (`reduce_scatter`): one of [`COLLECTIVES`].
pub fn collective_in(name: &str) -> Option<&'static str> {
    let mut letters = String::new();
    // Whether each letter begins a word: `allreduce` is not in `small_reduce`.
    let mut begins = Vec::new();
    let mut before = '_';
    for letter in name.chars() {
        if letter.is_ascii_alphanumeric() {
            letters.push(letter.to_ascii_lowercase());
            let continues = before.is_ascii_lowercase() && letter.is_ascii_lowercase();
            begins.push(!continues);
        }
        before = letter;
    }
    let is_in = |word: &str| {
        let mut found = letters.match_indices(word);
        found.any(|(at, _)| begins.get(at).is_some_and(|b| *b))
    };
    let found = NAMES.iter().find(|(word, _)| is_in(word));
    found.map(|(_, collective)| *collective)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_collective_has_a_name_to_find() {
        let found: std::collections::BTreeSet<&str> = NAMES.iter().map(|(_, kind)| *kind).collect();
        assert_eq!(found, COLLECTIVES.into());
    }

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
            ("triton_small_to_all_reduce", Some("all_reduce")),
            ("triton_red_fused_small_reduce", Some("reduce")),
            ("ncclAllReduce", Some("all_reduce")),
        ] {
            assert_eq!(collective_in(name), wanted, "{name}");
        }
    }
}
