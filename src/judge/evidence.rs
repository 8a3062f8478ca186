//! Measured savings of rules: pairs of programs before and after a fix, from
//! `evidence/results.json`, which is embedded at build time.

use std::fmt::Write as _;

use serde::Deserialize;

use crate::base::{text, units};

const RESULTS: &str = include_str!("../../evidence/results.json");

/// A measurement of one pair of programs on one machine. Times are in ns per step.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Row {
    /// Stem of the program file: `tf32` of `evidence/tf32.py`.
    pub pair: String,
    /// Id of the rule whose advice the pair applies.
    pub rule: String,
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
    /// `yes` if the measured saving is within the estimate, `less` or `more` if it is outside,
    /// `silent` if the rule did not fire.
    pub agree: String,
}

/// All measurements. A test checks that the embedded file can be read.
///
/// # Errors
/// A parse error in `evidence/results.json`.
pub fn rows() -> Result<Vec<Row>, serde_json::Error> {
    serde_json::from_str(RESULTS)
}

/// The "Measured" section of a rule's page; empty if the rule has no rows.
pub(super) fn section(rule: &str, rows: &[Row]) -> String {
    let mut out = String::new();
    for row in rows.iter().filter(|row| row.rule == rule) {
        if out.is_empty() {
            out.push_str("## Measured\n\n");
            out.push_str(
                "| GPU | PyTorch | Before | After | Estimated saving | Measured saving |\n",
            );
            out.push_str("| --- | --- | --- | --- | --- | --- |\n");
        }
        let promised = match (row.predicted_low_ns, row.predicted_high_ns) {
            (Some(low), Some(high)) => format!("{} to {}", units::ns(low), units::ns(high)),
            _ => "(silent)".to_owned(),
        };
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {promised} | {} |",
            text::md(&row.gpu),
            text::md(&row.torch),
            units::ns(row.before_ns),
            units::ns(row.after_ns),
            units::ns(row.measured_ns),
        );
    }
    if !out.is_empty() {
        out.push_str("\nPer step; the programs are in `evidence/`.\n\n");
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
        let text = r#"[{"pair": "tf32", "rule": "precision/tf32-off", "gpu": "NVIDIA H100", "driver": "1",
            "torch": "2.9", "date": "2026-01-01", "before_ns": 2e7, "after_ns": 4e6,
            "predicted_low_ns": 8e6, "predicted_high_ns": 1.6e7, "measured_ns": 1.6e7, "agree": "yes"}]"#;
        let rows: Vec<Row> = serde_json::from_str(text).unwrap();
        let said = section("precision/tf32-off", &rows);
        assert!(
            said.contains(
                "| NVIDIA H100 | 2.9 | 20.0 ms | 4.00 ms | 8.00 ms to 16.0 ms | 16.0 ms |"
            ),
            "{said}"
        );
        assert_eq!(section("precision/amp-off", &rows), "");
    }
}
