//! Floor 8: the facade of the library. [`Advisor`] runs the stations of the crate in order; the command
//! line uses it too.

use std::path::Path;
use std::sync::Arc;

use crate::Error;
use crate::base::units;
use crate::compare;
use crate::correlate::{
    Alignment, Hints, UnneededRanges, Vocabulary, add_host_samples, correlate_with,
};
use crate::cost::user::UserCosts;
use crate::cost::{Costed, VOCABULARY, estimate_costs_with, infer_gpu, match_replays, ops};
use crate::facts::{self, FactTable};
use crate::gpu::select;
use crate::host::{self, Classes, HostProfile};
use crate::judge::{Rule, RuleResults, RuleSet, Selection, WindowPair, judge, why};
use crate::profile::Profile;
use crate::read::{self, NoProgress, Progress, ReadError};
use crate::report::{HostProfileReport, Options, Report};

mod no_kernels;

/// The code of the note that says why the recording without graphs names no kernels.
pub(crate) const EAGER_TRACE_UNUSED: &str = "eager_trace_unused";

/// Analyzes profiles with one set of rules, costs and report options.
///
/// ```
/// use pyprof_advise::{Advisor, report};
///
/// # fn main() -> Result<(), pyprof_advise::Error> {
/// let advisor = Advisor::new()?.gpu("v100")?;
/// let report = advisor.report("fixtures/net.sqlite")?;
/// println!("{}", report::markdown(&report)?);
/// # assert!(!report.findings.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Advisor {
    rules: RuleSet,
    costs: UserCosts,
    gpu: Option<String>,
    options: Options,
    eager: Option<Eager>,
    host: Vec<(String, HostProfile)>,
    classes: Arc<Classes>,
}

/// A recording of the model without graphs.
#[derive(Debug)]
struct Eager {
    name: String,
    costed: Box<Costed>,
}

/// A station that has been completed on the way from a profile to its report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Kernels were attributed to launches, operators, layers and steps.
    Correlated,
    /// FLOPs, bytes and ideal times were computed, and the table of facts was built.
    Costed,
    /// The rules were evaluated.
    Evaluated,
    /// The report was built.
    Reported,
}

/// A report and what it was built from.
#[derive(Debug)]
pub struct Analysis {
    /// The profile with every kernel attributed and every known cost.
    pub costed: Costed,
    /// The findings of all rules, conflicts resolved and savings assigned.
    pub results: RuleResults,
    /// The report.
    pub report: Report,
}

impl Advisor {
    /// An advisor with the built-in rules and the GPU that each profile names.
    ///
    /// # Errors
    /// When a built-in rule has a mistake, which the tests of this crate rule out.
    pub fn new() -> Result<Advisor, Error> {
        let files = RuleSet::builtin_files_for_analysis();
        let rules = RuleSet::load(&files, &Selection::default(), facts::all())?;
        Ok(Advisor::with_rules(rules))
    }

    /// An advisor with other rules: selected ones, or rules of your own.
    pub fn with_rules(rules: RuleSet) -> Advisor {
        Advisor {
            rules,
            costs: UserCosts::default(),
            gpu: None,
            options: Options::default(),
            eager: None,
            host: Vec::new(),
            classes: Classes::built_in(),
        }
    }

    /// Adds profiles of the host that other profilers recorded with the program, with the names of their
    /// files. Those with the time of the calendar explain what the host did in gaps; the others name lines.
    pub fn host_profiles(mut self, profiles: Vec<(String, HostProfile)>) -> Advisor {
        self.host = profiles;
        self
    }

    /// Sets what functions of the host do: classes of your own before the built-in ones.
    pub fn classes(mut self, classes: Arc<Classes>) -> Advisor {
        self.classes = classes;
        self
    }

    /// What functions of the host do.
    #[cfg(feature = "cli")]
    pub(crate) fn host_classes(&self) -> &Classes {
        &self.classes
    }

    /// Computes ideal times for this GPU instead of the one a profile names: a name or alias of the
    /// built-in table (`v100`), or the path of a TOML file.
    ///
    /// # Errors
    /// When the GPU is unknown or its file has mistakes.
    pub fn gpu(mut self, name_or_file: &str) -> Result<Advisor, Error> {
        select::find(name_or_file)?;
        self.gpu = Some(name_or_file.to_owned());
        Ok(self)
    }

    /// Adds costs of operators that the built-in cost model does not know.
    pub fn costs(mut self, costs: UserCosts) -> Advisor {
        self.costs = costs;
        self
    }

    /// Names the kernels of graph replays after those of a recording of the same model without graphs:
    /// their operators and layers, and the bytes of weights that they read. The batch may be another one.
    ///
    /// # Errors
    /// When the recording cannot be read or has no GPU work.
    pub fn eager(mut self, recording: &Path) -> Result<Advisor, Error> {
        let costed = self.cost(open(recording, &NoProgress)?, &mut |_| {})?;
        let name = recording.file_name().unwrap_or(recording.as_os_str());
        self.eager = Some(Eager {
            name: name.to_string_lossy().into_owned(),
            costed: Box::new(costed),
        });
        Ok(self)
    }

    /// Sets how much a report lists.
    pub fn options(mut self, options: Options) -> Advisor {
        self.options = options;
        self
    }

    /// The report of the profile in a file.
    ///
    /// # Errors
    /// When the file cannot be read or has no GPU work.
    pub fn report(&self, path: impl AsRef<Path>) -> Result<Report, Error> {
        let profile = open(path.as_ref(), &NoProgress)?;
        Ok(self.analyze(profile, &mut |_| {})?.report)
    }

    /// Runs every station after reading: correlate, cost, evaluate the rules, report. `done` is called
    /// as each one ends.
    ///
    /// # Errors
    /// When the GPU's file has changed since [`Advisor::gpu`] and has mistakes.
    pub fn analyze(
        &self,
        profile: Profile,
        done: &mut dyn FnMut(Stage),
    ) -> Result<Analysis, Error> {
        let (costed, uses) = self.cost_with_host(profile, done)?;
        let facts = FactTable::new(&costed);
        done(Stage::Costed);
        let (results, report) = self.evaluated(&facts, uses, done);
        done(Stage::Reported);
        Ok(Analysis {
            costed,
            results,
            report,
        })
    }

    /// What the rules find in one recording, and its report.
    fn evaluated(
        &self,
        facts: &FactTable<'_>,
        uses: Vec<Alignment>,
        done: &mut dyn FnMut(Stage),
    ) -> (RuleResults, Report) {
        let results = judge(&self.rules, facts);
        done(Stage::Evaluated);
        let mut report = Report::new(facts, &results, &self.options);
        report.host_profiles = self.host_reports(facts.costed, uses);
        (results, report)
    }

    /// As [`Advisor::analyze`], of a detailed recording with a light one of the same run: idle time comes from the
    /// light one, operators from the detailed one.
    ///
    /// # Errors
    /// As [`Advisor::analyze`].
    pub fn analyze_windows(
        &self,
        light: Profile,
        detailed: Profile,
        done: &mut dyn FnMut(Stage),
    ) -> Result<Analysis, Error> {
        let (light, light_uses) = self.cost_with_host(light, &mut |_| {})?;
        let of_light = FactTable::new(&light);
        let mut light_report = Report::new(&of_light, &RuleResults::default(), &self.options);
        light_report.host_profiles = self.host_reports(&light, light_uses);
        let (costed, uses) = self.cost_with_host(detailed, done)?;
        let facts = FactTable::new(&costed);
        if !same_steps(&of_light, &facts) {
            done(Stage::Costed);
            let (results, report) = self.evaluated(&facts, uses, done);
            done(Stage::Reported);
            return Ok(Analysis {
                report: compare::not_joined(&light_report, report),
                costed,
                results,
            });
        }
        let facts = facts.timed_by(&of_light);
        done(Stage::Costed);
        let results = judge(&self.rules, &WindowPair::new(&facts, &of_light));
        done(Stage::Evaluated);
        let report = Report::of_windows(&facts, &of_light, &results, &self.options);
        let report = compare::join(light_report, report);
        done(Stage::Reported);
        Ok(Analysis {
            costed,
            results,
            report,
        })
    }

    /// Why a rule does or does not have findings on a profile, as text: its conditions with their
    /// values, member by member. With a light recording of the same run, as [`Advisor::analyze_windows`].
    ///
    /// # Errors
    /// As [`Advisor::analyze`].
    pub fn why(
        &self,
        rule: &Rule,
        light: Option<Profile>,
        profile: Profile,
        done: &mut dyn FnMut(Stage),
    ) -> Result<String, Error> {
        let light = light.map(|light| self.cost_with_host(light, &mut |_| {}));
        let light = light.transpose()?;
        let (costed, _) = self.cost_with_host(profile, done)?;
        let facts = FactTable::new(&costed);
        done(Stage::Costed);
        let of_light = light.as_ref().map(|(light, _)| FactTable::new(light));
        if let Some(of_light) = of_light.as_ref().filter(|light| same_steps(light, &facts)) {
            let facts = facts.timed_by(of_light);
            let both = WindowPair::new(&facts, of_light);
            return Ok(why(rule, &both, &judge(&self.rules, &both)));
        }
        Ok(why(rule, &facts, &judge(&self.rules, &facts)))
    }

    /// The costs of a profile and the profiles of the host, with how the times of these were aligned.
    fn cost_with_host(
        &self,
        mut profile: Profile,
        done: &mut dyn FnMut(Stage),
    ) -> Result<(Costed, Vec<Alignment>), Error> {
        let host = self.host.iter();
        let uses = host.map(|(_, host)| add_host_samples(&mut profile, host, &self.classes));
        let uses = uses.collect();
        Ok((self.cost(profile, done)?, uses))
    }

    fn host_reports(&self, costed: &Costed, uses: Vec<Alignment>) -> Vec<HostProfileReport> {
        let profiles = self.host.iter().zip(uses).map(|((file, host), alignment)| {
            HostProfileReport::of(file, host, alignment, Some(&costed.run), &self.classes)
        });
        profiles.collect()
    }

    /// The costs this advisor adds to the built-in ones.
    pub fn user_costs(&self) -> &UserCosts {
        &self.costs
    }

    fn cost(&self, profile: Profile, done: &mut dyn FnMut(Stage)) -> Result<Costed, Error> {
        let gpu = select::choose(self.gpu.as_deref(), &profile)?.or_else(|| infer_gpu(&profile));
        let vocabulary = Vocabulary {
            knows_op: &|op| ops::knows(op) || self.costs.knows(op),
            ..VOCABULARY
        };
        let hints = Hints {
            classes: Arc::clone(&self.classes),
            ..Hints::default()
        };
        let run = correlate_with(profile, &vocabulary, hints);
        done(Stage::Correlated);
        let mut costed = estimate_costs_with(run, gpu, &self.costs);
        let mut hints = Hints {
            searches: costed.algorithm_searches(),
            replay_names: None,
            classes: Arc::clone(&self.classes),
        };
        if let Some(eager) = &self.eager {
            let found = match_replays(&costed, &eager.costed, &eager.name);
            let (code, text) = match &found {
                Ok(names) => (
                    "eager_trace",
                    format!(
                        "Operators and layers of {} of {} kernels that graphs replay are those of {}, by the order of the kernels; its shapes are not used, but the weights are the same.",
                        units::count(names.of_kernel.len() as u64),
                        units::count(names.replayed),
                        names.file
                    ),
                ),
                Err(why) => (EAGER_TRACE_UNUSED, format!("{} is {why}.", eager.name)),
            };
            costed.run.profile.note(code, text);
            hints.replay_names = found.ok();
        }
        if hints.searches.is_empty() && hints.replay_names.is_none() {
            return Ok(costed);
        }
        // Only the costs tell a search from work, and its time must not be in the timeline.
        let run = correlate_with(costed.run.profile, &vocabulary, hints);
        Ok(estimate_costs_with(run, costed.gpu, &self.costs))
    }
}

/// Whether two recordings have steps, and equally many.
fn same_steps(light: &FactTable<'_>, detailed: &FactTable<'_>) -> bool {
    let steps = |facts: &FactTable<'_>| facts.costed.run.step_time().map_or(0, |step| step.steps);
    steps(light) > 0 && steps(light) == steps(detailed)
}

/// Reads a profile that has GPU work.
///
/// # Errors
/// When the file cannot be read, or has neither kernels nor CUDA graphs.
pub fn open(path: &Path, progress: &dyn Progress) -> Result<Profile, Error> {
    let profile = read::open_pruned(path, &UnneededRanges, progress);
    let profile = profile.map_err(|error| of_the_host(path).unwrap_or(error))?;
    if profile.kernels.is_empty() && profile.graphs.is_empty() {
        return Err(Error::NoKernels(no_kernels::explain(&profile)));
    }
    Ok(profile)
}

/// The error for a profile of the host in place of one of the GPU.
fn of_the_host(path: &Path) -> Option<ReadError> {
    let profile = host::open(path).ok()?;
    let found = format!(
        "expected a profile of the GPU, found one of the host, written by {}",
        profile.profiler
    );
    let remedy = format!(
        "give it beside one of the GPU, with `--host {}`",
        read::shell_word(&path.display().to_string())
    );
    Some(ReadError::new(path, found, remedy))
}
