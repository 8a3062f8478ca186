//! Correlation of real captures (`PYPROF_ADVISE_SHARED`), compared with the output of PyProf.

use super::literal::{self, Literal};
use super::*;
use crate::read;

/// Operator names that the cost table should know.
const KNOWN: &[&str] = &[
    "_flash_attn_forward",
    "_fused_dropout",
    "_log_softmax",
    "_masked_scale",
    "_softmax",
    "_to_copy",
    "__add__",
    "__iadd__",
    "__mul__",
    "__truediv__",
    "add",
    "add_",
    "addmm",
    "all_to_all",
    "alltoall_base_",
    "bmm",
    "cat",
    "clone",
    "contiguous",
    "conv2d",
    "copy_",
    "div",
    "dropout",
    "embedding",
    "equal",
    "fill_",
    "gelu",
    "interpolate",
    "layer_norm",
    "linear",
    "log_softmax",
    "masked_fill_",
    "matmul",
    "mean",
    "mm",
    "mul",
    "mul_",
    "native_layer_norm",
    "neg",
    "nll_loss",
    "norm",
    "ones_like",
    "pow",
    "relu",
    "rsqrt",
    "softmax",
    "stack",
    "sum",
    "threshold_backward",
    "to",
    "zero_",
    "zeros_like",
];

fn run(file: &str) -> Option<Run> {
    let path = crate::shared::profile(file)?;
    let profile = read::open(&path, &read::NoProgress).unwrap();
    let vocabulary = Vocabulary {
        knows_op: &|op| KNOWN.contains(&op.name.as_str()),
        is_communication: &|name| name.starts_with("nccl"),
    };
    Some(correlate(profile, &vocabulary))
}

fn display(run: &Run, link: &Link) -> Option<String> {
    let call = run.op_call(link.op?)?;
    Some(run.op_name(call)?.display())
}

/// Time of the kernels whose link fits.
fn time_of(run: &Run, fits: impl Fn(&Link) -> bool) -> i64 {
    let kernels = run.profile.kernels.iter().zip(&run.links);
    let fitting = kernels.filter(|(_, link)| fits(link));
    fitting.map(|(kernel, _)| kernel.span.ns()).sum()
}

/// The number of kernels with a launch, and of those whose launch is not in the profile.
fn launched_and_not(run: &Run) -> (usize, usize) {
    let count = |fits: fn(&Link) -> bool| run.links.iter().filter(|link| fits(link)).count();
    (
        count(|link| link.launch.is_some()),
        count(|link| link.missing == Some(WithoutOperator::NoLaunch)),
    )
}

/// Time of the launched kernels with a layer from a source, in percent of all launched kernels.
fn percent_from(run: &Run, source: LayerSource) -> i64 {
    let named = time_of(run, |link| {
        let layer = link.op.and_then(|c| run.op_calls[c.idx()].layer);
        layer.is_some_and(|l| run.layers[l.idx()].source == source)
    });
    named * 100 / time_of(run, |link| link.launch.is_some()).max(1)
}

#[test]
fn language_model_the_decoder_forward_and_backward() {
    let Some(run) = run("lm_net.sql") else { return };
    let decoder: Vec<&Site> = run
        .sites
        .iter()
        .filter(|s| {
            let args = s.args.map(|a| &run.args[a.idx()]);
            let tensors = args.iter().flat_map(|a| a.tensors());
            s.op.as_ref().is_some_and(|o| o.name == "matmul")
                && tensors
                    .map(|t| t.shape.as_slice())
                    .any(|s| s == [200, 33278])
        })
        .collect();
    let of = |direction| {
        let site = decoder.iter().find(|s| s.direction == direction).unwrap();
        let layer = &run.layers[site.layer.unwrap().idx()];
        assert_eq!(layer.name, "language-model.py:111");
        (
            site.kernels.iter().map(|k| k.count).sum::<u32>(),
            site.args_from_forward,
        )
    };
    assert_eq!(of(Direction::Fprop), (1, false));
    assert_eq!(of(Direction::Bprop), (2, true));
    assert_eq!(run.layer_source, Some(LayerSource::SourceLine));
}

/// Nodes of autograd, and the operators that recorded them in this program.
const NODES: [(&str, &str); 11] = [
    ("Bmm", "bmm"),
    ("Embedding", "embedding"),
    ("FusedDropout", "dropout"),
    ("LogSoftmax", "log_softmax"),
    ("Mm", "matmul"),
    ("MulBackward0", "__mul__"),
    ("NativeLayerNorm", "layer_norm"),
    ("NllLoss", "nll_loss"),
    ("Softmax", "softmax"),
    ("Split", "cat"),
    ("threshold", "relu"),
];

/// Kernel by kernel, PyProf's direction and operator, except where PyProf is known to be wrong: it
/// reports gradients summed by the autograd engine as forward work.
#[test]
fn language_model_agrees_with_pyprof() {
    let Some(run) = run("lm_net.sql") else { return };
    let Some(reference) = crate::shared::path("reference") else {
        return;
    };
    let text = std::fs::read_to_string(reference.join("lm_net.pyprof.dict")).unwrap();
    let (mut summed, mut compared) = (0, 0);
    for (line, (kernel, link)) in text.lines().zip(run.profile.kernels.iter().zip(&run.links)) {
        let row = literal::parse(line).unwrap();
        let word = |key: &str| row.get(key).and_then(Literal::as_str).unwrap_or_default();
        let last = |key: &str| row.get(key).and_then(Literal::items).and_then(<[_]>::last);
        assert_eq!(row.get("kDuration"), Some(&Literal::Int(kernel.span.ns())));
        let call = &run.op_calls[link.op.unwrap().idx()];
        let op = run.op_name(call).unwrap();
        compared += 1;
        match (word("dir"), call.direction) {
            ("fprop", Direction::Fprop | Direction::Update) => {
                let (module, name) = (last("mod").unwrap(), last("op").unwrap());
                assert_eq!(module.as_str(), Some(op.module.as_str()));
                assert_eq!(name.as_str(), Some(op.name.as_str()));
            }
            ("bprop", Direction::Bprop) => {
                // PyProf names the node of autograd; the operator is that of the forward call.
                let node = last("op").and_then(Literal::as_str).unwrap();
                assert!(NODES.contains(&(node, op.name.as_str())), "{node} {op:?}");
            }
            ("fprop", Direction::Bprop) => {
                assert!(matches!(op.name.as_str(), "add" | "add_" | "sum"));
                assert_eq!(last("mod").and_then(Literal::as_str), Some("na"));
                summed += 1;
            }
            (theirs, ours) => panic!("{theirs} and {ours:?}: {line}"),
        }
    }
    assert_eq!((compared, summed), (160, 24));
}

#[test]
fn open_getters_do_not_hide_convolutions() {
    let Some(run) = run("mmagic.sqlite") else {
        return;
    };
    let mut convolutions = 0;
    for link in &run.links {
        let name = display(&run, link);
        assert!(name.as_ref().is_none_or(|n| !n.contains("__getattr__")));
        convolutions += usize::from(name.as_deref() == Some("torch.nn.functional.conv2d"));
    }
    assert_eq!(convolutions, 90);
    let unknown = |link: &Link| link.missing == Some(WithoutOperator::NoOperator);
    assert!(run.links.iter().filter(|link| unknown(link)).count() >= 180);
    let share = time_of(&run, unknown) * 100 / time_of(&run, |_| true);
    assert!((30..=32).contains(&share), "{share} %");
}

#[test]
fn fsdp_brackets_name_the_layers_of_both_ranks() {
    let Some(run) = run("mfu_2gpu_before.sqlite") else {
        return;
    };
    assert_eq!(launched_and_not(&run), (3986, 24));
    assert!(percent_from(&run, LayerSource::Fsdp) >= 95);
    assert!(run.patterns.iter().any(|p| p.name == "blocks.*"));
    assert!(
        run.links
            .iter()
            .all(|l| l.missing != Some(WithoutOperator::NoRange))
    );
}

#[test]
fn kernels_without_a_launch_are_in_the_totals() {
    let Some(run) = run("h100_2gpu_1s.sqlite") else {
        return;
    };
    assert_eq!(launched_and_not(&run), (1632, 1810));
    let in_sites: i64 = run.sites.iter().map(|s| s.time_ns).sum();
    assert_eq!(in_sites, time_of(&run, |_| true));
}

#[test]
fn user_ranges_name_layers_but_the_whole_loop_does_not() {
    let Some(run) = run("cs336zx_2_7B_nvtx.sqlite") else {
        return;
    };
    assert!(run.links.iter().all(|link| link.op.is_none()));
    let names: Vec<&str> = run.layers.iter().map(|l| l.name.as_str()).collect();
    assert!(names.contains(&"computing softmax"), "{names:?}");
    assert!(!names.contains(&"benchmark_loop"), "{names:?}");
}
