//! `pyprof-advise rules`: list, explain, check, test and write rules.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use clap::{Subcommand, ValueEnum};

use super::args::{Console, RuleArgs};
use super::examples;
use super::output::{self, CommandResult, Failure};
use crate::base::diag::{Complaints, visible};
use crate::base::text::{code_line, plain};
use crate::cost::user;
use crate::facts;
use crate::gpu;
use crate::gpu::load::built_in;
use crate::judge::{self, Rule, RuleFile, RuleSet, Selection};

/// Commands of `rules`.
#[derive(Debug, Subcommand)]
pub(super) enum RulesCommand {
    /// List every rule with its title
    #[command(after_help = examples::RULES_LIST)]
    List {
        #[command(flatten)]
        rules: RuleArgs,
    },
    /// Explain what a rule detects, its parameters, its advice and its examples
    #[command(after_help = examples::RULES_EXPLAIN)]
    Explain {
        /// The rule's id, as `rules list` shows it
        id: String,
        #[command(flatten)]
        rules: RuleArgs,
    },
    /// List every fact that conditions and templates can use
    #[command(after_help = examples::RULES_FACTS)]
    Facts {
        /// Only facts whose name contains this, e.g. `site.` or `share`
        part: Option<String>,
    },
    /// Check rule files and report every mistake, except failing tests
    #[command(after_help = examples::RULES_CHECK)]
    Check {
        /// Rule files or folders
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
    /// Run the tests inside rule files; by default those of the built-in rules
    #[command(after_help = examples::RULES_TEST)]
    Test {
        /// Rule files or folders
        paths: Vec<PathBuf>,
    },
    /// Print the JSON Schema of rule, cost, GPU or class files, for editors that check TOML
    #[command(after_help = examples::RULES_SCHEMA)]
    Schema {
        /// Which files: rules, costs (`--costs`), GPUs (`--gpu FILE`) or classes (`--classes`)
        #[arg(default_value = "rule")]
        of: SchemaOf,
    },
    /// Write a commented rule file to start from
    #[command(after_help = examples::RULES_NEW)]
    New {
        /// Category and name: `fusion/my-idea`
        id: String,
        /// The folder for `<category>/<name>.toml`
        #[arg(long, default_value = "rules")]
        folder: PathBuf,
    },
}

/// Kinds of files a schema is written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum SchemaOf {
    Rule,
    Cost,
    Gpu,
    Classes,
}

impl SchemaOf {
    fn schema(self) -> String {
        match self {
            SchemaOf::Rule => judge::keys::schema(),
            SchemaOf::Cost => user::schema(),
            SchemaOf::Gpu => gpu::keys::schema(),
            SchemaOf::Classes => crate::host::classes_schema(),
        }
    }
}

pub(super) fn run(command: RulesCommand, console: Console) -> CommandResult {
    match command {
        RulesCommand::List { rules } => output::print(&list(&load(&rules)?)),
        RulesCommand::Explain { id, rules } => {
            let set = load(&rules)?;
            let page = judge::explain(find(&set, &id)?, facts::all(), &gpu_facts);
            let page: Vec<_> = page.lines().map(visible).collect();
            output::print(&format!(
                "{}\n\nText in `{{{{ }}}}` and `{{% %}}` is filled in for each finding.\n",
                page.join("\n")
            ))
        }
        RulesCommand::Facts { part } => output::print(&facts_list(part.as_deref())?),
        RulesCommand::Check { paths } => check(&paths, console),
        RulesCommand::Test { paths } => test(&paths, console),
        RulesCommand::Schema { of } => output::print(&of.schema()),
        RulesCommand::New { id, folder } => new(&id, &folder, console),
    }
}

/// The built-in rules and the user's, with `--select`, `--ignore` and `--set` applied.
fn load(args: &RuleArgs) -> Result<RuleSet, Failure> {
    load_with(built_in_rules()?, args)
}

/// Like [`load`], but without the tests of the built-in rules: loads faster.
pub(super) fn load_for_analysis(args: &RuleArgs) -> Result<RuleSet, Failure> {
    match std::env::var_os(BUILT_IN_RULES) {
        Some(_) => load(args),
        None => load_with(RuleSet::builtin_files_for_analysis(), args),
    }
}

/// The environment variable that names a folder whose rules stand in for the built-in ones, so that
/// an edit to `rules/` can be tried without compiling (CONTRIBUTING.md).
const BUILT_IN_RULES: &str = "PYPROF_ADVISE_BUILT_IN_RULES";

/// The files of the built-in rules.
fn built_in_rules() -> Result<Vec<RuleFile>, Failure> {
    match std::env::var_os(BUILT_IN_RULES) {
        Some(folder) => Ok(judge::load::find(Path::new(&folder))?),
        None => Ok(RuleSet::builtin_files()),
    }
}

fn load_with(mut files: Vec<RuleFile>, args: &RuleArgs) -> Result<RuleSet, Failure> {
    files.extend(found(&args.paths)?);
    let selection = Selection {
        select: args.select.clone(),
        ignore: args.ignore.clone(),
        set: args.set.clone(),
    };
    Ok(RuleSet::load(&files, &selection, facts::all())?)
}

/// The rule with this id, or an error that suggests a similar id.
pub(super) fn find<'a>(set: &'a RuleSet, id: &str) -> Result<&'a Rule, Failure> {
    Ok(set.find(id)?)
}

/// The files of the built-in rules and of the user's.
///
/// # Errors
/// Every path of the user that cannot be read.
pub(super) fn files(paths: &[PathBuf]) -> Result<Vec<RuleFile>, Complaints> {
    let mut files = match std::env::var_os(BUILT_IN_RULES) {
        Some(folder) => judge::load::find(Path::new(&folder))?,
        None => RuleSet::builtin_files(),
    };
    let unread = Complaints::new();
    for path in paths {
        match judge::load::find(path) {
            Ok(found) => files.extend(found),
            Err(complaints) => unread.append(&complaints),
        }
    }
    unread.accept(files)
}

fn found(paths: &[PathBuf]) -> Result<Vec<RuleFile>, Failure> {
    let mut files = Vec::new();
    for path in paths {
        files.extend(judge::load::find(path)?);
    }
    Ok(files)
}

fn list(set: &RuleSet) -> String {
    let width = set.rules().iter().map(|r| r.id.len()).max().unwrap_or(0);
    set.rules()
        .iter()
        .map(|r| format!("{:width$}  {}\n", r.id, plain(&r.title)))
        .collect()
}

fn facts_list(part: Option<&str>) -> Result<String, Failure> {
    let mut text = String::new();
    for fact in facts::all()
        .iter()
        .filter(|f| part.is_none_or(|p| f.name.contains(p)))
    {
        let unit = match fact.unit() {
            "" => String::new(),
            unit => format!(", {unit}"),
        };
        text.push_str(&format!(
            "{} ({}{unit})\n    {}.\n",
            fact.name,
            fact.ty.word(),
            fact.doc
        ));
        if !fact.families.is_empty() {
            let families: Vec<&str> = fact.families.iter().map(|f| f.name()).collect();
            text.push_str(&format!("    For {}.\n", families.join(", ")));
        }
        if !fact.needs.is_empty() {
            text.push_str(&format!("    Needs {}.\n", fact.needs));
        }
    }
    let found = judge::expr::FOUND.iter();
    for (name, ty, doc) in found.filter(|(name, ..)| part.is_none_or(|p| name.contains(p))) {
        let ty = ty.word();
        text.push_str(&format!("{name} ({ty})\n    {doc}.\n"));
    }
    match part {
        Some(part) if text.is_empty() => Err(Failure::Unusable(format!(
            "no fact has `{part}` in its name"
        ))),
        _ => Ok(text),
    }
}

fn check(paths: &[PathBuf], console: Console) -> CommandResult {
    let (files, own) = with_built_in(paths)?;
    let set = accepted(RuleSet::check(&files, facts::all(), &gpu_facts))?;
    let checked = set.rules().iter().filter(|r| own.contains(&r.id)).count();
    output::fine(checked, "rule", console)
}

/// The rule files at `paths` together with the built-in rules that they may refer to, and the ids of
/// the former. A file with the text of a built-in rule replaces that rule; another file must not have
/// its id.
fn with_built_in(paths: &[PathBuf]) -> Result<(Vec<RuleFile>, BTreeSet<String>), Failure> {
    let own = match paths {
        [] => built_in_rules()?,
        paths => found(paths)?,
    };
    let ids: BTreeSet<String> = own.iter().map(|f| f.id.clone()).collect();
    let mut files = built_in_rules()?;
    files.retain(|file| {
        let same = |own: &RuleFile| own.id == file.id && own.source.text == file.source.text;
        !own.iter().any(same)
    });
    files.extend(own);
    Ok((files, ids))
}

/// Mistakes in rule files fail the gate.
fn accepted<T>(result: Result<T, Complaints>) -> Result<T, Failure> {
    result.map_err(|complaints| {
        if let Failure::Unusable(summary) = output::refuse(&complaints) {
            output::labeled("error", anstyle::AnsiColor::Red, &summary);
        }
        Failure::GateFailed
    })
}

fn test(paths: &[PathBuf], console: Console) -> CommandResult {
    let (files, own) = with_built_in(paths)?;
    let set = accepted(RuleSet::load(&files, &Selection::default(), facts::all()))?;
    let rules = set.rules().iter().filter(|r| own.contains(&r.id));
    let results = judge::run_tests(rules.clone(), facts::all(), &gpu_facts);
    let lines = results.iter().map(|result| {
        let outcome = result.outcome.as_ref().err().map_or("ok", String::as_str);
        let outcome: Vec<String> = outcome.lines().map(code_line).collect();
        let (rule, test) = (&result.rule, plain(&result.test));
        let line = format!("{rule}: {test}: {}", outcome.join("\n"));
        (result.passed(), line)
    });
    let passed = output::test_results(&lines.collect::<Vec<_>>(), console)?;
    let complaints = Complaints::new();
    judge::check_examples(rules, facts::all(), &gpu_facts, &complaints);
    accepted(complaints.accept(()))?;
    match passed {
        true => Ok(()),
        false => Err(Failure::GateFailed),
    }
}

/// The `gpu.` facts of a built-in GPU, for rule tests.
fn gpu_facts(id: &str) -> Option<BTreeMap<String, facts::Value>> {
    let spec = built_in().iter().find(|spec| spec.gpu.id == id)?;
    Some(facts::of_gpu(Some(&spec.gpu)))
}

fn new(id: &str, folder: &Path, console: Console) -> CommandResult {
    if let Some(problem) = judge::load::check_id(id) {
        return Err(Failure::Unusable(format!("`{id}`: {problem}")));
    }
    let path = folder.join(format!("{id}.toml"));
    if path.exists() {
        return Err(Failure::Unusable(format!(
            "{} exists already",
            path.display()
        )));
    }
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)
            .map_err(|e| Failure::Unusable(format!("cannot make {}: {e}", parent.display())))?;
    }
    output::write_file(&path, &judge::scaffold(id))?;
    if !console.quiet {
        output::print(&format!(
            "{0}\n  edit it, then: pyprof-advise rules test {0}\n",
            path.display()
        ))?;
    }
    Ok(())
}
