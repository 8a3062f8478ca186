//! `pyprof-advise costs`: lists, explains, checks and tests the costs of operators.

use std::path::PathBuf;

use clap::Subcommand;

use super::args::Console;
use super::examples;
use super::output::{self, CommandResult, Failure};
use crate::base::suggest::did_you_mean;
use crate::base::text::plain;
use crate::cost::ops::{self, Entry};
use crate::cost::user::names::FUNCTIONS;
use crate::cost::user::{UserCost, UserCosts, op_name};

/// Commands of `costs`.
#[derive(Debug, Subcommand)]
pub(super) enum CostsCommand {
    /// List every operator with a known cost
    #[command(after_help = examples::COSTS_LIST)]
    List {
        /// Only operators whose name contains this
        part: Option<String>,
        /// A cost file of your own, in addition; may be repeated
        #[arg(long, value_name = "FILE")]
        costs: Vec<PathBuf>,
    },
    /// Explain how the FLOPs and bytes of an operator are counted
    #[command(after_help = examples::COSTS_EXPLAIN)]
    Explain {
        /// The operator as reports show it: `aten::addmm`, `my_lib::fused_mlp`
        op: String,
        /// A cost file of your own; it takes precedence over the built-in table; may be repeated
        #[arg(long, value_name = "FILE")]
        costs: Vec<PathBuf>,
    },
    /// List every function that the expressions of cost files can use
    #[command(after_help = examples::COSTS_FUNCTIONS)]
    Functions,
    /// Check cost files and report every mistake
    #[command(after_help = examples::COSTS_CHECK)]
    Check {
        /// Cost files
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Run the tests inside cost files
    #[command(after_help = examples::COSTS_TEST)]
    Test {
        /// Cost files
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
}

pub(super) fn run(command: CostsCommand, console: Console) -> CommandResult {
    match command {
        CostsCommand::List { part, costs } => {
            output::print(&list(part.as_deref(), &load(&costs)?)?)
        }
        CostsCommand::Explain { op, costs } => output::print(&explain(&op, &load(&costs)?)?),
        CostsCommand::Functions => output::print(&functions()),
        CostsCommand::Check { files } => check(&files, console),
        CostsCommand::Test { files } => test(&files, console),
    }
}

/// The costs in a user's files.
pub(super) fn load(files: &[PathBuf]) -> Result<UserCosts, Failure> {
    Ok(UserCosts::load(files)?)
}

/// The costs in files to check; mistakes fail the gate.
fn load_own(files: &[PathBuf]) -> Result<UserCosts, Failure> {
    UserCosts::load(files).map_err(|complaints| {
        output::complain(&complaints.render(output::stderr_color()));
        output::labeled("error", anstyle::AnsiColor::Red, &complaints.summary());
        Failure::GateFailed
    })
}

fn list(part: Option<&str>, user: &UserCosts) -> Result<String, Failure> {
    let mut rows: Vec<(String, &str, String)> = Vec::new();
    for cost in user.costs() {
        rows.push((cost.op.clone(), cost.family.name(), plain(&cost.file)));
    }
    for entry in ops::table() {
        for name in entry.names {
            rows.push((full_name(entry, name), entry.family.name(), String::new()));
        }
    }
    rows.retain(|(op, ..)| part.is_none_or(|p| op.contains(p)));
    if let (Some(part), true) = (part, rows.is_empty()) {
        let why = format!("no operator with a known cost has `{part}` in its name");
        return Err(Failure::Unusable(why));
    }
    let width = rows.iter().map(|(op, ..)| op.len()).max().unwrap_or(0);
    let line = |(op, family, file): &(String, &str, String)| {
        let line = format!("{op:width$}  {family:13}  {file}");
        format!("{}\n", line.trim_end())
    };
    Ok(rows.iter().map(line).collect())
}

/// The name for lists; names of PyTorch operators have no prefix.
fn full_name(entry: &Entry, name: &str) -> String {
    match entry.namespaces {
        [] => name.to_owned(),
        [namespace, ..] => format!("{namespace}::{name}"),
    }
}

fn explain(op: &str, user: &UserCosts) -> Result<String, Failure> {
    let name = op_name(op);
    let own: Vec<&UserCost> = user.costs().iter().filter(|c| c.is_about(&name)).collect();
    if !own.is_empty() {
        let texts: Vec<String> = own.iter().map(|cost| explain_own(cost, user)).collect();
        return Ok(texts.join("\n"));
    }
    match ops::entry(&name) {
        Some(entry) => Ok(explain_entry(op, entry)),
        None => {
            let known = ops::table().flat_map(|e| e.names.iter().copied());
            let near = did_you_mean(&name.name, known);
            let hint = if near.is_empty() {
                "; a cost file of your own can name it (`--costs FILE`)"
            } else {
                &near
            };
            let op = plain(op);
            Err(Failure::Unusable(format!(
                "the cost of `{op}` is unknown{hint}"
            )))
        }
    }
}

fn line(text: &mut String, label: &str, value: &str) {
    if !value.is_empty() {
        text.push_str(&format!("  {label:10} {value}\n"));
    }
}

fn explain_entry(op: &str, entry: &Entry) -> String {
    let mut text = format!("{op}\n");
    let class = match entry.class {
        crate::cost::FlopsClass::Exact => "exactly: a closed form",
        crate::cost::FlopsClass::Convention => {
            "by convention: an estimate that never decides what limits the work"
        }
        crate::cost::FlopsClass::Zero => "zero: data movement",
    };
    line(&mut text, "Family", entry.family.name());
    line(&mut text, "FLOPs", entry.flops);
    line(&mut text, "Counted", class);
    line(&mut text, "Bytes", entry.bytes);
    line(&mut text, "Backward", entry.backward);
    line(&mut text, "Source", entry.source);
    line(&mut text, "Operators", &entry.names.join(", "));
    line(&mut text, "Of", &entry.namespaces.join(", "));
    text
}

fn explain_own(cost: &UserCost, user: &UserCosts) -> String {
    let mut text = format!("{}\n", cost.op);
    line(&mut text, "File", &plain(&cost.file));
    line(&mut text, "Family", cost.family.name());
    let direction = cost.direction.map_or("any", |d| d.name());
    line(&mut text, "Direction", direction);
    line(&mut text, "Arguments", &cost.args.join(", "));
    line(&mut text, "FLOPs", &cost.flops.text);
    line(&mut text, "Bytes", &cost.bytes.text);
    if let Some(dims) = &cost.dims {
        line(&mut text, "m", &dims.m.text);
        line(&mut text, "n", &dims.n.text);
        line(&mut text, "k", &dims.k.text);
        let batch = dims.batch.as_ref().map_or("", |b| b.text.as_str());
        line(&mut text, "batch", batch);
    }
    line(&mut text, "Source", cost.source.as_deref().unwrap_or(""));
    for example in user.examples(cost) {
        line(&mut text, "Example", &plain(&example));
    }
    text
}

fn functions() -> String {
    let entry = |f: &crate::cost::user::names::ArgumentFunction| {
        format!("{} ({})\n    {}\n", f.usage, f.ty.phrase(), f.doc)
    };
    FUNCTIONS.iter().map(entry).collect()
}

fn check(files: &[PathBuf], console: Console) -> CommandResult {
    let user = load_own(files)?;
    output::fine(user.costs().len(), "cost", console)
}

fn test(files: &[PathBuf], console: Console) -> CommandResult {
    let results = load_own(files)?.run_tests();
    let lines = results.iter().map(|result| {
        let [file, call] = [&result.file, &result.call].map(|text| plain(text));
        let outcome = plain(&result.outcome.to_string());
        (result.passed(), format!("{file}: {call}: {outcome}"))
    });
    match output::test_results(&lines.collect::<Vec<_>>(), console)? {
        true => Ok(()),
        false => Err(Failure::GateFailed),
    }
}
