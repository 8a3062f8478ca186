//! The command without a name: a profile in, advice out. The stations of the road, in order.

use std::mem::ManuallyDrop;
use std::path::Path;
use std::time::Instant;

use super::gate::Gates;
use super::progress::Bar;
use super::{
    AdviseArgs, Failure, Outcome, ReportArgs, RuleArgs, Speech, config, early, job, merge, output,
};
use crate::base::text::plain;
use crate::base::units;
use crate::compare;
use crate::correlate::{Vocabulary, correlate};
use crate::cost::user::UserCosts;
use crate::cost::{Costed, VOCABULARY, ops, price_with};
use crate::facts::Table;
use crate::formats::{self, Layout, OutputFormat};
use crate::gpu::select;
use crate::judge::{Rule, RuleSet, judge, why};
use crate::profile::Profile;
use crate::read;
use crate::report::{self, LeftOut, Report};

/// The options of the command line over those of the configuration, and advice with them.
pub(super) fn run(mut args: AdviseArgs, mut speech: Speech) -> Outcome {
    let config = config::load(args.config.config.as_deref())?;
    config.fill_speech(&mut speech);
    config.fill_report(&mut args.report);
    config.fill_rules(&mut args.rules);
    config.fill_gates(&mut args.gates);
    if args.gpu.is_none() {
        args.gpu.clone_from(&config.gpu);
    }
    if args.costs.is_empty() {
        args.costs.clone_from(&config.costs);
    }
    output::set_color(speech.color());
    if args.config.dump_config {
        return output::print(&config::dump(&config::effective(&args, speech)));
    }
    config.check_rules(&args.rules.paths)?;
    let read = [
        ("configuration", &args.config.config),
        ("template", &args.report.template),
    ];
    for (what, path) in read {
        if let Some(path) = path {
            refuse_overwriting_the(what, path, args.report.output.as_deref())?;
        }
    }
    advise(&args, speech)
}

/// Reads, correlates, prices, judges and reports one profile, or several as the ranks of one job.
///
/// # Errors
/// When no profile holds anything to judge, a file cannot be read or written, or a rule, a GPU or a
/// template is wrong: [`Failure::Unusable`] with what to do.
pub fn advise(args: &AdviseArgs, speech: Speech) -> Outcome {
    if args.profiles.is_empty() {
        return Err(Failure::Unusable("no profile given".into()));
    }
    let output = args.report.output.as_deref();
    for path in &args.profiles {
        refuse_overwriting(path, output)?;
    }
    let format = format(&args.report)?;
    let mut stages = Stages::new(speech);
    let early = early::start(&args.profiles);
    let rules = super::rules::load_to_judge(&args.rules)?;
    let ran: Vec<String> = rules.rules().iter().map(|r| r.id.clone()).collect();
    let gates = Gates::load(&args.gates, Some(ran))?;
    // The program ends with this: nothing of it needs to be given back.
    let mut judge = ManuallyDrop::new(Judge {
        args,
        max_sites: sites_shown(&args.report, format),
        // Typing mistakes should not cost the time it takes to read a large file.
        asked: asked_for(args, &rules)?,
        rules,
        costs: super::costs::load(&args.costs)?,
    });
    if let Some(asked) = &args.gpu {
        select::find(asked).map_err(super::gpus::refuse)?;
    }
    stages.done("loaded rules");
    let inputs = job::inputs(&args.profiles, job::PROFILES, speech)?;
    if inputs.is_job {
        // Reports are put together whole, whatever is shown of them in the end.
        judge.max_sites = report::MAX_SITES;
        return several(&judge, &gates, inputs, speech);
    }
    let path = inputs
        .files
        .first()
        .ok_or_else(|| Failure::Unusable("no profile given".into()))?;
    let bar = Bar::new(speech.quiet);
    let profile = match early {
        Some(early) => early.finish(),
        None => read_profile(path, &bar),
    };
    bar.done();
    let (judged, costed) = judge.profile(path, profile?, &mut stages)?;
    // The program ends when the report is written: that need not wait for millions of rows to be
    // given back.
    rayon::spawn(move || drop(costed));
    for warning in &judged.warnings {
        speech.warn(warning);
    }
    match judged.outcome {
        Said::Why(text) => write(&args.report, &text),
        Said::Report(report) => {
            let outcome = finish(&args.report, &gates, *report, speech);
            stages.done("reported");
            outcome
        }
    }
}

/// The profiles of a job, and one report of all that could be read.
fn several(judge: &Judge<'_>, gates: &Gates<'_>, inputs: job::Inputs, speech: Speech) -> Outcome {
    for file in &inputs.files {
        refuse_overwriting(file, judge.args.report.output.as_deref())?;
    }
    for twice in &inputs.repeated {
        speech.warn(&format!("{}: {}", plain(&twice.file), twice.why));
    }
    let all = together(inputs, speech, |file, stages| judge.file(file, stages))?;
    if judge.args.why.is_some() {
        return write(&judge.args.report, &all.whys);
    }
    finish(&judge.args.report, gates, all.report()?, speech)
}

/// What came of the profiles of a job.
struct Together {
    reports: Vec<Report>,
    /// The answers to `--why`.
    whys: String,
    left_out: Vec<LeftOut>,
}

impl Together {
    fn report(self) -> Result<Report, Failure> {
        compare::merge(self.reports, self.left_out)
            .ok_or_else(|| Failure::Unusable("no profile could be judged".into()))
    }
}

/// Judges the profiles of a job, two at a time: `one` returns without its profile.
fn together(
    inputs: job::Inputs,
    speech: Speech,
    one: impl Fn(&Path, &mut Stages) -> Result<Judged, Failure> + Sync,
) -> Result<Together, Failure> {
    // Several files at once would talk over each other.
    let silent = Speech {
        verbose: false,
        ..speech
    };
    let results = job::each(&inputs.files, speech, |file| {
        one(file, &mut Stages::new(silent))
    });
    let mut all = Together {
        reports: Vec::new(),
        whys: String::new(),
        left_out: inputs.repeated,
    };
    let mut warnings = Vec::new();
    for one in job::usable(&inputs.files, results, &mut all.left_out, speech)? {
        warnings.push((one.file.clone(), one.warnings));
        match one.outcome {
            Said::Why(text) => {
                let file = plain(&one.file);
                all.whys.push_str(&format!("{file}\n\n{text}\n"));
            }
            Said::Report(report) => all.reports.push(*report),
        }
    }
    job::warn(&warnings, speech);
    Ok(all)
}

/// The report of a profile, or of a job's, for those who do something else with it.
pub(super) fn report_of(args: &AdviseArgs, speech: Speech) -> Result<Report, Failure> {
    let judge = Judge::whole(args)?;
    let inputs = job::inputs(&args.profiles, job::PROFILES, speech)?;
    together(inputs, speech, |file, stages| judge.file(file, stages))?.report()
}

/// The reports of profiles, each on its own, and of files that are reports already.
pub(super) fn reports_of(
    args: &AdviseArgs,
    inputs: job::Inputs,
    speech: Speech,
) -> Result<Vec<Report>, Failure> {
    let judge = Judge::whole(args)?;
    let all = together(inputs, speech, |file, stages| {
        if !merge::is_report(file) {
            return judge.file(file, stages);
        }
        Ok(Judged {
            file: job::shown(file),
            outcome: Said::Report(Box::new(merge::one(file)?)),
            warnings: Vec::new(),
        })
    })?;
    Ok(all.reports)
}

/// All that is needed to judge any number of profiles.
struct Judge<'a> {
    args: &'a AdviseArgs,
    /// Rows of the table of sites that the format asked for shows.
    max_sites: usize,
    rules: RuleSet,
    /// The rule `--why` asks for, the rules it runs with, and whether it was left out of the others.
    asked: Option<(Rule, RuleSet, bool)>,
    costs: UserCosts,
}

/// What came of one profile.
struct Judged {
    file: String,
    outcome: Said,
    /// What the person at the terminal should know besides.
    warnings: Vec<String>,
}

/// The report, or the answer to `--why`.
enum Said {
    Report(Box<Report>),
    Why(String),
}

impl<'a> Judge<'a> {
    /// For reports that are kept whole.
    fn whole(args: &'a AdviseArgs) -> Result<Judge<'a>, Failure> {
        if let Some(asked) = &args.gpu {
            select::find(asked).map_err(super::gpus::refuse)?;
        }
        Ok(Judge {
            args,
            max_sites: report::MAX_SITES,
            asked: None,
            rules: super::rules::load_to_judge(&args.rules)?,
            costs: super::costs::load(&args.costs)?,
        })
    }

    /// The road of one profile of several.
    fn file(&self, path: &Path, stages: &mut Stages) -> Result<Judged, Failure> {
        let profile = read_profile(path, &read::NoProgress)?;
        let (judged, _) = self.profile(path, profile, stages)?;
        Ok(judged)
    }

    /// The road of one profile, and what it was judged by.
    fn profile(
        &self,
        path: &Path,
        profile: Profile,
        stages: &mut Stages,
    ) -> Result<(Judged, Costed), Failure> {
        stages.done("read");
        let gpu =
            select::choose(self.args.gpu.as_deref(), &profile).map_err(super::gpus::refuse)?;
        let run = correlate(
            profile,
            &Vocabulary {
                knows_op: &|op| ops::knows(op) || self.costs.knows(op),
                ..VOCABULARY
            },
        );
        stages.done("correlated");
        let costed = price_with(run, gpu, &self.costs);
        let table = Table::new(&costed);
        stages.done("priced");
        let mut judged = Judged {
            file: job::shown(path),
            outcome: Said::Why(String::new()),
            warnings: Vec::new(),
        };
        if let Some((rule, rules, left_out)) = &self.asked {
            let told = why(rule, &table, &judge(rules, &table));
            let heading = if *left_out {
                "left out by --select or --ignore; with all rules it would say:\n\n"
            } else {
                ""
            };
            judged.outcome = Said::Why(format!("{heading}{told}"));
            return Ok((judged, costed));
        }
        let verdict = judge(&self.rules, &table);
        stages.done("judged");
        for silenced in &verdict.silenced {
            let place = plain(&silenced.place);
            stages.speech.remark(&format!(
                "{} is silenced by {} at {place}",
                silenced.rule, silenced.by
            ));
        }
        let options = report::Options {
            top: self.args.report.top(),
            max_sites: self.max_sites,
        };
        let report = Report::new(&costed, &verdict, &options);
        judged.warnings = warnings(&costed, &report);
        judged.warnings.extend(unused(&self.costs, &costed));
        judged.outcome = Said::Report(Box::new(report));
        Ok((judged, costed))
    }
}

/// The rule `--why` asks for among rules it can run with, and whether they are more than were
/// selected: a rule that was left out is asked what it would have said.
fn asked_for(args: &AdviseArgs, rules: &RuleSet) -> Result<Option<(Rule, RuleSet, bool)>, Failure> {
    let Some(id) = &args.why else {
        return Ok(None);
    };
    if let Some(rule) = rules.get(id) {
        return Ok(Some((rule.clone(), rules.clone(), false)));
    }
    let everything = super::rules::load_to_judge(&RuleArgs {
        select: Vec::new(),
        ignore: Vec::new(),
        ..args.rules.clone()
    })?;
    let rule = super::rules::find(&everything, id)?.clone();
    Ok(Some((rule, everything, true)))
}

/// Says how long each stage took, to those who asked for more.
struct Stages {
    speech: Speech,
    since: Instant,
}

impl Stages {
    fn new(speech: Speech) -> Stages {
        Stages {
            speech,
            since: Instant::now(),
        }
    }

    /// The stage that ends here, in the past tense.
    fn done(&mut self, stage: &str) {
        let took = i64::try_from(self.since.elapsed().as_nanos()).unwrap_or(i64::MAX);
        self.speech
            .remark(&format!("{stage} in {}", units::ns(took as f64)));
        self.since = Instant::now();
    }
}

/// The report must never replace its own input.
pub(super) fn refuse_overwriting(input: &Path, output: Option<&Path>) -> Outcome {
    refuse_overwriting_the("profile", input, output)
}

pub(super) fn refuse_overwriting_the(what: &str, input: &Path, output: Option<&Path>) -> Outcome {
    let same = output.is_some_and(|out| match (input.canonicalize(), out.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    });
    if same {
        return Err(Failure::Unusable(format!(
            "--output {} would overwrite the {what}",
            input.display()
        )));
    }
    Ok(())
}

pub(super) fn read_profile(path: &Path, progress: &dyn read::Progress) -> Result<Profile, Failure> {
    let profile = read::open(path, progress)?;
    if profile.kernels.is_empty() && profile.graphs.is_empty() {
        return Err(Failure::Unusable(nothing_to_judge(&profile)));
    }
    Ok(profile)
}

/// What a file without GPU work lacks, and how to capture it.
fn nothing_to_judge(profile: &Profile) -> String {
    let mut text = format!(
        "{}: there is no kernel in this {}, so there is nothing to judge\n  {}",
        plain(&profile.path),
        profile.format.name,
        what_it_holds(profile)
    );
    // What is missing was just said; how the file may be shared is beside the point.
    let said = [
        "kernels_missing",
        "calls_missing",
        "ranges_missing",
        "environment_block",
    ];
    for note in profile.notes.iter().filter(|n| !said.contains(&n.code)) {
        text.push_str("\n  ");
        text.push_str(&plain(&note.text));
    }
    text.push_str(profile.format.how_to_capture);
    text.push_str(
        "\n  docs/capture.md tells what else may be wrong (containers, permissions, capture ranges).",
    );
    text
}

/// `It holds 1,824 NVTX ranges, but no CUDA API calls: CUDA was not traced.`
fn what_it_holds(profile: &Profile) -> String {
    let parts = [
        (profile.calls.len(), "CUDA API calls"),
        (profile.ranges.len(), profile.format.ranges),
    ];
    let has: Vec<String> = parts
        .iter()
        .filter(|(rows, _)| *rows > 0)
        .map(|(rows, what)| format!("{} {what}", units::count(*rows as u64)))
        .collect();
    let lacks: Vec<&str> = parts
        .iter()
        .filter(|(rows, _)| *rows == 0)
        .map(|(_, what)| *what)
        .collect();
    let conclusion = if profile.calls.is_empty() {
        "CUDA was not traced, or the program never used the GPU"
    } else {
        "the GPU ran nothing while it was recorded, or its records were lost"
    };
    match (has.as_slice(), lacks.as_slice()) {
        ([], _) => format!(
            "It holds no {} either: {conclusion}.",
            lacks.join(" and no ")
        ),
        (_, []) => format!("It holds {}: {conclusion}.", has.join(" and ")),
        _ => format!(
            "It holds {}, but no {}: {conclusion}.",
            has.join(" and "),
            lacks.join(" and no ")
        ),
    }
}

/// What the person at the terminal should know besides the report.
fn warnings(costed: &Costed, report: &Report) -> Vec<String> {
    let mut warnings = Vec::new();
    if costed.run.profile.recorded.environment {
        warnings.push(
            "this file holds environment variables of the captured machine; `pyprof-advise scrub IN \
             OUT` makes a copy without"
                .to_owned(),
        );
    }
    for fault in &report.faults {
        warnings.push(format!(
            "rule {} failed: {}",
            fault.rule,
            plain(&fault.message)
        ));
    }
    warnings
}

/// A cost file that changes nothing is likely to name its operators in another way.
fn unused(costs: &UserCosts, costed: &Costed) -> Vec<String> {
    let mut files: Vec<&str> = costs.costs().iter().map(|c| &*c.file).collect();
    files.dedup();
    let used = |file: &&str| {
        let by = costed.sites.iter().filter_map(|s| s.priced_by.as_deref());
        by.into_iter().any(|by| by == *file)
    };
    files
        .iter()
        .filter(|file| !used(file))
        .map(|file| {
            format!(
                "{}: no operator of this profile is one of its costs",
                plain(file)
            )
        })
        .collect()
}

/// Takes out of a report what is not to be shown, writes it where it is wanted, and only then lets
/// the gates judge it.
pub(super) fn finish(
    args: &ReportArgs,
    gates: &Gates<'_>,
    mut report: Report,
    speech: Speech,
) -> Outcome {
    gates.filter(&mut report, speech);
    write(args, &render(args, format(args)?, &report)?)?;
    gates.judge(&report)
}

/// The format asked for, or the one that fits the file or the terminal the report goes to.
pub(super) fn format(args: &ReportArgs) -> Result<OutputFormat, Failure> {
    let limited = args.for_pr || args.max_chars.is_some();
    Ok(match (args.format, args.output.as_deref()) {
        (Some(format), _) if limited && !format.can_shorten => {
            return Err(Failure::Unusable(
                "--max-chars and --for-pr shorten Markdown; other formats are always whole".into(),
            ));
        }
        (Some(format), _) => format,
        (None, _) if limited => formats::MARKDOWN,
        (None, Some(file)) => OutputFormat::of_file(file).unwrap_or(formats::MARKDOWN),
        (None, None) if output::is_terminal() => formats::TEXT,
        (None, None) => formats::MARKDOWN,
    })
}

/// Formats that list no sites need not make their rows.
fn sites_shown(args: &ReportArgs, format: OutputFormat) -> usize {
    const FEW: usize = 50;
    match format.lists_sites || args.template.is_some() {
        true => report::MAX_SITES,
        false => FEW,
    }
}

fn render(args: &ReportArgs, format: OutputFormat, report: &Report) -> Result<String, Failure> {
    if let Some(path) = &args.template {
        let text = std::fs::read_to_string(path).map_err(|e| {
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
    let layout = Layout {
        width: output::width(),
        max_chars,
    };
    Ok((format.report)(report, &layout)?)
}

fn write(args: &ReportArgs, text: &str) -> Outcome {
    match &args.output {
        Some(path) => output::write_file(path, &output::without_colour(text)),
        None => output::print(text),
    }
}
