//! Arguments that several commands share.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{OsStringValueParser, PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};

use crate::base::suggest::did_you_mean;
use crate::base::words::words;
use crate::compare::Suppression;
use crate::formats::{FORMATS, OutputFormat};
use crate::judge::Severity;

/// Findings shown in full.
const DEFAULT_TOP: usize = 10;
/// The environment variable that names a configuration file, like `--config`.
pub(super) const VARIABLE: &str = "PYPROF_ADVISE_CONFIG";

/// Arguments of the command without a name.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct AdviseArgs {
    /// A profile: a torch.profiler trace, an Nsight Systems SQLite export or an nvprof database.
    /// Several profiles, or a folder, are the ranks of one job
    #[arg(value_name = "PROFILE", required_unless_present = "dump_config")]
    pub(crate) profiles: Vec<PathBuf>,
    /// The GPU: a name from `gpus list` (v100, a100, h100, 4090, ...) or a TOML file; by default the
    /// GPU that the profile names
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) gpu: Option<String>,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
    #[command(flatten)]
    pub(crate) rules: RuleArgs,
    /// A TOML file with FLOPs and bytes of your own operators (`costs explain` shows how they are
    /// counted); may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) costs: Vec<PathBuf>,
    /// A TOML file that says what functions of your own or of other libraries do on the host: augmenting,
    /// logging, ... (`rules schema classes`); may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) classes: Vec<PathBuf>,
    /// A profile of the host from another profiler, whose longest lines the report lists: cProfile,
    /// line_profiler, py-spy, Scalene and others, recognized by content; may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) host: Vec<PathBuf>,
    /// A recording of the same model without CUDA graphs, with any batch size: kernels that graphs replay get
    /// the operators and layers of its kernels, and their time is compared with that of reading the weights
    #[arg(long, value_name = "PROFILE")]
    pub(crate) eager_trace: Option<PathBuf>,
    /// Explain why a rule fired or did not fire, instead of writing the report
    #[arg(
        long,
        value_name = "RULE",
        conflicts_with_all = ["format", "template", "for_pr", "max_chars", "fail_on", "dump_config"]
    )]
    pub(crate) why: Option<String>,
    #[command(flatten)]
    pub(crate) gates: GateArgs,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
}

/// Conditions under which the exit status is 1, and findings to hide.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub(crate) struct GateArgs {
    /// After writing the report, exit with status 1 when it has a finding of this severity or above
    /// (`note`, `warning`, `error`), or when the estimated saving reaches a threshold (`saving=5%`);
    /// several with commas
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    pub(crate) fail_on: Vec<FailOn>,
    /// Show only findings that this report, written with `--format json`, does not have
    #[arg(long, value_name = "REPORT")]
    pub(crate) baseline: Option<PathBuf>,
    /// Findings that the configuration hides.
    #[arg(skip)]
    pub(crate) suppressions: Vec<Suppression>,
}

/// Where options come from, other than the command line.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ConfigArgs {
    /// Read options from this TOML file; command-line options take precedence. No configuration file
    /// is loaded unless you name one
    #[arg(long, value_name = "FILE", env = VARIABLE, hide_env_values = true, value_parser = config_path())]
    pub(crate) config: Option<PathBuf>,
    /// Print the effective options as a configuration file, instead of a report
    #[arg(long)]
    pub(crate) dump_config: bool,
}

/// Where and in which format a report is written.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub(crate) struct ReportArgs {
    /// Write the report to a file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Output format; without it the ending of the output file decides, else it is `text` on a
    /// terminal and `markdown` elsewhere
    #[arg(long, value_name = "FORMAT", value_parser = report_formats())]
    pub(crate) format: Option<OutputFormat>,
    /// Markdown of at most N characters, 500 or more: the lowest-value findings are dropped first; the report
    /// says how many
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(500..))]
    pub(crate) max_chars: Option<u32>,
    /// Markdown that fits a GitHub comment: `--max-chars 65000`
    #[arg(long, conflicts_with = "max_chars")]
    pub(crate) for_pr: bool,
    /// Render the report with your own minijinja template
    #[arg(long, value_name = "FILE", conflicts_with = "format")]
    pub(crate) template: Option<PathBuf>,
    /// Number of findings shown in full; the others are folded [default: 10]
    #[arg(long, value_name = "N")]
    pub(crate) top: Option<usize>,
    /// Quote the code around the source lines of findings, from `.py` files of this folder only
    #[arg(long, value_name = "DIR")]
    pub(crate) source: Option<PathBuf>,
    /// How the program ended that `run` has recorded.
    #[arg(skip)]
    pub(crate) program: Option<crate::report::ProgramRun>,
}

impl ReportArgs {
    /// Findings shown in full.
    pub(crate) fn top(&self) -> usize {
        self.top_or(DEFAULT_TOP)
    }

    /// Findings shown in full; `other` if the option is not given.
    pub(crate) fn top_or(&self, other: usize) -> usize {
        /// More than any report has; larger numbers do not fit everywhere.
        const MOST: usize = u32::MAX as usize;
        self.top.unwrap_or(other).min(MOST)
    }
}

/// Which rules are evaluated, and with which parameters.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub(crate) struct RuleArgs {
    /// A rule file or a folder of rule files, in addition to the built-in rules; may be repeated
    #[arg(long = "rules", value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Evaluate only these rules: ids, categories or patterns such as `precision/*`
    #[arg(long, value_name = "RULES", value_delimiter = ',')]
    pub(crate) select: Vec<String>,
    /// Do not evaluate these rules: ids, categories or patterns
    #[arg(long, value_name = "RULES", value_delimiter = ',')]
    pub(crate) ignore: Vec<String>,
    /// Set a parameter of a rule: `precision/amp-off.min_share=0.1`; may be repeated
    #[arg(long, value_name = "RULE.PARAM=VALUE")]
    pub(crate) set: Vec<String>,
}

/// What profiles are analyzed with besides the GPU, where the report is not what is written.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct AnalyzeArgs {
    #[command(flatten)]
    pub(crate) rules: RuleArgs,
    /// A TOML file with FLOPs and bytes of your own operators; may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) costs: Vec<PathBuf>,
    /// A TOML file that says what functions do on the host (`rules schema classes`); may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) classes: Vec<PathBuf>,
}

/// What is printed to the terminal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Args)]
pub(crate) struct Console {
    /// Print no progress and no warnings
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Print more: the time of each stage, findings that others replace, and every test of
    /// `rules test` and `costs test`
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
    /// When to use color [default: auto]
    #[arg(long, global = true, value_name = "WHEN")]
    pub(crate) color: Option<Color>,
}

words! {
    /// When to use color.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
    pub(crate) enum Color with fn word {
        /// On a terminal, unless NO_COLOR is set
        Auto = "auto",
        /// Always
        Always = "always",
        /// Never
        Never = "never",
    }
}

/// A condition of `--fail-on` under which a report fails.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum FailOn {
    /// A finding of this severity or above.
    Severity(Severity),
    /// Findings that together may save this many percent or more (0 to 100) of the step, or of the window
    /// where no steps are known; those without an estimate of wall time, of GPU time. Upper ends count.
    Saving(f64),
}

impl FromStr for FailOn {
    type Err = String;

    fn from_str(text: &str) -> Result<FailOn, String> {
        let text = text.trim();
        if let Some((severity, _)) = Severity::ALL.iter().find(|(_, word)| *word == text) {
            return Ok(FailOn::Severity(*severity));
        }
        match text.split_once('=') {
            Some(("saving", share)) => parse_percent(share).map(FailOn::Saving).ok_or_else(|| {
                format!("expected a percentage from 0% to 100%, as in `saving=5%`, got `{share}`")
            }),
            Some(("regression", share)) => Err(format!(
                "`regression` compares two runs: `pyprof-advise diff BEFORE AFTER --fail-on \
                 regression={share}`"
            )),
            _ => {
                let known = Severity::ALL.map(|(_, word)| word);
                let near = did_you_mean(text, known);
                Err(format!(
                    "expected `note`, `warning`, `error` or `saving=5%`{near}"
                ))
            }
        }
    }
}

/// The number in `5%`.
fn parse_percent(text: &str) -> Option<f64> {
    let number: f64 = text.trim().strip_suffix('%')?.trim_end().parse().ok()?;
    (0.0..=100.0).contains(&number).then_some(number)
}

impl fmt::Display for FailOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FailOn::Severity(severity) => f.write_str(severity.word()),
            FailOn::Saving(percent) => write!(f, "saving={percent}%"),
        }
    }
}

/// Parses the name of a report's format.
pub(super) fn report_formats() -> impl TypedValueParser<Value = OutputFormat> {
    one_of(|_| true)
}

/// Parses the name of a comparison's format.
pub(super) fn diff_formats() -> impl TypedValueParser<Value = OutputFormat> {
    one_of(|format| format.diff.is_some())
}

fn one_of(is_allowed: fn(&OutputFormat) -> bool) -> impl TypedValueParser<Value = OutputFormat> {
    let allowed = FORMATS.iter().filter(|format| is_allowed(format));
    let values = allowed.map(|format| PossibleValue::new(format.name).help(format.about));
    PossibleValuesParser::new(values).try_map(|name| {
        OutputFormat::named(&name).ok_or_else(|| format!("there is no format `{name}`"))
    })
}

/// Parses a path that may be empty: an empty variable names no file, and an empty option overrides the
/// variable.
pub(super) fn config_path() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}
