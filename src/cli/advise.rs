//! The command without a name: a profile in, advice out. The stations of the road, in order.

use std::path::Path;

use super::progress::Bar;
use super::{AdviseArgs, Failure, Format, Outcome, Speech, output};
use crate::base::text::plain;
use crate::correlate::{Vocabulary, correlate};
use crate::cost::user::UserCosts;
use crate::cost::{Costed, kernel_name, ops, price_with};
use crate::facts::Table;
use crate::gpu::select;
use crate::judge::{judge, why};
use crate::profile::Profile;
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
    let rules = super::rules::load(&args.rules)?;
    let costs = super::costs::load(&args.costs)?;

    let profile = read_profile(path, speech)?;
    let gpu = select::choose(args.gpu.as_deref(), &profile)
        .map_err(|e| Failure::Unusable(e.to_string()))?;
    let run = correlate(
        profile,
        &Vocabulary {
            knows_op: &|op| ops::knows(op) || costs.knows(op),
            is_communication: &kernel_name::is_communication,
        },
    );
    let costed = price_with(run, gpu, &costs);
    let table = Table::new(&costed);
    if let Some(rule) = &args.why {
        let rule = super::rules::find(&rules, rule)?;
        return output::print(&why(rule, &table));
    }
    let verdict = judge(&rules, &table);
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
    write(args, &render(args, &report)?)
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
        "{}: a {} without a single kernel, so there is nothing to judge",
        plain(&profile.path),
        profile.format.name()
    );
    for note in &profile.notes {
        text.push_str("\n  ");
        text.push_str(&plain(&note.text));
    }
    text.push_str(
        "\n  Capture again with CUDA tracing on, while the GPU works:\n    \
         nsys profile -t cuda,nvtx -o net python train.py\n    \
         nsys export --type sqlite -o net.sqlite net.nsys-rep\n  \
         docs/capture.md tells what else may be wrong (containers, permissions, capture ranges).",
    );
    text
}

/// What the person at the terminal should know besides the report.
fn warn(costed: &Costed, report: &Report, speech: Speech) {
    if costed.run.profile.recorded.environment {
        speech.warn("this export holds environment variables of the captured machine; do not share the file itself");
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
