//! Formulas compared with values computed by hand, consistency of the table, and malicious arguments.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::correlate::{Arg, ArgValue, Tensor};
use crate::cost::{AttentionSize, Dims, GemmSize};

fn op(full: &str) -> OpName {
    let (module, name) = full
        .split_once("::")
        .or_else(|| full.rsplit_once('.'))
        .unwrap_or(("", full));
    OpName {
        module: module.into(),
        name: name.into(),
    }
}

fn args(values: Vec<ArgValue>) -> OpArgs {
    let items = values.into_iter();
    OpArgs {
        items: items.map(|value| Arg { name: None, value }).collect(),
    }
}

fn t(shape: &[u64], dtype: DType) -> ArgValue {
    ArgValue::Tensor(Tensor {
        shape: shape.to_vec(),
        dtype: Some(dtype),
        strides: None,
    })
}

fn untyped(shape: &[u64]) -> ArgValue {
    ArgValue::Tensor(Tensor {
        shape: shape.to_vec(),
        dtype: None,
        strides: None,
    })
}

fn strided(shape: &[u64], strides: &[i64]) -> ArgValue {
    ArgValue::Tensor(Tensor {
        shape: shape.to_vec(),
        dtype: Some(DType::Fp16),
        strides: Some(strides.to_vec()),
    })
}

fn ints(values: &[i64]) -> ArgValue {
    ArgValue::List(values.iter().map(|v| ArgValue::Int(*v)).collect())
}

fn fprop(name: &str, values: Vec<ArgValue>) -> Result<OpCost, UnknownCost> {
    cost(&op(name), &args(values), Direction::Fprop, false, None)
}

fn bprop(name: &str, values: Vec<ArgValue>) -> Result<OpCost, UnknownCost> {
    cost(&op(name), &args(values), Direction::Bprop, true, None)
}

fn totals(cost: Result<OpCost, UnknownCost>) -> (u64, u64) {
    let cost = cost.unwrap();
    (cost.flops(), cost.bytes())
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
    let (x, w, b) = (t(&[2, 3, 8], Fp16), t(&[5, 8], Fp16), t(&[5], Fp16));
    // 6 rows: 2*6*5*8 FLOPs; (48 + 40 + 5 + 30) elements of 2 bytes
    let forward = fprop(
        "torch.nn.functional.linear",
        vec![x.clone(), w.clone(), b.clone()],
    );
    assert_eq!(totals(forward.clone()), (480, 246));
    let dims = forward.unwrap().roles[0].dims;
    let contiguous = (false, true, true);
    assert_eq!(
        dims,
        Dims::Gemm(GemmSize {
            batch: 1,
            m: 6,
            n: 5,
            k: 8,
            contiguous
        })
    );
    let backward = bprop("torch.nn.functional.linear", vec![x, w, b]).unwrap();
    let roles: Vec<_> = backward
        .roles
        .iter()
        .map(|r| (r.role, r.flops, r.bytes))
        .collect();
    // bias: dY is 30 elements, the bias 5
    assert_eq!(
        roles,
        [
            (Role::Dgrad, 480, 236),
            (Role::Wgrad, 480, 236),
            (Role::BiasGrad, 30, 70)
        ]
    );
}

#[test]
fn an_addmm_node_accepts_the_arguments_of_linear() {
    let linear = vec![t(&[6, 8], Fp16), t(&[5, 8], Fp16), t(&[5], Fp16)];
    let addmm = vec![t(&[5], Fp16), t(&[6, 8], Fp16), t(&[8, 5], Fp16)];
    let node = |values| {
        totals(cost(
            &op("AddmmBackward0"),
            &args(values),
            Direction::Bprop,
            true,
            None,
        ))
    };
    assert_eq!(node(linear), (480 + 480 + 30, 236 + 236 + 70));
    assert_eq!(node(addmm), (480 + 480 + 30, 236 + 236 + 70));
}

#[test]
fn contiguous_dimensions_follow_the_strides() {
    let contiguous = |a, b| match fprop("aten::mm", vec![a, b]).unwrap().roles[0].dims {
        Dims::Gemm(GemmSize { contiguous, .. }) => contiguous,
        other => panic!("{other:?}"),
    };
    // row-major both: k of A, n of B and C
    assert_eq!(
        contiguous(t(&[4, 6], Fp16), t(&[6, 8], Fp16)),
        (false, true, true)
    );
    // Weight gradient dY^T x: m of A, n of B and C; the alignment of k does not matter.
    let (a, b) = (strided(&[4, 6], &[1, 4]), strided(&[6, 8], &[8, 1]));
    assert_eq!(contiguous(a, b), (true, true, false));
}

#[test]
fn gemm_without_dtypes_has_flops() {
    let values = || vec![untyped(&[4, 6]), untyped(&[6, 8])];
    let cost_of = |dtype| {
        cost(
            &op("aten::mm"),
            &args(values()),
            Direction::Fprop,
            false,
            dtype,
        )
    };
    let open = cost_of(None).unwrap();
    assert_eq!((open.flops(), open.bytes_known), (384, false));
    let known = cost_of(Some(Fp16)).unwrap();
    assert_eq!(
        (known.bytes(), known.bytes_known),
        (2 * (24 + 48 + 32), true)
    );
    // The cost of memory-bound operators is unknown.
    assert_eq!(
        fprop("aten::relu", vec![untyped(&[4])]),
        Err(UnknownCost::NoDType)
    );
}

#[test]
fn einsum_letters_become_batch_m_n_and_k() {
    let equation = ArgValue::Str("bhqd, bkhd -> bhqk".into());
    let operands = vec![equation, t(&[2, 4, 6, 8], Fp32), t(&[2, 5, 4, 8], Fp32)];
    let cost = fprop("torch.einsum", operands).unwrap();
    assert_eq!(cost.flops(), 2 * 2 * 4 * 6 * 8 * 5);
    assert_eq!(
        cost.bytes(),
        4 * (2 * 4 * 6 * 8 + 2 * 5 * 4 * 8 + 2 * 4 * 6 * 5)
    );
}

fn einsum(equation: &str, operands: Vec<ArgValue>) -> Result<OpCost, UnknownCost> {
    let mut values = vec![ArgValue::Str(equation.into())];
    values.extend(operands);
    fprop("torch.einsum", values)
}

#[test]
fn einsum_forms_are_costed() {
    let (a, b) = (|| t(&[7, 2, 3], Fp32), || t(&[7, 3, 5], Fp32));
    let product = (2 * 7 * 2 * 3 * 5, 4 * (42 + 105 + 70));
    for equation in [
        "bij,bjk->bik",
        "...ij,...jk->...ik",
        "...ij,...jk",
        "bij, bjk -> b i k",
    ] {
        let cost = einsum(equation, vec![a(), b()]);
        assert_eq!(totals(cost), product, "{equation}");
    }
    // Without a result: the letters that occur once, i and k; b is summed over.
    let summed = einsum("bij,bjk", vec![a(), b()]);
    assert_eq!(totals(summed), (2 * 7 * 2 * 3 * 5, 4 * (42 + 105 + 10)));
    // The operands as one list, which is aten's signature.
    let listed = einsum("bij,bjk->bik", vec![ArgValue::List(vec![a(), b()])]);
    assert_eq!(totals(listed), product);
    // One operand: a transposition moves data, a sum adds.
    assert_eq!(totals(einsum("bij->bji", vec![a()])), (0, 4 * 84));
    assert_eq!(totals(einsum("bij->b", vec![a()])), (42, 4 * 49));
    // Three operands: the order of contraction is not recorded.
    let three = einsum("ij,jk,kl->il", vec![a(), b(), a()]);
    assert_eq!(three, Err(UnknownCost::DataDependent));
    assert_eq!(
        einsum("ij,jk->ik", vec![a(), b()]),
        Err(UnknownCost::BadArguments)
    );
}

#[test]
fn scaled_and_grouped_products_of_small_types_are_costed() {
    let (a, b) = (|| t(&[4, 6], DType::Int8), || t(&[6, 8], DType::Int8));
    assert_eq!(
        totals(fprop("aten::_int_mm", vec![a(), b()])),
        (384, 24 + 48 + 4 * 32)
    );
    // 10 tokens over 3 experts of [6, 8], in fp8 with a scale per row, out in bf16
    let fp8 = |shape: &[u64]| t(shape, DType::Fp8);
    let offsets = || t(&[3], DType::Int32);
    let scaled = vec![
        fp8(&[10, 6]),
        fp8(&[3, 6, 8]),
        t(&[10], Fp32),
        t(&[3, 8], Fp32),
        offsets(),
    ];
    let cost = fprop("aten::_scaled_grouped_mm", scaled);
    assert_eq!(
        totals(cost),
        (2 * 10 * 6 * 8, 60 + 144 + 160 + 4 * (10 + 24))
    );
    let plain = vec![t(&[10, 6], Bf16), t(&[3, 6, 8], Bf16), offsets()];
    let cost = fprop("aten::_grouped_mm", plain);
    assert_eq!(totals(cost), (960, 2 * (60 + 144 + 80)));
}

#[test]
fn causal_masks_leave_the_pairs_of_their_alignment() {
    let flash = |q: u64, k: u64| {
        let of = |s| t(&[1, s, 2, 16], Fp16);
        let mut values = vec![
            of(q),
            of(k),
            of(k),
            ArgValue::Float(0.0),
            ArgValue::Float(0.25),
        ];
        values.push(ArgValue::Bool(true));
        fprop("flash_attn::_flash_attn_forward", values).unwrap()
    };
    let per_pair = 2 * 2 * 32;
    let unmasked = |cost: &OpCost| match cost.roles[0].dims {
        Dims::Attention(AttentionSize { causal_pairs, .. }) => causal_pairs,
        _ => None,
    };
    // The last query attends to all keys.
    for (q, k, pairs) in [(4, 4, 10), (2, 5, 4 + 5), (1, 9, 9), (5, 2, 1 + 2)] {
        let cost = flash(q, k);
        assert_eq!(cost.flops(), q * k * per_pair, "{q} {k}");
        assert_eq!(unmasked(&cost), Some(pairs), "{q} {k}");
    }
    // SDPA's mask starts in the other corner: query i attends to i keys.
    let sdpa = |q: u64, k: u64, causal: bool| {
        let of = |s| t(&[1, 2, s, 16], Fp16);
        let none = ArgValue::None;
        let values = vec![
            of(q),
            of(k),
            of(k),
            none,
            ArgValue::Float(0.0),
            ArgValue::Bool(causal),
        ];
        fprop("torch.nn.functional.scaled_dot_product_attention", values).unwrap()
    };
    assert_eq!(unmasked(&sdpa(2, 5, true)), Some(3));
    assert_eq!(unmasked(&sdpa(5, 2, true)), Some(9));
    assert_eq!(unmasked(&sdpa(5, 2, false)), None);
    // Grouped queries: 8 query heads share 2 key heads; the query heads count.
    let grouped = vec![
        t(&[1, 8, 4, 16], Fp16),
        t(&[1, 2, 4, 16], Fp16),
        t(&[1, 2, 4, 16], Fp16),
    ];
    let grouped = fprop("aten::_scaled_dot_product_flash_attention", grouped).unwrap();
    assert_eq!(grouped.flops(), 2 * 8 * 4 * 4 * 32);
    assert_eq!(grouped.bytes(), 2 * (2 * 512 + 2 * 128) + 8 * 4 * 4);
}

#[test]
fn paged_attention_cost_is_data_dependent() {
    let q = t(&[888, 8, 64], Fp16);
    let cost = fprop(
        "vllm::unified_attention_with_output",
        vec![q.clone(), q.clone(), q],
    );
    assert_eq!(cost, Err(UnknownCost::DataDependent));
}

#[test]
fn collectives_have_message_and_wire_bytes() {
    let message = |name: &str, values| {
        let cost = fprop(name, values).unwrap();
        assert_eq!((cost.family, cost.flops()), (Family::Communication, 0));
        let Dims::Message {
            bytes,
            ranks,
            wire_bytes,
        } = cost.roles[0].dims
        else {
            panic!("{cost:?}");
        };
        (cost.bytes(), bytes, ranks, wire_bytes)
    };
    // In place, in a list: the tensors together are the message. The number of ranks is not recorded.
    let grads = ArgValue::List(vec![t(&[100], Fp32), t(&[50], Fp32)]);
    assert_eq!(
        message("c10d::allreduce_", vec![grads]),
        (600, 600, None, None)
    );
    let broadcast = vec![t(&[100], Fp32)];
    assert_eq!(
        message("nccl::broadcast", broadcast),
        (400, 400, None, Some(400))
    );
    let gather = vec![t(&[100], Bf16), ArgValue::Int(4), ArgValue::Str("0".into())];
    assert_eq!(
        message("_c10d_functional::all_gather_into_tensor", gather),
        (200, 200, Some(4), Some(150))
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
        assert_eq!(
            fprop(name, Vec::new()),
            Err(UnknownCost::NoShapes),
            "{name}"
        );
    }
    assert_eq!(family(&op("nccl_tools::all_reduce")), None);
}

#[test]
fn recurrent_backward_cost_follows_the_layer_description() {
    // 2 layers of LSTM, 6 steps of 3 sequences, 4 -> 5, both directions
    let x = || t(&[6, 3, 4], Fp32);
    let hidden = || ArgValue::Unknown;
    let description = || {
        [2, 5, 0, 2]
            .map(ArgValue::Int)
            .into_iter()
            .chain([
                ArgValue::Bool(false),
                ArgValue::Float(0.0),
                ArgValue::Bool(true),
            ])
            .chain([ArgValue::Bool(true)])
    };
    let list = |blanks: usize| {
        let mut values = vec![x()];
        values.extend((0..blanks).map(|_| hidden()));
        values.extend(description());
        values
    };
    // weights: 2 directions of 20 x (4 + 5), then of 20 x (10 + 5)
    let flops = 2 * 18 * (2 * 20 * 9 + 2 * 20 * 15);
    let forward = fprop("aten::_cudnn_rnn", list(5)).unwrap();
    assert_eq!(forward.flops(), flops);
    let backward = fprop("aten::_cudnn_rnn_backward", list(9)).unwrap();
    let roles: Vec<_> = backward.roles.iter().map(|r| (r.role, r.flops)).collect();
    assert_eq!(roles, [(Role::Dgrad, flops), (Role::Wgrad, flops)]);
    // MIOpen has neither a flat buffer nor projections.
    let mut miopen = list(4);
    miopen.remove(7);
    assert_eq!(fprop("aten::miopen_rnn", miopen).unwrap().flops(), flops);
}

#[test]
fn recurrent_layers_with_recorded_weights_need_no_numbers() {
    // 6 steps of 3 sequences, 4 wide; an LSTM of width 5 in both directions, two layers.
    let direction = |input: u64| {
        [vec![20, input], vec![20, 5], vec![20], vec![20]].map(|shape| untyped(&shape))
    };
    let weights: Vec<ArgValue> = [4, 4, 10, 10].into_iter().flat_map(direction).collect();
    let hidden = || ArgValue::Unknown;
    let given = |x: &[u64], weights: Vec<ArgValue>| {
        let mut values = vec![t(x, Fp32), ArgValue::List(weights)];
        values.extend((0..13).map(|_| hidden()));
        cost(
            &op("aten::_cudnn_rnn"),
            &args(values),
            Direction::Fprop,
            false,
            Some(Fp32),
        )
    };
    let matrices = 2 * 20 * (4 + 5) + 2 * 20 * (10 + 5);
    let biases = 4 * 2 * 20;
    let both = given(&[6, 3, 4], weights.clone()).unwrap();
    assert_eq!(both.flops(), 2 * 18 * matrices);
    // The result has both directions.
    assert_eq!(both.bytes(), 4 * (18 * 4 + matrices + biases + 18 * 10));
    // Packed sequences have one dimension for steps and sequences.
    assert_eq!(given(&[18, 4], weights), Ok(both));
    let one = given(&[6, 3, 4], direction(4).to_vec()).unwrap();
    assert_eq!(one.bytes(), 4 * (18 * 4 + 20 * 9 + 40 + 18 * 5));
}

#[test]
fn optimizers_on_lists_take_the_type_of_their_kernel() {
    // Kineto records shapes of lists, but no types in them.
    let list = || ArgValue::List(vec![untyped(&[1000]), untyped(&[24])]);
    let steps = ArgValue::List(vec![untyped(&[]), untyped(&[])]);
    let adam = |dtype| {
        let mut values = vec![
            list(),
            list(),
            list(),
            list(),
            ArgValue::Unknown,
            steps.clone(),
        ];
        values.push(ArgValue::Float(0.001));
        cost(
            &op("aten::_fused_adamw_"),
            &args(values),
            Direction::Update,
            false,
            dtype,
        )
    };
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
    let values = || vec![t(&[700, 33278], Fp32), t(&[700], Int64)];
    let (_, bytes) = totals(bprop("torch.nn.functional.nll_loss", values()));
    assert_eq!(bytes, 8 * 700 + 4 * 700 + 8);
    // It is added where a kernel of the call fills it.
    let name = op("torch.nn.functional.nll_loss");
    let mut filled = bprop("torch.nn.functional.nll_loss", values()).unwrap();
    add_zero_fill(&mut filled, &name, &args(values()), true, None);
    assert_eq!(filled.bytes(), bytes + 4 * 700 * 33278);
    // The log-softmax of a cross entropy still moves three tensors.
    let (_, bytes) = totals(bprop("torch.nn.functional.cross_entropy", values()));
    assert_eq!(bytes, 3 * 4 * 700 * 33278 + 8 * 700 + 4 * 700 + 8);
}

#[test]
fn batched_embedding_tables_are_costed() {
    let hidden = || ArgValue::Unknown;
    // 2 tables, 24 columns together, 10 lookups in 2 x 3 bags
    let mut values = vec![hidden(), t(&[4000], Fp16)];
    values.extend((0..4).map(|_| hidden()));
    values.extend([t(&[3], DType::Int32), ArgValue::Int(24), ArgValue::Int(16)]);
    values.extend([hidden(), hidden(), t(&[10], Int64), t(&[7], Int64)]);
    let name = "fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function";
    let cost = fprop(name, values.clone()).unwrap();
    // Rows are 12 wide on average; 3 bags of 24.
    assert_eq!(cost.flops(), 2 * 10 * 12);
    assert_eq!(cost.bytes(), 80 + 56 + 2 * 120 + 2 * 72);
    assert!(cost.note.is_some());
    values[7] = hidden();
    assert_eq!(fprop(name, values), Err(UnknownCost::NoShapes));
}

#[test]
fn convolutions_accept_every_argument_order() {
    // 1x3x8x8 * 4x3x3x3, stride 2, padding 1: 4x4 out; 2*16*4*27 FLOPs
    let expected = (3456, 4 * (192 + 108 + 64));
    let (x, w) = (t(&[1, 3, 8, 8], Fp32), t(&[4, 3, 3, 3], Fp32));
    let (two, one, zero) = (ints(&[2, 2]), ints(&[1, 1]), ints(&[0, 0]));
    let none = ArgValue::None;
    let groups = ArgValue::Int(1);
    let flag = ArgValue::Bool(false);
    let functional = vec![
        x.clone(),
        w.clone(),
        none.clone(),
        two.clone(),
        one.clone(),
        one.clone(),
        groups.clone(),
    ];
    let general = vec![
        x.clone(),
        w.clone(),
        none,
        two.clone(),
        one.clone(),
        one.clone(),
        flag.clone(),
        zero,
        groups.clone(),
    ];
    let cudnn = vec![x, w, one.clone(), two, one, groups, flag.clone(), flag];
    assert_eq!(
        totals(fprop("torch.nn.functional.conv2d", functional)),
        expected
    );
    assert_eq!(totals(fprop("aten::convolution", general)), expected);
    assert_eq!(totals(fprop("aten::cudnn_convolution", cudnn)), expected);
}

#[test]
fn convolution_without_strides_has_unknown_cost() {
    let hidden = || ArgValue::Unknown;
    let values = vec![
        t(&[1, 3, 8, 8], Fp32),
        t(&[4, 3, 3, 3], Fp32),
        hidden(),
        hidden(),
        hidden(),
        hidden(),
    ];
    assert_eq!(fprop("aten::conv2d", values), Err(UnknownCost::NoScalars));
}

#[test]
fn same_padding_keeps_the_size() {
    let same = ArgValue::Str("same".into());
    let values = vec![
        t(&[1, 2, 5, 5], Fp32),
        t(&[2, 2, 3, 3], Fp32),
        ArgValue::None,
        ArgValue::Int(1),
        same,
    ];
    assert_eq!(
        totals(fprop("torch.nn.functional.conv2d", values)).0,
        2 * 25 * 36
    );
}

#[test]
fn packed_attention_assumes_equal_sequences() {
    // 2 sequences of 4 in 8 rows, 3 heads of 16: 2*2*3*4*4*(16+16)
    let qkv = || t(&[8, 3, 16], Bf16);
    let lengths = || t(&[3], DType::Int32);
    let cost = fprop(
        "aten::_flash_attention_forward",
        vec![qkv(), qkv(), qkv(), lengths(), lengths()],
    )
    .unwrap();
    assert_eq!(cost.flops(), 6144);
    assert!(cost.note.is_some());
    // Without lengths, the work depends on unrecorded data.
    let alone = fprop("aten::_flash_attention_forward", vec![qkv(), qkv(), qkv()]);
    assert_eq!(alone, Err(UnknownCost::DataDependent));
}

#[test]
fn softmax_and_norm_costs_match_hand_computed_values() {
    let x = || t(&[4, 10], Fp16);
    let w = || t(&[10], Fp16);
    let half_to_float = vec![x(), ArgValue::Int(-1), ArgValue::Bool(true)];
    assert_eq!(
        totals(fprop("aten::_softmax", half_to_float)),
        (200, 80 + 160)
    );
    // x + y + w + b + 4 rows of mean and rstd in fp32
    let norm = vec![x(), ints(&[10]), w(), w()];
    assert_eq!(
        totals(fprop("aten::native_layer_norm", norm)),
        (200, 80 + 80 + 40 + 32)
    );
    let plain = vec![x(), ints(&[10]), ArgValue::None, ArgValue::None];
    assert_eq!(
        totals(fprop("aten::native_layer_norm", plain)),
        (160, 80 + 80 + 32)
    );
    // channels 3: x + y, then w, b, mean, var read
    let image = || t(&[2, 3, 4], Fp32);
    let c = || t(&[3], Fp32);
    let eval = |train| vec![image(), c(), c(), c(), c(), ArgValue::Bool(train)];
    assert_eq!(
        totals(fprop("aten::native_batch_norm", eval(false))),
        (48, 192 + 48)
    );
    assert_eq!(
        totals(fprop("aten::native_batch_norm", eval(true))),
        (120, 192 + 48 + 48)
    );
}

#[test]
fn pointwise_counts_broadcasts_scalars_and_promotion() {
    assert_eq!(
        totals(fprop("aten::mul", vec![t(&[4, 1], Fp16), t(&[1, 8], Fp32)])),
        (32, 8 + 32 + 128)
    );
    assert_eq!(
        totals(fprop(
            "Tensor.__truediv__",
            vec![t(&[8], Int64), ArgValue::Int(2)]
        )),
        (8, 64 + 32)
    );
    assert_eq!(
        totals(fprop("aten::gt", vec![t(&[8], Fp32), ArgValue::Int(0)])),
        (8, 32 + 8)
    );
    // Until 2020: add_(self, alpha, other).
    let legacy = vec![t(&[8], Fp32), ArgValue::Int(-20), t(&[8], Fp32)];
    assert_eq!(totals(fprop("Tensor.add_", legacy)), (16, 96));
    // A broadcast bias: its gradient is a sum over the 4 rows.
    assert_eq!(
        totals(bprop("torch.add", vec![t(&[4, 8], Fp32), t(&[8], Fp32)])),
        (32, 128 + 32)
    );
    // The gradient of scaling needs no saved tensor.
    assert_eq!(
        totals(bprop(
            "torch.mul",
            vec![t(&[8], Fp32), ArgValue::Float(0.5)]
        )),
        (8, 64)
    );
    // The gradient of a relu needs its result.
    assert_eq!(totals(bprop("torch.relu", vec![t(&[8], Fp32)])), (8, 96));
}

#[test]
fn embedding_accepts_its_arguments_in_either_order() {
    let (table, indices) = (t(&[100, 4], Fp32), t(&[3], Int64));
    let expected = (0, 24 + 2 * 48);
    assert_eq!(
        totals(fprop(
            "torch.embedding",
            vec![table.clone(), indices.clone()]
        )),
        expected
    );
    assert_eq!(
        totals(fprop(
            "torch.nn.functional.embedding",
            vec![indices.clone(), table.clone()]
        )),
        expected
    );
    // dY 48 + idx 24 + table 1600 + touched rows twice 96
    let node = cost(
        &op("EmbeddingBackward0"),
        &args(vec![indices, table]),
        Direction::Bprop,
        true,
        None,
    );
    assert_eq!(totals(node), (12, 1768));
}

#[test]
fn reduction_costs_depend_on_the_reduced_dimensions() {
    assert_eq!(
        totals(fprop("torch.sum", vec![t(&[4, 8], Fp32), ints(&[-1])])),
        (32, 128 + 16)
    );
    assert_eq!(
        totals(fprop(
            "torch.norm",
            vec![t(&[4, 8], Fp32), ArgValue::Float(2.0)]
        )),
        (64, 132)
    );
    let hidden = fprop("aten::sum", vec![t(&[4, 8], Fp32), ArgValue::Unknown]).unwrap();
    assert_eq!(hidden.bytes(), 128);
    assert!(hidden.note.is_some());
    // The max of two tensors is pointwise.
    let two = fprop("torch.max", vec![t(&[8], Fp32), t(&[8], Fp32)]).unwrap();
    assert_eq!((two.family, two.bytes()), (Family::Pointwise, 96));
}

#[test]
fn a_call_without_arguments_has_no_shapes() {
    for entry in table().filter(|e| e.namespaces.is_empty()) {
        for name in entry.names {
            let unknown = fprop(name, Vec::new()).unwrap_err();
            assert_eq!(unknown, UnknownCost::NoShapes, "{name}");
        }
    }
    assert_eq!(
        fprop("aten::nonsense", Vec::new()),
        Err(UnknownCost::UnknownOp)
    );
}

#[test]
fn roles_follow_the_direction() {
    let values = || args(vec![t(&[8], Fp32), t(&[8], Fp32)]);
    let role = |direction| {
        let cost = cost(&op("aten::add_"), &values(), direction, false, None).unwrap();
        cost.roles[0].role
    };
    assert_eq!(role(Direction::Fprop), Role::Fwd);
    assert_eq!(role(Direction::Bprop), Role::Bwd);
    assert_eq!(role(Direction::Update), Role::Opt);
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
