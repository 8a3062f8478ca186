//! The result of `try`: what the JSON output has, and the other formats are views of.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::check::Check;

/// Version of the fields of [`Trial`]. New fields do not change it; removed, renamed and changed fields raise it.
pub(crate) const SCHEMA_VERSION: u32 = 1;
/// The JSON Schema (draft 2020-12) of the JSON output, generated from the types.
pub(crate) const SCHEMA: &str = include_str!("../../docs/schema/try.json");

/// Treatments of a program, each with what it saves. Times are in nanoseconds per step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Trial {
    /// [`SCHEMA_VERSION`] of the program that wrote it.
    pub(crate) schema_version: u32,
    /// The result in a few plain sentences, the most important first.
    pub(crate) verdict: Vec<String>,
    /// The program that was run, with its arguments.
    pub(crate) command: Vec<String>,
    /// Name of the GPU that the runs used, as its driver reports it; `null` if they used none.
    pub(crate) gpu: Option<String>,
    /// The GPU of the profile that findings and estimates come from.
    #[serde(default)]
    pub(crate) profiled_gpu: Option<String>,
    /// Versions of torch, CUDA and Python.
    pub(crate) versions: BTreeMap<String, Option<String>>,
    /// Steps that each run skips first.
    pub(crate) skip: u32,
    /// Steps that each run measures.
    pub(crate) steps: u32,
    /// Number of runs.
    pub(crate) runs: u64,
    /// Why the runs ended early; `null` if they did not.
    pub(crate) stopped: Option<String>,
    /// The runs without treatments.
    pub(crate) untreated: Side,
    /// One row per treatment, the largest saving first.
    pub(crate) treatments: Vec<TrialRow>,
    /// The best treatments together; `null` if that was not tried.
    pub(crate) together: Option<TrialRow>,
    /// What could not be tried.
    pub(crate) not_tried: Vec<NotTried>,
}

/// Repeated runs of the program. A repetition is the median step of one run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Side {
    /// Mean of the repetitions; `null` without runs.
    pub(crate) step_ns: Option<f64>,
    /// The repetitions, in the order of the runs.
    pub(crate) repetitions_ns: Vec<f64>,
    /// The most memory of the GPU in use, in bytes; `null` without a GPU.
    pub(crate) peak_memory_bytes: Option<u64>,
}

/// What treatments have changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct TrialRow {
    /// The treatments that were applied: one, or the best together.
    pub(crate) names: Vec<String>,
    /// What they do.
    pub(crate) title: String,
    /// The findings whose fix they apply.
    pub(crate) findings: Vec<TrialFinding>,
    /// Lower end of the estimated saving of the findings; `null` without an estimate.
    pub(crate) estimate_low_ns: Option<f64>,
    /// Upper end of the estimated saving.
    pub(crate) estimate_high_ns: Option<f64>,
    /// The runs.
    pub(crate) treated: Side,
    /// Time of a step with the treatments over that without.
    pub(crate) ratio: Option<f64>,
    /// Measured saving; negative where steps take longer.
    pub(crate) saving_ns: Option<f64>,
    /// Half of the 95 % confidence interval of the difference (Welch), as a share of the step without.
    pub(crate) noise: Option<f64>,
    /// Why the noise is not known.
    pub(crate) noise_unknown: Option<String>,
    /// The result.
    pub(crate) outcome: TrialOutcome,
    /// Whether the program computes the same.
    pub(crate) check: Check,
    /// Why results differ by design; `null` if they should not.
    pub(crate) changes_results: Option<String>,
    /// What to know about it, in plain sentences.
    pub(crate) remarks: Vec<String>,
    /// What was changed, and how often.
    pub(crate) changes: BTreeMap<String, u64>,
    /// The lines to add to the program.
    pub(crate) add: Vec<Lines>,
}

/// Lines of Python for the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Lines {
    /// The lines.
    pub(crate) lines: String,
    /// Where they go.
    #[serde(rename = "where")]
    pub(crate) whereabouts: String,
}

/// A finding that a treatment is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct TrialFinding {
    /// Its number in the report; 0 for one that is not numbered.
    pub(crate) number: u64,
    /// Its rule.
    pub(crate) rule: String,
    /// Its title.
    pub(crate) title: String,
}

/// Whether a treatment helps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) enum TrialOutcome {
    /// Steps are shorter by more than 2 % and the noise.
    Faster,
    /// Steps are longer by more than 2 % and the noise.
    Slower,
    /// The difference is within 2 % or the noise.
    NoDifference,
    /// There are too few runs.
    Unknown,
}

/// Something that could not be tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct NotTried {
    /// The treatment, or the title of a finding without one.
    pub(crate) name: String,
    /// Whether `name` is the title of a finding, which is text of a profile.
    pub(crate) is_finding: bool,
    /// Why.
    pub(crate) why: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn try_schema_is_fresh() {
        let id = format!("urn:pyprof-advise:try:{SCHEMA_VERSION}");
        let schema = schemars::schema_for!(Trial);
        crate::report::check_schema(schema, &id, "try", SCHEMA);
    }
}
