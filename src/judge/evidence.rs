//! What programs measured before and after a rule's advice gave back: the rows of
//! `evidence/results.json`, put into the program when it was built.

use std::fmt::Write as _;

use serde::Deserialize;

use crate::base::{text, units};

const RESULTS: &str = include_str!("../../evidence/results.json");

/// One pair of programs on one machine. Times are ns per step.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Row {
    /// `tf32` of `evidence/tf32.py`.
    pub pair: String,
    pub rule: String,
    pub gpu: String,
    pub driver: String,
    pub torch: String,
    pub date: String,
    pub before_ns: f64,
    pub after_ns: f64,
    /// `None` where the rule did not speak.
    pub predicted_low_ns: Option<f64>,
    pub predicted_high_ns: Option<f64>,
    pub measured_ns: f64,
    /// `yes`, `less` or `more` than promised, `silent`.
    pub agree: String,
}

/// All rows, or why the file is not what it should be; a test holds it to be.
///
/// # Errors
/// What is wrong with `evidence/results.json`.
pub fn rows() -> Result<Vec<Row>, serde_json::Error> {
    serde_json::from_str(RESULTS)
}

/// The section of a rule's page; empty without rows.
pub(super) fn section(rule: &str, rows: &[Row]) -> String {
    let mut out = String::new();
    for row in rows.iter().filter(|row| row.rule == rule) {
        if out.is_empty() {
            out.push_str("## Measured\n\n");
            out.push_str("| GPU | PyTorch | Before | After | Promised | Given back |\n");
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
    fn the_results_can_be_read() {
        rows().unwrap();
    }

    #[test]
    fn a_row_stands_on_the_page_of_its_rule_alone() {
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
