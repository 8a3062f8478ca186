use super::patterns::{self, recognize};
use super::*;
use crate::cost::GemmSize;

fn work(name: &str, family: Family, dims: Dims) -> LinkWork<'_> {
    LinkWork {
        site: SiteId(0),
        name,
        family,
        direction: Direction::Fprop,
        dims,
        rounded: false,
        complex: false,
        by_name: None,
    }
}

fn link(name: &str, family: Family, dims: Dims) -> ChainLink<'_> {
    doing(work(name, family, dims))
}

/// A kernel of one microsecond. The work is leaked, which is acceptable in tests.
fn doing(work: LinkWork<'_>) -> ChainLink<'_> {
    ChainLink {
        work: Box::leak(Box::new(work)),
        call: OpCallId(0),
        first: KernelId(0),
        last: KernelId(0),
        time_ns: 1000,
        kernels: 1,
    }
}

/// Work without an operator, known by the names of its kernels.
fn by_kernel(name: &str, family: Family, products: u32) -> ChainLink<'_> {
    let dims = match family {
        Family::Pointwise => Dims::Elements { numel: 4096 },
        _ => Dims::None,
    };
    doing(LinkWork {
        direction: Direction::Unknown,
        rounded: true,
        by_name: Some(products),
        ..work(name, family, dims)
    })
}

fn in_direction<'a>(links: &[ChainLink<'a>], direction: Direction) -> Vec<ChainLink<'a>> {
    let turned = |l: &ChainLink<'a>| {
        doing(LinkWork {
            direction,
            ..*l.work
        })
    };
    links.iter().map(turned).collect()
}

fn pointwise_on(name: &str, numel: u64) -> ChainLink<'_> {
    let family = match name {
        "cat" => Family::Cat,
        "to" | "copy" => Family::Cast,
        _ => Family::Pointwise,
    };
    link(name, family, Dims::Elements { numel })
}

fn product(m: u64, n: u64, k: u64) -> ChainLink<'static> {
    gemm("linear", 1, [m, n, k])
}

fn gemm(name: &str, batch: u64, [m, n, k]: [u64; 3]) -> ChainLink<'_> {
    let dims = Dims::Gemm(GemmSize {
        batch,
        m,
        n,
        k,
        contiguous: (false, true, true),
    });
    link(name, Family::Gemm, dims)
}

fn softmax(name: &str, rows: u64, cols: u64) -> ChainLink<'_> {
    link(name, Family::Softmax, Dims::Rows { rows, cols })
}

fn hit(links: &[ChainLink<'_>]) -> Option<(&'static str, usize)> {
    recognize(links).map(|(kind, length)| (kind.name(), length))
}

/// Operators of the given names, all of one size.
fn named(names: &str) -> Vec<ChainLink<'_>> {
    let names = names.split(' ');
    names.map(|name| pointwise_on(name, 4096)).collect()
}

/// The same, with half as many elements for a negation.
fn rotation(names: &str) -> Vec<ChainLink<'_>> {
    let size = |name| if name == "neg" { 2048 } else { 4096 };
    let names = names.split(' ');
    names.map(|name| pointwise_on(name, size(name))).collect()
}

#[test]
fn rotary_embeddings_are_recognized_in_every_order_and_other_sums_are_not() {
    let spelled = "mul neg cat mul add mul";
    for (names, length) in [
        (spelled, 5),
        ("mul neg copy cat mul to add", 7),
        ("neg cat mul mul add", 5),
        ("neg mul stack mul add silu", 5),
        ("to neg stack to mul mul add to silu", 8),
        ("to to mul neg cat mul add to", 8),
    ] {
        assert_eq!(hit(&rotation(names)), Some(("rope", length)), "{names}");
    }
    for names in [
        "mul cat mul add",
        "mul neg cat mul",
        "cat neg mul mul add",
        "neg mul mul cat add",
        "neg cat mul add",
        "neg cat mul mul mul add",
        "neg cat mul mul sub",
    ] {
        assert_eq!(hit(&rotation(names)), None, "{names}");
    }
    let optimizer = in_direction(&rotation(spelled), Direction::Update);
    assert_eq!(hit(&optimizer), None);
}

#[test]
fn rotary_embeddings_negate_half_of_what_they_add() {
    let all = "neg cat mul mul add";
    // All elements are negated, one product is of other elements, or an unrelated conversion precedes.
    assert_eq!(hit(&named(all)), None);
    let mut other = rotation(all);
    other[2] = pointwise_on("mul", 64);
    assert_eq!(hit(&other), None);
    let mut converted = rotation("to neg cat mul mul add");
    assert_eq!(hit(&converted), Some(("rope", 6)));
    converted[0] = pointwise_on("to", 64);
    assert_eq!(hit(&converted), None);
    // Sizes are not always recorded; then a single conversion is taken for that of the input.
    let unsized_links = |names: &str| -> Vec<ChainLink<'static>> {
        let links = rotation(names).into_iter();
        let links = links.map(|l| link(l.name.to_owned().leak(), l.family, Dims::None));
        links.collect()
    };
    assert_eq!(
        hit(&unsized_links("to neg stack to mul mul add to to")),
        Some(("rope", 8))
    );
    assert_eq!(hit(&unsized_links("to to neg stack mul mul add")), None);
}

/// Rotations of queries and keys in halves, and what follows.
fn both(rotation: &str, between: &str, behind: &[ChainLink<'static>]) -> Vec<ChainLink<'static>> {
    let of = |names: &str| -> Vec<ChainLink<'static>> {
        let names = names
            .split_whitespace()
            .map(|name| &*name.to_owned().leak());
        let links = names.map(|name| match name {
            "index" => link(name, Family::Index, Dims::None),
            "copy" => link(name, Family::Copy, Dims::Elements { numel: 2048 }),
            "cat" | "to" => pointwise_on(name, 4096),
            name => pointwise_on(name, 2048),
        });
        links.collect()
    };
    [of(rotation), of(between), of(rotation), behind.to_vec()].concat()
}

#[test]
fn rotations_of_halves_are_recognized_before_attention() {
    let scores = || gemm("bmm", 8, [64, 64, 32]);
    let ranges = |links: &[ChainLink<'_>]| {
        rope::queries_and_keys(links).map(|two| two.map(|r| (r.start, r.end)))
    };
    let copied = "index mul mul sub mul mul add copy copy";
    for (names, between, found) in [
        (copied, "", [(0, 9), (9, 18)]),
        (copied, "arange add", [(0, 9), (11, 20)]),
        ("mul mul sub mul mul add cat", "", [(0, 7), (7, 14)]),
        ("mul mul add mul mul sub cat to", "", [(0, 8), (8, 16)]),
        ("mul mul mul mul sub add cat", "", [(0, 7), (7, 14)]),
    ] {
        let links = both(names, between, &[scores()]);
        assert_eq!(ranges(&links), Some(found), "{names}");
    }
    for names in [
        // Two means, a difference of one product, two differences, three products, nothing joined.
        "mul mul add mul mul add copy copy",
        "mul sub mul mul mul add cat",
        "mul mul sub mul mul sub cat",
        "mul mul sub mul add cat",
        "mul mul sub mul mul add",
        "mul mul sub mul mul add copy",
        "mul mul sub copy mul mul add copy",
    ] {
        assert_eq!(ranges(&both(names, "", &[scores()])), None, "{names}");
    }
    // Products of complex numbers without attention, a single one, and one of other sizes.
    let names = "mul mul sub mul mul add cat";
    assert_eq!(ranges(&both(names, "", &[])), None);
    assert_eq!(ranges(&both(names, "", &[product(64, 64, 64)])), None);
    let links = both(names, "", &[scores()]);
    assert_eq!(ranges(&links[7..]), None);
    for at in [3, 5, 6] {
        let mut other = links.clone();
        other[at] = pointwise_on(other[at].name, 512);
        assert_eq!(ranges(&other), None, "{at}");
    }
    assert_eq!(ranges(&in_direction(&links, Direction::Bprop)), None);
    let mut hits = Vec::new();
    scan(&links, &|_| false, &mut hits);
    let found: Vec<(Kind, usize)> = hits.iter().map(|hit| (hit.kind, hit.calls.len())).collect();
    assert_eq!(found, [(Kind::Rope, 7), (Kind::Rope, 7)]);
}

#[test]
fn rotations_of_halves_are_recognized_by_the_names_of_their_kernels() {
    // The kernel of a difference is called `add`. Its grid counts in other blocks than that of a product.
    let one = |names: &str| -> Vec<ChainLink<'static>> {
        let names = names.split(' ').map(|name| &*name.to_owned().leak());
        let links = names.map(|name| {
            let family = match name {
                "copy" => Family::Copy,
                "index" => Family::Index,
                _ => Family::Pointwise,
            };
            let kernel = by_kernel(name, family, 1);
            let numel = if name == "add" { 1024 } else { 2048 };
            doing(LinkWork {
                dims: Dims::Elements { numel },
                ..*kernel.work
            })
        });
        links.collect()
    };
    let turned = one("index mul mul add mul mul add copy copy");
    let attends = |links: Vec<ChainLink<'static>>| {
        let scores = by_kernel("bmm", Family::Gemm, 8);
        rope::queries_and_keys(&[links.clone(), links, vec![scores]].concat()).is_some()
    };
    assert!(attends(turned));
    // Running averages of two tensors, each copied at once.
    assert!(!attends(one("mul mul add copy mul mul add copy")));
    let negated = [
        by_kernel("mul", Family::Pointwise, 1),
        by_kernel("neg", Family::Pointwise, 1),
        by_kernel("cat", Family::Cat, 1),
        by_kernel("mul", Family::Pointwise, 1),
        by_kernel("add", Family::Pointwise, 1),
    ];
    assert_eq!(hit(&negated), Some(("rope", 5)));
}

#[test]
fn a_fused_rotation_reads_and_writes_each_number_once() {
    let with_times = |names: &str, times: &[i64]| -> Vec<ChainLink<'static>> {
        let names = names.split(' ').map(|name| &*name.to_owned().leak());
        let links = names.map(|name| pointwise_on(name, 4096));
        let times = links.zip(times);
        times
            .map(|(link, ns)| ChainLink {
                time_ns: *ns,
                ..link
            })
            .collect()
    };
    let fused = |links: &[ChainLink<'_>]| {
        let links: Vec<&ChainLink<'_>> = links.iter().collect();
        let kept = rope::kept(&links).into_iter().map(|l| l.time_ns);
        (rope::fused_by_time_ns(&links), kept.collect::<Vec<i64>>())
    };
    let whole = with_times("neg stack mul mul add", &[100, 350, 181, 180, 190]);
    assert_eq!(fused(&whole), (181.0, vec![181]));
    let converted = with_times("to neg stack mul mul add", &[150, 100, 350, 180, 181, 190]);
    assert_eq!(fused(&converted), (181.0, vec![150]));
    let halves = with_times("mul mul sub mul mul add cat", &[23, 22, 12, 24, 21, 15, 40]);
    assert_eq!(fused(&halves), (20.0, vec![23, 22]));
}

#[test]
fn gelu_variants_are_recognized() {
    for (names, length) in [
        ("mul pow mul add mul tanh add mul silu", 8),
        ("pow mul add mul tanh add mul mul", 8),
        ("div erf add mul mul sigmoid", 5),
    ] {
        assert_eq!(hit(&named(names)), Some(("gelu", length)), "{names:?}");
    }
    // A gate of a recurrent cell, and a curve of other elements.
    assert_eq!(hit(&named("sigmoid tanh mul add")), None);
    assert_eq!(hit(&named("mul tanh mul mul")), None);
    // The normal CDF and a sigmoid.
    assert_eq!(hit(&named("div erf add mul")), None);
    assert_eq!(hit(&named("div tanh add mul")), None);
    assert_eq!(hit(&named("mul div erf add mul")), Some(("gelu", 5)));
    let mut other = named("div erf add mul mul");
    other[1] = pointwise_on("erf", 64);
    assert_eq!(hit(&other), None);
}

#[test]
fn gated_activations_allow_a_product_before_the_multiplication() {
    let silu = || pointwise_on("silu", 64 * 256);
    let mul = || pointwise_on("mul", 64 * 256);
    assert_eq!(hit(&[silu(), mul()]), Some(("gated_activation", 2)));
    let between = [silu(), product(64, 256, 32), mul()];
    assert_eq!(hit(&between), Some(("gated_activation", 3)));
    let kept = patterns::kept(Kind::GatedActivation, &between);
    let names: Vec<&str> = kept.iter().map(|l| l.name).collect();
    assert_eq!(names, ["silu", "mul"]);
    assert_eq!(hit(&[silu(), pointwise_on("mul", 64)]), None);
    assert_eq!(hit(&[silu(), pointwise_on("add", 64 * 256)]), None);
}

#[test]
fn scores_are_as_wide_as_there_are_keys() {
    let (scores, mask) = (product(64, 256, 32), pointwise_on("copy", 64 * 256 * 8));
    let members = [&scores, &mask];
    assert_eq!(matches::width(Kind::Attention, &members), Some(256));
    assert_eq!(
        matches::width(Kind::Pointwise, &members),
        Some(64 * 256 * 8)
    );
}

#[test]
fn forward_work_under_no_grad_is_recognized() {
    let links = [
        pointwise_on("silu", 64 * 256),
        pointwise_on("mul", 64 * 256),
    ];
    let hit_in = |direction| hit(&in_direction(&links, direction));
    assert_eq!(hit_in(Direction::Unknown), Some(("gated_activation", 2)));
    assert_eq!(hit_in(Direction::Bprop), None);
}

#[test]
fn log_of_softmax_is_recognized() {
    let log = pointwise_on("log", 32 * 100);
    assert_eq!(
        hit(&[softmax("softmax", 32, 100), log]),
        Some(("log_of_softmax", 2))
    );
    let log = pointwise_on("log", 32);
    assert_eq!(hit(&[softmax("softmax", 32, 100), log]), None);
    let log = pointwise_on("log", 32 * 100);
    assert_eq!(hit(&[softmax("log_softmax", 32, 100), log]), None);
}

#[test]
fn logits_upcast_requires_a_conversion_of_the_logits() {
    let loss = || softmax("log_softmax", 512, 50_000);
    let cast = pointwise_on("to", 512 * 50_000);
    assert_eq!(hit(&[cast, loss()]), Some(("logits_upcast", 1)));
    assert_eq!(hit(&[pointwise_on("to", 512), loss()]), None);
    let score = pointwise_on("to", 512 * 50_000);
    assert_eq!(hit(&[score, softmax("softmax", 512, 50_000)]), None);
}

#[test]
fn shared_input_requires_products_that_cannot_depend_on_each_other() {
    let qkv = [
        product(512, 1024, 1024),
        product(512, 256, 1024),
        product(512, 256, 1024),
    ];
    assert_eq!(hit(&qkv), Some(("shared_input", 3)));
    let pair = [product(512, 256, 1024), product(512, 1024, 1024)];
    assert_eq!(hit(&pair), Some(("shared_input", 2)));
    // Two layers of an MLP without an activation between them: the second may read the first.
    let layers = [product(512, 1024, 1024), product(512, 4096, 1024)];
    assert_eq!(hit(&layers), None);
    let backward = in_direction(&qkv, Direction::Bprop);
    assert_eq!(hit(&backward), None);
}

#[test]
fn weights_converted_between_products_do_not_part_them() {
    let cast = |size| pointwise_on("to", size);
    let under_autocast = [
        product(512, 1024, 1024),
        cast(256 * 1024),
        product(512, 256, 1024),
        cast(256 * 1024),
        cast(256),
        product(512, 256, 1024),
        pointwise_on("add", 512 * 256),
    ];
    assert_eq!(hit(&under_autocast), Some(("shared_input", 6)));
    assert_eq!(
        patterns::kept(Kind::SharedInput, &under_autocast[..6]).len(),
        3
    );
    // The input of the second product is converted: it may be another tensor.
    let other = [
        product(512, 1024, 1024),
        cast(512 * 1024),
        product(512, 256, 1024),
    ];
    assert_eq!(hit(&other), None);
}

#[test]
fn softmax_written_out_is_recognized() {
    let size = 8 * 1024;
    let row = |name| link(name, Family::Reduce, Dims::None);
    let on = |name| pointwise_on(name, size);
    let written = [
        row("amax"),
        on("sub"),
        on("exp"),
        row("sum"),
        on("div"),
        on("mul"),
    ];
    assert_eq!(hit(&written), Some(("softmax", 5)));
    let named_by_kernels = [row("max"), on("add"), on("exp"), row("sum"), on("div")];
    assert_eq!(hit(&named_by_kernels), Some(("softmax", 5)));
    // A sum of exponentials, and other sizes.
    assert_eq!(
        hit(&[row("max"), on("sub"), on("exp"), row("sum"), on("log")]),
        None
    );
    let other = [
        row("max"),
        on("sub"),
        pointwise_on("exp", 8),
        row("sum"),
        on("div"),
    ];
    assert_eq!(hit(&other), None);
}

#[test]
fn complex_rotary_embeddings_are_recognized() {
    let complex = |numel| {
        let work = work("mul", Family::Pointwise, Dims::Elements { numel });
        doing(LinkWork {
            complex: true,
            ..work
        })
    };
    let cast = || pointwise_on("copy", 4096);
    let one = [cast(), complex(2048), cast(), cast()];
    assert_eq!(hit(&one[..3]), Some(("rope", 3)));
    let both = [cast(), cast(), complex(2048), complex(2048), cast(), cast()];
    assert_eq!(hit(&both), Some(("rope", 6)));
    // Real numbers, other sizes, and nothing converted back.
    assert_eq!(hit(&[cast(), pointwise_on("mul", 2048), cast()]), None);
    assert_eq!(hit(&[cast(), complex(4096), cast()]), None);
    assert_eq!(hit(&[cast(), complex(2048)]), None);
}

#[test]
fn updates_of_adam_are_recognized_by_the_names_of_their_kernels() {
    let named = |names: &'static str| -> Vec<_> {
        let names = names.split(' ');
        names.map(|n| by_kernel(n, Family::Pointwise, 1)).collect()
    };
    let adam = named("mul lerp mul addcmul sqrt div add addcdiv");
    assert_eq!(any(&adam), Some(("adam", 8)));
    for part in ["mul addcmul sqrt", "sqrt div addcmul"] {
        assert_eq!(any(&named(part)), Some(("pointwise", 3)), "{part}");
    }
}

#[test]
fn silu_written_out_is_recognized_unless_a_longer_sequence_begins() {
    let on = |name| pointwise_on(name, 4096);
    assert_eq!(hit(&[on("sigmoid"), on("mul")]), Some(("silu", 2)));
    assert_eq!(
        hit(&[on("sigmoid"), on("mul"), product(64, 64, 64)]),
        Some(("silu", 2))
    );
    assert_eq!(hit(&[on("sigmoid"), on("mul"), on("add")]), None);
    // The gate of a channel, which is smaller.
    assert_eq!(hit(&[pointwise_on("sigmoid", 64), on("mul")]), None);
    assert_eq!(
        hit(&in_direction(&[on("sigmoid"), on("mul")], Direction::Bprop)),
        None
    );
}

#[test]
fn adapters_beside_a_product_are_recognized() {
    let added = || pointwise_on("add", 512 * 1024);
    let scaled = || pointwise_on("mul", 512 * 1024);
    let adapter = [
        product(512, 1024, 2048),
        product(512, 16, 2048),
        product(512, 1024, 16),
        scaled(),
        added(),
    ];
    assert_eq!(hit(&adapter), Some(("lora", 5)));
    assert_eq!(patterns::kept(Kind::Lora, &adapter).len(), 4);
    let dropped = [
        product(512, 1024, 2048),
        link("native_dropout", Family::Dropout, Dims::None),
        product(512, 16, 2048),
        product(512, 1024, 16),
        added(),
    ];
    assert_eq!(hit(&dropped), Some(("lora", 5)));
    // The sum of a 16-bit and an fp32 tensor is converted back.
    let mut converted = adapter.to_vec();
    converted.push(link(
        "copy",
        Family::Cast,
        Dims::Elements { numel: 512 * 1024 },
    ));
    assert_eq!(hit(&converted), Some(("lora", 6)));
    // A bottleneck of the network itself, and one whose result is not added.
    let wide = [
        product(512, 1024, 2048),
        product(512, 512, 2048),
        product(512, 1024, 512),
        added(),
    ];
    assert_ne!(hit(&wide).map(|h| h.0), Some("lora"));
    assert_ne!(hit(&adapter[..4]).map(|h| h.0), Some("lora"));
}

#[test]
fn expert_loops_require_indexing_and_varying_row_counts() {
    let experts = |rows: &dyn Fn(u64) -> u64, index: bool| -> Vec<ChainLink<'static>> {
        (0..8)
            .flat_map(|e| {
                let pick = index.then(|| link("index", Family::Index, Dims::None));
                let other = pointwise_on("relu", 64);
                pick.into_iter().chain([
                    product(rows(e), 4096, 1024),
                    other,
                    product(rows(e), 1024, 4096),
                ])
            })
            .collect()
    };
    let loop_ = experts(&|e| 10 + e, true);
    // The loop starts at the first product; the index before it belongs to no loop from this position.
    assert_eq!(patterns::expert_loop(&loop_), None);
    let rest = loop_.get(1..).unwrap();
    assert_eq!(patterns::expert_loop(rest), Some(rest.len()));
    // Both products of each expert.
    assert_eq!(patterns::kept(Kind::ExpertLoop, rest).len(), 16);
    // The blocks of a transformer: equal row counts, or no indexing.
    let blocks = experts(&|_| 10, true);
    assert_eq!(patterns::expert_loop(blocks.get(1..).unwrap()), None);
    assert_eq!(patterns::expert_loop(&experts(&|e| 10 + e, false)), None);
}

#[test]
fn bias_between_convolution_and_norm_is_distinguished_from_a_residual() {
    let conv = link("cudnn_convolution", Family::Conv, Dims::None);
    let add = pointwise_on("add", 64);
    let norm = link("cudnn_batch_norm", Family::Norm, Dims::None);
    let relu = pointwise_on("relu", 64);
    let run = [conv, add, norm, relu];
    assert_eq!(conv_norm(&run, &|_| true), Some((Kind::ConvNorm, 4)));
    assert_eq!(conv_norm(&run, &|_| false), None);
    let run = [conv, norm, relu];
    assert_eq!(conv_norm(&run, &|_| false), Some((Kind::ConvNorm, 3)));
}

fn any(links: &[ChainLink<'_>]) -> Option<(&'static str, usize)> {
    recognize_at(links, &|_| false).map(|(kind, length)| (kind.name(), length))
}

#[test]
fn norms_include_their_leading_conversion_and_square() {
    let mut links = named("add copy pow mean add rsqrt mul copy mul");
    let mean = links.get_mut(3).unwrap();
    *mean = link("mean", Family::Reduce, Dims::None);
    // The residual addition belongs to no sequence, and no pointwise sequence includes the rest.
    assert_eq!(any(&links), None);
    assert_eq!(any(links.get(1..).unwrap()), Some(("norm", 8)));
    // Two more operators before the conversion form a separate sequence.
    let mut longer = named("mul add");
    longer.extend(links);
    assert_eq!(any(&longer), Some(("pointwise", 3)));
    assert_eq!(any(&named("copy add mul")), Some(("pointwise", 3)));
}

#[test]
fn backward_of_both_log_softmaxes_right_after_the_loss_proves_a_repetition() {
    let turned = |link: ChainLink<'static>| in_direction(&[link], Direction::Bprop)[0];
    let backward = turned(softmax("log_softmax", 700, 33_278));
    let loss = link("nll_loss", Family::Loss, Dims::None);
    let fill = link("ones_like", Family::Fill, Dims::Elements { numel: 1 });
    let proof = [loss, fill, turned(loss), backward, backward];
    assert!(patterns::backward_repeats(&proof));
    // Of a teacher without gradient, only the student's has a backward pass.
    let student = [loss, fill, turned(loss), backward, turned(product(8, 8, 8))];
    assert!(!patterns::backward_repeats(&student));
    // What runs forward makes no gradient; another backward call may have made that of the first.
    let mul = pointwise_on("mul", 700);
    let metric = [loss, mul, turned(loss), backward, backward];
    assert!(patterns::backward_repeats(&metric));
    let other = [loss, mul, turned(mul), turned(loss), backward, backward];
    assert!(!patterns::backward_repeats(&other));
    assert!(!patterns::backward_repeats(&[
        fill, loss, backward, backward
    ]));
    assert!(!patterns::backward_repeats(&[loss]));
}

#[test]
fn attention_of_the_math_backend_and_of_one_head_is_recognized() {
    let bmm = |batch, m, n, k| gemm("bmm", batch, [m, n, k]);
    let scores = || softmax("softmax", 16_384, 16_384);
    let head = [
        bmm(1, 16_384, 16_384, 512),
        scores(),
        bmm(1, 16_384, 512, 16_384),
    ];
    assert_eq!(any(&head), Some(("attention", 3)));
    // Products of another width are not attention.
    let other = [
        bmm(1, 16_384, 16_384, 512),
        scores(),
        bmm(1, 16_384, 512, 64),
    ];
    assert_ne!(any(&other), Some(("attention", 3)));
    let mut safe = vec![bmm(8, 2048, 2048, 64), softmax("softmax", 8 * 2048, 2048)];
    safe.push(link("scalar_tensor", Family::Fill, Dims::None));
    safe.push(pointwise_on("eq", 8 * 2048 * 2048));
    safe.push(link("all", Family::Reduce, Dims::None));
    safe.push(link("scalar_tensor", Family::Fill, Dims::None));
    safe.push(pointwise_on("where", 8 * 2048 * 2048));
    safe.push(bmm(8, 2048, 64, 2048));
    assert_eq!(any(&safe), Some(("attention", 8)));
}

#[test]
fn attention_is_recognized_by_the_names_of_its_kernels() {
    let bmm = |products| by_kernel("bmm", Family::Gemm, products);
    let pointwise = |name| by_kernel(name, Family::Pointwise, 1);
    let reduce = |name| by_kernel(name, Family::Reduce, 1);
    let fused = [
        bmm(48),
        pointwise("mul"),
        pointwise("add"),
        by_kernel("softmax", Family::Softmax, 1),
        by_kernel("copy", Family::Copy, 1),
        bmm(48),
    ];
    assert_eq!(any(&fused), Some(("attention", 6)));
    let primitives = |last| {
        [
            bmm(48),
            pointwise("mul"),
            pointwise("where"),
            reduce("max"),
            pointwise("add"),
            pointwise("exp"),
            reduce("sum"),
            pointwise("div"),
            bmm(last),
        ]
    };
    assert_eq!(any(&primitives(48)), Some(("attention", 9)));
    // Products of another number are not those of the same heads.
    assert_ne!(any(&primitives(6)), Some(("attention", 9)));
    // Nor is what has no softmax.
    assert_eq!(any(&[bmm(48), pointwise("mul"), bmm(48)]), None);
}

fn recognized(costed: &Costed) -> Vec<Chain> {
    let around = EnclosingOps::default();
    super::recognize(costed, &|| &around)
}

/// GELU in primitives, the first product in bf16 and the rest in fp32, and its backward pass, in which
/// autograd runs the operators in reverse.
fn gelu_with_backward() -> Costed {
    use crate::correlate::testing::ProfileBuilder;
    let mut b = ProfileBuilder::new();
    let ops = (1_u64..=8).zip(["mul", "pow", "mul", "add", "mul", "tanh", "add", "mul"]);
    for (seq, op) in ops.clone() {
        let start = seq as i64 * 1000;
        let dtype = if seq == 1 { "c10::BFloat16" } else { "float" };
        let args =
            format!(r#"{{"Input Dims": [[1048576], []], "Input type": ["{dtype}", "Scalar"]}}"#);
        let args = b.profile.strings.intern(&args);
        let range = b.range(&format!("aten::{op}, seq = {seq}"), start, start + 500);
        range.args = Some(args);
        b.launch(start + 100);
    }
    for (seq, op) in ops.collect::<Vec<_>>().into_iter().rev() {
        let start = 100_000 - seq as i64 * 1000;
        b.range(&format!("{op}Backward0, seq = {seq}"), start, start + 500);
        b.launch(start + 100);
    }
    let gpu = crate::gpu::select::choose(Some("a100-sxm4-40gb"), &b.profile).unwrap();
    crate::cost::estimate_costs(b.run(), gpu)
}

#[test]
fn the_backward_pass_of_a_gelu_belongs_to_it() {
    let costed = gelu_with_backward();
    let chains = recognized(&costed);
    let [gelu] = chains.as_slice() else {
        panic!("{chains:?}")
    };
    assert_eq!((gelu.kind, gelu.length), (Kind::Gelu, 8));
    let backward: f64 = gelu.backward.values().sum();
    assert_eq!((gelu.time_ns, backward), (80.0, 80.0));
}

#[test]
fn a_fused_gelu_reads_and_writes_each_element_in_the_type_of_its_input() {
    let costed = gelu_with_backward();
    let gpu = &costed.gpu.as_ref().unwrap().gpu;
    let bytes = 2.0 * 2.0 * 1_048_576.0;
    let ns = bytes / gpu.bandwidth * 1e9 / gpu.reachable.memory;
    assert_eq!(recognized(&costed)[0].fused_ns, Some(ns));
}

#[test]
fn a_chain_has_its_own_calls_and_kernels_of_sites_that_it_shares() {
    use crate::correlate::testing::ProfileBuilder;
    let mut b = ProfileBuilder::new();
    // Without shapes all products of one name are one site. The last but one belongs to no norm.
    let ops = "pow mean add rsqrt mul mul relu index mul index".split(' ');
    for (start, op) in (1..).map(|i| i * 1000).zip(ops) {
        b.range(&format!("aten::{op}"), start, start + 500);
        b.launch(start + 100);
        if start == 5000 {
            let second = b.launch(start + 200);
            b.profile.kernels[second].name = b.profile.strings.intern("helper");
        }
    }
    let costed = crate::cost::estimate_costs(b.run(), None);
    let chains = recognized(&costed);
    let [norm] = chains.as_slice() else {
        panic!("{chains:?}")
    };
    assert_eq!((norm.kind, norm.length), (Kind::Norm, 6));
    let products = (norm.parts.iter()).find(|(site, _)| costed.run.sites[site.idx()].calls > 1);
    let (site, part) = products.unwrap();
    let site = &costed.run.sites[site.idx()];
    let runs: Vec<u32> = site.kernels.iter().map(|k| k.count).collect();
    assert_eq!((site.calls, runs), (3, vec![3, 1]));
    let kernels = BTreeMap::from([(0, (2, 20.0)), (1, (1, 10.0))]);
    assert_eq!((part.calls, &part.kernels), (2, &kernels));
}

#[test]
fn a_norm_written_out_begins_with_the_mean_that_it_subtracts() {
    fn written_out(names: &str) -> Vec<ChainLink<'_>> {
        let links = names.split(' ').map(|name| match name {
            "mean" => link(name, Family::Reduce, Dims::None),
            _ => pointwise_on(name, 4096),
        });
        links.collect()
    }
    let links = written_out("mean sub pow mean sub add rsqrt mul mul add");
    assert_eq!(any(&links), Some(("norm", 10)));
    let converted = written_out("to mean sub pow mean sub add rsqrt mul mul add");
    assert_eq!(any(&converted).map(|(kind, _)| kind), Some("norm"));
    // A single statistic after four other operators belongs to something else.
    let far = written_out("mul add add add mean add rsqrt mul");
    assert_ne!(any(&far).map(|(kind, _)| kind), Some("norm"));
}
