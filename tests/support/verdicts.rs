//! What `tests/verdicts.toml` says about the reports on real profiles.

#![allow(dead_code, reason = "each test program uses a part of this module")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde::Deserialize;

const TEXT: &str = include_str!("../verdicts.toml");

/// All verdicts.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Verdicts {
    pub(crate) profile: Vec<Program>,
    pub(crate) finding: Vec<Reviewed>,
}

/// A profile, and what an expert would have said that its report does not.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Program {
    /// Below the shared folder: `profiles/lm_net.sql`.
    pub(crate) path: String,
    /// What was recorded.
    pub(crate) about: String,
    /// Advice that the report lacks.
    #[serde(default)]
    pub(crate) missed: String,
}

/// A numbered finding, read against the raw rows of its profile.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reviewed {
    pub(crate) profile: String,
    pub(crate) rule: String,
    #[serde(default)]
    pub(crate) subject: String,
    pub(crate) verdict: Verdict,
    pub(crate) because: String,
    /// SQL over the raw rows that bears it out; see `tests/verdicts/query.py`.
    pub(crate) query: String,
    pub(crate) gives: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) enum Verdict {
    #[serde(rename = "worth doing")]
    WorthDoing,
    #[serde(rename = "minor")]
    Minor,
    #[serde(rename = "misleading")]
    Misleading,
    #[serde(rename = "wrong")]
    Wrong,
}

impl Verdict {
    pub(crate) const ALL: [Verdict; 4] = [
        Verdict::WorthDoing,
        Verdict::Minor,
        Verdict::Misleading,
        Verdict::Wrong,
    ];

    pub(crate) fn words(self) -> &'static str {
        match self {
            Verdict::WorthDoing => "worth doing",
            Verdict::Minor => "minor",
            Verdict::Misleading => "misleading",
            Verdict::Wrong => "wrong",
        }
    }
}

pub(crate) fn all() -> Verdicts {
    toml::from_str(TEXT).unwrap_or_else(|error| panic!("tests/verdicts.toml: {error}"))
}

impl Verdicts {
    /// The findings of one profile, in the order of its report.
    pub(crate) fn of<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a Reviewed> {
        self.finding.iter().filter(move |f| f.profile == path)
    }

    pub(crate) fn count(&self, verdict: Verdict) -> usize {
        self.finding.iter().filter(|f| f.verdict == verdict).count()
    }
}
