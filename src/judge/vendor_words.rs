//! Advice in the words of the GPU's maker. Rules are written in NVIDIA's; most of what they say holds
//! for AMD too, where the same things have other names.

use crate::facts::{Answer, Lookup, Value};

/// NVIDIA's word and what it is called on ROCm, longer ones first where one begins another. Only what
/// means the same: `torch.cuda` and `"cuda"` are spelt so on ROCm too and are not here.
/// Sources: HIP programming guide ("Understanding the HIP programming model"), the MIOpen, hipBLASLt,
/// ROCm Compute Profiler, AMD SMI and AMD Instinct documentation.
const WORDS: &[(&str, &str)] = &[
    ("`ncu --set full`", "`rocprof-compute profile`"),
    (
        "`nvidia-smi -q -d CLOCK,PERFORMANCE`",
        "`amd-smi metric --clock --power`",
    ),
    ("16-bit Tensor Core kernels", "16-bit matrix core kernels"),
    ("Tensor Cores", "matrix cores"),
    ("Tensor Core", "matrix core"),
    ("CUDA cores", "vector units"),
    ("CUDA graphs", "HIP graphs"),
    ("CUDA graph", "HIP graph"),
    ("CUDA streams", "HIP streams"),
    ("cuBLAS", "hipBLASLt"),
    ("cuDNN", "MIOpen"),
    ("NCCL", "RCCL"),
    ("NVLink", "Infinity Fabric"),
    ("Nsight Compute", "ROCm Compute Profiler"),
    ("SMs", "compute units"),
    ("an SM", "a compute unit"),
    ("one SM", "one compute unit"),
    ("per SM", "per compute unit"),
    ("warps", "wavefronts"),
    ("warp", "wavefront"),
];

/// The beginning of an address of NVIDIA's documentation, and AMD's page about the same. Other pages of
/// NVIDIA do not apply to AMD GPUs.
const PAGES: &[(&str, &str)] = &[
    (
        "https://docs.nvidia.com/nsight-compute/",
        "https://rocm.docs.amd.com/projects/rocprofiler-compute/en/latest/",
    ),
    (
        "https://docs.nvidia.com/deeplearning/nccl/",
        "https://rocm.docs.amd.com/projects/rccl/en/latest/",
    ),
    (
        "https://docs.nvidia.com/cuda/cublas/",
        "https://rocm.docs.amd.com/projects/hipBLASLt/en/latest/",
    ),
    (
        "https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/",
        "https://rocm.docs.amd.com/projects/hipBLASLt/en/latest/",
    ),
    (
        "https://docs.nvidia.com/deeplearning/performance/dl-performance-convolutional/",
        "https://rocm.docs.amd.com/projects/MIOpen/en/latest/",
    ),
    (
        "https://docs.nvidia.com/deeplearning/cudnn/",
        "https://rocm.docs.amd.com/projects/MIOpen/en/latest/",
    ),
    (
        "https://docs.nvidia.com/deeplearning/performance/",
        "https://rocm.docs.amd.com/projects/HIP/en/latest/how-to/performance_guidelines.html",
    ),
    (
        "https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/",
        "https://rocm.docs.amd.com/projects/HIP/en/latest/how-to/performance_guidelines.html",
    ),
    (
        "https://docs.nvidia.com/cuda/cuda-c-programming-guide/",
        "https://rocm.docs.amd.com/projects/HIP/en/latest/how-to/performance_guidelines.html",
    ),
    (
        "https://docs.nvidia.com/deploy/nvidia-smi/",
        "https://rocm.docs.amd.com/projects/amdsmi/en/latest/",
    ),
];

/// The links of a rule: those of AMD when the GPU in use is AMD's, and none about PyTorch for other programs.
pub(super) fn vendor_links(links: &[String], lookup: &dyn Lookup) -> Vec<String> {
    let other = is(lookup, "run.pytorch", false);
    let links = links
        .iter()
        .filter(|link| !(other && link.contains("pytorch")));
    if !is_amd(lookup) {
        return links.cloned().collect();
    }
    let mut own: Vec<String> = links.filter_map(|link| amd_link(link)).collect();
    own.dedup();
    own
}

/// `None` for a page that is about NVIDIA's GPUs only.
fn amd_link(link: &str) -> Option<String> {
    if let Some((_, amd)) = PAGES.iter().find(|(nvidia, _)| link.starts_with(nvidia)) {
        return Some((*amd).to_owned());
    }
    let nvidia = link
        .split('/')
        .nth(2)
        .is_some_and(|host| host.ends_with("nvidia.com"));
    (!nvidia).then(|| link.to_owned())
}

/// The fix, with what `torch.compile` needs under Windows if it names that and the program ran there.
pub(super) fn for_windows(fix: String, lookup: &dyn Lookup) -> String {
    if is(lookup, "run.windows", true)
        && fix.contains("torch.compile")
        && !fix.contains("triton-windows")
    {
        return format!("{fix}\n\nOn Windows `torch.compile` needs the package `triton-windows`.");
    }
    fix
}

/// Whether a fact is known to be true, or to be false.
fn is(lookup: &dyn Lookup, fact: &str, wanted: bool) -> bool {
    lookup.get(fact) == Answer::Value(Value::Bool(wanted))
}

fn is_amd(lookup: &dyn Lookup) -> bool {
    matches!(lookup.get("gpu.vendor"), Answer::Value(Value::Str(vendor)) if &*vendor == "amd")
}

/// The text as it is, or in ROCm's words when the GPU in use is AMD's.
pub(super) fn in_vendor_words(text: String, lookup: &dyn Lookup) -> String {
    if is_amd(lookup) {
        translate(&text)
    } else {
        text
    }
}

/// Replaces whole words outside code; a word that is itself code stands in backticks in the table.
fn translate(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut code = false;
    let mut before = ' ';
    while let Some(next) = rest.chars().next() {
        let word = WORDS.iter().find(|(nvidia, _)| {
            !code && !before.is_alphanumeric() && rest.strip_prefix(nvidia).is_some_and(ends_word)
        });
        if let Some((nvidia, amd)) = word {
            if begins_sentence(&out) {
                out.extend(amd.chars().next().map(|c| c.to_ascii_uppercase()));
                out.push_str(amd.get(1..).unwrap_or_default());
            } else {
                out.push_str(amd);
            }
            rest = rest.get(nvidia.len()..).unwrap_or_default();
            before = 'x';
            continue;
        }
        code ^= next == '`';
        out.push(next);
        before = next;
        rest = rest.get(next.len_utf8()..).unwrap_or_default();
    }
    out
}

/// Whether what follows this text is the first word of a sentence.
fn begins_sentence(before: &str) -> bool {
    let text = before.trim_end();
    text.is_empty() || (text.len() < before.len() && text.ends_with(['.', '!', '?']))
}

fn ends_word(rest: &str) -> bool {
    !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_replaced_and_code_is_not() {
        for (nvidia, amd) in [
            (
                "on 104 SMs: a block runs on one SM.",
                "on 104 compute units: a block runs on one compute unit.",
            ),
            (
                "Look with `ncu --set full`.",
                "Look with `rocprof-compute profile`.",
            ),
            ("`cuDNN` and cuDNN", "`cuDNN` and MIOpen"),
            (
                "```python\nx.to(\"cuda\")  # Tensor Cores\n```",
                "```python\nx.to(\"cuda\")  # Tensor Cores\n```",
            ),
            (
                "torch.cuda, SMSs, xSMs, warping",
                "torch.cuda, SMSs, xSMs, warping",
            ),
            ("", ""),
            ("`open", "`open"),
            ("É Tensor Core", "É matrix core"),
            (
                "Tensor Cores multiply. SMs idle: SMs.",
                "Matrix cores multiply. Compute units idle: compute units.",
            ),
        ] {
            assert_eq!(translate(nvidia), amd);
        }
    }

    #[test]
    fn links_to_nvidia_become_links_to_amd_or_are_left_out() {
        for (link, amd) in [
            (
                "https://docs.nvidia.com/nsight-compute/NsightComputeCli/index.html",
                Some("https://rocm.docs.amd.com/projects/rocprofiler-compute/en/latest/"),
            ),
            (
                "https://docs.nvidia.com/nsight-systems/UserGuide/index.html",
                None,
            ),
            ("https://developer.nvidia.com/blog/x", None),
            (
                "https://pytorch.org/docs/nvidia.com",
                Some("https://pytorch.org/docs/nvidia.com"),
            ),
        ] {
            assert_eq!(amd_link(link).as_deref(), amd, "{link}");
        }
        for (i, (page, _)) in PAGES.iter().enumerate() {
            let earlier = PAGES.get(..i).unwrap_or_default();
            assert!(!earlier.iter().any(|(e, _)| page.starts_with(e)), "{page}");
        }
    }

    struct Run(&'static str, bool);
    impl Lookup for Run {
        fn get(&self, name: &str) -> Answer {
            match name == self.0 {
                true => Answer::Value(Value::Bool(self.1)),
                false => Answer::Absent,
            }
        }
    }

    #[test]
    fn the_compiler_needs_a_package_on_windows() {
        let fix = |text: &str, windows| for_windows(text.to_owned(), &Run("run.windows", windows));
        let compile = "`torch.compile(model)`";
        assert!(fix(compile, true).ends_with("needs the package `triton-windows`."));
        assert_eq!(fix(compile, false), compile);
        let named = "`torch.compile` needs `triton-windows`";
        assert_eq!(fix(named, true), named);
        assert_eq!(fix("a larger batch", true), "a larger batch");
    }

    #[test]
    fn links_about_pytorch_are_left_out_for_other_programs() {
        let cuda = "https://docs.nvidia.com/cuda/index.html";
        let links = [cuda, "https://pytorch.org/docs/stable/amp.html"].map(str::to_owned);
        assert_eq!(vendor_links(&links, &Run("run.pytorch", true)), links);
        assert_eq!(vendor_links(&links, &Run("run.pytorch", false)), [cuda]);
    }

    #[test]
    fn no_word_is_hidden_by_a_shorter_one() {
        for (i, (word, _)) in WORDS.iter().enumerate() {
            let earlier = WORDS.get(..i).unwrap_or_default();
            assert!(
                !earlier
                    .iter()
                    .any(|(e, _)| word.strip_prefix(e).is_some_and(ends_word)),
                "{word}"
            );
        }
    }
}
