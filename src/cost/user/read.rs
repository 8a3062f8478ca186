//! Reads cost files into checked costs and reports every mistake.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use super::argument::argument;
use super::keys::{DIRECTIONS, FILE_KEYS, MAX_ENTRIES};
use super::model::{CostCase, ExpectedCost, Formula, GemmDims, UserCost, UserCosts, undotted};
use super::names::DeclaredArguments;
use crate::base::cel;
use crate::base::diag::{Complaint, Complaints, Source};
use crate::base::glob::Glob;
use crate::base::suggest::did_you_mean;
use crate::base::toml::{self, At, Table};
use crate::correlate::{Direction, OpArgs, OpName};
use crate::cost::kernel_name::Family;
use crate::cost::model::UnknownCost;

impl UserCosts {
    /// Reads and checks the files at the given paths.
    ///
    /// # Errors
    /// A message for each file that cannot be read and for each mistake in the others.
    pub fn load(paths: &[PathBuf]) -> Result<UserCosts, Complaints> {
        let complaints = Complaints::new();
        let mut sources = Vec::new();
        for path in paths {
            match Source::read(path) {
                Ok(source) => sources.push(source),
                Err(complaint) => complaints.push(complaint),
            }
        }
        match UserCosts::read(&sources) {
            Ok(costs) if complaints.is_empty() => return Ok(costs),
            Ok(_) => {}
            Err(others) => {
                for complaint in others.sorted() {
                    complaints.push(complaint);
                }
            }
        }
        Err(complaints)
    }

    /// Checks files that have been read.
    ///
    /// # Errors
    /// A message for each mistake.
    pub fn read(sources: &[Arc<Source>]) -> Result<UserCosts, Complaints> {
        let complaints = Complaints::new();
        let mut all = UserCosts::default();
        for source in sources {
            Reader {
                source,
                complaints: &complaints,
            }
            .read(&mut all);
        }
        if !complaints.is_empty() {
            Err(complaints)
        } else {
            Ok(all)
        }
    }
}

struct Reader<'a> {
    source: &'a Arc<Source>,
    complaints: &'a Complaints,
}

/// A cost and its position, kept until it is known whether a test covers it.
struct Placed {
    cost: UserCost,
    op_span: Range<usize>,
}

impl Reader<'_> {
    fn read(&self, all: &mut UserCosts) {
        let document = toml::parse(self.source, self.complaints);
        let root = document.root();
        let entries = |key: &str| root.get(key).map_or(0, |value| value.len());
        if entries("cost") + entries("test") > MAX_ENTRIES {
            root.complain(0..0, format!("more than {MAX_ENTRIES} costs and tests"), "");
            return;
        }
        root.check(FILE_KEYS, &[]);
        let tables = root.get_table_list("cost");
        if tables.is_empty() && !root.has("cost") {
            let name = &self.source.name;
            let why = "a cost file holds `[[cost]]` tables and a `[[test]]` for each";
            self.complaints
                .push(Complaint::about_file(name, "no costs in this file", why));
        }
        let tests = root.get_table_list("test");
        let costs: Vec<Option<Placed>> = tables.iter().map(|t| self.cost(t)).collect();
        let whole = costs.iter().all(Option::is_some);
        let costs: Vec<Placed> = costs.into_iter().flatten().collect();
        self.twice(&root, &costs);
        let own = UserCosts {
            costs: costs.iter().map(|p| p.cost.clone()).collect(),
            cases: Vec::new(),
        };
        let cases: Vec<CostCase> = tests
            .iter()
            .filter_map(|t| self.case(t, &own, whole))
            .collect();
        // An invalid test may be the one that covers a cost, so missing tests are reported only if all
        // are valid.
        if cases.len() == tests.len() {
            self.untested(&root, &costs, &own, &cases);
        }
        all.costs.extend(own.costs);
        all.cases.extend(cases);
    }

    fn cost(&self, table: &Table<'_>) -> Option<Placed> {
        let op = table.get_str("op").and_then(|op| pattern(table, op));
        let family = table.get_word("family", &Family::ALL);
        let direction = table.get_word("direction", &DIRECTIONS);
        let args = self.arg_names(table);
        let vocabulary = DeclaredArguments { args: &args };
        let flops = self.formula(table, "flops", &vocabulary);
        let bytes = self.formula(table, "bytes", &vocabulary);
        let dims = self.dims(table, &vocabulary);
        let source = table.get_text("source");
        let op = op?;
        Some(Placed {
            cost: UserCost {
                op: op.value.to_owned(),
                file: self.source.name.as_str().into(),
                family: family?,
                direction,
                pattern: Glob::new(&undotted(op.value)),
                flops: flops?,
                bytes: bytes?,
                dims: dims?,
                source,
                args,
            },
            op_span: op.span,
        })
    }

    fn arg_names(&self, table: &Table<'_>) -> Vec<String> {
        let list = table.get_str_list("args");
        let mut seen: Vec<&str> = Vec::new();
        for name in &list {
            if seen.contains(&name.value) {
                let title = format!("two arguments called `{}`", name.value);
                table.complain(name.span.clone(), title, "");
            }
            seen.push(name.value);
        }
        list.into_iter().map(|name| name.value.to_owned()).collect()
    }

    /// The dimensions, if there are any; `None` if a message was reported.
    fn dims(
        &self,
        table: &Table<'_>,
        vocabulary: &DeclaredArguments<'_>,
    ) -> Option<Option<GemmDims>> {
        if !table.has("dims") {
            return Some(None);
        }
        let dims = table.get_table("dims")?;
        let m = self.formula(&dims, "m", vocabulary);
        let n = self.formula(&dims, "n", vocabulary);
        let k = self.formula(&dims, "k", vocabulary);
        let batch = if dims.has("batch") {
            Some(self.formula(&dims, "batch", vocabulary)?)
        } else {
            None
        };
        Some(Some(GemmDims {
            m: m?,
            n: n?,
            k: k?,
            batch,
        }))
    }

    fn formula(
        &self,
        table: &Table<'_>,
        key: &str,
        vocabulary: &DeclaredArguments<'_>,
    ) -> Option<Formula> {
        let text = table.get_str(key)?;
        let checked = match cel::check(text.value, vocabulary) {
            Ok(checked) => checked,
            Err(mistakes) => {
                for mistake in mistakes {
                    let at = toml::span_in_string(self.source, &text.span, mistake.at);
                    table.complain(at, mistake.title, mistake.label);
                }
                return None;
            }
        };
        if !checked.ty.is_number() {
            let path = table.path_of(key);
            let title = format!("`{path}` must be a number, this is {}", checked.ty.phrase());
            table.complain(text.span, title, "");
            return None;
        }
        Some(Formula {
            text: text.value.trim().to_owned(),
            expr: checked.expr,
        })
    }

    /// Reports costs that no call can reach.
    fn twice(&self, root: &Table<'_>, costs: &[Placed]) {
        for (i, later) in costs.iter().enumerate() {
            let same = |earlier: &&Placed| {
                let (a, b) = (&earlier.cost, &later.cost);
                a.pattern == b.pattern && a.direction == b.direction
            };
            if costs.iter().take(i).any(|earlier| same(&earlier)) {
                let title = format!("`{}` has two cost models", later.cost.op);
                root.complain(later.op_span.clone(), title, "the first one wins");
            }
        }
    }

    /// Reports costs without a test of their FLOPs and bytes.
    fn untested(&self, root: &Table<'_>, costs: &[Placed], own: &UserCosts, cases: &[CostCase]) {
        for (i, placed) in costs.iter().enumerate() {
            let states_cost = |case: &&CostCase| {
                let whole = matches!(
                    case.expect,
                    ExpectedCost::Known {
                        flops: Some(_),
                        bytes: Some(_)
                    }
                );
                let found = own.find(&case.op, case.direction, false);
                whole && found.is_some_and(|c| own.costs.get(i).is_some_and(|o| std::ptr::eq(o, c)))
            };
            if !cases.iter().any(|case| states_cost(&case)) {
                let title = format!("no test says what `{}` costs", placed.cost.op);
                let label = "add a `[[test]]` with its `flops` and `bytes`";
                root.complain(placed.op_span.clone(), title, label);
            }
        }
    }

    fn case(&self, table: &Table<'_>, own: &UserCosts, whole: bool) -> Option<CostCase> {
        let op = table.get_str("op");
        let direction = table
            .get_word("direction", &DIRECTIONS)
            .unwrap_or(Direction::Fprop);
        let args = self.case_args(table);
        let expect = self.expect(table);
        let name = op.as_ref().map(|op| op_name(op.value));
        if let (Some(at), Some(name)) = (&op, &name)
            && whole
            && !own.knows(name)
        {
            let near = did_you_mean(at.value, own.costs.iter().map(|c| c.op.as_str()));
            let title = format!("no cost in this file is about `{}`{near}", at.value);
            table.complain(at.span.clone(), title, "");
            return None;
        }
        let (args, text) = args?;
        Some(CostCase {
            op: name?,
            file: self.source.name.as_str().into(),
            direction,
            args,
            text,
            expect: expect?,
        })
    }

    /// The arguments, and their text in the file.
    fn case_args(&self, table: &Table<'_>) -> Option<(OpArgs, String)> {
        let list = table.get("args")?.list()?;
        let items: Vec<_> = list.iter().map(argument).collect();
        let text: Vec<&str> = list
            .iter()
            .map(|v| self.source.text.get(v.span()).unwrap_or_default())
            .collect();
        let items = items.into_iter().collect::<Option<Vec<_>>>()?;
        Some((OpArgs { items }, text.join(", ").replace('"', "")))
    }

    fn expect(&self, table: &Table<'_>) -> Option<ExpectedCost> {
        let (flops, bytes) = (table.get_whole("flops"), table.get_whole("bytes"));
        let unknown = table.get_word("unknown", &UnknownCost::ALL);
        let refused = |key: &&str| table.has(key) && table.get(key).is_none();
        if ["flops", "bytes", "unknown"].iter().any(refused) {
            return None;
        }
        match (flops, bytes, unknown) {
            (None, None, Some(reason)) => Some(ExpectedCost::Unknown(reason)),
            (None, None, None) => {
                let title = "a test needs `flops` and `bytes`, or `unknown`";
                table.complain(table.span(), title, "");
                None
            }
            (_, _, Some(_)) => {
                let title = "a test that is `unknown` has neither `flops` nor `bytes`";
                table.complain(table.span(), title, "");
                None
            }
            (flops, bytes, None) => Some(ExpectedCost::Known { flops, bytes }),
        }
    }
}

/// The operator pattern. It must not consist of stars alone, which would turn every range into an
/// operator.
fn pattern<'t>(table: &Table<'_>, op: At<&'t str>) -> Option<At<&'t str>> {
    if op.value.chars().any(char::is_alphanumeric) {
        return Some(op);
    }
    let title = format!("`{}` names no operator", op.value);
    table.complain(op.span, title, "for example `my_lib::*`");
    None
}

/// The operator of a name such as `my_lib::fused_mlp` or `MyModule.forward`; the last part is the
/// operator.
pub fn op_name(text: &str) -> OpName {
    let split = text.rsplit_once("::").or_else(|| text.rsplit_once('.'));
    let (module, name) = split.unwrap_or(("", text));
    OpName {
        module: module.to_owned(),
        name: name.to_owned(),
    }
}
