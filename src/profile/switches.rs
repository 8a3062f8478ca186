//! Environment variables that change performance, and which of their values may be printed.

use serde::{Deserialize, Serialize};

/// A variable that changes performance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Switch {
    /// Its name: `OMP_NUM_THREADS`.
    pub name: String,
    /// Its value: a number, a boolean or a word that the variable is known to take.
    pub value: String,
}

/// The variables, and the words that they take besides numbers and booleans.
const SWITCHES: &[(&str, &[&str])] = &[
    ("CUDA_LAUNCH_BLOCKING", &[]),
    ("CUDA_DEVICE_MAX_CONNECTIONS", &[]),
    ("OMP_NUM_THREADS", &[]),
    ("MKL_NUM_THREADS", &[]),
    ("TOKENIZERS_PARALLELISM", &[]),
    ("PYTORCH_JIT", &[]),
    ("PYTORCH_NO_CUDA_MEMORY_CACHING", &[]),
    ("NCCL_P2P_DISABLE", &[]),
    (
        "NCCL_P2P_LEVEL",
        &["LOC", "NVL", "PIX", "PXB", "PHB", "SYS"],
    ),
    ("NCCL_SHM_DISABLE", &[]),
    ("NCCL_IB_DISABLE", &[]),
    ("NCCL_NVLS_ENABLE", &[]),
    (
        "NCCL_ALGO",
        &["Ring", "Tree", "CollnetDirect", "CollnetChain", "NVLS"],
    ),
    ("NCCL_PROTO", &["LL", "LL128", "Simple"]),
    ("NCCL_NTHREADS", &[]),
    ("NCCL_BUFFSIZE", &[]),
    ("NCCL_MIN_NCHANNELS", &[]),
    ("NCCL_MAX_NCHANNELS", &[]),
    ("NCCL_LAUNCH_MODE", &["PARALLEL", "GROUP"]),
    ("NCCL_DEBUG", &["VERSION", "WARN", "INFO", "TRACE"]),
];

/// Variables with several settings, as `key:value,key:value`, by the keys that are known.
const SETTINGS: [&str; 2] = ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];
const KEYS: [&str; 6] = [
    "backend",
    "expandable_segments",
    "garbage_collection_threshold",
    "max_split_size_mb",
    "pinned_use_cuda_host_register",
    "roundup_power2_divisions",
];
const BACKENDS: [&str; 2] = ["native", "cudaMallocAsync"];

const BOOLEANS: [&str; 6] = ["true", "false", "on", "off", "yes", "no"];
/// Longer numbers are no sizes or counts.
const MOST_DIGITS: usize = 10;

impl Switch {
    /// The switch with this name; `None` for another variable, and for a value that is not known to be harmless.
    pub fn of(name: &str, value: &str) -> Option<Switch> {
        let value = value.trim();
        let is_harmless = match SWITCHES.iter().find(|(known, _)| *known == name) {
            Some((_, words)) => is_plain(value) || is_one_of(words, value),
            None if SETTINGS.contains(&name) => value.split(',').all(is_setting),
            None => false,
        };
        is_harmless.then(|| Switch {
            name: name.to_owned(),
            value: value.to_owned(),
        })
    }
}

/// Whether a text is a number or a boolean.
fn is_plain(value: &str) -> bool {
    let digits = value.bytes().filter(u8::is_ascii_digit).count();
    let points = value.bytes().filter(|byte| *byte == b'.').count();
    let is_number =
        (1..=MOST_DIGITS).contains(&digits) && points <= 1 && digits + points == value.len();
    is_number || is_one_of(&BOOLEANS, value)
}

fn is_one_of(words: &[&str], value: &str) -> bool {
    words.iter().any(|word| word.eq_ignore_ascii_case(value))
}

/// `max_split_size_mb:128`
fn is_setting(text: &str) -> bool {
    let Some((key, value)) = text.trim().split_once(':') else {
        return false;
    };
    KEYS.contains(&key) && (is_plain(value) || key == "backend" && is_one_of(&BACKENDS, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recordings_name_all_switches() {
        let python = include_str!("../../python/pyprof_advise/_switches.py");
        let names = SWITCHES.iter().map(|(name, _)| *name).chain(SETTINGS);
        for name in names {
            assert!(python.contains(&format!("\"{name}\",")), "{name}");
        }
        let words = SWITCHES.iter().flat_map(|(_, words)| *words);
        for word in words {
            // `[Rr]ing`
            assert!(python.contains(word.get(1..).unwrap()), "{word}");
        }
    }

    #[test]
    fn only_harmless_values_of_known_variables_are_kept() {
        for (name, value) in [
            ("OMP_NUM_THREADS", "8"),
            ("CUDA_LAUNCH_BLOCKING", "true"),
            ("NCCL_ALGO", "ring"),
            (
                "PYTORCH_CUDA_ALLOC_CONF",
                "expandable_segments:True,max_split_size_mb:128",
            ),
            ("PYTORCH_ALLOC_CONF", "backend:cudaMallocAsync"),
        ] {
            let switch = Switch::of(name, value);
            assert_eq!(switch.map(|s| s.value).as_deref(), Some(value), "{name}");
        }
        for (name, value) in [
            ("AWS_SECRET_ACCESS_KEY", "1"),
            ("OMP_NUM_THREADS", "hunter2"),
            ("OMP_NUM_THREADS", ""),
            ("OMP_NUM_THREADS", "."),
            ("OMP_NUM_THREADS", "12345678901"),
            ("OMP_NUM_THREADS", "1\u{1b}[2J"),
            ("NCCL_ALGO", "Ring;token"),
            ("NCCL_DEBUG", "/home/arthur/log"),
            ("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:hunter2"),
            ("PYTORCH_CUDA_ALLOC_CONF", "token:1"),
            ("PYTORCH_CUDA_ALLOC_CONF", "backend:native,hunter2"),
        ] {
            assert_eq!(Switch::of(name, value), None, "{name}={value}");
        }
    }
}
