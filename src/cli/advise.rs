//! The command without a name: reads a profile and writes a report.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::args::{AdviseArgs, AnalyzeArgs, Console, ReportArgs, RuleArgs};
use super::exit_gates::Gates;
use super::multi_rank::{self, Unread};
use super::output::{self, CommandResult, Failure};
use super::progress::Bar;
use super::{config, kept, source};
use crate::advisor::{Advisor, Analysis, EAGER_TRACE_UNUSED, Stage, open};
use crate::base::text::plain;
use crate::base::units;
use crate::correlate::Alignment;
use crate::cost::Costed;
use crate::cost::user::UserCosts;
use crate::formats::{self, OutputFormat, RenderOptions};
use crate::host::{Classes, HostProfile};
use crate::judge::{Rule, RuleSet};
use crate::profile::Profile;
use crate::read::manifest::{HostEntry, Manifest};
use crate::report::{self, HostProfileReport, LeftOut, Report};
use crate::{compare, read};

/// Merges the options of the command line with those of the configuration, then runs [`advise`].
pub(super) fn run(mut args: AdviseArgs, mut console: Console) -> CommandResult {
    let dumps = args.config.dump_config;
    let is_why = args.why.is_some();
    // No report has this ending. Any other file is an option to be dumped.
    let is_toml = |file: &Path| {
        file.extension()
            .is_some_and(|e| e.eq_ignore_ascii_case("toml"))
    };
    let output = &mut args.report.output;
    let other_file = output.take_if(|file| is_why || (dumps && is_toml(file)));
    configure(&mut args, &mut console)?;
    if dumps {
        let text = config::dump(&config::effective(&args, console));
        let file = other_file.as_deref();
        if let Some(read) = &args.config.config {
            refuse_overwriting_input("configuration", read, file)?;
        }
        return output::write_to(file, &text);
    }
    if is_why {
        // The file that a configuration names is for reports.
        args.report.output = other_file;
    }
    advise(&args, console)
}

/// Merges the options of the configuration into those of the command line.
pub(super) fn configure(args: &mut AdviseArgs, console: &mut Console) -> CommandResult {
    let rules = (!args.config.dump_config).then_some(args.rules.paths.as_slice());
    let config = config::load(args.config.config.as_deref(), rules)?;
    config.fill_console(console);
    config.fill_report(&mut args.report);
    config.fill_rules(&mut args.rules);
    config.fill_gates(&mut args.gates);
    if args.gpu.is_none() {
        args.gpu.clone_from(&config.gpu);
    }
    if args.costs.is_empty() {
        args.costs.clone_from(&config.costs);
    }
    if args.classes.is_empty() {
        args.classes.clone_from(&config.classes);
    }
    output::set_color(console.color());
    if args.config.dump_config {
        return Ok(());
    }
    let read = [
        ("configuration", &args.config.config),
        ("template", &args.report.template),
    ];
    let output = args.report.output.as_deref();
    for (what, path) in read {
        if let Some(path) = path {
            refuse_overwriting_input(what, path, output)?;
        }
    }
    let lists = [
        ("rule", &args.rules.paths),
        ("cost", &args.costs),
        ("class", &args.classes),
    ];
    for (what, paths) in lists {
        for path in paths {
            refuse_overwriting_input(&format!("{what} file"), path, output)?;
        }
    }
    if let Some(gpu) = &args.gpu {
        refuse_overwriting_input("GPU file", Path::new(gpu), output)?;
    }
    Ok(())
}

/// Finds mistakes in the arguments, before a program runs for long.
pub(super) fn check(args: &AdviseArgs) -> CommandResult {
    let rules = super::rules::load_for_analysis(&args.rules)?;
    let ran: Vec<String> = rules.rules().iter().map(|r| r.id.clone()).collect();
    Gates::load(&args.gates, Some(ran))?;
    Session::new(args, rules).map(drop)
}

/// Writes the report of one profile, or of several as the ranks of one job.
///
/// # Errors
/// When no profile can be analyzed, a file cannot be read or written, or a rule, a GPU or a template has
/// mistakes: [`Failure::Unusable`] with what to do.
pub(crate) fn advise(args: &AdviseArgs, console: Console) -> CommandResult {
    if args.profiles.is_empty() {
        return Err(Failure::Unusable("no profile given".into()));
    }
    let output = args.report.output.as_deref();
    for path in &args.profiles {
        refuse_overwriting(path, output)?;
    }
    let format = match args.why {
        Some(_) => {
            check_text_file(output)?;
            formats::TEXT
        }
        None => format(&args.report)?,
    };
    let mut timer = StageTimer::new(console);
    // The arguments are checked before a large file is read.
    let rules = super::rules::load_for_analysis(&args.rules)?;
    let ran: Vec<String> = rules.rules().iter().map(|r| r.id.clone()).collect();
    let gates = Gates::load(&args.gates, Some(ran))?;
    let mut session = Session::new(args, rules)?;
    timer.done("loaded rules");
    let inputs = multi_rank::inputs(&args.profiles, multi_rank::PROFILES, console)?;
    super::memory::warn_of_memory(&inputs.files, console);
    session.take_over(&inputs);
    if !inputs.is_job {
        let mut host = std::mem::take(&mut session.host);
        host.extend(recorded_host_profiles(&args.profiles, console));
        session.advisor = session.advisor.host_profiles(host);
    }
    if inputs.is_job {
        // Reports are merged with all their sites, whatever is displayed.
        session.advisor = session.advisor.options(options(args, true));
        return run_job(&session, &gates, inputs, console);
    }
    let complete = format.lists_sites || args.report.template.is_some();
    session.advisor = session.advisor.options(options(args, complete));
    let path = inputs
        .files
        .first()
        .ok_or_else(|| Failure::Unusable("no profile given".into()))?;
    let bar = Bar::new(console.quiet);
    let profile = open(path, &bar);
    bar.done();
    let result = session.analyze(path, profile?, &mut timer)?;
    for warning in &result.warnings {
        console.warn(warning);
    }
    match result.output {
        Output::Why(text) => output::write_to(output, &text),
        Output::Report(report) => {
            let outcome = write_and_gate(&args.report, &gates, *report, console);
            timer.done("wrote the report");
            outcome
        }
    }
}

/// Writes one report of all profiles of a job that can be read.
fn run_job(
    session: &Session<'_>,
    gates: &Gates<'_>,
    inputs: multi_rank::Inputs,
    console: Console,
) -> CommandResult {
    let output = session.args.report.output.as_deref();
    for file in &inputs.files {
        refuse_overwriting(file, output)?;
    }
    for repeated in &inputs.repeated {
        console.warn(&format!("{}: {}", plain(&repeated.file), repeated.why));
    }
    let result = analyze_all(inputs, console, |file, timer| session.file(file, timer))?;
    let unread = result.unread;
    if session.args.why.is_some() {
        return unread.after(output::write_to(output, &result.whys));
    }
    let report = session.with_host_profiles(result.report()?);
    let outcome = write_and_gate(&session.args.report, gates, report, console);
    unread.after(outcome)
}

/// The results of the profiles of a job.
struct JobResult {
    reports: Vec<Report>,
    /// The answers to `--why`.
    whys: String,
    left_out: Vec<LeftOut>,
    unread: Unread,
}

impl JobResult {
    fn report(self) -> Result<Report, Failure> {
        compare::merge(self.reports, self.left_out)
            .ok_or_else(|| Failure::Unusable("no profile could be analyzed".into()))
    }
}

/// Analyzes the profiles of a job, two at a time; `analyze` must not keep the profile.
fn analyze_all(
    inputs: multi_rank::Inputs,
    console: Console,
    analyze: impl Fn(&Path, &mut StageTimer) -> Result<ProfileResult, Failure> + Sync,
) -> Result<JobResult, Failure> {
    // Stage times of several files would be interleaved.
    let silent = Console {
        verbose: false,
        ..console
    };
    let results = multi_rank::each(&inputs.files, console, |file| {
        analyze(file, &mut StageTimer::new(silent))
    });
    let mut all = JobResult {
        reports: Vec::new(),
        whys: String::new(),
        left_out: inputs.repeated,
        unread: Unread::default(),
    };
    let mut warnings = Vec::new();
    let (results, unread) = multi_rank::usable(
        &inputs.files,
        &inputs.named,
        results,
        &mut all.left_out,
        console,
    )?;
    all.unread = unread;
    for result in results {
        warnings.push((result.file.clone(), result.warnings));
        match result.output {
            Output::Why(text) => {
                let file = plain(&result.file);
                all.whys.push_str(&format!("{file}\n\n{text}\n"));
            }
            Output::Report(report) => all.reports.push(*report),
        }
    }
    multi_rank::warn(&warnings, console);
    Ok(all)
}

/// The report of a profile or of a job, for commands that process reports.
pub(super) fn report_of(args: &AdviseArgs, console: Console) -> Result<Report, Failure> {
    let mut session = Session::for_reports(args)?;
    let inputs = multi_rank::inputs(&args.profiles, multi_rank::PROFILES, console)?;
    session.take_over(&inputs);
    analyze_all(inputs, console, |file, timer| session.file(file, timer))?.report()
}

/// A report: read from a file of `--format json`, or of a profile or a folder of profiles.
pub(super) fn read_or_analyze(
    path: &Path,
    gpu: Option<&String>,
    with: &AnalyzeArgs,
    console: Console,
) -> Result<Report, Failure> {
    if kept::is_report(path) {
        let mut report = kept::read(path)?;
        // Findings hidden by a baseline or a suppression count too.
        report.unhide();
        return Ok(report);
    }
    let args = AdviseArgs {
        profiles: vec![path.to_owned()],
        gpu: gpu.cloned(),
        rules: with.rules.clone(),
        costs: with.costs.clone(),
        classes: with.classes.clone(),
        ..AdviseArgs::default()
    };
    report_of(&args, console)
}

/// One report per input; an input that is a report already is returned as it is.
pub(super) fn reports_of(
    args: &AdviseArgs,
    inputs: multi_rank::Inputs,
    console: Console,
) -> Result<(Vec<Report>, Unread), Failure> {
    let mut session = Session::for_reports(args)?;
    session.take_over(&inputs);
    let all = analyze_all(inputs, console, |file, timer| {
        if !kept::is_report(file) {
            return session.file(file, timer);
        }
        Ok(ProfileResult {
            file: multi_rank::shown(file),
            output: Output::Report(Box::new(kept::one(file)?)),
            warnings: Vec::new(),
        })
    })?;
    Ok((all.reports, all.unread))
}

/// The data needed to analyze any number of profiles.
struct Session<'a> {
    args: &'a AdviseArgs,
    advisor: Advisor,
    /// The rule of `--why`, and whether it was deselected.
    asked: Option<(Rule, bool)>,
    /// Light recordings of some profiles.
    light: BTreeMap<PathBuf, PathBuf>,
    /// What a step is in some profiles.
    steps_are: BTreeMap<PathBuf, String>,
    /// Profiles of the host, with the names of their files.
    host: Vec<(String, HostProfile)>,
}

/// Reads the profiles of the host.
fn host_profiles(args: &AdviseArgs) -> Result<Vec<(String, HostProfile)>, Failure> {
    let read = |path: &PathBuf| {
        refuse_overwriting_input("host profile", path, args.report.output.as_deref())?;
        let profile = crate::host::open(path)?;
        let name = path.file_name().unwrap_or(path.as_os_str());
        Ok((name.to_string_lossy().into_owned(), profile))
    };
    args.host.iter().map(read).collect()
}

/// By how much the times of py-spy may be off: it starts within this time, and samples every 10 ms.
const STARTED_WITHIN_NS: i64 = 20_000_000;

/// The profiles of the host that `run --host-profiler` has put beside a recording.
fn recorded_host_profiles(paths: &[PathBuf], console: Console) -> Vec<(String, HostProfile)> {
    let [folder] = paths else {
        return Vec::new();
    };
    let entries = Manifest::of(folder).map_or_else(Vec::new, |manifest| manifest.host(folder));
    let read = |(path, entry): (PathBuf, HostEntry)| match crate::host::open(&path) {
        Ok(profile) => Some(match entry.started_unix_ns {
            Some(start) => (entry.file, profile.started_at(start, STARTED_WITHIN_NS)),
            None => (entry.file, profile),
        }),
        Err(problem) => {
            console.warn(&plain(&problem.to_string()));
            None
        }
    };
    entries.into_iter().filter_map(read).collect()
}

/// The result of one profile.
struct ProfileResult {
    file: String,
    output: Output,
    /// Warnings for standard error.
    warnings: Vec<String>,
}

/// A report, or the answer to `--why`.
enum Output {
    Report(Box<Report>),
    Why(String),
}

impl<'a> Session<'a> {
    fn new(args: &'a AdviseArgs, rules: RuleSet) -> Result<Session<'a>, Failure> {
        let (rules, asked) = match asked_for(args, &rules)? {
            Some((rule, all, deselected)) => (all, Some((rule, deselected))),
            None => (rules, None),
        };
        let costs = super::costs::load(&args.costs)?;
        let classes = Classes::load(&args.classes)?;
        let mut advisor = Advisor::with_rules(rules).costs(costs).classes(classes);
        if let Some(gpu) = &args.gpu {
            advisor = advisor.gpu(gpu)?;
        }
        if let Some(eager) = &args.eager_trace {
            refuse_overwriting_input("eager trace", eager, args.report.output.as_deref())?;
            advisor = advisor.eager(eager)?;
        }
        Ok(Session {
            args,
            advisor,
            asked,
            light: BTreeMap::new(),
            steps_are: BTreeMap::new(),
            host: host_profiles(args)?,
        })
    }

    /// Takes over what `run` has recorded with the profiles.
    fn take_over(&mut self, inputs: &multi_rank::Inputs) {
        self.light.clone_from(&inputs.light);
        self.steps_are.clone_from(&inputs.steps_are);
    }

    /// The report of a job: nothing tells which of its processes a profile of the host belongs to.
    fn with_host_profiles(&self, report: Report) -> Report {
        let profiles = self.host.iter().map(|(file, host)| {
            let alignment = match host.timed.is_some() || !host.memory.is_empty() {
                true => Alignment::SeveralProfiles,
                false => Alignment::Untimed,
            };
            HostProfileReport::of(file, host, alignment, None, self.advisor.host_classes())
        });
        Report {
            host_profiles: profiles.collect(),
            ..report
        }
    }

    /// A session for commands that keep complete reports.
    fn for_reports(args: &'a AdviseArgs) -> Result<Session<'a>, Failure> {
        let rules = super::rules::load_for_analysis(&args.rules)?;
        let mut session = Session::new(args, rules)?;
        session.advisor = session.advisor.options(options(args, true));
        Ok(session)
    }

    /// Reads and analyzes one of several profiles.
    fn file(&self, path: &Path, timer: &mut StageTimer) -> Result<ProfileResult, Failure> {
        let profile = open(path, &read::NoProgress)?;
        self.analyze(path, profile, timer)
    }

    fn analyze(
        &self,
        path: &Path,
        profile: Profile,
        timer: &mut StageTimer,
    ) -> Result<ProfileResult, Failure> {
        timer.done("read");
        let file = multi_rank::shown(path);
        let done = &mut |stage| timer.stage(stage);
        let mut warnings = Vec::new();
        let light = self.light.get(path).and_then(|light| {
            let opened = open(light, &read::NoProgress);
            opened
                .map_err(|error| {
                    warnings.push(format!("not joined with the light recording: {error}"));
                })
                .ok()
        });
        if let Some((rule, deselected)) = &self.asked {
            let why = self.advisor.why(rule, light, profile, done)?;
            let heading = match deselected {
                true => "deselected by --select or --ignore; with all rules selected:\n\n",
                false => "",
            };
            return Ok(ProfileResult {
                file,
                output: Output::Why(format!("{heading}{why}")),
                warnings,
            });
        }
        let Analysis {
            costed,
            results,
            mut report,
        } = match light {
            Some(light) => self.advisor.analyze_windows(light, profile, done)?,
            None => self.advisor.analyze(profile, done)?,
        };
        if let Some(steps) = self.steps_are.get(path) {
            report.name_steps(steps);
        }
        for dropped in &results.dropped {
            let place = plain(&dropped.place);
            timer.console.note(&format!(
                "{} is dropped in favor of {} at {place}",
                dropped.rule, dropped.by
            ));
        }
        warnings.extend(self::warnings(&costed, &report));
        warnings.extend(unused(self.advisor.user_costs(), &costed));
        // Freeing millions of rows takes long, and the report does not depend on it.
        rayon::spawn(move || drop(costed));
        // Where this is the only thread, no other one runs it.
        rayon::yield_local();
        Ok(ProfileResult {
            file,
            output: Output::Report(Box::new(report)),
            warnings,
        })
    }
}

/// `complete`: whether the table of sites and what comparisons read is needed, as for JSON.
fn options(args: &AdviseArgs, complete: bool) -> report::Options {
    /// Enough to fold repeated layers.
    const FEW: usize = 5_000;
    report::Options {
        top: args.report.top(),
        max_sites: if complete { report::MAX_SITES } else { FEW },
        comparable: complete,
    }
}

/// The rule of `--why`, the rules to evaluate with it, and whether `--select` or `--ignore` deselected
/// it. A deselected rule is evaluated with all rules.
fn asked_for(args: &AdviseArgs, rules: &RuleSet) -> Result<Option<(Rule, RuleSet, bool)>, Failure> {
    let Some(id) = &args.why else {
        return Ok(None);
    };
    if let Ok(rule) = super::rules::find(rules, id) {
        return Ok(Some((rule.clone(), rules.clone(), false)));
    }
    let everything = super::rules::load_for_analysis(&RuleArgs {
        select: Vec::new(),
        ignore: Vec::new(),
        ..args.rules.clone()
    })?;
    let rule = super::rules::find(&everything, id)?.clone();
    Ok(Some((rule, everything, true)))
}

/// Prints how long each stage took, with `--verbose`.
struct StageTimer {
    console: Console,
    since: Instant,
}

impl StageTimer {
    fn new(console: Console) -> StageTimer {
        StageTimer {
            console,
            since: Instant::now(),
        }
    }

    fn stage(&mut self, stage: Stage) {
        self.done(match stage {
            Stage::Correlated => "correlated",
            Stage::Costed => "costed",
            Stage::Evaluated => "evaluated rules",
            Stage::Reported => "built the report",
        });
    }

    /// Prints the time since the previous stage; `stage` is in the past tense.
    fn done(&mut self, stage: &str) {
        let took = i64::try_from(self.since.elapsed().as_nanos()).unwrap_or(i64::MAX);
        self.console
            .note(&format!("{stage} in {}", units::ns(took as f64)));
        self.since = Instant::now();
    }
}

/// Reports an error if the output file is the input.
pub(super) fn refuse_overwriting(input: &Path, output: Option<&Path>) -> CommandResult {
    refuse_overwriting_input("profile", input, output)
}

pub(super) fn refuse_overwriting_input(
    what: &str,
    input: &Path,
    output: Option<&Path>,
) -> CommandResult {
    let same = output.is_some_and(|out| match (input.canonicalize(), out.canonicalize()) {
        // Of a folder of rules or costs, each file is an input.
        (Ok(a), Ok(b)) => {
            a == b
                || (a.is_dir() && b.starts_with(&a) && b.extension().is_some_and(|e| e == "toml"))
        }
        _ => false,
    });
    if same {
        return Err(Failure::Unusable(format!(
            "--output {} would overwrite the {what}",
            output.unwrap_or(input).display()
        )));
    }
    Ok(())
}

/// Warnings for standard error.
fn warnings(costed: &Costed, report: &Report) -> Vec<String> {
    let mut warnings = Vec::new();
    if costed.run.profile.recorded.environment {
        warnings.push(
            "this file holds environment variables of the captured machine; `pyprof-advise scrub IN \
             OUT` makes a copy without"
                .to_owned(),
        );
    }
    if !report.cut_files.is_empty() {
        warnings
            .push("the trace ends in the middle: the rest is missing from all figures".to_owned());
    }
    let notes = costed.run.profile.notes.iter();
    let refused = notes.filter(|note| note.code == EAGER_TRACE_UNUSED);
    warnings.extend(refused.map(|note| format!("--eager-trace: {}", plain(&note.text))));
    for fault in &report.faults {
        warnings.push(format!(
            "rule {} failed: {}",
            fault.rule,
            plain(&fault.message)
        ));
    }
    warnings
}

/// Warnings about cost files that match no operator of the profile: their operator names are likely
/// misspelled.
fn unused(costs: &UserCosts, costed: &Costed) -> Vec<String> {
    let mut files: Vec<&str> = costs.costs().iter().map(|c| &*c.file).collect();
    files.dedup();
    let used = |file: &&str| {
        let by = costed.sites.iter().filter_map(|s| s.cost_file.as_deref());
        by.into_iter().any(|by| by == *file)
    };
    files
        .iter()
        .filter(|file| !used(file))
        .map(|file| format!("{}: this profile has none of its operators", plain(file)))
        .collect()
}

/// Applies suppressions and the baseline to a report, writes it, and then checks the gates.
pub(super) fn write_and_gate(
    args: &ReportArgs,
    gates: &Gates<'_>,
    mut report: Report,
    console: Console,
) -> CommandResult {
    gates.filter(&mut report, console);
    report.program.clone_from(&args.program);
    if let Some(folder) = &args.source {
        source::quote(&mut report, folder)?;
        let mut findings = report.findings.iter();
        if !report.findings.is_empty() && findings.all(|f| f.evidence.quotes.is_empty()) {
            console.warn(&format!(
                "--source {}: no source line of a finding is in a .py file of this folder",
                folder.display()
            ));
        }
    }
    let text = render(args, format(args)?, &report)?;
    let file = args.output.as_deref();
    match &args.program {
        Some(_) => output::write_or_print(file, &text)?,
        None => output::write_to(file, &text)?,
    }
    gates.check(&report)
}

/// Reports an error for a file whose ending is not that of text.
fn check_text_file(file: Option<&Path>) -> CommandResult {
    let other = |extension: &std::ffi::OsStr| !extension.eq_ignore_ascii_case("txt");
    match file {
        Some(file) if file.extension().is_some_and(other) => Err(Failure::Unusable(format!(
            "--output {}: --why writes text\n  name a file without an ending or with .txt",
            file.display()
        ))),
        _ => Ok(()),
    }
}

/// The requested format, or the default of the file or terminal that the report goes to.
pub(super) fn format(args: &ReportArgs) -> Result<OutputFormat, Failure> {
    let limited = args.for_pr || args.max_chars.is_some();
    // A template writes what it likes.
    let file = args.output.as_deref().filter(|_| args.template.is_none());
    Ok(match (args.format, file) {
        (Some(format), _) if limited && !format.can_shorten => {
            return Err(Failure::Unusable(
                "--max-chars and --for-pr shorten Markdown; other formats are always whole".into(),
            ));
        }
        (Some(format), Some(file)) => agreeing(format, file, "--format")?,
        (Some(format), None) => format,
        (None, Some(file)) if limited => {
            agreeing(formats::MARKDOWN, file, "--max-chars or --for-pr")?
        }
        (None, None) if limited => formats::MARKDOWN,
        (None, Some(file)) => match of_ending(file)? {
            Some(format) => format,
            None if file.extension().is_some() => {
                return Err(unknown_ending(file, "no format", |_| true));
            }
            None => formats::MARKDOWN,
        },
        (None, None) if output::is_terminal() => formats::TEXT,
        (None, None) => formats::MARKDOWN,
    })
}

/// The format of a comparison or a trial: the requested one, else that of the file.
pub(super) fn comparison_format(
    format: Option<OutputFormat>,
    file: Option<&Path>,
) -> Result<OutputFormat, Failure> {
    let compares = |format: &OutputFormat| format.diff.is_some();
    match (format, file) {
        (Some(format), Some(file)) => agreeing(format, file, "--format"),
        (Some(format), None) => Ok(format),
        (None, Some(file)) => match OutputFormat::of_file(file) {
            Some(format) if compares(&format) => Ok(format),
            None if file.extension().is_none() => Ok(formats::MARKDOWN),
            _ => Err(unknown_ending(file, "no format of comparisons", compares)),
        },
        (None, None) => Ok(formats::MARKDOWN),
    }
}

/// The format that the ending of a file names.
fn of_ending(file: &Path) -> Result<Option<OutputFormat>, Failure> {
    let is_table = file
        .extension()
        .is_some_and(|ext| ext.eq_ignore_ascii_case("csv"));
    if is_table {
        return Err(Failure::Unusable(format!(
            "--output {}: a report cannot be CSV\n  `pyprof-advise export PROFILE -o {0}` writes all work as a table",
            file.display()
        )));
    }
    Ok(OutputFormat::of_file(file))
}

/// The error for a file whose ending is of none of the formats that can be written.
fn unknown_ending(file: &Path, none: &str, can: impl Fn(&OutputFormat) -> bool) -> Failure {
    let can = formats::FORMATS.iter().filter(|format| can(format));
    let endings = can.flat_map(|format| format.endings);
    let endings: Vec<&str> = endings.copied().collect();
    Failure::Unusable(format!(
        "--output {}: {none} has this ending\n  expected {}; `--format` names a format for any file",
        file.display(),
        endings.join(", ")
    ))
}

/// The format, unless the ending of the file names another one.
fn agreeing(format: OutputFormat, file: &Path, asked: &str) -> Result<OutputFormat, Failure> {
    match of_ending(file)? {
        Some(other) if other.name != format.name => Err(Failure::Unusable(format!(
            "--output {}: the ending means {}, but {asked} means {}\n  change one of the two",
            file.display(),
            other.name,
            format.name
        ))),
        _ => Ok(format),
    }
}

fn render(args: &ReportArgs, format: OutputFormat, report: &Report) -> Result<String, Failure> {
    if let Some(path) = &args.template {
        // An endless file is not read to its end.
        let limit = report::MAX_TEMPLATE as u64 + 1;
        let mut text = String::new();
        std::fs::File::open(path)
            .and_then(|file| file.take(limit).read_to_string(&mut text))
            .map_err(|e| {
                Failure::Unusable(format!("cannot read the template {}: {e}", path.display()))
            })?;
        return Ok(report::render_template(
            report,
            &path.display().to_string(),
            &text,
        )?);
    }
    let max_chars = match args.max_chars {
        _ if args.for_pr => Some(report::PR_CHARS),
        Some(chars) => Some(chars as usize),
        None => None,
    };
    let options = RenderOptions {
        width: output::width(),
        max_chars,
    };
    Ok((format.report)(report, &options)?)
}
