//! The evidence of a finding: facts of its condition, operators, kernels and source lines.

use std::sync::Arc;

use indexmap::IndexMap;

use super::figures::label;
use super::finding_report::{CallArgument, Evidence, FactValue, KernelUse, OperatorUse};
use crate::base::{DType, text, units};
use crate::correlate::{Arg, ArgValue, OpArgs, Run, Site, SiteKernel, Tensor};
use crate::cost::{Costed, DecodedName};
use crate::facts::SitePart;
use crate::judge::Finding;

/// Most operators and kernels per finding, also in JSON: a finding may cover thousands of sites.
const MAX_OPERATORS: usize = 3;
const MAX_KERNELS: usize = 3;
const MAX_SOURCE_LINES: usize = 3;
/// Longest printed argument list, in characters.
const MAX_ARGUMENTS: usize = 160;
/// Longest printed value of a fact, in characters.
const MAX_VALUE: usize = 120;

/// The part of a site that a finding covers.
struct Covered<'a> {
    site: &'a Site,
    decoded: &'a [Arc<DecodedName>],
    part: Option<&'a SitePart>,
}

impl Covered<'_> {
    /// Calls and their time. A call may run several of the kernels that are covered.
    fn calls(&self) -> (u64, i64) {
        let whole = (u64::from(self.site.calls), self.site.time_ns);
        self.part.map_or(whole, |part| {
            let ns: f64 = part.kernels.values().map(|(_, ns)| ns).sum();
            (part.calls.min(whole.0), (ns.round() as i64).min(whole.1))
        })
    }

    /// Executions of a kernel and their time; `None` if none is covered.
    fn kernel(&self, row: usize, kernel: &SiteKernel) -> Option<(u64, i64)> {
        let whole = (u64::from(kernel.count), kernel.time_ns);
        let Some(part) = self.part else {
            return Some(whole);
        };
        let (count, ns) = part.kernels.get(&u32::try_from(row).ok()?)?;
        Some(((*count).min(whole.0), (ns.round() as i64).min(whole.1)))
    }
}

/// The evidence of a finding.
pub(super) fn of(costed: &Costed, finding: &Finding) -> Evidence {
    let sites: Vec<Covered<'_>> = (finding.sites.iter())
        .filter_map(|id| {
            Some(Covered {
                site: costed.run.site(*id)?,
                decoded: costed.kernels.get(id.idx()).map_or(&[][..], |k| k),
                part: finding.parts.get(id).filter(|part| !part.whole),
            })
        })
        .collect();
    Evidence {
        facts: finding
            .evidence
            .iter()
            .map(|(name, value)| FactValue {
                name: label(name),
                value: text::clip(&text::without_home(value), MAX_VALUE),
            })
            .collect(),
        operators: operators(&costed.run, &sites),
        kernels: kernels(&costed.run, &sites),
        source_lines: source_lines(&sites),
        quotes: Vec::new(),
    }
}

fn operators(run: &Run, sites: &[Covered<'_>]) -> Vec<OperatorUse> {
    let mut uses: IndexMap<(String, &'static str, String), OperatorUse> = IndexMap::new();
    for covered in sites {
        let site = covered.site;
        let Some(op) = &site.op else { continue };
        let operator = label(&op.display());
        let arguments = arguments(run, site);
        let direction = site.direction.name();
        let entry = uses
            .entry((operator.clone(), direction, arguments.clone()))
            .or_insert_with(|| OperatorUse {
                operator,
                direction: direction.to_owned(),
                arguments,
                arguments_from_forward: site.args_from_forward,
                call: call(run, site),
                calls: 0,
                time_ns: 0,
            });
        let (calls, ns) = covered.calls();
        entry.calls += calls;
        entry.time_ns = entry.time_ns.saturating_add(ns);
    }
    let mut uses: Vec<_> = uses.into_values().collect();
    uses.sort_by(|a, b| {
        let rest = |u: &OperatorUse| (u.operator.clone(), u.direction.clone(), u.arguments.clone());
        b.time_ns
            .cmp(&a.time_ns)
            .then_with(|| rest(a).cmp(&rest(b)))
    });
    uses.truncate(MAX_OPERATORS);
    uses
}

fn kernels(run: &Run, sites: &[Covered<'_>]) -> Vec<KernelUse> {
    let mut uses: IndexMap<String, KernelUse> = IndexMap::new();
    for covered in sites {
        for (i, kernel) in covered.site.kernels.iter().enumerate() {
            let Some((count, ns)) = covered.kernel(i, kernel) else {
                continue;
            };
            let decoded = covered.decoded.get(i);
            let name = kernel_name(run.profile.text(kernel.name), decoded.map(Arc::as_ref));
            let entry = uses.entry(name.clone()).or_insert_with(|| KernelUse {
                kernel: name,
                family: decoded.map_or("unknown", |d| d.family.name()).to_owned(),
                count: 0,
                time_ns: 0,
            });
            entry.count += count;
            entry.time_ns = entry.time_ns.saturating_add(ns);
        }
    }
    let mut uses: Vec<_> = uses.into_values().collect();
    uses.sort_by(|a, b| {
        b.time_ns
            .cmp(&a.time_ns)
            .then_with(|| a.kernel.cmp(&b.kernel))
    });
    uses.truncate(MAX_KERNELS);
    uses
}

/// The base name of a kernel, with the label where that says more: `vectorized_elementwise_kernel`
/// alone does not name the work.
pub(super) fn kernel_name(full: &str, decoded: Option<&DecodedName>) -> String {
    match decoded.filter(|d| !d.base.is_empty()) {
        Some(d) if d.label.is_empty() || d.base.ends_with(&d.label) => label(&d.base),
        Some(d) => format!("{} ({})", label(&d.base), label(&d.label)),
        None => label(full),
    }
}

fn source_lines(sites: &[Covered<'_>]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in (sites.iter()).filter_map(|s| s.site.source_line.as_deref()) {
        let line = label(line);
        if !lines.contains(&line) {
            lines.push(line);
        }
        if lines.len() == MAX_SOURCE_LINES {
            break;
        }
    }
    lines
}

/// The arguments of a site's operator, or the message of its collective.
pub(super) fn arguments(run: &Run, site: &Site) -> String {
    site.args
        .or(site.message)
        .and_then(|id| run.arguments(id))
        .map_or_else(String::new, print_args)
}

/// Most arguments of a call, and most items of a list in it, that are kept as values.
const MAX_CALL: usize = 64;
/// Deepest list of lists that is kept.
const MAX_DEPTH: usize = 2;

/// The arguments of a site as values; none where one is text or named, or there are too many.
fn call(run: &Run, site: &Site) -> Vec<CallArgument> {
    let args = run.arguments_of(site);
    let items = args.map_or(&[][..], |args| &args.items);
    // A name with `None` states a default.
    let named = |arg: &Arg| arg.name.as_deref().is_some_and(|name| !name.is_empty());
    let given = || (items.iter()).filter(|arg| !(named(arg) && arg.value == ArgValue::None));
    if given().any(named) || items.len() > MAX_CALL {
        return Vec::new();
    }
    let values: Option<Vec<CallArgument>> = given().map(|arg| value(&arg.value, 0)).collect();
    values.unwrap_or_default()
}

fn value(arg: &ArgValue, depth: usize) -> Option<CallArgument> {
    Some(match arg {
        ArgValue::Tensor(tensor) => CallArgument::Tensor {
            shape: tensor.shape.clone(),
            dtype: tensor.dtype.map(|dtype| dtype.name().to_owned()),
            strides: tensor.strides.clone(),
        },
        ArgValue::Int(value) => CallArgument::Whole { value: *value },
        ArgValue::Float(value) if value.is_finite() => CallArgument::Number { value: *value },
        ArgValue::Bool(value) => CallArgument::Flag { value: *value },
        ArgValue::None | ArgValue::Unknown => CallArgument::Missing,
        ArgValue::List(items) if depth < MAX_DEPTH && items.len() <= MAX_CALL => {
            let items: Option<Vec<CallArgument>> =
                items.iter().map(|item| value(item, depth + 1)).collect();
            CallArgument::List { items: items? }
        }
        ArgValue::List(_) | ArgValue::Str(_) | ArgValue::Float(_) => return None,
    })
}

/// Arguments as text, types and shapes first: `bf16[4096, 1600], dim=1`.
fn print_args(args: &OpArgs) -> String {
    if let Some(message) = print_message(args) {
        return message;
    }
    let mut out = String::new();
    for arg in &args.items {
        // Markers may hold thousands of arguments: stop as soon as the text is long enough.
        if out.len() > 4 * MAX_ARGUMENTS {
            break;
        }
        let mut value = String::new();
        print_value(&arg.value, 0, &mut value);
        if value.is_empty() {
            continue;
        }
        if !out.is_empty() {
            out.push_str(", ");
        }
        if let Some(name) = arg.name.as_deref().filter(|n| !n.is_empty()) {
            out.push_str(name);
            out.push('=');
        }
        out.push_str(&value);
    }
    text::clip(&text::without_home(&out), MAX_ARGUMENTS)
}

/// The message of a collective, `bf16[8816192] among 8 ranks`, instead of a dozen arguments of its
/// record.
fn print_message(args: &OpArgs) -> Option<String> {
    let named = |name: &str| {
        let arg = (args.items.iter()).find(|a| a.name.as_deref() == Some(name))?;
        let mut value = String::new();
        print_value(&arg.value, 0, &mut value);
        Some(value).filter(|v| !v.is_empty())
    };
    let ranks = named("Group size").map_or(String::new(), |n| format!(" among {n} ranks"));
    if let Some(bytes) = named("In msg bytes").and_then(|n| n.parse::<f64>().ok()) {
        return Some(format!("{}{ranks}", units::bytes(bytes)));
    }
    let elements = named("In msg nelems")?;
    let dtype = named("dtype").unwrap_or_default();
    let dtype = DType::parse(&dtype).map_or(dtype, |d| d.name().to_owned());
    Some(text::clip(
        &format!("{dtype}[{elements}]{ranks}"),
        MAX_ARGUMENTS,
    ))
}

fn print_value(value: &ArgValue, depth: usize, out: &mut String) {
    match value {
        ArgValue::Tensor(tensor) => print_tensor(tensor, out),
        ArgValue::List(items) if depth < 2 => {
            out.push('[');
            for (i, item) in items.iter().take(8).enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                print_value(item, depth + 1, out);
            }
            out.push_str(if items.len() > 8 { ", ...]" } else { "]" });
        }
        ArgValue::List(_) => out.push_str("[...]"),
        ArgValue::Int(i) => out.push_str(&i.to_string()),
        ArgValue::Float(f) => out.push_str(&f.to_string()),
        ArgValue::Bool(b) => out.push_str(&b.to_string()),
        ArgValue::Str(s) => out.push_str(&text::clip(s, 40)),
        // Such values are too long to be useful.
        ArgValue::None | ArgValue::Unknown => {}
    }
}

fn print_tensor(tensor: &Tensor, out: &mut String) {
    out.push_str(tensor.dtype.map_or("", |d| d.name()));
    out.push('[');
    for (i, dim) in tensor.shape.iter().take(16).enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        out.push_str(&dim.to_string());
    }
    out.push(']');
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::correlate::Arg;
    use crate::correlate::testing::ProfileBuilder;

    #[test]
    fn a_part_of_a_site_has_its_own_counts_and_times() {
        let mut b = ProfileBuilder::new();
        for start in [1000, 2000, 3000] {
            b.range("aten::mul", start, start + 500);
            b.launch(start + 100);
        }
        let costed = crate::cost::estimate_costs(b.run(), None);
        let site = &costed.run.sites[0];
        let covered = |part| Covered {
            site,
            decoded: &[],
            part,
        };
        let kernel = &site.kernels[0];
        assert_eq!(covered(None).calls(), (3, 30));
        assert_eq!(covered(None).kernel(0, kernel), Some((3, 30)));
        let mut part = SitePart {
            calls: 2,
            ..SitePart::default()
        };
        part.add_kernel(0, 2, 20.0);
        assert_eq!(covered(Some(&part)).calls(), (2, 20));
        assert_eq!(covered(Some(&part)).kernel(0, kernel), Some((2, 20)));
        assert_eq!(covered(Some(&part)).kernel(1, kernel), None);
        // What two findings that became one both cover counts once.
        let mut twice = part.clone();
        twice.add(&part);
        assert_eq!(covered(Some(&twice)).calls(), (3, 30));
        assert_eq!(covered(Some(&twice)).kernel(0, kernel), Some((3, 30)));
    }

    fn positional(value: ArgValue) -> Arg {
        Arg { name: None, value }
    }

    #[test]
    fn collectives_show_their_message() {
        let named = |name: &str, value| Arg {
            name: Some(name.into()),
            value,
        };
        let mut args = OpArgs {
            items: vec![
                positional(ArgValue::List(vec![ArgValue::Int(9600)])),
                named("Collective name", ArgValue::Str("broadcast".into())),
                named("In msg nelems", ArgValue::Int(9600)),
                named("Group size", ArgValue::Int(8)),
                named("dtype", ArgValue::Str("BFloat16".into())),
            ],
        };
        assert_eq!(print_args(&args), "bf16[9600] among 8 ranks");
        args.items.truncate(3);
        assert_eq!(print_args(&args), "[9600]");
    }

    #[test]
    fn arguments_read_like_a_call() {
        let tensor = Tensor {
            shape: vec![64, 128],
            dtype: Some(DType::Bf16),
            strides: None,
        };
        let args = OpArgs {
            items: vec![
                positional(ArgValue::Tensor(tensor.clone())),
                positional(ArgValue::Unknown),
                positional(ArgValue::List(vec![
                    ArgValue::Tensor(tensor),
                    ArgValue::Int(3),
                ])),
                Arg {
                    name: Some("dim".into()),
                    value: ArgValue::Int(-1),
                },
            ],
        };
        assert_eq!(
            print_args(&args),
            "bf16[64, 128], [bf16[64, 128], 3], dim=-1"
        );
    }

    #[test]
    fn long_arguments_are_shortened() {
        let args = OpArgs {
            items: vec![positional(ArgValue::Str("x".repeat(500))); 10_000],
        };
        assert!(print_args(&args).chars().count() <= MAX_ARGUMENTS);
    }
}
