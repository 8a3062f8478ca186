//! Fused attention. The S x S matrix never reaches DRAM; softmax is not counted.

use super::call::{Call, Entry, count, data_dependent, product, sum, total};
use crate::base::DType;
use crate::correlate::Tensor;
use crate::cost::kernel_name::Family;
use crate::cost::model::{
    AttentionSize, Dims, FlopsClass, OpCost, UnknownCost, causal_pairs_at_the_end,
    causal_pairs_at_the_start,
};

const FLOPS: &str = "2 B H Sq Sk (Dqk + Dv), H the query heads; the full square also under a causal mask, but the ideal time counts only what the mask leaves";
const BYTES: &str = "Q + K + V + O + logsumexp (B H Sq, fp32) + an explicit bias or mask";
const BACKWARD: &str =
    "2 B H Sq Sk (3 Dqk + 2 Dv); reads dO, Q, K, V, O, logsumexp, writes dQ, dK, dV";
const SOURCE: &str = "torch.utils.flop_counter; FlashAttention-2 paper for the recomputed product";
const CAUSAL: &str = "the FLOPs of causal attention are of the full square; its ideal time is of what the mask leaves";
const VARLEN: &str =
    "sequences taken as equally long: a lower bound, lengths are not in the profile";

/// Like the forward entries, but the backward operators take different arguments.
const fn backward_entry(
    names: &'static [&'static str],
    namespaces: &'static [&'static str],
) -> Entry {
    Entry {
        flops: "2 B H Sq Sk (3 Dqk + 2 Dv): the forward's product is computed again",
        bytes: "reads dO, Q, K, V, O, logsumexp; writes dQ, dK, dV",
        ..entry(names, namespaces, "", backward)
    }
}

const fn entry(
    names: &'static [&'static str],
    namespaces: &'static [&'static str],
    backward: &'static str,
    handler: fn(&Call) -> Result<OpCost, UnknownCost>,
) -> Entry {
    Entry {
        names,
        namespaces,
        family: Family::Attention,
        class: FlopsClass::Exact,
        flops: FLOPS,
        bytes: BYTES,
        backward,
        source: SOURCE,
        handler,
    }
}

const FLASH: &[&str] = &[
    "flash_attn",
    "flash_attn_2_cuda",
    "flash_attn_3",
    "_vllm_fa2_C",
    "_vllm_fa3_C",
];

pub(super) const ENTRIES: &[Entry] = &[
    entry(
        &[
            "scaled_dot_product_attention",
            "scaled_dot_product_flash_attention",
            "scaled_dot_product_flash_attention_for_cpu",
            "scaled_dot_product_efficient_attention",
            "scaled_dot_product_cudnn_attention",
            "scaled_dot_product_fused_attention_overrideable",
            "flash_attention",
            "flash_attention_forward",
            "efficient_attention",
            "efficient_attention_forward",
        ],
        &[],
        BACKWARD,
        forward,
    ),
    backward_entry(
        &[
            "scaled_dot_product_flash_attention_backward",
            "scaled_dot_product_flash_attention_for_cpu_backward",
            "scaled_dot_product_efficient_attention_backward",
            "scaled_dot_product_cudnn_attention_backward",
            "scaled_dot_product_fused_attention_overrideable_backward",
            "flash_attention_backward",
            "efficient_attention_backward",
        ],
        &[],
    ),
    entry(
        &["efficient_attention_forward_cutlass"],
        &["xformers"],
        "",
        forward,
    ),
    Entry {
        flops: "2 H (Dqk + Dv) for each pair of a query and a key that the mask leaves, where the engine's range \
                has the lengths and the kernel's name excludes a sliding window; else unknown",
        bytes: "Q + O + the keys and values of all requests, alike; else unknown",
        source: "vLLM vllm/attention/layer.py: unified_attention_with_output(query, key, value, output, layer_name, ...); the sums of lengths in the ranges that TraceLens annotates",
        ..entry(
            &["unified_attention", "unified_attention_with_output"],
            &["vllm"],
            "",
            data_dependent,
        )
    },
    Entry {
        flops: "unknown: the lengths of the cached keys are not in the profile",
        bytes: "unknown: the same",
        source: "vLLM csrc/torch_bindings.cpp: paged_attention_v1(Tensor! out, Tensor query, Tensor key_cache, Tensor value_cache, int num_kv_heads, ...)",
        ..entry(
            &["paged_attention_v1", "paged_attention_v2"],
            &["_C"],
            "",
            data_dependent,
        )
    },
    Entry {
        flops: "2 B H S S (Dqk + Dv) where all sequences have the length S; else unknown",
        bytes: "Q + O + the keys and values of these sequences + the page table + logsumexp",
        source: "AITER aiter/ops/mha.py: mha_batch_prefill(q, k, v, cu_seqlens_q, kv_indptr, kv_page_indices, max_seqlen_q, max_seqlen_k, dropout_p, softmax_scale, logits_soft_cap, zero_tensors, is_causal, window_size_left, window_size_right, ...)",
        ..entry(&["mha_batch_prefill"], &["aiter"], "", paged_prefill)
    },
    entry(
        &[
            "flash_attn_forward",
            "flash_attn_varlen_forward",
            "fwd",
            "varlen_fwd",
        ],
        FLASH,
        BACKWARD,
        forward,
    ),
    backward_entry(
        &[
            "flash_attn_backward",
            "flash_attn_varlen_backward",
            "bwd",
            "varlen_bwd",
        ],
        FLASH,
    ),
];

/// The layout of an operator's operands and the position of its causal flag.
#[derive(Debug, Clone, Copy)]
struct Layout {
    /// `[B, S, H, D]` (or `[T, H, D]`), not `[B, H, S, D]`.
    sequence_first: bool,
    causal: Option<usize>,
    /// The bias or mask tensor.
    bias: Option<usize>,
    /// The cumulative lengths of packed sequences of queries.
    lengths: Option<usize>,
}

fn layout(call: &Call) -> Layout {
    let l = |sequence_first, causal, bias, lengths| Layout {
        sequence_first,
        causal,
        bias,
        lengths,
    };
    match call.name {
        "scaled_dot_product_attention" => l(false, Some(5), Some(3), None),
        "scaled_dot_product_flash_attention" => l(false, Some(4), None, None),
        "scaled_dot_product_flash_attention_for_cpu" => l(false, Some(4), None, None),
        "scaled_dot_product_efficient_attention" => l(false, Some(6), Some(3), None),
        "scaled_dot_product_cudnn_attention" => l(false, Some(6), Some(3), None),
        "scaled_dot_product_fused_attention_overrideable" => l(false, Some(5), Some(3), None),
        "flash_attention_forward" | "flash_attention" => l(true, Some(8), None, Some(3)),
        "efficient_attention_forward"
        | "efficient_attention"
        | "efficient_attention_forward_cutlass" => l(true, None, Some(3), Some(4)),
        "flash_attn_forward" | "fwd" => l(true, Some(5), None, None),
        "flash_attn_varlen_forward" => l(true, Some(9), None, Some(3)),
        // The result comes before the lengths; versions differ in the place of the causal flag.
        "varlen_fwd" => l(true, None, None, Some(4)),
        // The backward takes dO first, which shifts the other arguments by one.
        "scaled_dot_product_flash_attention_backward" => l(false, Some(11), None, None),
        "scaled_dot_product_flash_attention_for_cpu_backward" => l(false, Some(7), None, None),
        "scaled_dot_product_efficient_attention_backward" => l(false, Some(11), Some(4), None),
        "scaled_dot_product_cudnn_attention_backward" => l(false, Some(14), Some(8), None),
        "scaled_dot_product_fused_attention_overrideable_backward" => l(false, None, None, None),
        "flash_attention_backward" => l(true, Some(11), None, Some(6)),
        "efficient_attention_backward" => l(true, None, Some(4), Some(6)),
        "flash_attn_backward" | "bwd" => l(true, Some(11), None, None),
        _ => l(true, None, None, Some(9)),
    }
}

#[derive(Debug, Clone, Copy)]
struct Attention {
    batch: u64,
    heads: u64,
    seq_q: u64,
    seq_k: u64,
    d_qk: u64,
    d_v: u64,
    equal_lengths_assumed: bool,
}

impl Attention {
    /// FLOPs per head: 2 per multiply-add of each query-key pair.
    fn flops(&self, per_pair: u64) -> u64 {
        product([2, self.batch, self.heads, self.seq_q, self.seq_k, per_pair])
    }

    fn out(&self) -> u64 {
        product([self.batch, self.heads, self.seq_q, self.d_v])
    }

    /// Bytes of the log-sum-exp, which is fp32 even for fp16 operands.
    fn logsumexp(&self) -> u64 {
        product([self.batch, self.heads, self.seq_q, 4])
    }

    fn dims(&self, call: &Call, causal: Option<bool>) -> Dims {
        let pairs = if call.name.starts_with("scaled_dot_product") {
            causal_pairs_at_the_start
        } else {
            causal_pairs_at_the_end
        };
        Dims::Attention(AttentionSize {
            causal_pairs: (causal == Some(true)).then(|| pairs(self.seq_q, self.seq_k)),
            batch: self.batch,
            heads: self.heads,
            seq_q: self.seq_q,
            seq_k: self.seq_k,
            head_dim: self.d_qk,
            causal,
        })
    }
}

/// Batch, heads, length and head dimension of `[.., S, D]`, with the heads before or after the
/// sequence. The batch is 1 where there is none.
fn heads_and_length(shape: &[u64], sequence_first: bool) -> Option<(u64, u64, u64, u64)> {
    match *shape {
        [b, s, h, d] if sequence_first => Some((b, h, s, d)),
        [b, h, s, d] => Some((b, h, s, d)),
        [s, h, d] if sequence_first => Some((1, h, s, d)),
        [h, s, d] => Some((1, h, s, d)),
        // A single head: `F.scaled_dot_product_attention` takes any number of leading dimensions.
        [s, d] if !sequence_first => Some((1, 1, s, d)),
        _ => None,
    }
}

/// The sizes of a call. Of packed sequences, `[T, H, D]` or `[1, T, H, D]`, the lengths are tensor data,
/// which is not recorded. Equal lengths are assumed: for self-attention they are a lower bound (the sum of
/// squares with a fixed sum is least when all are equal).
fn sizes(
    call: &Call,
    l: &Layout,
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
) -> Result<Attention, UnknownCost> {
    let of =
        |t: &Tensor| heads_and_length(&t.shape, l.sequence_first).ok_or(UnknownCost::BadArguments);
    let (batch, heads, seq_q, d_qk) = of(q)?;
    let (k_batch, k_heads, seq_k, k_dim) = of(k)?;
    let (_, _, v_len, d_v) = of(v)?;
    let grouped = k_heads == 0 || heads.checked_rem(k_heads) == Some(0);
    // Pages of cached keys have the dimensions of a batch.
    let alike = k.shape.len() == q.shape.len() && (k_batch == batch || k_batch == 1);
    if k_dim != d_qk || v_len != seq_k || !grouped || !alike {
        return Err(UnknownCost::BadArguments);
    }
    let mut sizes = Attention {
        batch,
        heads,
        seq_q,
        seq_k,
        d_qk,
        d_v,
        equal_lengths_assumed: false,
    };
    let names = ["cu_seqlens_q", "cum_seq_q", "cu_seqlens"];
    match l.lengths.map(|at| call.optional(at, &names)) {
        Some(Some(lengths)) if batch == 1 => {
            sizes.batch = count(&lengths.shape).saturating_sub(1);
            let each = |all: u64| all.checked_div(sizes.batch);
            let lengths = each(seq_q).zip(each(seq_k));
            (sizes.seq_q, sizes.seq_k) = lengths.ok_or(UnknownCost::BadArguments)?;
            sizes.equal_lengths_assumed = true;
        }
        Some(None) if q.shape.len() == 3 => return Err(UnknownCost::DataDependent),
        None if l.sequence_first && q.shape.len() == 3 => return Err(UnknownCost::BadArguments),
        _ => {}
    }
    Ok(sizes)
}

fn forward(call: &Call) -> Result<OpCost, UnknownCost> {
    let q = call.tensor(0, &["query", "q"])?;
    let k = call.tensor(1, &["key", "k"])?;
    let v = call.tensor(2, &["value", "v"])?;
    work(call, [q, k, v], call.backward)
}

/// The requests of one execution of a served model, in sums over them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CachedLengths {
    /// New tokens.
    pub(crate) tokens: u64,
    /// Keys that they attend to.
    pub(crate) keys: u64,
    /// Pairs of a new token and a key that are multiplied.
    pub(crate) pairs: u64,
    /// The element type of the cache.
    pub(crate) cache: DType,
}

/// The cost of vLLM's attention over all cached keys of the requests; the call has none of their lengths.
pub(super) fn with_lengths(call: &Call, lengths: CachedLengths) -> Result<OpCost, UnknownCost> {
    let q = call.tensor(0, &["query"])?;
    let k = call.tensor(1, &["key"])?;
    let v = call.tensor(2, &["value"])?;
    let (&[rows, heads, d_qk], &[_, kv_heads, k_dim], &[_, v_heads, d_v]) =
        (q.shape.as_slice(), k.shape.as_slice(), v.shape.as_slice())
    else {
        return Err(UnknownCost::DataDependent);
    };
    // More rows than new tokens are padding for a captured graph.
    let fits = k_dim == d_qk && v_heads == kv_heads && rows >= lengths.tokens;
    let grouped = heads.checked_rem(kv_heads) == Some(0);
    if !(call.name.starts_with("unified_attention") && fits && grouped) {
        return Err(UnknownCost::DataDependent);
    }
    let cached = product([
        lengths.keys,
        kv_heads,
        sum([d_qk, d_v]),
        lengths.cache.bytes(),
    ]);
    let new = product([lengths.tokens, heads]);
    let out = call.optional(3, &["output"]).unwrap_or(v);
    let bytes = total([
        call.dense(product([new, d_qk]), q),
        call.dense(product([new, d_v]), out),
        Ok(cached),
    ]);
    let flops = product([2, heads, sum([d_qk, d_v]), lengths.pairs]);
    call.one(flops, bytes, Dims::None)
}

/// Attention over pages of cached keys. The lengths are data, but they follow from the arguments where the
/// queries are as many as sequences of the greatest length, and the keys as long at most: then all
/// sequences have this length.
fn paged_prefill(call: &Call) -> Result<OpCost, UnknownCost> {
    let q = call.tensor(0, &["q"])?;
    let k = call.tensor(1, &["k"])?;
    let v = call.tensor(2, &["v"])?;
    let ends = call.tensor(3, &["cu_seqlens_q"])?;
    let longest = |at, name| {
        let given = call.int(at, &[name]).value();
        given
            .and_then(|n| u64::try_from(n).ok())
            .ok_or(UnknownCost::NoScalars)
    };
    let (seq_q, seq_k) = (longest(6, "max_seqlen_q")?, longest(7, "max_seqlen_k")?);
    let window = [13, 14].map(|at| call.int(at, &[]).value());
    let causal = call.flag(12, &["is_causal"]).value();
    let (&[tokens, heads, d_qk], &[_, kv_heads, _], &[_, _, d_v]) =
        (q.shape.as_slice(), k.shape.as_slice(), v.shape.as_slice())
    else {
        return Err(UnknownCost::BadArguments);
    };
    let batch = count(&ends.shape).saturating_sub(1);
    let equal = product([batch, seq_q]) == tokens && seq_k == seq_q;
    if !equal || window != [Some(-1), Some(-1)] {
        return Err(UnknownCost::DataDependent);
    }
    let a = Attention {
        batch,
        heads,
        seq_q,
        seq_k,
        d_qk,
        d_v,
        equal_lengths_assumed: false,
    };
    let cached = product([batch, seq_k, kv_heads]);
    let pages = call.bytes_as(call.optional(5, &["kv_page_indices"]), DType::Int32);
    let bytes = total([
        call.bytes(q),
        call.dense(product([cached, d_qk]), k),
        call.dense(product([cached, d_v]), v),
        call.dense(a.out(), q),
        Ok(sum([pages, a.logsumexp()])),
    ]);
    let mut cost = call.one(a.flops(sum([d_qk, d_v])), bytes, a.dims(call, causal))?;
    cost.note = (causal == Some(true)).then_some(CAUSAL);
    Ok(cost)
}

fn backward(call: &Call) -> Result<OpCost, UnknownCost> {
    let q = call.tensor(1, &["query", "q"])?;
    let k = call.tensor(2, &["key", "k"])?;
    let v = call.tensor(3, &["value", "v"])?;
    work(call, [q, k, v], true)
}

/// Whether `_efficient_attention_forward` masks causally: 0 no, 1 and 2 from either corner.
fn mask_type(call: &Call) -> Option<bool> {
    if !call.name.starts_with("efficient_attention_forward") {
        return None;
    }
    call.int(9, &["custom_mask_type"]).value().map(|t| t != 0)
}

fn work(call: &Call, [q, k, v]: [&Tensor; 3], gradients: bool) -> Result<OpCost, UnknownCost> {
    let l = layout(call);
    let a = sizes(call, &l, q, k, v)?;
    let causal = l
        .causal
        .and_then(|at| call.flag(at, &["is_causal", "causal"]).value());
    let causal = causal.or_else(|| mask_type(call)).or_else(|| {
        // `F.scaled_dot_product_attention(q, k, v)`: attention is not causal unless the flag is passed.
        let passed = call.args.items.len() > l.causal.unwrap_or(0);
        (l.causal.is_some() && !passed).then_some(false)
    });
    let mask = l
        .bias
        .and_then(|at| call.optional(at, &["attn_mask", "attn_bias", "bias"]));
    let mask = call.bytes_as(mask, q.dtype.or(call.default_dtype).unwrap_or(DType::Fp32));
    let out = call.dense(a.out(), q);
    let small = Ok(sum([a.logsumexp(), mask]));
    let reads = total([call.bytes(q), call.bytes(k), call.bytes(v), out, small]);
    let mut cost = if gradients {
        let written = total([
            out,
            call.dense(count(&q.shape), q),
            call.dense(count(&k.shape), k),
            call.dense(count(&v.shape), v),
        ]);
        let per_pair = a
            .d_qk
            .saturating_mul(3)
            .saturating_add(a.d_v.saturating_mul(2));
        call.gradient(
            a.flops(per_pair),
            total([reads, written]),
            a.dims(call, causal),
        )
    } else {
        let per_pair = a.d_qk.saturating_add(a.d_v);
        call.one(a.flops(per_pair), reads, a.dims(call, causal))
    }?;
    cost.note = match (a.equal_lengths_assumed, causal) {
        (true, _) => Some(VARLEN),
        (false, Some(true)) => Some(CAUSAL),
        _ => None,
    };
    Ok(cost)
}
