//! One [`Report`] of a profile, and its renderings.
//!
//! A report is plain data: numbers with their unit in the field's name, texts as the profile has
//! them (shortened, home folders cut, not escaped). The JSON output *is* this struct; the Markdown
//! is a template rendered over it, and so is whatever a user's own template makes of it.

mod basis;
mod build;
mod charts;
mod clusters;
mod collectives;
mod evidence;
mod figures;
mod finding_report;
mod folded_work;
mod github;
mod host;
mod host_profiles;
mod html;
mod job;
mod json;
mod launching;
mod layers;
mod markdown;
mod markdown_text;
mod model;
mod narrative;
mod opening;
mod ranks;
mod repeating;
mod rows;
mod sarif;
mod serving;
mod sites;
mod source_lines;
mod suppressed;
mod synchronizations;
mod template;
mod text;
mod text_table;
mod timeline;
mod titles;
mod user_template;
mod work_units;

#[cfg(feature = "cli")]
use crate::correlate::StepSource;

pub(crate) use basis::steps_in_window;
pub(crate) use build::MAX_UNKNOWN_NAMES;
pub use clusters::KernelCluster;
pub(crate) use figures::{share, share_of_busy};
pub(crate) use finding_report::total_saving;
pub use finding_report::{
    Baseline, CallArgument, CallUnit, Evidence, FactValue, FindingList, FindingPlace,
    FindingReport, GoneFinding, HiddenFinding, HiddenReason, KernelUse, MeasuredSaving, NEW,
    OperatorUse, Quote, QuotedLine, SavingReport, SuppressionReport, SuppressionState, TotalSaving,
};
pub use github::github;
pub(crate) use host::merged as merged_host;
pub use host::{HostEvidence, HostReport, HostRow};
pub use host_profiles::{HostLineReport, HostProfileReport};
pub use html::html;
pub(crate) use html::page;
pub use job::{
    CollectiveCall, CollectiveTimes, FirstCollective, Job, LeftOut, OnRanks, Rank, RankStep,
    RankTimes, Waits,
};
#[cfg(test)]
pub(crate) use json::check_schema;
pub(crate) use json::to_json;
pub use json::{NotAReport, SCHEMA, json, read_json};
pub use launching::{GapClass, HostCalls, Launching};
pub(crate) use layers::{MAX_ALREADY_FAST, MAX_ROWS as MAX_LAYER_ROWS, MOSTLY};
pub use markdown::{PR_CHARS, markdown, markdown_within};
pub use model::{
    Ceiling, CostUnknown, GpuUsed, JoinedWindows, MAX_SITES, Method, Options, ProgramRun, Report,
    SCHEMA_VERSION, SkippedRules, StepsFrom, Summary, Unattributed, UserCosted,
};
#[cfg(feature = "cli")]
pub(crate) use opening::possible_savings;
pub(crate) use repeating::merged as merged_repeating;
pub use repeating::{RepeatingKernel, RepeatingKernels};
pub(crate) use rows::RowKey;
pub use rows::{
    AlreadyFast, CollectiveRow, DeviceRow, GapActivity, GapRow, IdleCause, LaneRow, LayerRow,
    LongestCopy, Omitted, SiteRow, StepRow, Synchronizations, TimePart, TimelineReport, UnitKind,
    WorkUnit,
};
pub use sarif::sarif;
pub use serving::Serving;
#[cfg(feature = "cli")]
pub(crate) use template::BuiltIn;
pub(crate) use template::document;
pub use template::render_template;
pub use text::text;
pub use user_template::{MAX_TEMPLATE, TemplateError};

impl Report {
    /// Writes the sentences that sum up the report, from everything else in it.
    pub(crate) fn sum_up(&mut self) {
        titles::tell_apart(&mut self.findings, &mut self.minor);
        self.verdict = opening::sentences(self);
        self.figures = opening::figures(self);
        self.hidden_notes = opening::hidden_notes(self);
        self.next_notes = opening::next_notes(self);
        let notes = [opening::as_recorded(self), synchronizations::note(self)];
        self.time_notes = notes.into_iter().flatten().collect();
    }

    /// Says what numbered steps are, as far as `run` has written it: `AdamW.step()`.
    #[cfg(feature = "cli")]
    pub(crate) fn name_steps(&mut self, steps: &str) {
        let from = self.summary.steps_from.as_mut();
        if let Some(from) = from.filter(|from| from.source == StepSource::Numbered) {
            from.text = figures::label(steps);
            self.figures = opening::figures(self);
        }
    }
}
