//! The command without a name: a profile in, advice out. The stations of the road, in order.

use std::path::Path;
use std::time::Instant;

use super::progress::Bar;
use super::{AdviseArgs, Failure, Format, Outcome, Speech, output};
use crate::base::text::plain;
use crate::base::units;
use crate::correlate::{Vocabulary, correlate};
use crate::cost::user::UserCosts;
use crate::cost::{Costed, kernel_name, ops, price_with};
use crate::facts::Table;
use crate::gpu::select;
use crate::judge::{judge, why};
use crate::profile::{Format as InputFormat, Profile};
use crate::read;
use crate::report::{self, Report};

/// Reads, correlates, prices, judges and reports one profile.
///
/// # Errors
/// When the profile holds nothing to judge, a file cannot be read or written, or a rule, a GPU or a
/// template is wrong: [`Failure::Unusable`] with what to do.
pub fn advise(args: &AdviseArgs, speech: Speech) -> Outcome {
    let path = args
        .profile
        .as_deref()
        .ok_or_else(|| Failure::Unusable("no profile given".into()))?;
    refuse_overwriting(path, args.output.as_deref())?;
    let mut stages = Stages::new(speech);
    let rules = super::rules::load(&args.rules)?;
    let costs = super::costs::load(&args.costs)?;
    if let Some(asked) = &args.gpu {
        // A typing mistake should not cost the time it takes to read a large file.
        select::find(asked).map_err(super::gpus::refuse)?;
    }
    stages.done("loaded rules");

    let profile = read_profile(path, speech)?;
    stages.done("read");
    let gpu = select::choose(args.gpu.as_deref(), &profile).map_err(super::gpus::refuse)?;
    let run = correlate(
        profile,
        &Vocabulary {
            knows_op: &|op| ops::knows(op) || costs.knows(op),
            is_communication: &kernel_name::is_communication,
        },
    );
    stages.done("correlated");
    let costed = price_with(run, gpu, &costs);
    let table = Table::new(&costed);
    stages.done("priced");
    if let Some(rule) = &args.why {
        let rule = super::rules::find(&rules, rule)?;
        return write(args, &why(rule, &table));
    }
    let verdict = judge(&rules, &table);
    stages.done("judged");
    for silenced in &verdict.silenced {
        let place = plain(&silenced.place);
        speech.remark(&format!(
            "{} is silenced by {} at {place}",
            silenced.rule, silenced.by
        ));
    }
    let report = Report::new(&costed, &verdict, &report::Options { top: args.top });
    warn(&costed, &report, speech);
    warn_of_unused(&costs, &costed, speech);
    let text = render(args, &report)?;
    stages.done("reported");
    write(args, &text)
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
fn refuse_overwriting(input: &Path, output: Option<&Path>) -> Outcome {
    let same = output.is_some_and(|out| match (input.canonicalize(), out.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    });
    if same {
        return Err(Failure::Unusable(format!(
            "--output {} would overwrite the profile",
            input.display()
        )));
    }
    Ok(())
}

fn read_profile(path: &Path, speech: Speech) -> Result<Profile, Failure> {
    let bar = Bar::new(speech.quiet);
    let profile = read::open(path, &bar);
    bar.done();
    let profile = profile?;
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
        profile.format.name(),
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
    text.push_str(how_to_capture(profile.format));
    text.push_str(
        "\n  docs/capture.md tells what else may be wrong (containers, permissions, capture ranges).",
    );
    text
}

/// The way to a file with kernels, with the tool this one came from.
fn how_to_capture(format: InputFormat) -> &'static str {
    match format {
        InputFormat::KinetoJson => {
            "\n  Profile again with both activities, while the GPU works:\n    \
             with torch.profiler.profile(\n        \
             activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True,\n    \
             ) as prof:\n        \
             train_step()\n        \
             torch.cuda.synchronize()\n    \
             prof.export_chrome_trace(\"net.pt.trace.json.gz\")"
        }
        _ => {
            "\n  Capture again with CUDA tracing on, while the GPU works:\n    \
             nsys profile -t cuda,nvtx -o net python train.py\n    \
             nsys export --type sqlite -o net.sqlite net.nsys-rep"
        }
    }
}

/// `It holds 1,824 NVTX ranges, but no CUDA API calls: CUDA was not traced.`
fn what_it_holds(profile: &Profile) -> String {
    let ranges = match profile.format {
        InputFormat::KinetoJson => "operators and annotations",
        _ => "NVTX ranges",
    };
    let parts = [
        (profile.calls.len(), "CUDA API calls"),
        (profile.ranges.len(), ranges),
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
fn warn(costed: &Costed, report: &Report, speech: Speech) {
    if costed.run.profile.recorded.environment {
        speech.warn(
            "this file holds environment variables of the captured machine; `pyprof-advise scrub IN \
             OUT` makes a copy without",
        );
    }
    for fault in &report.faults {
        speech.warn(&format!(
            "rule {} failed: {}",
            fault.rule,
            plain(&fault.message)
        ));
    }
}

/// A cost file that changes nothing is likely to name its operators in another way.
fn warn_of_unused(costs: &UserCosts, costed: &Costed, speech: Speech) {
    let mut files: Vec<&str> = costs.costs().iter().map(|c| &*c.file).collect();
    files.dedup();
    let used = |file: &&str| {
        let by = costed.sites.iter().filter_map(|s| s.priced_by.as_deref());
        by.into_iter().any(|by| by == *file)
    };
    for file in files.iter().filter(|file| !used(file)) {
        speech.warn(&format!(
            "{}: no operator of this profile is one of its costs",
            plain(file)
        ));
    }
}

fn render(args: &AdviseArgs, report: &Report) -> Result<String, Failure> {
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
    Ok(match args.format {
        Format::Markdown => report::markdown(report)?,
        Format::Json => report::json(report),
    })
}

fn write(args: &AdviseArgs, text: &str) -> Outcome {
    match &args.output {
        Some(path) => output::write_file(path, text),
        None => output::print(text),
    }
}
