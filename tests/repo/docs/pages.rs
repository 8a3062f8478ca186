//! The generated pages, from the tables that the program uses.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use pyprof_advise::base::cel::FUNCTIONS;
use pyprof_advise::base::schema::Key;
use pyprof_advise::base::text::capitalized;
use pyprof_advise::base::{DType, units};
use pyprof_advise::cost::{FlopsClass, UnknownCost, ops, user};
use pyprof_advise::facts::{self, Fact, MemberKind};
use pyprof_advise::gpu::calibration::{self, Sourced};
use pyprof_advise::gpu::keys::{self as gpu_keys, REACHABLE_KEYS};
use pyprof_advise::gpu::load::Spec;
use pyprof_advise::gpu::{Gpu, select};
use pyprof_advise::judge::expr::FOUND;
use pyprof_advise::judge::template::FILTERS;
use pyprof_advise::judge::{self, CATEGORIES, Confidence, Rule, RuleSet, Severity};

use super::markdown::{cell, codes, deeper, table};
use crate::support::verdicts::{self, Reviewed, Verdict};

fn head(title: &str, intro: &str) -> String {
    format!(
        "<!-- Generated: `PYPROF_ADVISE_BLESS=1 cargo test fresh` renews this page. -->\n\n\
         # {title}\n\n{intro}\n\n"
    )
}

// ------------------------------------------------------------------------------------------- rules

/// The index of the rules, and a page per category: GitHub shows the first 500 KiB of a page only.
pub(crate) fn rules() -> Vec<(String, String)> {
    let set = RuleSet::builtin().unwrap_or_else(|complaints| panic!("{complaints}"));
    let mut index = head(
        "The built-in rules",
        &format!(
            "{} rules, with a page for each category. `pyprof-advise rules explain ID` prints a section of \
             such a page; [writing-rules.md](writing-rules.md) explains how to write your own.",
            set.len()
        ),
    );
    let mut pages = Vec::new();
    for (category, about) in CATEGORIES {
        let rules = of(&set, category);
        let _ = writeln!(index, "## [{category}](rules/{category}.md)\n\n{about}\n");
        index.push_str(&table(
            &["Rule", "Title", "Severity", "Confidence", "For each"],
            rules.iter().map(|rule| index_row(rule)),
        ));
        index.push('\n');
        let mut page = head(
            &format!("Rules: {category}"),
            &format!(
                "{about}. Text in `{{{{ }}}}` and `{{% %}}` is filled in for each finding. \
                 [All rules](../rules.md)",
                about = capitalized(about)
            ),
        );
        for rule in rules {
            section(&mut page, rule);
        }
        pages.push((format!("docs/rules/{category}.md"), with_one_end(&page)));
    }
    pages.insert(0, ("docs/rules.md".to_owned(), with_one_end(&index)));
    pages
}

fn with_one_end(page: &str) -> String {
    page.trim_end().to_owned() + "\n"
}

fn of<'a>(set: &'a RuleSet, category: &str) -> Vec<&'a Rule> {
    let rules = set.rules().iter();
    rules.filter(|r| r.category() == category).collect()
}

fn index_row(rule: &Rule) -> Vec<String> {
    let severity = match rule.severity {
        Severity::Note => "note",
        Severity::Warning => "warning",
        Severity::Error => "error",
    };
    let confidence = match rule.confidence {
        Confidence::Low => "low",
        Confidence::Medium => "medium",
        Confidence::High => "high",
    };
    vec![
        format!(
            "[{}](rules/{}.md#{})",
            rule.id,
            rule.category(),
            anchor(&rule.id)
        ),
        cell(&rule.title),
        severity.into(),
        confidence.into(),
        rule.for_each.word().into(),
    ]
}

/// The anchor that GitHub and GitLab assign to a heading that is an id.
fn anchor(id: &str) -> String {
    id.replace('/', "")
}

/// Appends the section of a rule, under its id: ids are permanent, titles are not.
fn section(page: &mut String, rule: &Rule) {
    let gpu = |id: &str| Some(facts::of_gpu(Some(&select::find(id).ok()?.gpu)));
    let own = judge::explain(rule, facts::all(), &gpu);
    let (title, rest) = own.split_once('\n').unwrap_or((&own, ""));
    let title = title.trim_start_matches("# ");
    let _ = writeln!(page, "## {}\n\n**{title}**", rule.id);
    page.push_str(deeper(rest, 1).trim_end());
    page.push_str("\n\n");
}

// ------------------------------------------------------------------------------------------- facts

pub(crate) fn facts() -> String {
    let mut page = head(
        "Facts, functions and filters",
        "Everything that conditions and templates of rules can use. `pyprof-advise rules facts PART` prints \
         the facts with `PART` in their names.\n\nIf a fact has a list of families, rules that need it are \
         silent for all other families. If a fact applies but the profile lacks it, the rule is *skipped*, \
         and the report says how to record it: see the column *Needs*. Times are in nanoseconds, shares go \
         from 0 to 1.",
    );
    let mut groups: BTreeMap<&str, Vec<&Fact>> = BTreeMap::new();
    for fact in facts::all() {
        let prefix = fact.name.split('.').next().unwrap_or_default();
        groups.entry(prefix).or_default().push(fact);
    }
    let words = MemberKind::ALL.iter().map(|(_, word)| *word);
    for prefix in words.chain(["gpu"]) {
        if let Some(group) = groups.remove(prefix) {
            let _ = writeln!(page, "## {prefix}\n\n{}\n", readers(prefix));
            page.push_str(&table(
                &["Fact", "Type", "Unit", "Meaning", "Families", "Needs"],
                group.into_iter().map(fact_row),
            ));
            page.push('\n');
        }
    }
    assert!(groups.is_empty(), "facts with unknown prefixes: {groups:?}");
    found(&mut page);
    functions(&mut page);
    filters(&mut page);
    page
}

/// The rules that may use facts of a prefix.
fn readers(prefix: &str) -> String {
    let readers: Vec<&str> = MemberKind::ALL
        .iter()
        .filter(|(over, _)| over.prefixes().contains(&prefix))
        .map(|(_, word)| *word)
        .collect();
    if readers.len() == MemberKind::ALL.len() {
        "For every rule.".into()
    } else {
        format!("For rules over {}.", codes(readers))
    }
}

fn fact_row(fact: &Fact) -> Vec<String> {
    let families = fact.families.iter().map(|family| family.name());
    let values = match fact.values() {
        [] => String::new(),
        values => format!(". Values: {}", codes(values.iter().copied())),
    };
    vec![
        format!("`{}`", fact.name),
        fact.ty.word(),
        fact.unit().into(),
        cell(fact.doc) + &values,
        codes(families),
        cell(fact.needs),
    ]
}

fn found(page: &mut String) {
    page.push_str(
        "## found\n\nWhat a finding knows of all its members together. For `require`, `error_when` and \
         the templates: while `when` picks members, nothing is found yet.\n\n",
    );
    let rows = FOUND.iter().map(|(name, ty, doc)| {
        let ty = ty.phrase();
        let ty = ty.trim_start_matches("an ").trim_start_matches("a ");
        vec![format!("`{name}`"), ty.into(), cell(doc)]
    });
    page.push_str(&table(&["Name", "Type", "Meaning"], rows));
}

fn functions(page: &mut String) {
    page.push_str(
        "\n## Functions of conditions\n\nConditions and lets are [CEL](https://cel.dev): `&&`, `||`, `!`, \
         `==`, `<`, `+`, `in`, `?:`, lists, maps, `size(...)`, `has(...)` and the rest of its standard \
         language, less what a rule has no use for (null, unsigned ints, bytes, `matches`). An int and a \
         double can be compared, but to calculate with both, write `double(...)`. Besides:\n\n",
    );
    let rows = FUNCTIONS
        .iter()
        .map(|f| vec![format!("`{}`", f.usage), cell(f.doc)]);
    page.push_str(&table(&["Function", "Result"], rows));
}

fn filters(page: &mut String) {
    page.push_str(
        "\n## Filters of templates\n\n`message`, `why` and `fix` are \
         [minijinja](https://docs.rs/minijinja) templates with these filters, and of its own `default`, \
         `join`, `length`, `round` and the test `is defined`. Words that come from the profile are \
         escaped.\n\n",
    );
    let rows = FILTERS
        .iter()
        .map(|f| vec![format!("`{}`", f.name), cell(f.doc)]);
    page.push_str(&table(&["Filter", "Result"], rows));
}

// ------------------------------------------------------------------------------------------- costs

pub(crate) fn costs() -> String {
    let operators: usize = ops::table().map(|entry| entry.names.len()).sum();
    let mut page = head(
        "What operators cost",
        &format!(
            "{operators} operators have a known cost, computed from their arguments. One multiply-add is two \
             FLOPs. Bytes are compulsory DRAM traffic: every distinct input element once, every output \
             element once, at their own element sizes. *Exact* FLOPs are a closed form. FLOPs by \
             *convention* are estimates that never decide what limits the work. *Zero* is data movement. \
             Other spellings of a name (in place, with an overload, behind `aten::`, as an autograd \
             node) are the same operator. The cost of operators that are not listed, or that were recorded \
             without shapes, is *unknown*: reported, never counted as 0. You can add costs of \
             [your own operators](#your-own-operators)."
        ),
    );
    let mut families: Vec<&str> = Vec::new();
    for entry in ops::table() {
        if !families.contains(&entry.family.name()) {
            families.push(entry.family.name());
        }
    }
    for family in families {
        let entries = ops::table().filter(|e| e.family.name() == family);
        let _ = writeln!(page, "## {family}\n");
        page.push_str(&table(
            &[
                "Operators",
                "FLOPs",
                "Counted",
                "Bytes",
                "Backward",
                "Source",
            ],
            entries.map(cost_row),
        ));
        page.push('\n');
    }
    page.push_str(&own_costs());
    page.trim_end().to_owned() + "\n"
}

/// The reference table of the keys of a kind of file.
pub(super) fn keys(keys: &[Key]) -> String {
    let rows = keys.iter().map(|key| {
        let required = if key.required { "yes" } else { "" };
        vec![format!("`{}`", key.name), required.into(), cell(key.doc)]
    });
    table(&["Key", "Required", "Meaning"], rows)
}

/// The keys and functions of cost files.
fn own_costs() -> String {
    let functions = user::names::FUNCTIONS
        .iter()
        .map(|f| vec![format!("`{}`", f.usage), cell(f.doc)]);
    let language = FUNCTIONS
        .iter()
        .map(|f| vec![format!("`{}`", f.usage), cell(f.doc)]);
    let reasons = UnknownCost::ALL
        .iter()
        .map(|(why, name)| vec![format!("`{name}`"), cell(why.describe())]);
    format!(
        "## Your own operators\n\nA cost file holds a `[[cost]]` for each operator and at least one \
         `[[test]]` for each cost; [own-operators.md](own-operators.md) \
         shows one. `--costs FILE` uses it and may be repeated: the first file that has a cost for a call is \
         used, before the table above.\n\n\
         Keys of a `[[cost]]`:\n\n{}\nKeys of its `dims`:\n\n{}\nKeys of a `[[test]]`:\n\n{}\n\
         Expressions are [CEL](https://cel.dev) and give a number that is not negative. They ask for the \
         arguments by position (`0`) or by a name of `args` (`\"x\"`):\n\n{}\nAnd they calculate, besides \
         with `+ - * / %`, comparisons, `&&`, `||`, `!` and `?:`, with\n\n{}\nWhat is not recorded has no \
         value, and then the cost is unknown:\n\n{}\n",
        keys(user::COST_KEYS),
        keys(user::DIM_KEYS),
        keys(user::TEST_KEYS),
        table(&["Function", "Result"], functions),
        table(&["Function", "Result"], language),
        table(&["Reason", "Meaning"], reasons),
    )
}

fn cost_row(entry: &ops::Entry) -> Vec<String> {
    let mut names = codes(entry.names);
    if !entry.namespaces.is_empty() {
        let _ = write!(names, " of {}", codes(entry.namespaces));
    }
    let counted = match entry.class {
        FlopsClass::Exact => "exact",
        FlopsClass::Convention => "convention",
        FlopsClass::Zero => "zero",
    };
    vec![
        names,
        cell(entry.flops),
        counted.into(),
        cell(entry.bytes),
        cell(entry.backward),
        cell(entry.source),
    ]
}

// -------------------------------------------------------------------------------------------- gpus

const GPU_SELECTION: &str = "\
## How the GPU is identified

1. **By name.** The device name in the profile is looked up in the table below. SM count, DRAM bandwidth, \
cache, memory and SM limits come from the profile where it records them. Boards with the same name, such \
as the RTX 3080 with 10 and 12 GB, are told apart by SM count and memory.
2. **By attributes.** A data-center board with an unknown name is identified by compute capability, SM \
count and memory. An AMD board without a name is identified by compute units and memory. If several \
boards match, their lowest rates are used.
3. **By arithmetic.** For other boards, peaks are derived from compute capability, SM count, clock and \
bandwidth. Nsight Systems exports and nvprof databases record all four; torch.profiler traces record \
neither clock nor bandwidth.
4. **By kernels.** If the profile does not describe its GPU at all, grid sizes that follow the number of \
SMs, and the compute capability in kernel names, may identify it. The report then says so in a note. The \
lowest rates of all matching boards are used.

If none of this works, the report says that the GPU is unknown and lists the rules that `--gpu` enables.

`--gpu NAME` takes precedence. It accepts an id or an alias from the table. If several boards share the \
alias, the one that the profile names is used, otherwise a default. To describe a board that is not in \
the table, save a similar one with `pyprof-advise gpus show rtx-5070 > my-board.toml`, edit it, and pass \
`--gpu my-board.toml`.

## Table

Rates are dense (no 2:4 sparsity), in TFLOP/s. The fp32 rate is outside Tensor Cores; the others are on \
Tensor Cores (matrix cores on AMD), with accumulation in fp32. `pyprof-advise gpus show ID` prints the \
file of a board, with the limits of an SM and the source of each number.

";

pub(crate) fn gpus() -> String {
    let mut page = head(
        "Supported GPUs",
        &format!(
            "{} boards are built in. You need `--gpu` only when a profile does not identify its GPU, or to \
             compare with another one.",
            select::list().len()
        ),
    );
    page.push_str(GPU_SELECTION);
    page.push_str(&table(
        &[
            "Id",
            "Board",
            "Aliases",
            "SMs:",
            "fp32:",
            "TF32:",
            "fp16:",
            "bf16:",
            "fp8:",
            "GB/s:",
            "Confidence",
        ],
        select::list().iter().map(gpu_row),
    ));
    let _ = write!(page, "\n## GPU files\n\n{}", keys(gpu_keys::KEYS));
    for (name, list) in [
        ("memory", gpu_keys::MEMORY_KEYS),
        ("limits", gpu_keys::LIMIT_KEYS),
        ("links", gpu_keys::LINK_KEYS),
    ] {
        let _ = write!(page, "\nKeys of `[{name}]`:\n\n{}", keys(list));
    }
    page.push_str(CALIBRATION);
    page.push_str(&table(
        &["Constant", "Meaning"],
        REACHABLE_KEYS
            .iter()
            .map(|key| vec![format!("`{}`", key.name), key.doc.to_owned()]),
    ));
    page.push('\n');
    page.push_str(&table(
        &["Constant", "Value:", "For", "Source"],
        REACHABLE_KEYS.iter().flat_map(calibration_rows),
    ));
    page
}

const CALIBRATION: &str = "\
\n## Calibration

Peaks alone predict nothing: no program reaches them. How near well-tuned work comes is in `calibration/`, \
one file per architecture, each value with its source. The cost model and the rules read them from there; \
rules see them as facts such as [`gpu.aligned_gemm_share`](facts.md).

`[reachable]` of a GPU file takes precedence: save the file of your board with `gpus show`, which has the \
table, edit it, and pass it with `--gpu`. `python3 evidence/calibrate.py --reachable` measures the values \
on your GPU and prints the table; `--write` puts them into `calibration/` for the board.

";

/// A constant: its values with the architectures and boards that have them.
fn calibration_rows(key: &Key) -> Vec<Vec<String>> {
    let mut rows: Vec<(&Sourced, Vec<String>)> = Vec::new();
    for file in calibration::built_in() {
        let Some(constant) = file.constants.get(key.name) else {
            continue;
        };
        let boards = constant.boards.iter();
        let all = std::iter::once((file.architecture.clone(), &constant.usual))
            .chain(boards.map(|(id, own)| (format!("`{id}`"), own)));
        for (who, value) in all {
            match rows.iter_mut().find(|(known, _)| *known == value) {
                Some((_, others)) => others.push(who),
                None => rows.push((value, vec![who])),
            }
        }
    }
    let row = |(value, who): (&Sourced, Vec<String>)| {
        vec![
            format!("`{}`", key.name),
            value.value.to_string(),
            cell(&who.join(", ")),
            cell(&value.source),
        ]
    };
    rows.into_iter().map(row).collect()
}

fn gpu_row(spec: &Spec) -> Vec<String> {
    let gpu: &Gpu = &spec.gpu;
    let tera = |rate: Option<&f64>| {
        rate.map_or_else(|| "-".to_owned(), |rate| units::significant(rate / 1e12))
    };
    let tensor = |dtype| tera(gpu.tensor_flops.get(&dtype));
    vec![
        format!("`{}`", gpu.id),
        cell(&gpu.name),
        codes(&spec.aliases),
        gpu.sms().map_or_else(|| "-".into(), |n| n.to_string()),
        tera(gpu.flops.get(&DType::Fp32)),
        tensor(DType::Tf32),
        tensor(DType::Fp16),
        tensor(DType::Bf16),
        tensor(DType::Fp8),
        units::count((gpu.bandwidth / 1e9).round() as u64),
        cell(spec.confidence.as_deref().unwrap_or("-")),
    ]
}

// ------------------------------------------------------------------------------------- field notes

/// What reports on real profiles are worth, from `tests/verdicts.toml`.
pub(crate) fn field_notes() -> String {
    let verdicts = verdicts::all();
    let findings = verdicts.finding.len();
    let mut page = head(
        "Reports on real profiles, reviewed",
        &format!(
            "Readers who did not write the rules checked each of the {findings} numbered findings in the reports on {} profiles \
             of other people's programs against the raw rows of the profile. `tests/verdicts.toml` has every verdict with the \
             query that supports it; `tests/verdicts/query.py --check` runs the queries. The smallest of these profiles are in \
             `fixtures/real`.\n\n\
             The rules were improved with these profiles, so the shares below are higher than those to expect on other \
             profiles. Before, 86 of 181 findings (48 %) were worth doing.",
            verdicts.profile.len()
        ),
    );
    let meaning = |verdict| match verdict {
        Verdict::WorthDoing => "true, large enough, and the fix applies to this program",
        Verdict::Minor => "true, but small, or something that few would do",
        Verdict::Misleading => "size, order or fix misleads the reader",
        Verdict::Wrong => "not true",
    };
    page.push_str(&table(
        &["Verdict", "Meaning", "Findings", "Share"],
        Verdict::ALL.into_iter().map(|verdict| {
            let count = verdicts.count(verdict);
            vec![
                verdict.words().to_owned(),
                meaning(verdict).to_owned(),
                count.to_string(),
                units::percent(count as f64 / findings.max(1) as f64),
            ]
        }),
    ));
    let firsts: Vec<&Reviewed> = (verdicts.profile.iter())
        .filter_map(|program| verdicts.of(&program.path).next())
        .collect();
    let good = firsts.iter().filter(|f| f.verdict == Verdict::WorthDoing);
    let _ = writeln!(
        page,
        "\nOf {} reports with findings, the first one is worth doing in {}.\n\n## Profile by profile\n",
        firsts.len(),
        good.count()
    );
    page.push_str(&table(
        &["Profile", "What it is", "Findings"],
        verdicts.profile.iter().map(|program| {
            let findings: Vec<String> = (verdicts.of(&program.path))
                .map(|f| format!("`{}`: {}", f.rule, f.verdict.words()))
                .collect();
            let findings = match findings.is_empty() {
                true => "none".to_owned(),
                false => findings.join("; "),
            };
            vec![
                format!("`{}`", program.path),
                cell(&program.about),
                findings,
            ]
        }),
    ));
    page.push_str("\n## Findings that fall short\n\n");
    for finding in &verdicts.finding {
        if finding.verdict != Verdict::WorthDoing {
            let _ = writeln!(
                page,
                "* `{}`, `{}` ({}): {}",
                finding.profile,
                finding.rule,
                finding.verdict.words(),
                finding.because
            );
        }
    }
    page.push_str("\n## What an expert would add\n\n");
    for program in verdicts.profile.iter().filter(|p| !p.missed.is_empty()) {
        let _ = writeln!(page, "* `{}`: {}", program.path, program.missed);
    }
    page.trim_end().to_owned() + "\n"
}
