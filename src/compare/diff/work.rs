//! The work of one report in the pieces that are matched: sites that differ only in instance numbers
//! of their layer are one piece, and arguments are compared as texts.

use std::borrow::Cow;

use indexmap::IndexMap;

use super::model::Median;
use crate::report::{KernelCluster, Report, SiteRow};

/// Id of the reason for kernels whose launch is not in the file.
pub(super) const NO_LAUNCH: &str = "no_launch";

/// All calls with the same layer pattern, operator, direction and arguments; or all executions of one
/// kernel without an operator.
#[derive(Debug, Clone)]
pub(super) struct Work<'a> {
    pub pattern: Option<&'a str>,
    pub what: Callee<'a>,
    pub direction: &'a str,
    pub recomputed: bool,
    pub arguments: ReducedArguments,
    /// Arguments as the report prints them; the grid of the kernel where they are not known.
    pub shown: Cow<'a, str>,
    /// Whether it is told apart by kernel, grid and duration, because its arguments are not known.
    pub clustered: bool,
    /// Median duration of the main kernel, with the quartiles.
    pub median: Option<Median>,
    pub calls: f64,
    pub time_ns: f64,
    pub kernels: f64,
    /// Ideal time on the best unit and precision; `None` unless it is known for all of the work.
    pub best_ideal_ns: Option<f64>,
    pub family: &'a str,
    pub bound: Option<&'a str>,
    pub dtype: Option<&'a str>,
    pub tensor_core: Option<bool>,
    pub kernel: Option<&'a str>,
    /// Time of the row that `kernel` and the fields before it are taken from.
    largest_ns: i64,
}

/// What was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Callee<'a> {
    Operator(&'a str),
    Kernel(&'a str),
}

impl<'a> Callee<'a> {
    pub(super) fn name(self) -> &'a str {
        match self {
            Callee::Operator(name) | Callee::Kernel(name) => name,
        }
    }

    pub(super) fn is_operator(self) -> bool {
        matches!(self, Callee::Operator(_))
    }
}

impl Median {
    fn of(cluster: &KernelCluster) -> Median {
        Median {
            median_ns: cluster.median_ns as f64,
            lower_quartile_ns: cluster.lower_quartile_ns as f64,
            upper_quartile_ns: cluster.upper_quartile_ns as f64,
        }
    }
}

/// Arguments (`bf16[4096, 1600], 0.5`) reduced for comparison.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct ReducedArguments {
    /// Without fractions: learning rates and clipping factors differ in every run.
    pub exact: String,
    /// Also without data types.
    pub untyped: String,
    /// Also without sizes.
    pub form: String,
    /// The kinds of types in order: `f` for floats, `i` for integers, `b`, `c`. Sizes of a float tensor are
    /// not those of an index.
    pub kinds: String,
    /// The numbers in brackets, in order.
    pub sizes: Vec<u64>,
}

impl ReducedArguments {
    pub(super) fn of(text: &str) -> ReducedArguments {
        let mut out = ReducedArguments::default();
        let mut depth = 0_usize;
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '-' | '+');
            let end = match is_word(first) {
                true => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
                false => first.len_utf8(),
            };
            let (token, after) = rest.split_at(end);
            rest = after;
            match first {
                '[' | '(' => depth += 1,
                ']' | ')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            out.take(token, depth, is_word(first) && after.starts_with('['));
        }
        out
    }

    fn take(&mut self, token: &str, depth: usize, is_type: bool) {
        if depth > 0
            && let Ok(size) = token.parse::<u64>()
        {
            self.exact.push_str(token);
            self.untyped.push_str(token);
            self.form.push('#');
            self.sizes.push(size);
        } else if token.parse::<f64>().is_ok() {
            let fraction = token.parse::<i64>().is_err();
            self.exact.push_str(if fraction { "~" } else { token });
            self.untyped.push('~');
            self.form.push('~');
        } else {
            self.exact.push_str(token);
            if is_type {
                self.kinds.push(kind(token));
            } else {
                self.untyped.push_str(token);
                self.form.push_str(token);
            }
        }
    }

    /// The single factor, as a fraction in lowest terms, by which the sizes of `after` differ; sizes
    /// may also be equal. `None` when nothing differs, or more than that.
    pub(super) fn factor(&self, after: &ReducedArguments) -> Option<(u64, u64)> {
        if self.form != after.form || self.sizes.len() != after.sizes.len() {
            return None;
        }
        let mut found = None;
        for (&before, &after) in self.sizes.iter().zip(&after.sizes) {
            if before == after {
                continue;
            }
            let divisor = gcd(before, after);
            if before == 0 || after == 0 {
                return None;
            }
            let factor = (after / divisor, before / divisor);
            if found.is_some_and(|known| known != factor) {
                return None;
            }
            found = Some(factor);
        }
        found
    }
}

/// The kind of a data type: `f` for `bf16`, `tf32` and `fp8_e4m3`, `i` for `int64` and `uint8`.
fn kind(dtype: &str) -> char {
    match dtype.chars().next() {
        Some('u' | 'i' | 's' | 'q') => 'i',
        Some('c') => 'c',
        Some('b') if dtype == "bool" => 'b',
        _ => 'f',
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    let (mut a, mut b) = (a, b);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a.max(1)
}

impl<'a> Work<'a> {
    fn of(row: &'a SiteRow) -> Work<'a> {
        // Latency-bound work and waiting do not scale with the peaks.
        let scales =
            row.bound.as_deref() != Some("latency") && row.family.as_str() != "communication";
        Work {
            pattern: row.pattern.as_deref(),
            what: match &row.operator {
                Some(name) => Callee::Operator(name),
                None => Callee::Kernel(row.kernel.as_deref().unwrap_or("(unnamed kernel)")),
            },
            direction: &row.direction,
            recomputed: row.recomputed,
            arguments: ReducedArguments::of(&row.arguments),
            shown: Cow::Borrowed(&row.arguments),
            clustered: false,
            // One of several durations stands for the row if most calls have it.
            median: (row.clusters.first())
                .filter(|cluster| 2 * cluster.count >= row.calls)
                .map(Median::of),
            calls: row.calls as f64,
            time_ns: row.time_ns as f64,
            kernels: row.kernels as f64,
            best_ideal_ns: row.best_ideal_ns.filter(|ns| scales && *ns > 0.0),
            family: &row.family,
            bound: row.bound.as_deref(),
            dtype: row.dtype.as_deref(),
            tensor_core: row.tensor_core,
            kernel: row.kernel.as_deref(),
            largest_ns: row.time_ns,
        }
    }

    /// The pieces of a row: one, or where its arguments are not known, one per kernel, grid and duration.
    fn pieces(row: &'a SiteRow) -> Vec<Work<'a>> {
        let whole = Work::of(row);
        if !row.arguments.is_empty() || row.clusters.is_empty() || whole.is_communication() {
            return vec![whole];
        }
        let mut pieces: Vec<Work<'a>> = Vec::new();
        for (at, cluster) in row.clusters.iter().enumerate() {
            let alike = |other: &&KernelCluster| {
                (&other.kernel, other.grid, other.block)
                    == (&cluster.kernel, cluster.grid, cluster.block)
            };
            // Clusters of one kernel and grid differ in duration: they are told apart by their order.
            let classes = row.clusters.iter().filter(alike).count();
            let class = (row.clusters.iter().take(at)).filter(alike).count();
            let [x, y, z] = cluster.grid;
            let grid = format!("grid {x}x{y}x{z}");
            let piece = Work {
                arguments: ReducedArguments {
                    exact: format!("{} {grid} {class}/{classes}", cluster.kernel),
                    untyped: format!("{} {grid}", cluster.kernel),
                    form: cluster.kernel.clone(),
                    ..ReducedArguments::default()
                },
                shown: Cow::Owned(match cluster.grid {
                    [0, 0, 0] => String::new(),
                    _ => grid,
                }),
                clustered: true,
                median: Some(Median::of(cluster)),
                calls: cluster.count as f64,
                kernels: cluster.count as f64,
                time_ns: cluster.time_ns as f64,
                largest_ns: cluster.time_ns,
                kernel: Some(&cluster.kernel),
                best_ideal_ns: None,
                ..whole.clone()
            };
            pieces.push(piece);
        }
        let name = whole.what.name();
        pieces.extend(whole.without(&pieces, name));
        pieces
    }

    /// The pieces of a row by kernel and grid, whatever operator launched it: what is comparable with a profile
    /// that names no operators.
    fn kernels(row: &'a SiteRow) -> Vec<Work<'a>> {
        let whole = Work {
            pattern: None,
            what: Callee::Kernel(row.kernel.as_deref().unwrap_or("(unnamed kernel)")),
            direction: "unknown",
            recomputed: false,
            arguments: ReducedArguments::default(),
            shown: Cow::Borrowed(""),
            clustered: true,
            calls: row.kernels as f64,
            best_ideal_ns: None,
            bound: None,
            dtype: None,
            tensor_core: None,
            ..Work::of(row)
        };
        if row.clusters.is_empty() || whole.is_communication() {
            return vec![whole];
        }
        let piece = |cluster: &'a KernelCluster| {
            let [x, y, z] = cluster.grid;
            let shown = match cluster.grid {
                [0, 0, 0] => String::new(),
                _ => format!("grid {x}x{y}x{z}"),
            };
            Work {
                what: Callee::Kernel(&cluster.kernel),
                kernel: Some(&cluster.kernel),
                arguments: ReducedArguments {
                    exact: shown.clone(),
                    untyped: shown.clone(),
                    ..ReducedArguments::default()
                },
                shown: Cow::Owned(shown),
                median: Some(Median::of(cluster)),
                calls: cluster.count as f64,
                kernels: cluster.count as f64,
                time_ns: cluster.time_ns as f64,
                largest_ns: cluster.time_ns,
                ..whole.clone()
            }
        };
        let mut pieces: Vec<Work<'a>> = row.clusters.iter().map(piece).collect();
        pieces.extend(whole.without(&pieces, "(other kernels)"));
        pieces
    }

    /// What is left of a row without `pieces` of it.
    fn without(self, pieces: &[Work<'a>], name: &'a str) -> Option<Work<'a>> {
        let sum = |part: fn(&Work<'_>) -> f64| -> f64 { pieces.iter().map(part).sum() };
        let (kernels, time_ns) = (sum(|w| w.kernels), sum(|w| w.time_ns));
        let what = match self.what {
            Callee::Kernel(_) => Callee::Kernel(name),
            operator => operator,
        };
        (self.kernels > kernels).then(|| Work {
            what,
            arguments: ReducedArguments {
                exact: "others".to_owned(),
                ..ReducedArguments::default()
            },
            clustered: true,
            median: None,
            calls: self.kernels - kernels,
            kernels: self.kernels - kernels,
            time_ns: (self.time_ns - time_ns).max(0.0),
            largest_ns: 0,
            ..self
        })
    }

    pub(super) fn is_communication(&self) -> bool {
        self.family == "communication"
    }

    /// Adds more of the same work. Fields that cannot be added are taken from the larger one.
    pub(super) fn add(&mut self, more: &Work<'a>) {
        self.calls += more.calls;
        self.time_ns += more.time_ns;
        self.kernels += more.kernels;
        self.best_ideal_ns = self
            .best_ideal_ns
            .zip(more.best_ideal_ns)
            .map(|(a, b)| a + b);
        if more.largest_ns > self.largest_ns {
            self.largest_ns = more.largest_ns;
            self.shown = more.shown.clone();
            self.median = more.median;
            self.bound = more.bound;
            self.dtype = more.dtype;
            self.tensor_core = more.tensor_core;
            self.kernel = more.kernel;
        }
        if self.pattern != more.pattern {
            self.pattern = None;
        }
    }

    /// Layer pattern, operator and direction: `blocks.* · aten::mm (fprop)`.
    pub(super) fn place(&self) -> String {
        let direction = match self.direction {
            "unknown" => String::new(),
            known => format!(" ({known})"),
        };
        let again = if self.recomputed { ", recomputed" } else { "" };
        match self.pattern {
            Some(layer) => format!("{layer} · {}{direction}{again}", self.what.name()),
            None => format!("{}{direction}{again}", self.what.name()),
        }
    }
}

/// The work of a report, longest time first, and the time of kernels without a launch that is left
/// out. Their step and operator are not known; where they are most of the work, they are compared by
/// name (`with_launchless`). `by_kernel` leaves out the operators.
pub(super) fn of(report: &Report, with_launchless: bool, by_kernel: bool) -> (Vec<Work<'_>>, f64) {
    let mut pieces: IndexMap<_, Work<'_>> = IndexMap::new();
    let mut left_out = 0.0;
    for row in &report.sites {
        if !with_launchless && row.missing.as_deref() == Some(NO_LAUNCH) {
            left_out += row.time_ns as f64;
            continue;
        }
        let works = match by_kernel {
            true => Work::kernels(row),
            false => Work::pieces(row),
        };
        for work in works {
            let key = (
                work.pattern,
                work.what,
                work.direction,
                work.recomputed,
                work.arguments.exact.clone(),
            );
            match pieces.entry(key) {
                indexmap::map::Entry::Occupied(mut known) => known.get_mut().add(&work),
                indexmap::map::Entry::Vacant(new) => {
                    new.insert(work);
                }
            }
        }
    }
    let mut works: Vec<Work<'_>> = pieces.into_values().collect();
    works.sort_by(|a, b| b.time_ns.total_cmp(&a.time_ns));
    (works, left_out)
}

/// Whether any kernel has a known operator.
pub(super) fn has_operators(report: &Report) -> bool {
    report.sites.iter().any(|row| row.operator.is_some())
}

/// Share of the GPU time whose launch is not in the file.
pub(super) fn launchless(report: &Report) -> f64 {
    let of = report.unattributed.iter().filter(|u| u.reason == NO_LAUNCH);
    let time: f64 = of.map(|u| u.time_ns as f64).sum();
    crate::report::share(time, report.summary.kernel_time_ns as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_reduced_for_comparison() {
        let a = ReducedArguments::of("bf16[4096, 1600], dim=-1, 0.25, [2, 2], 1e-05, bilinear");
        assert_eq!(a.exact, "bf16[4096, 1600], dim=-1, ~, [2, 2], ~, bilinear");
        assert_eq!(a.untyped, "[4096, 1600], dim=~, ~, [2, 2], ~, bilinear");
        assert_eq!(a.form, "[#, #], dim=~, ~, [#, #], ~, bilinear");
        assert_eq!(a.sizes, [4096, 1600, 2, 2]);
        assert_eq!(a.kinds, "f");
        assert_eq!(
            ReducedArguments::of("int64[87, 534], bool[3], fp16[2], uint8[]").kinds,
            "ibfi"
        );
        assert_eq!(ReducedArguments::of("]]][[é…"), {
            let mut odd = ReducedArguments::of("]]][[");
            for text in [&mut odd.exact, &mut odd.untyped, &mut odd.form] {
                text.push_str("é…");
            }
            odd
        });
    }

    #[test]
    fn a_single_factor_of_sizes_is_found() {
        let factor = |a: &str, b: &str| ReducedArguments::of(a).factor(&ReducedArguments::of(b));
        assert_eq!(factor("f[8, 512]", "f[16, 512]"), Some((2, 1)));
        assert_eq!(
            factor("f[8, 512], g[512, 4]", "f[12, 512], h[512, 4]"),
            Some((3, 2))
        );
        assert_eq!(factor("f[8, 512]", "f[8, 512]"), None);
        assert_eq!(factor("f[8, 512]", "f[16, 128]"), None);
        assert_eq!(factor("f[0]", "f[3]"), None);
        assert_eq!(factor("f[8]", "f[8, 1]"), None);
    }
}
