//! Formulas compared with values computed by hand, consistency of the table, and malicious arguments.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::testing::{call, check, fprop, of_dtype, op, totals};
use super::*;
use crate::correlate::{Arg, ArgValue, Tensor};
use crate::cost::model::{AttentionSize, Dims, GemmSize};

fn bprop(text: &str) -> Result<OpCost, UnknownCost> {
    let (name, args) = call(text);
    cost(&name, &args, Direction::Bprop, true, None)
}

use DType::{Bf16, Fp16, Fp32, Int64};

#[test]
fn cost_table_is_complete_and_unambiguous() {
    let mut seen = BTreeSet::new();
    for entry in table() {
        assert!(!entry.names.is_empty());
        for text in [entry.flops, entry.bytes, entry.source] {
            assert!(!text.is_empty(), "{:?} lacks a text", entry.names);
        }
        for name in entry.names {
            assert!(
                seen.insert((*name, entry.namespaces)),
                "{name} stands twice"
            );
            let bare = name.trim_matches('_');
            assert_eq!(bare, *name, "keys are bare");
            for namespace in entry.namespaces {
                let full = OpName {
                    module: (*namespace).into(),
                    name: (*name).into(),
                };
                assert_eq!(family(&full), Some(entry.family), "{namespace} {name}");
            }
            if entry.namespaces.is_empty() {
                let full = op(&format!("aten::{name}"));
                assert_eq!(family(&full), Some(entry.family), "{name}");
            }
        }
    }
}

#[test]
fn names_that_are_not_operators_are_unknown() {
    for name in [
        "torch.__getattr__",
        "Tensor.size",
        "Tensor.dim",
        "Tensor.requires_grad",
        "aten::view",
        "aten::empty",
        "mylib::add",
        "DataLoader",
    ] {
        assert!(!knows(&op(name)), "{name}");
    }
    for name in [
        "aten::mm",
        "AddmmBackward0",
        "SliceBackward0",
        "Tensor.__iadd__",
        "LSTMCell.forward",
        "flash_attn::_flash_attn_forward",
    ] {
        assert!(knows(&op(name)), "{name}");
    }
}

#[test]
fn linear_costs_match_hand_computed_values() {
    let linear = "torch.nn.functional.linear(fp16[2, 3, 8], fp16[5, 8], fp16[5])";
    // 6 rows: 2*6*5*8 FLOPs; (48 + 40 + 5 + 30) elements of 2 bytes
    check(&[(linear, 480, 246)]);
    let size = GemmSize {
        batch: 1,
        m: 6,
        n: 5,
        k: 8,
        contiguous: (false, true, true),
    };
    assert_eq!(fprop(linear).unwrap().roles[0].dims, Dims::Gemm(size));
    let backward = bprop(linear).unwrap();
    let roles = backward.roles.iter().map(|r| (r.role, r.flops, r.bytes));
    // bias: dY is 30 elements, the bias 5
    assert_eq!(
        roles.collect::<Vec<_>>(),
        [
            (Role::Dgrad, 480, 236),
            (Role::Wgrad, 480, 236),
            (Role::BiasGrad, 30, 70)
        ]
    );
}

#[test]
fn an_addmm_node_accepts_the_arguments_of_linear() {
    for given in [
        "fp16[6, 8], fp16[5, 8], fp16[5]",
        "fp16[5], fp16[6, 8], fp16[8, 5]",
    ] {
        let node = bprop(&format!("AddmmBackward0({given})"));
        assert_eq!(totals(node), (480 + 480 + 30, 236 + 236 + 70), "{given}");
    }
}

#[test]
fn contiguous_dimensions_follow_the_strides() {
    let contiguous = |strides: [Option<[i64; 2]>; 2]| {
        let (name, mut args) = call("aten::mm(fp16[4, 6], fp16[6, 8])");
        for (arg, given) in args.items.iter_mut().zip(strides) {
            if let ArgValue::Tensor(tensor) = &mut arg.value {
                tensor.strides = given.map(|s| s.to_vec());
            }
        }
        let cost = cost(&name, &args, Direction::Fprop, false, None);
        cost.unwrap().roles[0].dims.gemm().unwrap().contiguous
    };
    // row-major both: k of A, n of B and C
    assert_eq!(contiguous([None; 2]), (false, true, true));
    // Weight gradient dY^T x: m of A, n of B and C; the alignment of k does not matter.
    let transposed = [Some([1, 4]), Some([8, 1])];
    assert_eq!(contiguous(transposed), (true, true, false));
}

#[test]
fn gemm_without_dtypes_has_flops() {
    let open = fprop("aten::mm([4, 6], [6, 8])").unwrap();
    assert_eq!((open.flops(), open.bytes_known), (384, false));
    let known = of_dtype("aten::mm([4, 6], [6, 8])", Some(Fp16)).unwrap();
    let bytes = 2 * (24 + 48 + 32);
    assert_eq!((known.bytes(), known.bytes_known), (bytes, true));
    // The cost of memory-bound operators is unknown.
    assert_eq!(fprop("aten::relu([4])"), Err(UnknownCost::NoDType));
}

#[test]
fn einsum_letters_become_batch_m_n_and_k() {
    check(&[(
        "torch.einsum('bhqd, bkhd -> bhqk', fp32[2, 4, 6, 8], fp32[2, 5, 4, 8])",
        2 * 2 * 4 * 6 * 8 * 5,
        4 * (2 * 4 * 6 * 8 + 2 * 5 * 4 * 8 + 2 * 4 * 6 * 5),
    )]);
}

#[test]
fn einsum_forms_are_costed() {
    let einsum = |rest: &str| {
        let rest = rest.replace("A", "fp32[7, 2, 3]");
        fprop(&format!(
            "torch.einsum({})",
            rest.replace("B", "fp32[7, 3, 5]")
        ))
    };
    let product = 2 * 7 * 2 * 3 * 5;
    for (call, flops, elements) in [
        ("'bij,bjk->bik', A, B", product, 42 + 105 + 70),
        ("'...ij,...jk->...ik', A, B", product, 42 + 105 + 70),
        ("'...ij,...jk', A, B", product, 42 + 105 + 70),
        ("'bij, bjk -> b i k', A, B", product, 42 + 105 + 70),
        // Without a result: the letters that occur once, i and k; b is summed over.
        ("'bij,bjk', A, B", product, 42 + 105 + 10),
        // The operands as one list, which is aten's signature.
        ("'bij,bjk->bik', (A, B)", product, 42 + 105 + 70),
        // One operand: a transposition moves data, a sum adds.
        ("'bij->bji', A", 0, 84),
        ("'bij->b', A", 42, 49),
    ] {
        assert_eq!(totals(einsum(call)), (flops, 4 * elements), "{call}");
    }
    // Three operands: the order of contraction is not recorded.
    let three = einsum("'ij,jk,kl->il', A, B, A");
    assert_eq!(three, Err(UnknownCost::DataDependent));
    let wrong = einsum("'ij,jk->ik', A, B");
    assert_eq!(wrong, Err(UnknownCost::BadArguments));
}

#[test]
fn scaled_and_grouped_products_of_small_types_are_costed() {
    check(&[
        (
            "aten::_int_mm(int8[4, 6], int8[6, 8])",
            384,
            24 + 48 + 4 * 32,
        ),
        // 4 rows, 4096 x 4096 weights of 4 bits, a scale and a zero for 128 of them.
        (
            "aten::_weight_int4pack_mm(bf16[4, 4096], int32[512, 32, 32, 4], 128, bf16[32, 4096, 2])",
            2 * 4 * 4096 * 4096,
            2 * 4 * 4096 + 4096 * 4096 / 2 + 2 * 2 * 32 * 4096 + 2 * 4 * 4096,
        ),
        // 10 tokens over 3 experts of [6, 8], in fp8 with a scale per row, out in bf16
        (
            "aten::_scaled_grouped_mm(fp8[10, 6], fp8[3, 6, 8], fp32[10], fp32[3, 8], int32[3])",
            2 * 10 * 6 * 8,
            60 + 144 + 160 + 4 * (10 + 24),
        ),
        (
            "aten::_grouped_mm(bf16[10, 6], bf16[3, 6, 8], int32[3])",
            960,
            2 * (60 + 144 + 80),
        ),
    ]);
}

#[test]
fn causal_masks_leave_the_pairs_of_their_alignment() {
    let unmasked = |cost: &OpCost| match cost.roles[0].dims {
        Dims::Attention(AttentionSize { causal_pairs, .. }) => causal_pairs,
        _ => None,
    };
    // The last query attends to all keys.
    for (q, k, pairs) in [(4, 4, 10), (2, 5, 4 + 5), (1, 9, 9), (5, 2, 1 + 2)] {
        let operands = [q, k, k].map(|n| format!("fp16[1, {n}, 2, 16]")).join(", ");
        let name = "flash_attn::_flash_attn_forward";
        let cost = fprop(&format!("{name}({operands}, 0.0, 0.25, true)")).unwrap();
        assert_eq!(cost.flops(), q * k * 2 * 2 * 32, "{q} {k}");
        assert_eq!(unmasked(&cost), Some(pairs), "{q} {k}");
    }
    // SDPA's mask starts in the other corner: query i attends to i keys.
    for (q, k, causal, pairs) in [
        (2, 5, true, Some(3)),
        (5, 2, true, Some(9)),
        (5, 2, false, None),
    ] {
        let operands = [q, k, k].map(|n| format!("fp16[1, 2, {n}, 16]")).join(", ");
        let name = "torch.nn.functional.scaled_dot_product_attention";
        let cost = fprop(&format!("{name}({operands}, none, 0.0, {causal})")).unwrap();
        assert_eq!(unmasked(&cost), pairs, "{q} {k}");
    }
    // Grouped queries: 8 query heads share 2 key heads; the query heads count.
    let operands = [8, 2, 2].map(|n| format!("fp16[1, {n}, 4, 16]")).join(", ");
    check(&[(
        &format!("aten::_scaled_dot_product_flash_attention({operands})"),
        2 * 8 * 4 * 4 * 32,
        2 * (2 * 512 + 2 * 128) + 8 * 4 * 4,
    )]);
}

#[test]
fn paged_attention_cost_is_data_dependent() {
    let q = "fp16[888, 8, 64]";
    let cost = fprop(&format!(
        "vllm::unified_attention_with_output({q}, {q}, {q})"
    ));
    assert_eq!(cost, Err(UnknownCost::DataDependent));
}

#[test]
fn collectives_have_message_and_wire_bytes() {
    for (call, message, ranks, wire) in [
        // In place, in a list: the tensors together are the message. The number of ranks is not
        // recorded.
        ("c10d::allreduce_((fp32[100], fp32[50]))", 600, None, None),
        ("nccl::broadcast(fp32[100])", 400, None, Some(400)),
    ] {
        let cost = fprop(call).unwrap();
        assert_eq!((cost.family, cost.flops()), (Family::Communication, 0));
        let want = Dims::Message {
            bytes: message,
            ranks,
            wire_bytes: wire,
        };
        assert_eq!(
            (cost.bytes(), cost.roles[0].dims),
            (message, want),
            "{call}"
        );
    }
}

#[test]
fn message_of_an_all_gather_is_its_output() {
    let functional = "_c10d_functional::all_gather_into_tensor(bf16[100], 4, '0')";
    let with_both = "nccl::_all_gather_base(bf16[400], bf16[100])";
    let in_lists =
        "nccl::all_gather_into_tensor_coalesced((bf16[300], bf16[100]), (bf16[75], bf16[25]))";
    for call in [functional, with_both, in_lists] {
        let cost = fprop(call).unwrap();
        let want = Dims::Message {
            bytes: 800,
            ranks: Some(4),
            wire_bytes: Some(600),
        };
        // The part of this rank is read, and the whole is written.
        assert_eq!((cost.bytes(), cost.roles[0].dims), (1000, want), "{call}");
    }
    let scattered = fprop("nccl::_reduce_scatter_base(fp32[10], fp32[80])").unwrap();
    let want = Dims::Message {
        bytes: 320,
        ranks: Some(8),
        wire_bytes: Some(280),
    };
    assert_eq!(scattered.roles[0].dims, want);
    // One part of an unknown number.
    assert_eq!(
        fprop("nccl::_all_gather_base(bf16[100])"),
        Err(UnknownCost::NoShapes)
    );
}

#[test]
fn all_operators_of_communication_libraries_are_communication() {
    for name in [
        "nccl::all_reduce",
        "nccl::coalesced",
        "nccl::_all_gather_base",
        "c10d::barrier",
        "c10d::_allgather_base_",
        "record_param_comms",
        "symm_mem::multimem_all_reduce_",
        "torch.distributed.distributed_c10d.all_reduce",
    ] {
        assert_eq!(family(&op(name)), Some(Family::Communication), "{name}");
        assert_eq!(fprop(name), Err(UnknownCost::NoShapes), "{name}");
    }
    assert_eq!(family(&op("nccl_tools::all_reduce")), None);
}

#[test]
fn recurrent_backward_cost_follows_the_layer_description() {
    // 2 layers of LSTM, 6 steps of 3 sequences, 4 -> 5, both directions
    let of = |name: &str, blanks: usize, layers: &str| {
        let blanks = "?, ".repeat(blanks);
        let call = format!("aten::{name}(fp32[6, 3, 4], {blanks}{layers}, false, 0.0, true, true)");
        fprop(&call).unwrap()
    };
    // weights: 2 directions of 20 x (4 + 5), then of 20 x (10 + 5)
    let flops = 2 * 18 * (2 * 20 * 9 + 2 * 20 * 15);
    assert_eq!(of("_cudnn_rnn", 5, "2, 5, 0, 2").flops(), flops);
    let backward = of("_cudnn_rnn_backward", 9, "2, 5, 0, 2");
    let roles: Vec<_> = backward.roles.iter().map(|r| (r.role, r.flops)).collect();
    assert_eq!(roles, [(Role::Dgrad, flops), (Role::Wgrad, flops)]);
    // MIOpen has neither a flat buffer nor projections.
    assert_eq!(of("miopen_rnn", 4, "2, 5, 2").flops(), flops);
    // The 6 steps of each layer run one after the other, whatever they compute, and those of the second layer read
    // both directions of the first.
    let steps = [
        of("_cudnn_rnn", 5, "2, 5, 0, 2"),
        of("miopen_rnn", 4, "2, 5, 2"),
        backward,
    ];
    assert!(steps.iter().all(|cost| cost.sequence == 12), "{steps:?}");
    let lstm = |both, batch_first| {
        let weights = "([20, 4], [20, 5], [20], [20])";
        let call = format!(
            "aten::lstm(fp32[6, 3, 4], ?, {weights}, true, 2, 0.0, true, {both}, {batch_first})"
        );
        fprop(&call).unwrap().sequence
    };
    let steps = ["false", "true", "?"].map(|batch_first| lstm("false", batch_first));
    assert_eq!(steps, [6, 3, 3]);
    assert_eq!([lstm("true", "false"), lstm("?", "false")], [12, 6]);
}

#[test]
fn packed_sequences_take_the_steps_that_hold_their_rows_at_least() {
    let steps = |name: &str, between: &str, layers: &str| {
        let call =
            format!("aten::{name}(fp32[19, 4], {between}, {layers}, false, 0.0, true, false)");
        fprop(&call).unwrap().sequence
    };
    // 19 rows of 3 sequences, which are read in one direction: one has 7 steps or more.
    let state = "fp32[2, 3, 5]";
    let lstm = "2, 5, 0, 2";
    assert_eq!(
        steps("_cudnn_rnn", &format!("?, ?, ?, {state}, ?"), lstm),
        7
    );
    let gradients = "?, ?, ?, ?, ?";
    let backward = format!("?, ?, ?, {state}, {gradients}");
    assert_eq!(steps("_cudnn_rnn_backward", &backward, lstm), 7);
    assert_eq!(steps("miopen_rnn_backward", &backward, "2, 5, 2"), 7);
    assert_eq!(
        steps("miopen_rnn", &format!("?, ?, {state}, ?"), "2, 5, 2"),
        7
    );
    assert_eq!(steps("_cudnn_rnn", "?, ?, ?, ?, ?", lstm), 1);
}

#[test]
fn recurrent_layers_with_recorded_weights_need_no_numbers() {
    // 6 steps of 3 sequences, 4 wide; an LSTM of width 5 in both directions, two layers.
    let direction = |input: u64| format!("[20, {input}], [20, 5], [20], [20]");
    let weights = [4, 4, 10, 10].map(direction).join(", ");
    let given = |x: &str, weights: &str| {
        let blanks = ", ?".repeat(13);
        of_dtype(
            &format!("aten::_cudnn_rnn(fp32{x}, ({weights}){blanks})"),
            Some(Fp32),
        )
    };
    let matrices = 2 * 20 * (4 + 5) + 2 * 20 * (10 + 5);
    let biases = 4 * 2 * 20;
    let both = given("[6, 3, 4]", &weights).unwrap();
    assert_eq!(both.flops(), 2 * 18 * matrices);
    // The result has both directions.
    assert_eq!(both.bytes(), 4 * (18 * 4 + matrices + biases + 18 * 10));
    // Packed sequences have one dimension for steps and sequences.
    let packed = given("[18, 4]", &weights).unwrap();
    assert_eq!(packed.sequence, 1);
    assert_eq!(
        (packed.flops(), packed.bytes()),
        (both.flops(), both.bytes())
    );
    let one = given("[6, 3, 4]", &direction(4)).unwrap();
    assert_eq!(one.bytes(), 4 * (18 * 4 + 20 * 9 + 40 + 18 * 5));
}

#[test]
fn optimizers_on_lists_take_the_type_of_their_kernel() {
    // Kineto records shapes of lists, but no types in them.
    let lists = ["([1000], [24])"; 4].join(", ");
    let call = format!("aten::_fused_adamw_({lists}, ?, ([], []), 0.001)");
    let (name, args) = self::call(&call);
    let adam = |dtype| cost(&name, &args, Direction::Update, false, dtype);
    // Parameter and moments read and written, gradient read.
    assert_eq!(totals(adam(Some(Fp32))), (15 * 1024, 7 * 4 * 1024));
    assert_eq!(totals(adam(Some(Bf16))), (15 * 1024, 7 * 2 * 1024));
    assert_eq!(adam(None), Err(UnknownCost::NoDType));
    for name in [
        "at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous \
         namespace)::FusedOptimizerTensorListMetadata<4>, at::native::(anonymous \
         namespace)::FusedAdamMathFunctor<float, 4, (at::native::ADAM_MODE)1, false>, float const*, \
         double, double, double, double, double, bool, float const*, float const*>",
        "at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous \
         namespace)::TensorListMetadata<2>, at::native::(anonymous \
         namespace)::BinaryOpListAlphaFunctor<float, 2, 2, 0>, std::plus<float>, float>",
    ] {
        let kernel = crate::cost::kernel_name::decode(name);
        assert_eq!(crate::cost::dtype_in_memory(&kernel), Some(Fp32), "{name}");
    }
}

#[test]
fn the_backward_of_a_loss_leaves_out_the_fill_of_its_gradient() {
    // 700 targets of 8 bytes; a value per row, the loss's gradient and the total weight.
    let nll = "torch.nn.functional.nll_loss(fp32[700, 33278], int64[700])";
    let (_, bytes) = totals(bprop(nll));
    assert_eq!(bytes, 8 * 700 + 4 * 700 + 8);
    // It is added where a kernel of the call fills it.
    let (name, args) = call(nll);
    let mut filled = bprop(nll).unwrap();
    add_zero_fill(&mut filled, &name, &args, true, None);
    assert_eq!(filled.bytes(), bytes + 4 * 700 * 33278);
    // The log-softmax of a cross entropy still moves three tensors.
    let (_, bytes) = totals(bprop(&nll.replace("nll_loss", "cross_entropy")));
    assert_eq!(bytes, 3 * 4 * 700 * 33278 + 8 * 700 + 4 * 700 + 8);
}

#[test]
fn batched_embedding_tables_are_costed() {
    // 2 tables, 24 columns together, 10 lookups in 2 x 3 bags
    let lookup = |columns: &str| {
        let tables = format!("?, fp16[4000], ?, ?, ?, ?, int32[3], {columns}, 16");
        let name = "fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function";
        fprop(&format!("{name}({tables}, ?, ?, int64[10], int64[7])"))
    };
    let cost = lookup("24").unwrap();
    // Rows are 12 wide on average; 3 bags of 24.
    assert_eq!(cost.flops(), 2 * 10 * 12);
    assert_eq!(cost.bytes(), 80 + 56 + 2 * 120 + 2 * 72);
    assert!(cost.note.is_some());
    assert_eq!(lookup("?"), Err(UnknownCost::NoShapes));
}

#[test]
fn convolutions_accept_every_argument_order() {
    // 1x3x8x8 * 4x3x3x3, stride 2, padding 1: 4x4 out; 2*16*4*27 FLOPs
    for (name, rest) in [
        (
            "torch.nn.functional.conv2d",
            "none, (2, 2), (1, 1), (1, 1), 1",
        ),
        (
            "aten::convolution",
            "none, (2, 2), (1, 1), (1, 1), false, (0, 0), 1",
        ),
        (
            "aten::cudnn_convolution",
            "(1, 1), (2, 2), (1, 1), 1, false, false",
        ),
    ] {
        let call = format!("{name}(fp32[1, 3, 8, 8], fp32[4, 3, 3, 3], {rest})");
        check(&[(&call, 3456, 4 * (192 + 108 + 64))]);
    }
}

#[test]
fn convolution_without_strides_has_unknown_cost() {
    let cost = fprop("aten::conv2d(fp32[1, 3, 8, 8], fp32[4, 3, 3, 3], ?, ?, ?, ?)");
    assert_eq!(cost, Err(UnknownCost::NoScalars));
}

#[test]
fn same_padding_keeps_the_size() {
    let operands = "fp32[1, 2, 5, 5], fp32[2, 2, 3, 3], none, 1, 'same'";
    let cost = fprop(&format!("torch.nn.functional.conv2d({operands})"));
    assert_eq!(totals(cost).0, 2 * 25 * 36);
}

#[test]
fn packed_attention_assumes_equal_sequences() {
    // 2 sequences of 4 in 8 rows, 3 heads of 16: 2*2*3*4*4*(16+16)
    let qkv = ["bf16[8, 3, 16]"; 3].join(", ");
    let flash = |rest: &str| fprop(&format!("aten::_flash_attention_forward({qkv}{rest})"));
    let cost = flash(", int32[3], int32[3]").unwrap();
    assert_eq!(cost.flops(), 6144);
    assert!(cost.note.is_some());
    // Without lengths, the work depends on unrecorded data.
    assert_eq!(flash(""), Err(UnknownCost::DataDependent));
    // With the result before the lengths.
    let varlen = fprop(&format!(
        "_vllm_fa2_C::varlen_fwd({qkv}, bf16[8, 3, 16], int32[3], int32[3])"
    ));
    assert_eq!(varlen.unwrap().flops(), 6144);
    // Memory-efficient attention packs sequences into a batch of one.
    let qkv = ["bf16[1, 8, 3, 16]"; 3].join(", ");
    let name = "aten::_efficient_attention";
    let efficient = |rest: &str| fprop(&format!("{name}_forward({qkv}, none{rest})")).unwrap();
    assert_eq!(efficient(", int32[3], int32[3]").flops(), 6144);
    assert_eq!(efficient(", none, none").flops(), 2 * 6144);
    let lengths = "none, bf16[1, 8, 3, 16], int32[3], int32[3]";
    let backward = fprop(&format!(
        "{name}_backward(bf16[1, 8, 3, 16], {qkv}, {lengths})"
    ));
    assert_eq!(backward.unwrap().flops(), 2 * 2 * 3 * 4 * 4 * (3 + 2) * 16);
    // Pages of cached keys are no batch.
    let pages = "bf16[2, 1, 3, 16], bf16[9, 64, 3, 16], bf16[9, 64, 3, 16]";
    let paged = fprop(&format!("flash_attn_3::fwd({pages})"));
    assert_eq!(paged, Err(UnknownCost::BadArguments));
}

#[test]
fn softmax_and_norm_costs_match_hand_computed_values() {
    let batch_norm = |train: &str| {
        let channels = ["fp32[3]"; 4].join(", ");
        format!("aten::native_batch_norm(fp32[2, 3, 4], {channels}, {train})")
    };
    check(&[
        ("aten::_softmax(fp16[4, 10], -1, true)", 200, 80 + 160),
        // x + y + w + b + 4 rows of mean and rstd in fp32
        (
            "aten::native_layer_norm(fp16[4, 10], (10), fp16[10], fp16[10])",
            200,
            80 + 80 + 40 + 32,
        ),
        (
            "aten::native_layer_norm(fp16[4, 10], (10), none, none)",
            160,
            80 + 80 + 32,
        ),
        // channels 3: x + y, then w, b, mean, var read
        (&batch_norm("false"), 48, 192 + 48),
        (&batch_norm("true"), 120, 192 + 48 + 48),
    ]);
}

#[test]
fn pointwise_counts_broadcasts_scalars_and_promotion() {
    check(&[
        ("aten::mul(fp16[4, 1], fp32[1, 8])", 32, 8 + 32 + 128),
        ("Tensor.__truediv__(int64[8], 2)", 8, 64 + 32),
        ("aten::gt(fp32[8], 0)", 8, 32 + 8),
        // Until 2020: add_(self, alpha, other).
        ("Tensor.add_(fp32[8], -20, fp32[8])", 16, 96),
    ]);
    for (call, want) in [
        // A broadcast bias: its gradient is a sum over the 4 rows.
        ("torch.add(fp32[4, 8], fp32[8])", (32, 128 + 32)),
        // The gradient of scaling needs no saved tensor.
        ("torch.mul(fp32[8], 0.5)", (8, 64)),
        // The gradient of a relu needs its result.
        ("torch.relu(fp32[8])", (8, 96)),
    ] {
        assert_eq!(totals(bprop(call)), want, "{call}");
    }
}

#[test]
fn embedding_accepts_its_arguments_in_either_order() {
    let bytes = 24 + 2 * 48;
    check(&[
        ("torch.embedding(fp32[100, 4], int64[3])", 0, bytes),
        (
            "torch.nn.functional.embedding(int64[3], fp32[100, 4])",
            0,
            bytes,
        ),
    ]);
    // dY 48 + idx 24 + table 1600 + touched rows twice 96
    let node = bprop("EmbeddingBackward0(int64[3], fp32[100, 4])");
    assert_eq!(totals(node), (12, 1768));
}

#[test]
fn reduction_costs_depend_on_the_reduced_dimensions() {
    check(&[
        ("torch.sum(fp32[4, 8], (-1))", 32, 128 + 16),
        ("torch.norm(fp32[4, 8], 2.0)", 64, 132),
    ]);
    let hidden = fprop("aten::sum(fp32[4, 8], ?)").unwrap();
    assert_eq!(hidden.bytes(), 128);
    assert!(hidden.note.is_some());
    // The max of two tensors is pointwise.
    let two = fprop("torch.max(fp32[8], fp32[8])").unwrap();
    assert_eq!((two.family, two.bytes()), (Family::Pointwise, 96));
}

#[test]
fn a_call_without_arguments_has_no_shapes() {
    for entry in table().filter(|e| e.namespaces.is_empty()) {
        for name in entry.names {
            assert_eq!(fprop(name), Err(UnknownCost::NoShapes), "{name}");
        }
    }
    assert_eq!(fprop("aten::nonsense"), Err(UnknownCost::UnknownOp));
}

#[test]
fn roles_follow_the_direction() {
    let (name, args) = call("aten::add_(fp32[8], fp32[8])");
    for (direction, role) in [
        (Direction::Fprop, Role::Fwd),
        (Direction::Bprop, Role::Bwd),
        (Direction::Update, Role::Opt),
    ] {
        let cost = cost(&name, &args, direction, false, None).unwrap();
        assert_eq!(cost.roles[0].role, role);
    }
}

fn any_name() -> impl Strategy<Value = OpName> {
    let entry = prop::sample::select(table().copied().collect::<Vec<_>>());
    (entry, any::<prop::sample::Index>(), 0..3_usize).prop_map(|(entry, i, style)| {
        let name = entry.names[i.index(entry.names.len())];
        let module = entry.namespaces.first().copied();
        OpName {
            module: module
                .unwrap_or(["aten", "torch.nn.functional", ""][style])
                .into(),
            name: match style {
                2 => format!("{name}_"),
                _ => name.into(),
            },
        }
    })
}

fn any_dim() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..5_u64, 1 => Just(u64::MAX), 1 => any::<u64>()]
}

fn any_dtype() -> impl Strategy<Value = Option<DType>> {
    prop::sample::select(vec![
        None,
        Some(Fp32),
        Some(Fp16),
        Some(Int64),
        Some(DType::Bool),
        Some(DType::Complex64),
    ])
}

fn any_tensor() -> impl Strategy<Value = ArgValue> {
    let strides = prop::option::of(prop::collection::vec(
        prop_oneof![0..9_i64, any::<i64>()],
        0..6,
    ));
    (prop::collection::vec(any_dim(), 0..6), any_dtype(), strides).prop_map(
        |(shape, dtype, strides)| {
            ArgValue::Tensor(Tensor {
                shape,
                dtype,
                strides,
            })
        },
    )
}

fn any_value() -> impl Strategy<Value = ArgValue> {
    let number = || prop_oneof![-3..9_i64, any::<i64>()];
    let leaf = prop_oneof![
        8 => any_tensor(),
        2 => number().prop_map(ArgValue::Int),
        1 => any::<f64>().prop_map(ArgValue::Float),
        1 => any::<bool>().prop_map(ArgValue::Bool),
        1 => prop::sample::select(vec!["same", "none", "ij,jk->ik", "float16", "é->,", ""])
            .prop_map(|s| ArgValue::Str(s.into())),
        1 => Just(ArgValue::None),
        1 => Just(ArgValue::Unknown),
    ];
    leaf.prop_recursive(2, 12, 4, |inner| {
        prop::collection::vec(inner, 0..4).prop_map(ArgValue::List)
    })
}

fn any_args() -> impl Strategy<Value = OpArgs> {
    let name = prop::option::weighted(
        0.1,
        prop::sample::select(vec!["dim", "weight", "input", "other", "size"]),
    );
    let arg = (name, any_value()).prop_map(|(name, value)| Arg {
        name: name.map(str::to_owned),
        value,
    });
    prop::collection::vec(arg, 0..12).prop_map(|items| OpArgs { items })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.max(8_000)))]

    #[test]
    fn arbitrary_arguments_do_not_panic(
        name in any_name(),
        args in any_args(),
        from_forward in any::<bool>(),
        bprop in any::<bool>(),
        dtype in any_dtype(),
    ) {
        let direction = if bprop { Direction::Bprop } else { Direction::Fprop };
        if let Ok(cost) = cost(&name, &args, direction, from_forward, dtype) {
            prop_assert!(!cost.roles.is_empty() || cost.family == Family::Conv);
            let _ = (cost.flops(), cost.bytes());
        }
    }

    #[test]
    fn arbitrary_names_do_not_panic(module in ".{0,12}", name in "[_a-zA-Z0-9.: ]{0,24}|.{0,12}") {
        let op = OpName { module, name };
        prop_assert_eq!(knows(&op), family(&op).is_some());
    }
}
