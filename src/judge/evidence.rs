//! Measured savings of rules: pairs of programs before and after a fix, from
//! `evidence/results.json`, which is embedded at build time.

use std::fmt::Write as _;
use std::sync::LazyLock;

use serde::Deserialize;

use crate::base::{text, units};

const RESULTS: &str = include_str!("../../evidence/results.json");

/// The environment variable that names a file to read instead of the embedded one, so that citing can be
/// tested, and new results read, without compiling (CONTRIBUTING.md).
const VARIABLE: &str = "PYPROF_ADVISE_RESULTS";

/// A measurement of one pair of programs on one machine. Times are in ns per step, or per call of the operators.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct EvidenceRow {
    /// Stem of the program file: `tf32` of `evidence/tf32.py`.
    pub pair: String,
    /// Id of the rule whose advice the pair applies.
    pub rule: String,
    /// `try` for steps of the programs, `in turn` for those of both versions in one process, `repro` for the
    /// operators of the finding alone.
    pub how: String,
    /// Name of the GPU.
    pub gpu: String,
    /// Version of the GPU driver.
    pub driver: String,
    /// Version of PyTorch.
    pub torch: String,
    /// Date of the measurement, `YYYY-MM-DD`.
    pub date: String,
    /// Time of the original program.
    pub before_ns: f64,
    /// Time of the program after the fix.
    pub after_ns: f64,
    /// Lower end of the estimated saving; `None` if the rule did not fire.
    pub predicted_low_ns: Option<f64>,
    /// Upper end of the estimated saving; `None` if the rule did not fire.
    pub predicted_high_ns: Option<f64>,
    /// Measured saving.
    pub measured_ns: f64,
    /// Half of the 95 % confidence interval of the saving, or of `repro` the difference between its samples;
    /// `None` if there were too few runs.
    pub noise_ns: Option<f64>,
    /// How the estimate and the measured saving compare: a word of `evidence/harness.py`.
    pub agree: String,
}

impl EvidenceRow {
    /// Whether the pair was measured as a whole.
    fn is_whole(&self) -> bool {
        self.how != "repro"
    }

    /// Whether the fix saved more than the noise.
    fn saves(&self) -> bool {
        self.measured_ns > self.noise_ns.unwrap_or(0.0)
    }

    /// Whether it saved a similar share of its steps.
    fn is_like(&self, share: Option<f64>) -> bool {
        /// Part of the measured share from which another one is similar.
        const ALIKE: f64 = 0.25;
        let least = ALIKE * self.measured_ns / self.before_ns;
        !self.is_whole() || share.is_none_or(|share| share >= least)
    }

    /// `16.0 ms ± 0.20 ms`.
    fn measured(&self) -> String {
        let noise =
            (self.noise_ns).map_or_else(String::new, |noise| format!(" ± {}", units::ns(noise)));
        format!("{}{noise}", units::ns(self.measured_ns))
    }

    /// `8.00 ms to 16.0 ms`.
    fn estimated(&self) -> Option<String> {
        let (low, high) = self.predicted_low_ns.zip(self.predicted_high_ns)?;
        Some(format!("{} to {}", units::ns(low), units::ns(high)))
    }

    /// The measurement in one sentence, as plain text.
    fn sentence(&self) -> String {
        let of = if self.is_whole() {
            format!("a step of {}", units::ns(self.before_ns))
        } else {
            format!("{} of the operators alone", units::ns(self.before_ns))
        };
        let estimated = self
            .estimated()
            .map_or_else(String::new, |range| format!("; {range} were estimated"));
        format!(
            "In a test program of pyprof-advise, on {} with torch {} ({}), the fix saved {} of {of}{estimated} \
             (docs/evidence.md, `{}`).",
            self.gpu,
            self.torch,
            self.date,
            self.measured(),
            self.pair
        )
    }
}

/// All measurements. A test checks that the embedded file can be read.
///
/// # Errors
/// A parse error in `evidence/results.json`.
pub fn rows() -> Result<Vec<EvidenceRow>, serde_json::Error> {
    match std::env::var_os(VARIABLE) {
        Some(file) => serde_json::from_slice(&std::fs::read(file).map_err(serde_json::Error::io)?),
        None => serde_json::from_str(RESULTS),
    }
}

/// What the advice of a rule was measured to save, a plain sentence per measurement. `share` is what a finding saves of
/// its whole; programs that saved several times as much are left out.
pub fn cited(rule: &str, share: Option<f64>) -> Vec<String> {
    static ROWS: LazyLock<Vec<EvidenceRow>> = LazyLock::new(|| rows().unwrap_or_default());
    let own = ROWS.iter().filter(|row| row.rule == rule && row.saves());
    let alike = own.filter(|row| row.is_like(share));
    alike.map(EvidenceRow::sentence).collect()
}

/// The "Measured" section of a rule's page; empty if the rule has no rows.
pub(super) fn section(rule: &str, rows: &[EvidenceRow]) -> String {
    let mut out = String::new();
    for row in rows.iter().filter(|row| row.rule == rule) {
        if out.is_empty() {
            out.push_str("## Measured\n\n");
            out.push_str(
                "| What | GPU | Driver | PyTorch | Date | Before | After | Estimated saving | Measured saving |\n",
            );
            out.push_str("| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
        }
        let what = if row.is_whole() {
            "steps"
        } else {
            "operators alone"
        };
        let _ = writeln!(
            out,
            "| {what} | {} | {} | {} | {} | {} | {} | {} | {} |",
            text::md(&row.gpu),
            text::md(&row.driver),
            text::md(&row.torch),
            text::md(&row.date),
            units::ns(row.before_ns),
            units::ns(row.after_ns),
            row.estimated().unwrap_or_else(|| "-".to_owned()),
            row.measured(),
        );
    }
    if !out.is_empty() {
        out.push_str(
            "\nPer step, or per call of the operators; the programs are in `evidence/`.\n\n",
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embedded_results_can_be_parsed() {
        rows().unwrap();
    }

    #[test]
    fn section_contains_only_rows_of_its_rule() {
        let text = r#"[{"pair": "tf32", "rule": "precision/tf32-off", "how": "try", "gpu": "NVIDIA H100", "driver": "1",
            "torch": "2.9", "date": "2026-01-01", "before_ns": 2e7, "after_ns": 4e6,
            "predicted_low_ns": 8e6, "predicted_high_ns": 1.6e7, "measured_ns": 1.6e7, "noise_ns": 2e5, "agree": "yes"}]"#;
        let rows: Vec<EvidenceRow> = serde_json::from_str(text).unwrap();
        let said = section("precision/tf32-off", &rows);
        assert!(
            said.contains(
                "| steps | NVIDIA H100 | 1 | 2.9 | 2026-01-01 | 20.0 ms | 4.00 ms | 8.00 ms to 16.0 ms | 16.0 ms ± 200 us |"
            ),
            "{said}"
        );
        assert_eq!(section("precision/amp-off", &rows), "");
        assert!(rows[0].is_like(Some(0.2)) && rows[0].is_like(None));
        assert!(!rows[0].is_like(Some(0.19)));
        assert_eq!(
            rows[0].sentence(),
            "In a test program of pyprof-advise, on NVIDIA H100 with torch 2.9 (2026-01-01), the fix saved 16.0 ms ± \
             200 us of a step of 20.0 ms; 8.00 ms to 16.0 ms were estimated (docs/evidence.md, `tf32`)."
        );
    }
}
