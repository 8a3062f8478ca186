//! Compares two reports: work that got slower, faster, appeared and vanished, changes of findings,
//! and how certain they are.
//!
//! Times are compared per unit of work: a step, else a range or graph launch that both have equally often,
//! else a kernel that recurs; without any of them call by call. The length of a capture is not compared: two
//! captures of one second always take the same time.

mod basis;
mod build;
mod changes;
mod findings;
mod gate;
mod host;
mod limits;
mod measures;
mod model;
mod narrative;
mod noise;
mod pair;
mod trend;
mod unit;
mod view;
mod wall;
mod work;

pub use build::diff;
pub use gate::{Decision, gate};
pub use model::{
    Around, Change, Communication, Contradicting, Diff, DiffSide, FamilyChange, FindingChange,
    FindingChanges, Hardware, HostChange, KernelChange, LayerChange, MatchLevel, MatchedShare,
    Median, Noise, NoiseOf, OneSided, PartChange, SCHEMA_VERSION, Sides, SiteChange, TimeUnit,
    UnitChange, UnitSide, WallRange,
};
pub use trend::{
    TREND_SCHEMA, TREND_VERSION, Trend, TrendChange, TrendRow, trend, trend_html, trend_json,
    trend_markdown,
};
pub use view::{SCHEMA, html, json, markdown};
