//! Experts of a mixture: products whose weights the router chooses for each token.
//!
//! Which experts get tokens is not in a profile, so the bytes count every expert that may have got one, and
//! the cost is the most that the call can need.

use super::call::{Call, Entry, data_dependent, product, sum, total};
use crate::correlate::Tensor;
use crate::cost::kernel_name::Family;
use crate::cost::model::{Dims, FlopsClass, OpCost, UnknownCost};

/// What is assumed where operators are given the weights.
const GIVEN: &str = "experts: each one that may have got a token counts as read, and all that the router \
                     chose as being on this GPU";

/// What is assumed where the sizes are those of the kernels' grids.
const BY_GRID: &str = "experts of TensorRT-LLM's kernels: each one that may have got a token counts as read, \
                       all are taken to be on this GPU, and sizes are rounded up to whole tiles";

/// The same of another package's kernels, whose grids have one dimension.
const BY_PRODUCT: &str = "experts of triton_kernels: each one that may have got a token counts as read, all are \
                          taken to be on this GPU, and sizes are rounded up to whole tiles";

const FORWARD: Entry = Entry {
    names: &["moe_forward"],
    namespaces: &["vllm"],
    family: Family::Gemm,
    class: FlopsClass::Exact,
    flops: "2 T k (H N + H I), the most it can be, with the experts per token k and the sizes N and I of the \
            grids of TensorRT-LLM's or triton_kernels' kernels; unknown with other kernels",
    bytes: "input, router's output and result + the weights of min(E, T k) experts; unknown with other kernels",
    backward: "",
    source: "vLLM model_executor/layers/fused_moe/layer.py: moe_forward(hidden_states, router_logits, layer_name); FlashInfer include/flashinfer/trtllm/fused_moe/runner.h: getMaxNumCtasInBatchDim() is the grid along the tokens; Triton python/triton_kernels/triton_kernels/matmul_ogs.py: grid = grid_m * grid_n * split_k, routing.py: RoutingData.n_blocks() is grid_m",
    handler: data_dependent,
};

/// Operators that are given the weights: `[E, N, H]` and `[E, H, I]`, with packed elements along the last
/// dimension.
const WITH_WEIGHTS: Entry = Entry {
    names: &[
        "inplace_fused_experts",
        "outplace_fused_experts",
        "rocm_aiter_fused_moe",
        "rocm_aiter_asm_moe_tkw1",
    ],
    namespaces: &["vllm", "sglang"],
    flops: "2 T k (H N + I H)",
    bytes: "input, result and the router's choice + the weights of min(E, T k) experts, the most it can be; \
            scales are not counted",
    source: "vLLM model_executor/layers/fused_moe/fused_moe.py and SGLang srt/layers/moe/fused_moe_triton/fused_moe.py: inplace_fused_experts(hidden_states, w1, w2, topk_weights, topk_ids, ...)",
    handler: with_weights,
    ..FORWARD
};

pub(super) const ENTRIES: &[Entry] = &[
    FORWARD,
    Entry {
        names: &["moe_forward_shared"],
        flops: "unknown: which experts the tokens go to is not in the profile, nor are the experts' weights",
        bytes: "unknown: the same",
        source: "vLLM model_executor/layers/fused_moe/layer.py: moe_forward_shared(hidden_states, router_logits, layer_name)",
        ..FORWARD
    },
    WITH_WEIGHTS,
    Entry {
        names: &[
            "topk_softmax",
            "topk_sigmoid",
            "moe_align_block_size",
            "moe_sum",
            "moe_sum_reduce",
        ],
        namespaces: &["_moe_C", "sgl_kernel"],
        family: Family::Sort,
        class: FlopsClass::Convention,
        flops: "2 per element of the largest tensor",
        bytes: "every tensor once",
        source: "vLLM _custom_ops.py: topk_softmax(topk_weights, topk_ids, token_expert_indices, gating_output), moe_align_block_size(topk_ids, num_experts, block_size, sorted_ids, expert_ids, num_tokens_post_pad), moe_sum(input, output)",
        handler: super::serving::every_tensor,
        ..FORWARD
    },
];

/// The sizes of all experts of a call.
#[derive(Debug, Clone, Copy)]
struct Experts {
    /// Pairs of a token and an expert.
    rows: u64,
    experts: u64,
    /// Elements that one expert has in both of its weights.
    weights: u64,
}

impl Experts {
    /// Experts that may have got a token.
    fn read(self) -> u64 {
        self.experts.min(self.rows)
    }
}

fn with_weights(call: &Call) -> Result<OpCost, UnknownCost> {
    let hidden = call.tensor(0, &["hidden_states"])?;
    let first = call.tensor(1, &["w1"])?;
    let second = call.tensor(2, &["w2"])?;
    let chosen = call.tensor(4, &["topk_ids"])?;
    let (&[tokens, width], &[experts, n, packed], &[_, out, packed_inner], &[rows, per_token]) = (
        hidden.shape.as_slice(),
        first.shape.as_slice(),
        second.shape.as_slice(),
        chosen.shape.as_slice(),
    ) else {
        return Err(UnknownCost::BadArguments);
    };
    // Elements of less than a byte are packed along the last dimension of the weights.
    let pack = width.checked_div(packed).filter(|pack| *pack > 0);
    let pack = pack.filter(|pack| product([*pack, packed]) == width && rows == tokens);
    let inner = product([pack.ok_or(UnknownCost::BadArguments)?, packed_inner]);
    // With a gate, the first product has twice as many columns as the second has rows.
    if out != width || (n != inner && n != product([2, inner])) {
        return Err(UnknownCost::BadArguments);
    }
    let sizes = Experts {
        rows: product([tokens, per_token]),
        experts,
        weights: sum([product([width, n]), product([inner, width])]),
    };
    let stored = |t: &Tensor| Ok(call.bytes(t)?.checked_div(experts).unwrap_or(0));
    let each = total([stored(first), stored(second)])?;
    let bytes = total([
        call.bytes(hidden),
        call.dense(product([tokens, width]), hidden),
        call.bytes_of(call.optional(3, &["topk_weights", "topk_weight"])),
        call.bytes(chosen),
        Ok(product([sizes.read(), each])),
    ]);
    let flops = product([2, sizes.rows, sizes.weights]);
    let mut cost = call.one(flops, bytes, Dims::None)?;
    cost.at_most = tokens > 1;
    cost.note = cost.at_most.then_some(GIVEN);
    Ok(cost)
}

/// A kernel of a call: its name, its tile (columns of the weights by tokens) and its grid.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Launched<'a> {
    pub(crate) name: &'a str,
    pub(crate) tile: (u32, u32),
    pub(crate) grid: [u32; 3],
}

/// Sizes that follow from the kernels of a call.
#[derive(Debug, Clone, Copy)]
struct Inferred {
    per_token: u64,
    /// Columns of the first product; half of them are the rows of the second.
    columns: u64,
    note: &'static str,
}

/// The cost of experts whose sizes follow from the kernels that multiply with them.
pub(super) fn generated(call: &Call, kernels: &[Launched<'_>]) -> Result<OpCost, UnknownCost> {
    let unknown = UnknownCost::DataDependent;
    let hidden = call.tensor(0, &["hidden_states"])?;
    let logits = call.tensor(1, &["router_logits"])?;
    let (&[tokens, width], &[rows, experts]) = (hidden.shape.as_slice(), logits.shape.as_slice())
    else {
        return Err(UnknownCost::BadArguments);
    };
    let (up, down) = match kernels {
        [a, b] if is_gated(a.name) && !is_gated(b.name) => (a, b),
        [a, b] if is_gated(b.name) && !is_gated(a.name) => (b, a),
        _ => return Err(unknown),
    };
    if call.name != "moe_forward" || rows != tokens {
        return Err(unknown);
    }
    let inferred = tensorrt_llm(up, down, [tokens, width, experts])
        .or_else(|| triton_kernels(up, down, [tokens, width, experts]))
        .ok_or(unknown)?;
    let n = inferred.columns;
    let [first, second] = [product([width, n]), product([n / 2, width])];
    let sizes = Experts {
        rows: product([tokens, inferred.per_token]),
        experts,
        weights: sum([first, second]),
    };
    // Bits are counted in sixteenths.
    let bits = |elements: u64, name: &str| Some(product([elements, weight_bits_x16(name)?]) / 128);
    let each = bits(first, up.name).zip(bits(second, down.name));
    let each = each.map(|(up, down)| sum([up, down])).ok_or(unknown)?;
    let bytes = total([
        call.bytes(hidden),
        call.bytes(logits),
        call.dense(product([tokens, width]), hidden),
        Ok(product([sizes.read(), each])),
    ]);
    let flops = product([2, sizes.rows, sizes.weights]);
    let mut cost = call.one(flops, bytes, Dims::None)?;
    cost.at_most = true;
    cost.note = Some(inferred.note);
    Ok(cost)
}

/// TensorRT-LLM's kernels, which FlashInfer and vLLM call: the grid has the columns of the weights in its
/// first dimension. The second one has as many blocks as the tokens can need at most, which tells how many
/// experts each token goes to.
fn tensorrt_llm(
    up: &Launched<'_>,
    down: &Launched<'_>,
    [tokens, width, experts]: [u64; 3],
) -> Option<Inferred> {
    let columns = |kernel: &Launched<'_>| product([kernel.grid[0], kernel.tile.0].map(u64::from));
    // The result is as wide as the input.
    let rounded = width.checked_next_multiple_of(u64::from(down.tile.0.max(1)));
    let ours = [up, down]
        .iter()
        .all(|kernel| kernel.name.starts_with("bmm_"));
    let along_tokens = up.tile.1 == down.tile.1 && up.grid[1] == down.grid[1];
    if !(ours
        && rounded == Some(columns(down))
        && along_tokens
        && up.grid[2] == 1
        && down.grid[2] == 1)
    {
        return None;
    }
    let (tile, blocks) = (u64::from(up.tile.1), u64::from(up.grid[1]));
    Some(Inferred {
        per_token: experts_per_token(tokens, experts, tile, blocks)?,
        columns: columns(up),
        note: BY_GRID,
    })
}

/// Kernels of the package `triton_kernels`: the grid has a block for each tile of the result and each part of
/// a split sum, in one dimension. The second product is as wide as the input, so its grid tells the blocks
/// along the tokens, and these the width of the first. Persistent kernels have as many blocks as the GPU
/// has multiprocessors, whatever the sizes are.
fn triton_kernels(
    up: &Launched<'_>,
    down: &Launched<'_>,
    [tokens, width, experts]: [u64; 3],
) -> Option<Inferred> {
    let blocks_and_tile = |kernel: &Launched<'_>| {
        let sizes = kernel
            .name
            .strip_prefix("_matmul_ogs_")?
            .split('_')
            .nth(2)?;
        let splits: u64 = sizes.split('x').nth(3)?.parse().ok()?;
        let [x, y, z] = kernel.grid;
        let blocks = exactly(u64::from(x), splits).filter(|_| y == 1 && z == 1)?;
        Some((blocks, kernel.tile.0.into(), u64::from(kernel.tile.1)))
    };
    let (blocks, tile, columns): (u64, u64, u64) = blocks_and_tile(down)?;
    let along_columns = width.checked_next_multiple_of(columns)? / columns;
    let along_tokens = exactly(blocks, along_columns)?;
    let per_token = experts_per_token(tokens, experts, tile, along_tokens)?;
    let (blocks, tile, columns) = blocks_and_tile(up)?;
    let along_tokens = blocks_along_tokens(tokens, experts, tile, per_token)?;
    Some(Inferred {
        per_token,
        columns: product([exactly(blocks, along_tokens)?, columns]),
        note: BY_PRODUCT,
    })
}

/// The quotient, if nothing is left over.
fn exactly(blocks: u64, parts: u64) -> Option<u64> {
    let quotient = blocks.checked_div(parts)?;
    (quotient > 0 && product([quotient, parts]) == blocks).then_some(quotient)
}

/// Whether the kernel multiplies two halves of its result, one of them by an activation.
fn is_gated(name: &str) -> bool {
    name.split('_')
        .any(|part| matches!(part, "swiGlu" | "geGlu" | "swiglu"))
}

/// Bits of a stored weight in sixteenths, with its share of the scale: `bmm_<result>_<weights><tokens>_...`
/// with the tokens along the second dimension of the tile (`_bN_`), or
/// `_matmul_ogs_<layouts>_<result>x<tokens>x<weights>_...`.
fn weight_bits_x16(name: &str) -> Option<u64> {
    if let Some(rest) = name.strip_prefix("_matmul_ogs_") {
        let types = rest.split('_').nth(1)?;
        let weights = types.rsplit('x').next()?;
        let scaled = types.ends_with(&format!("xmx{weights}"));
        return match weights {
            "fp4" => scaled.then_some(4 * 16 + 4),
            "bf16" | "fp16" => Some(16 * 16),
            fp8 if fp8.starts_with("fp8") => Some(8 * 16 + if scaled { 4 } else { 0 }),
            _ => None,
        };
    }
    let mut parts = name.split('_');
    let (kind, types) = (parts.next()?, parts.nth(1)?);
    if kind != "bmm" || !name.split('_').any(|part| part == "bN") {
        return None;
    }
    // OCP Microscaling Formats 1.0: 8 bits of scale per 32 elements; NVFP4: per 16.
    let types = [
        ("MxE2m1", 4 * 16 + 4),
        ("E2m1", 4 * 16 + 8),
        ("MxE4m3", 8 * 16 + 4),
        ("E4m3", 8 * 16),
        ("Bfloat16", 16 * 16),
        ("Fp16", 16 * 16),
    ]
    .into_iter()
    .find(|(spelling, _)| types.starts_with(spelling))?;
    Some(types.1)
}

/// How many experts each token goes to, from the number of blocks along the tokens: one for each expert
/// that can have a token, and one for each further full tile. `None` where several numbers would do.
fn experts_per_token(tokens: u64, experts: u64, tile: u64, blocks: u64) -> Option<u64> {
    /// Published models choose at most 22 of their experts.
    const MOST: u64 = 64;
    let of = |per_token: &u64| blocks_along_tokens(tokens, experts, tile, *per_token);
    let mut fitting = (1..=experts.min(MOST)).filter(|k| of(k) == Some(blocks));
    fitting.next().filter(|_| fitting.next().is_none())
}

/// The number of blocks along the tokens where each token goes to so many experts.
fn blocks_along_tokens(tokens: u64, experts: u64, tile: u64, per_token: u64) -> Option<u64> {
    let rows = product([tokens, per_token]);
    let filled = rows.min(experts);
    Some(sum([filled, (rows - filled).checked_div(tile)?]))
}

#[cfg(test)]
mod tests {
    use super::super::cost_of_experts;
    use super::super::testing::{call, check, fprop};
    use super::{Launched, experts_per_token};
    use crate::cost::model::UnknownCost;

    #[test]
    fn experts_with_given_weights_cost_their_products_and_at_most_all_weights() {
        let given = |module: &str, tokens: u64, w1: &str, w2: &str| {
            let chosen = format!("fp32[{tokens}, 2], int32[{tokens}, 2]");
            format!("{module}::inplace_fused_experts(bf16[{tokens}, 64], {w1}, {w2}, {chosen})")
        };
        let (w1, w2) = ("bf16[8, 96, 64]", "bf16[8, 64, 48]");
        let flops = 2 * 20 * (64 * 96 + 48 * 64);
        let tensors = 2 * 10 * 64 * 2 + 2 * 20 * 4;
        for module in ["vllm", "sglang"] {
            let call = given(module, 10, w1, w2);
            check(&[(&call, flops, tensors + 8 * (96 * 64 + 64 * 48) * 2)]);
            assert!(fprop(&call).unwrap().at_most);
        }
        // Two elements in a byte.
        let packed = given("vllm", 10, "uint8[8, 96, 32]", "uint8[8, 64, 24]");
        check(&[(&packed, flops, tensors + 8 * (96 * 32 + 64 * 24))]);
        // One token goes to two different experts, so exactly two are read.
        let found = fprop(&given("vllm", 1, w1, w2)).unwrap();
        let bytes = 2 * 64 * 2 + 2 * 2 * 4 + 2 * (96 * 64 + 64 * 48) * 2;
        assert_eq!(
            (found.bytes(), found.at_most, found.note),
            (bytes, false, None)
        );
        let other = fprop(&given("vllm", 10, w1, "bf16[8, 64, 40]"));
        assert_eq!(other, Err(UnknownCost::BadArguments));
    }

    /// Blocks as FlashInfer's `getMaxNumCtasInBatchDim` counts them.
    #[test]
    fn blocks_along_the_tokens_tell_how_many_experts_a_token_goes_to() {
        for (tokens, experts, tile, blocks, wanted) in [
            (888, 128, 16, 128 + (888 * 4 - 128) / 16, Some(4)),
            (1, 128, 8, 4, Some(4)),
            (32, 128, 8, 128, Some(4)),
            (8, 16, 8, 17, Some(3)),
            // Two and three experts per token: the difference is less than a tile.
            (8, 16, 128, 16, None),
            // No number gives as many.
            (8, 16, 8, 15, None),
            (888, 128, 0, 342, None),
        ] {
            let found = experts_per_token(tokens, experts, tile, blocks);
            assert_eq!(found, wanted, "{tokens} {experts} {tile} {blocks}");
        }
    }

    #[test]
    fn grids_of_generated_kernels_give_the_sizes_of_experts() {
        let up = "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_cga1x1x1_16dp256b_rM_TN_transOut_schedP2x1x2x3_biasM_bN_tma_tmaOpt_clmp_swiGlu_dynBatch_sm100f";
        let down = "bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_cga1x1x1_16dp256b_rM_TN_transOut_schedP2x1x2x3_biasM_bN_tmaOpt_clmp_dynBatch_sm100f";
        let kernel = |name, columns, tokens| Launched {
            name,
            tile: (128, 16),
            grid: [columns, tokens, 1],
        };
        let of = |name: &str, kernels: &[Launched<'_>]| {
            let (op, args) = call(&format!("vllm::{name}(bf16[888, 3072], bf16[888, 128])"));
            cost_of_experts(&op, &args, kernels)
        };
        let found = of("moe_forward", &[kernel(up, 8, 342), kernel(down, 24, 342)]).unwrap();
        let weights = 3072 * 1024 + 512 * 3072;
        assert_eq!(found.flops(), 2 * 888 * 4 * weights);
        let tensors = (2 * 888 * 3072 + 888 * 128) * 2;
        assert_eq!(found.bytes(), tensors + 128 * (weights * 17 / 32));
        assert!(found.at_most && found.note.is_some());
        let unknown = Err(UnknownCost::DataDependent);
        // A result of another width, blocks that fit no number of experts, split sums, one kernel only, and
        // kernels of shared experts among them.
        let (name, first) = ("moe_forward", kernel(up, 8, 342));
        for (name, kernels) in [
            (name, vec![first, kernel(down, 23, 342)]),
            (name, vec![kernel(up, 8, 343), kernel(down, 24, 343)]),
            (name, vec![first]),
            (name, vec![first, kernel(up, 24, 342)]),
            ("moe_forward_shared", vec![first, kernel(down, 24, 342)]),
        ] {
            assert_eq!(of(name, &kernels), unknown, "{name} {kernels:?}");
        }
        let mut split = kernel(down, 24, 342);
        split.grid[2] = 2;
        assert_eq!(of("moe_forward", &[kernel(up, 8, 342), split]), unknown);
    }

    /// Names as gpt-oss has them in vLLM; no recording of them with grids is at hand, so these are synthetic.
    #[test]
    fn grids_of_triton_kernels_give_the_sizes_of_experts() {
        let up = "_matmul_ogs_NNT_bf16xbf16xmxfp4_128x128x128x1_swiglu";
        let down = "_matmul_ogs_NNT_bf16xbf16xmxfp4_128x256x128x1";
        // 4 of 32 experts, 3,072 wide inside (6,144 columns with the gate) and 2,880 outside.
        let blocks = 32 + (1000 * 4 - 32) / 128;
        let kernel = |name, columns, blocks| Launched {
            name,
            tile: (128, columns),
            grid: [blocks, 1, 1],
        };
        let of = |kernels: &[Launched<'_>]| {
            let (op, args) = call("vllm::moe_forward(bf16[1000, 2880], bf16[1000, 32])");
            cost_of_experts(&op, &args, kernels)
        };
        let (first, second) = (kernel(up, 128, 48 * blocks), kernel(down, 256, 12 * blocks));
        let found = of(&[first, second]).unwrap();
        let weights = 2880 * 6144 + 3072 * 2880;
        assert_eq!(found.flops(), 2 * 1000 * 4 * weights);
        let tensors = (2 * 1000 * 2880 + 1000 * 32) * 2;
        assert_eq!(found.bytes(), tensors + 32 * (weights * 17 / 32));
        assert!(found.at_most && found.note.is_some());
        // The same sums in two parts, with half as long a tile along the tokens.
        let parts = "_matmul_ogs_NNT_bf16xbf16xmxfp4_64x128x128x2_swiglu";
        let shorter = 32 + (1000 * 4 - 32) / 64;
        let mut in_parts = kernel(parts, 128, 2 * 48 * shorter);
        in_parts.tile.0 = 64;
        assert_eq!(of(&[in_parts, second]).unwrap(), found);
        // Weights in 16 bits.
        let wide = [
            "_matmul_ogs_NNT_bf16xbf16xbf16_128x128x128x1_swiglu",
            "_matmul_ogs_NNT_bf16xbf16xbf16_128x256x128x1",
        ];
        let found = of(&[
            kernel(wide[0], 128, 48 * blocks),
            kernel(wide[1], 256, 12 * blocks),
        ]);
        assert_eq!(found.unwrap().bytes(), tensors + 32 * weights * 2);
        let unknown = Err(UnknownCost::DataDependent);
        let persistent = "_p_matmul_ogs_NNT_bf16xbf16xmxfp4_128x256x128x1";
        let packed = "_matmul_ogs_NNT_bf16xbf16xu8_128x256x128x1";
        for kernels in [
            // As many blocks as multiprocessors, another width, blocks that fit no number of experts, weights
            // of an unknown size, one kernel only.
            vec![first, kernel(persistent, 256, 132)],
            vec![first, kernel(down, 256, 12 * blocks + 1)],
            vec![first, kernel(down, 256, 12 * (blocks + 1))],
            vec![kernel(up, 128, 48 * blocks + 1), second],
            vec![first, kernel(packed, 256, 12 * blocks)],
            vec![second],
        ] {
            assert_eq!(of(&kernels), unknown, "{kernels:?}");
        }
    }
}
