//! `pyprof-advise scrub`: copies a profile without private data.

use std::path::{Path, PathBuf};

use clap::Args;

use super::args::Console;
use super::output::{self, CommandResult, Failure};
use super::progress::Bar;
use crate::base::text::plain;
use crate::base::units;
use crate::profile::Container;
use crate::scrub::{self, Rescan, ScrubSummary};

/// What `--help` says first.
pub(super) const ABOUT: &str = "Copies a profile so that it is safe to attach to an issue: without environment variables, \
tokens, host, display and user names, and with home folders shortened to `~`. Profiles of the host (`--host`) are \
copied as JSON, with shortened paths and without command lines and arguments. The new file contains only what reports need, so nothing remains in free pages. Its bytes are then searched for everything that should have \
been removed. The report of the copy has the same numbers, findings and order.";

/// Arguments of `scrub`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ScrubArgs {
    /// The profile, of a GPU or of the host; it is not changed
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// The copy; a trace is compressed if the name ends in `.gz`
    #[arg(value_name = "OUT")]
    output: PathBuf,
    /// Replace OUT if it exists
    #[arg(long)]
    force: bool,
}

const EXAMPLES: &str = "\
Examples:
  pyprof-advise scrub net.sqlite safe.sqlite
  pyprof-advise scrub net.pt.trace.json.gz safe.json.gz
  pyprof-advise scrub net.sqlite safe.sqlite --force    replaces safe.sqlite
  pyprof-advise scrub train.prof safe.json              a profile of the host, for --host

Exit status: 0 the copy was written and contains nothing of what was looked for; 2 no copy was written.";

pub(super) fn scrub(args: &ScrubArgs, console: Console) -> CommandResult {
    refuse_loss(args)?;
    refuse_other_ending(args)?;
    let temporary = output::temporary_for(&args.output)?;
    let packed = args
        .output
        .extension()
        .is_some_and(|e| e.eq_ignore_ascii_case("gz"));
    let bar = Bar::new(console.quiet);
    let made = scrub::scrub(&args.input, temporary.path(), packed, &bar);
    bar.done();
    let summary = made?;
    let told = told(args, &summary);
    if !summary.rescan.is_clean() {
        return Err(Failure::Unusable(format!(
            "{told}  The copy was not kept: please report this, without the profile."
        )));
    }
    let persisted = if args.force {
        temporary.persist(&args.output)
    } else {
        // Another process may have created the file in the meantime.
        temporary.persist_noclobber(&args.output)
    };
    persisted.map_err(|error| output::cannot_write(&args.output, error))?;
    output::print(&told)
}

/// Reports an error if the output is the input, or another existing file without `--force`.
fn refuse_loss(args: &ScrubArgs) -> CommandResult {
    let out = args.output.display();
    if is_same(&args.input, &args.output) {
        return Err(Failure::Unusable(format!(
            "{out} is the profile itself: name another file"
        )));
    }
    let Ok(there) = std::fs::symlink_metadata(&args.output) else {
        return Ok(());
    };
    if !there.is_file() {
        return Err(Failure::Unusable(format!(
            "{out} exists and is no ordinary file"
        )));
    }
    if !args.force {
        return Err(Failure::Unusable(format!(
            "{out} exists: name another file, or add --force"
        )));
    }
    Ok(())
}

/// Endings of SQLite databases, as profilers call them.
const DATABASES: [&str; 5] = ["sqlite", "sqlite3", "db", "nvvp", "nvprof"];

/// Reports an error if the name of the copy ends as that of a file of another kind: no other program would
/// read it. A file that is nothing known is reported when it is read.
fn refuse_other_ending(args: &ScrubArgs) -> CommandResult {
    let ending = args.output.extension().unwrap_or_default();
    let is = |known: &[&str]| known.iter().any(|known| ending.eq_ignore_ascii_case(known));
    let is_database =
        crate::read::recognize(&args.input).is_ok_and(|found| found.container != Container::Json);
    let (wrong, copy, endings) = match is_database {
        true => (is(&["json", "gz"]), "an SQLite database", ".sqlite"),
        false => (is(&DATABASES), "JSON", ".json; a trace may end in .json.gz"),
    };
    match wrong {
        true => Err(Failure::Unusable(format!(
            "{}: the copy of this profile is {copy}\n  name a file that ends in {endings}",
            args.output.display()
        ))),
        false => Ok(()),
    }
}

fn is_same(a: &Path, b: &Path) -> bool {
    let by_path = match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    };
    #[cfg(unix)]
    let by_file = {
        use std::os::unix::fs::MetadataExt;
        match (std::fs::metadata(a), std::fs::metadata(b)) {
            (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
            _ => false,
        }
    };
    #[cfg(not(unix))]
    let by_file = false;
    by_path || by_file
}

fn told(args: &ScrubArgs, summary: &ScrubSummary) -> String {
    let ScrubSummary {
        left_out,
        tables_left_out,
        changed,
        rescan,
    } = summary;
    let mut text = format!(
        "{}: a copy of {}; rows and members left out: {}; texts cleaned or emptied: {}\n\
         Searched its {} for what was to be removed, as UTF-8 and UTF-16:\n",
        plain(&args.output.display().to_string()),
        plain(&args.input.display().to_string()),
        units::count(*left_out),
        units::count(*changed),
        units::bytes(rescan.bytes as f64),
    );
    text.push_str(&lines(rescan));
    if *tables_left_out > 0 {
        text.push_str(&format!(
            "{} left out: there are more than any profile has\n",
            units::counted(*tables_left_out, "table")
        ));
    }
    text.push_str(&limits());
    text
}

/// What was looked for, and what was not: nothing else was searched for.
fn limits() -> String {
    let known = scrub::looked_for();
    let sources: Vec<String> = (known.forms.iter())
        .map(|(source, forms)| format!("{forms} of {source}"))
        .collect();
    let rules: Vec<&str> = (known.left_out.iter())
        .map(|(rule, _)| rule.as_str())
        .collect();
    format!(
        "Looked for: forms of tokens ({}), values of variables, options, headers, members and queries with \
         the name of a secret, logins, private keys, home folders, e-mail addresses, and what the file says \
         of its users and machines. Nothing else: look through names that may be confidential.\n\
         Not looked for: {}.\n",
        sources.join(", ").replace("of issuer", "of issuers"),
        rules.join(", ")
    )
}

fn lines(rescan: &Rescan) -> String {
    let mut text = String::new();
    for (kind, known, times) in &rescan.found {
        let known = match known {
            0 => String::new(),
            n => format!(" ({n} known from the file)"),
        };
        text.push_str(&format!(
            "  {:<62} {times} found\n",
            format!("{}{known}", kind.name())
        ));
    }
    text
}
