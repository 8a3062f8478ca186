//! Recognizes the steps of programs that do not number them: from `Optimizer.step` ranges, from the
//! ranges of a data loader, from a range that is repeated, and last from a sequence of kernels that
//! repeats.

use std::collections::BTreeMap;

use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::model::StepSource;
use super::optimizer_steps::{self, OptimizerCalls};
use super::range_meaning::{RangeClass, RangeInfo, RangeInfos, RangeRole};
use super::step_work::{
    ALIKE_KERNELS, FEWEST_KERNELS, Launches, REGULAR, Recognized, SAME_WORK, WorkLaunches,
    add_outermost, alike, distances, launched_by_process, recurs_regularly,
};
use crate::base::statistics::median;
use crate::profile::{
    ApiCall, ApiClass, ConfigId, CopyKind, CorrelationMap, DeviceId, HostRange, ProcessId, Profile,
    RangeKind, Span, StrId, SyncKind, ThreadId,
};

/// Minimum number of steps that must be alike when only a repetition shows them.
const FEWEST_REPETITIONS: usize = 3;
/// Share of the repetitions of a range that must have about the same number of kernels. Ranges around
/// layers repeat as well, but what comes before the first and after the last layer of each step differs.
const ALIKE: f64 = 0.95;
/// Share of a process's kernels that repeated ranges must hold to be its steps.
const MOST_WORK: f64 = 0.5;

/// The steps of every process, by the most certain evidence that any process has.
pub(super) fn recognize(
    profile: &Profile,
    texts: &RangeInfos,
    launches: Launches<'_>,
    warmup: &[Span],
) -> Vec<Option<Recognized>> {
    let processes = profile.processes.len();
    let (work, ranges) = rayon::join(
        || launched_by_process(profile, launches.kernels),
        || CandidateRanges::of(profile, texts, warmup),
    );
    for source in [
        StepSource::NamedRange,
        StepSource::Optimizer,
        StepSource::DataLoader,
        StepSource::RepeatedRange,
        StepSource::KernelSequence,
    ] {
        let found: Vec<Option<Recognized>> = (0..processes)
            .into_par_iter()
            .map(|process| {
                let process = ProcessId::new(process);
                let launched = work.get(process.idx())?;
                match source {
                    StepSource::NamedRange => by_name(&ranges, process, launched),
                    StepSource::Optimizer => {
                        let loaders = ranges.loader.iter().filter(|r| r.process == process);
                        let batches = loaders.filter_map(|r| r.spans.first()).map(|s| s.start);
                        let calls = (&ranges.optimizer, batches.min());
                        optimizer_steps::recognize(profile, texts, calls, process, launched)
                    }
                    StepSource::DataLoader => by_loader(&ranges, process, launched),
                    StepSource::RepeatedRange => by_repeated_range(&ranges.user, process, launched)
                        .or_else(|| {
                            let launched = launched.outside(warmup);
                            let steps = by_repeated_range(&ranges.wrapped, process, &launched)?;
                            waits_in_each(profile, process, &steps).then_some(steps)
                        }),
                    _ => by_kernels(profile, launches, process, launched),
                }
            })
            .collect();
        if found.iter().any(Option::is_some) {
            return found;
        }
    }
    vec![None; processes]
}

/// Ranges with the same text on one thread, in time order, without those inside one another.
#[derive(Debug)]
struct Repeated {
    process: ProcessId,
    text: String,
    spans: Vec<Span>,
}

/// The ranges that may show the steps, by kind.
struct CandidateRanges {
    named: Vec<Repeated>,
    optimizer: OptimizerCalls,
    loader: Vec<Repeated>,
    /// Outside all other ranges of the user.
    user: Vec<Repeated>,
    /// Only inside ranges of the user that occur once, and outside declared warm-up: `forward` in the one
    /// `benchmark`.
    wrapped: Vec<Repeated>,
}

impl CandidateRanges {
    fn of(profile: &Profile, texts: &RangeInfos, warmup: &[Span]) -> CandidateRanges {
        let user = |m: &RangeInfo| {
            matches!(
                m.what,
                RangeClass::Optimizer
                    | RangeClass::DataLoading
                    | RangeClass::Other { .. }
                    | RangeClass::Autograd { .. }
            )
        };
        let mut groups: [BTreeMap<(ThreadId, StrId), Vec<Span>>; 3] = Default::default();
        let mut optimizer = OptimizerCalls::new();
        let mut occurs: FxHashMap<(ThreadId, StrId), usize> = FxHashMap::default();
        for (_, range, meaning) in texts.parts(profile, user) {
            if texts.role(range, meaning) == RangeRole::User {
                *occurs.entry((range.thread, range.text)).or_default() += 1;
            }
        }
        // Per thread: where the outermost open range of the user ends, and the outermost one that is repeated.
        let mut open: FxHashMap<ThreadId, [i64; 2]> = FxHashMap::default();
        let mut named: BTreeMap<(ThreadId, &str), (StrId, Vec<Span>)> = BTreeMap::new();
        let ranges = texts.parts(profile, user).filter(|(_, range, _)| {
            range.span.end < i64::MAX
                && range.span.ns() > 0
                && !matches!(range.kind, RangeKind::Mark | RangeKind::Python)
        });
        for (_, range, meaning) in ranges {
            let group = match meaning.what {
                RangeClass::Optimizer => {
                    let calls = optimizer.entry(range.thread).or_default();
                    let after = |(last, _): &(Span, StrId)| range.span.start >= last.end;
                    if is_step(profile, range) && calls.last().is_none_or(after) {
                        calls.push((range.span, range.text));
                    }
                    None
                }
                RangeClass::DataLoading => groups.get_mut(0),
                _ if texts.role(range, meaning) == RangeRole::User => {
                    if let Some(kind) = kind_of_step(profile.text(range.text)) {
                        let first = || (range.text, Vec::new());
                        let (_, spans) = named.entry((range.thread, kind)).or_insert_with(first);
                        add_outermost(spans, range.span);
                    }
                    let [any, repeated] = open.entry(range.thread).or_insert([i64::MIN; 2]);
                    let outermost = range.span.start >= *any;
                    let wrapped = !outermost && range.span.start >= *repeated;
                    *any = (*any).max(range.span.end);
                    if occurs
                        .get(&(range.thread, range.text))
                        .is_some_and(|n| *n > 1)
                    {
                        *repeated = (*repeated).max(range.span.end);
                    }
                    let warms_up = Span::one_contains(warmup, range.span.start);
                    match (outermost, wrapped && !warms_up) {
                        (true, _) => groups.get_mut(1),
                        (_, true) => groups.get_mut(2),
                        _ => None,
                    }
                }
                _ => None,
            };
            if let Some(group) = group {
                let spans = group.entry((range.thread, range.text)).or_default();
                add_outermost(spans, range.span);
            }
        }
        let [loader, user, wrapped] = groups;
        let named = named.into_iter();
        let named = named.map(|((thread, _), (text, spans))| ((thread, text), spans));
        CandidateRanges {
            named: repeated(profile, named),
            optimizer,
            loader: repeated(profile, loader),
            user: repeated(profile, user),
            wrapped: repeated(profile, wrapped),
        }
    }
}

/// What a step of a program is said to do: `moe_train_step`. Others, such as `optimizer_step`, are parts of
/// a step.
const KINDS_OF_STEPS: &[&str] = &[
    "train",
    "training",
    "eval",
    "test",
    "val",
    "validation",
    "inference",
    "decode",
    "prefill",
    "generation",
    "denoising",
];

/// The kind of step that a text names: the word before `step` at its end, or the word for a step that it
/// begins with, as in `step[EXTEND bs=15]` of SGLang.
fn kind_of_step(text: &str) -> Option<&'static str> {
    let lower = text.to_ascii_lowercase();
    let mut words = lower.rsplit(|c: char| !c.is_alphanumeric());
    if matches!(words.next(), Some("step" | "iteration"))
        && let Some(kind) = words.next()
        && let Some(kind) = KINDS_OF_STEPS.iter().find(|known| **known == kind)
    {
        return Some(kind);
    }
    let begins_with = |word: &str| {
        let rest = lower.strip_prefix(word).map(|rest| rest.chars().next());
        rest.is_some_and(|next| next.is_none_or(|c| !c.is_alphanumeric() && c != '_'))
    };
    [
        ("step", "step"),
        ("iteration", "iteration"),
        ("train_step", "train"),
        ("training_step", "training"),
    ]
    .into_iter()
    .find_map(|(word, kind)| begins_with(word).then_some(kind))
}

/// Ranges that name a step without numbering it; of several kinds the one with most work, so that a
/// validation step is no training step.
fn by_name(
    ranges: &CandidateRanges,
    process: ProcessId,
    work: &WorkLaunches,
) -> Option<Recognized> {
    let own = ranges.named.iter().filter(|r| r.process == process);
    let held = |range: &Repeated| range.spans.iter().map(|s| work.count(*s)).sum::<usize>();
    let length = |range: &Repeated| {
        range
            .spans
            .iter()
            .map(|s| s.ns())
            .fold(0, i64::saturating_add)
    };
    let steps = own.max_by_key(|range| (held(range), length(range)))?;
    (held(steps) > 0).then(|| Recognized {
        source: StepSource::NamedRange,
        text: steps.text.clone(),
        spans: steps.spans.clone(),
    })
}

/// Whether a range of an optimizer is a whole step: `zero_grad` and clipping are not.
fn is_step(profile: &Profile, range: &HostRange) -> bool {
    let text = profile.text(range.text);
    match text.strip_prefix("Optimizer.") {
        Some(call) => call.starts_with("step"),
        None => !text.to_ascii_lowercase().contains("clip"),
    }
}

fn repeated(
    profile: &Profile,
    groups: impl IntoIterator<Item = ((ThreadId, StrId), Vec<Span>)>,
) -> Vec<Repeated> {
    let groups = groups.into_iter().filter_map(|((thread, text), spans)| {
        Some(Repeated {
            process: profile.process_of(thread)?,
            text: profile.text(text).to_owned(),
            spans,
        })
    });
    groups.collect()
}

/// The repeated text with most ranges.
fn most_frequent(ranges: &[Repeated], process: ProcessId) -> Option<&Repeated> {
    let own = ranges.iter().filter(|r| r.process == process);
    own.max_by_key(|r| (r.spans.len(), std::cmp::Reverse(&r.text)))
}

/// A step begins when the loader is asked for its batch.
fn by_loader(
    ranges: &CandidateRanges,
    process: ProcessId,
    work: &WorkLaunches,
) -> Option<Recognized> {
    let loader = most_frequent(&ranges.loader, process)?;
    let mut spans = tiles(&loader.spans, work.last()?.saturating_add(1));
    // The last request finds no batch.
    spans.retain(|span| work.count(*span) > 0);
    (spans.len() > 1).then(|| Recognized {
        source: StepSource::DataLoader,
        text: loader.text.clone(),
        spans,
    })
}

/// From the start of each range to the start of the next one; the last one ends at `end`.
fn tiles(ranges: &[Span], end: i64) -> Vec<Span> {
    let starts = ranges.iter().map(|s| s.start);
    let ends = starts.clone().skip(1).chain(std::iter::once(end));
    let tiles = starts.zip(ends).map(|(start, end)| Span { start, end });
    tiles.filter(|span| span.end > span.start).collect()
}

/// The calls of the CUDA API that a process made.
fn calls_of(profile: &Profile, process: ProcessId) -> impl Iterator<Item = &ApiCall> {
    let calls = profile.calls.iter();
    calls.filter(move |call| profile.process_of(call.thread) == Some(process))
}

/// Whether the host waits for the whole device in each of these spans, as benchmarks do to time them. Layers,
/// which repeat as well, do not.
fn waits_in_each(profile: &Profile, process: ProcessId, steps: &Recognized) -> bool {
    let device_wide =
        |call: &&ApiCall| SyncKind::of_call(profile.text(call.name)) == Some(SyncKind::Context);
    let mut waits: Vec<i64> = calls_of(profile, process)
        .filter(|call| call.class == ApiClass::Sync)
        .filter(device_wide)
        .map(|call| call.span.start)
        .collect();
    waits.sort_unstable();
    steps.spans.iter().all(|span| {
        let next = waits.partition_point(|wait| *wait < span.start);
        waits.get(next).is_some_and(|wait| span.contains(*wait))
    })
}

/// One of these ranges that is repeated with about the same number of kernels each time.
fn by_repeated_range(
    ranges: &[Repeated],
    process: ProcessId,
    work: &WorkLaunches,
) -> Option<Recognized> {
    let candidates = ranges.iter().filter(|r| r.process == process);
    let candidates = candidates.filter(|r| r.spans.len() >= FEWEST_REPETITIONS);
    let steps = candidates.filter_map(|range| {
        let last = range.spans.last()?;
        let between = tiles(range.spans.get(..range.spans.len() - 1)?, last.start);
        let typical = median(&mut between.iter().map(|s| work.count(*s)).collect::<Vec<_>>())?;
        let longest = between.iter().map(|s| s.ns()).max()?;
        let end = last.end.max(last.start.saturating_add(longest));
        let spans = tiles(
            &range.spans,
            end.min(work.last()?.max(last.end).saturating_add(1)),
        );
        let counts = spans.iter().map(|span| work.count(*span));
        let same = counts.clone().filter(|n| alike(*n, typical, ALIKE_KERNELS));
        let enough = same.count() as f64 >= ALIKE * spans.len() as f64;
        let held: usize = counts.sum();
        let most = held as f64 >= MOST_WORK * work.len() as f64;
        // What comes behind the last layer of a model occurs nowhere else.
        let known = work.names_in(Span {
            start: spans.first()?.start,
            end: spans.last()?.start,
        });
        let foreign = !work.names_in(*spans.last()?).is_subset(&known);
        (typical > 0 && enough && most && !foreign).then_some((held, range, spans))
    });
    let (_, range, spans) =
        steps.max_by_key(|(held, range, spans)| (*held, usize::MAX - spans.len(), &range.text))?;
    Some(Recognized {
        source: StepSource::RepeatedRange,
        text: range.text.clone(),
        spans,
    })
}

/// Most names tried as the one that occurs once per step ...
const MOST_ANCHORS: usize = 8;
/// ... and of those that occur equally often.
const MOST_EQUAL: usize = 2;

/// Steps from a sequence of kernels that repeats: at least three consecutive steps have the same work, and the host
/// waits for the GPU or copies data somewhere between them. Of several sequences, the one with most kernels.
///
/// The layers of a model repeat as well. They are told from steps by the work after the last layer, which occurs
/// once per step, at least with its grid.
fn by_kernels(
    profile: &Profile,
    launches: Launches<'_>,
    process: ProcessId,
    work: &WorkLaunches,
) -> Option<Recognized> {
    let sequence = KernelSequence::of(profile, launches, process, work)?;
    let steps = sequence.anchors().into_iter();
    let steps = steps.filter_map(|anchor| sequence.steps(&anchor));
    let held = |spans: &[Span]| {
        spans
            .iter()
            .map(|s| sequence.launches_in(*s))
            .sum::<usize>()
    };
    let steps = steps.map(|spans| (held(&spans), spans));
    let (held, spans) = steps.reduce(|best, next| if next.0 > best.0 { next } else { best })?;
    // A few batches of an evaluation at the end are not the steps of a training run.
    let all = sequence.kinds.len() + sequence.without_launch;
    let most = held as f64 >= MOST_WORK * all as f64;
    most.then_some(Recognized {
        source: StepSource::KernelSequence,
        text: String::new(),
        spans,
    })
}

/// What a launch does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Task {
    Kernel(StrId),
    /// One of the parts of an executable graph that is recorded whole: such a record stands for the fewest kernels
    /// of a step.
    Graph {
        exec: Option<u32>,
        part: usize,
    },
}

/// A launch's device, task and configuration.
type TaskKind = (DeviceId, Task, ConfigId);

/// The kernels and whole graphs of a process in the order of their launches.
struct KernelSequence {
    /// The kind of each, by its number.
    kinds: Vec<u32>,
    /// Per kind: the number of its task, and whether that is one of a known graph.
    tasks: Vec<(u32, bool)>,
    launched: Vec<i64>,
    /// Per kernel: when the step that it begins would have begun on the host, if the host waited or copied
    /// between the launch before and its own.
    begins: Vec<Option<i64>>,
    /// Number of the process's other kernels.
    without_launch: usize,
}

impl KernelSequence {
    /// `None` if the process has too few kernels, or several whose launch is missing. Those of a graph are in
    /// the order in which they ran.
    fn of(
        profile: &Profile,
        launches: Launches<'_>,
        process: ProcessId,
        work: &WorkLaunches,
    ) -> Option<KernelSequence> {
        let mut numbers: FxHashMap<TaskKind, u32> = FxHashMap::default();
        let mut task_numbers: FxHashMap<Task, u32> = FxHashMap::default();
        let mut tasks: Vec<(u32, bool)> = Vec::new();
        let mut number = |kind: TaskKind| {
            let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
            *numbers.entry(kind).or_insert_with(|| {
                let (_, task, _) = kind;
                let new = u32::try_from(task_numbers.len()).unwrap_or(u32::MAX);
                let known_graph = matches!(task, Task::Graph { exec: Some(_), .. });
                let task = *task_numbers.entry(task).or_insert(new);
                tasks.push((task, known_graph));
                next
            })
        };
        let mut kernels: Vec<(i64, u32)> = Vec::with_capacity(work.len());
        kernels.extend(work.kernels().map(|(at, (device, name, config))| {
            let kind = (device, Task::Kernel(name), config);
            (at, number(kind))
        }));
        let mut known: FxHashSet<(DeviceId, u32)> = FxHashSet::default();
        let (mut without_launch, mut missing) = (0, 0);
        let own = profile.kernels.iter().zip(launches.kernels);
        for (kernel, call) in own.filter(|(kernel, _)| kernel.process == process) {
            let stream = (kernel.device, kernel.stream);
            if call.is_some() {
                known.insert(stream);
            } else {
                // Before the first known launch of its stream it was launched before the capture began.
                without_launch += 1;
                missing += usize::from(known.contains(&stream));
            }
        }
        let own = profile.graphs.iter().zip(launches.graphs);
        for (graph, call) in own.filter(|(graph, _)| graph.process == process) {
            let Some(call) = call.and_then(|id| profile.call(id)) else {
                without_launch += FEWEST_KERNELS;
                continue;
            };
            let exec = graph.exec;
            let parts = (0..FEWEST_KERNELS).map(|part| Task::Graph { exec, part });
            let kinds = parts.map(|task| (graph.device, task, ConfigId(0)));
            kernels.extend(kinds.map(|kind| (call.span.start, number(kind))));
        }
        if missing as f64 > SAME_WORK * kernels.len() as f64 {
            return None;
        }
        if kernels.len() < FEWEST_REPETITIONS * FEWEST_KERNELS {
            return None;
        }
        kernels.sort_by_key(|(at, _)| *at);
        let marks = host_marks(profile, process);
        let mut marks = marks.iter().peekable();
        let begins = kernels.iter().map(|(at, _)| {
            let mut last = None;
            while let Some((_, begins)) = marks.next_if(|(when, _)| when < at) {
                last = Some(*begins);
            }
            last
        });
        Some(KernelSequence {
            without_launch,
            begins: begins.collect(),
            launched: kernels.iter().map(|(at, _)| *at).collect(),
            kinds: kernels.into_iter().map(|(_, kind)| kind).collect(),
            tasks,
        })
    }

    /// Positions of the kinds that occur least, but often enough to show a repetition.
    fn anchors(&self) -> Vec<Vec<usize>> {
        let mut positions: Vec<Vec<usize>> = vec![Vec::new(); self.tasks.len()];
        for (at, kind) in self.kinds.iter().enumerate() {
            if let Some(positions) = positions.get_mut(*kind as usize) {
                positions.push(at);
            }
        }
        positions.retain(|at| {
            at.len() >= FEWEST_REPETITIONS
                && at.len() <= self.kinds.len() / FEWEST_KERNELS
                && recurs_regularly(at)
        });
        positions.sort_by_key(|at| (at.len(), at.first().copied()));
        let mut equal = (0, 0);
        positions.retain(|at| {
            let before = if equal.0 == at.len() { equal.1 } else { 0 };
            equal = (at.len(), before + 1);
            before < MOST_EQUAL
        });
        positions.truncate(MOST_ANCHORS);
        positions
    }

    fn launches_in(&self, span: Span) -> usize {
        let before = |time: i64| self.launched.partition_point(|at| *at < time);
        before(span.end).saturating_sub(before(span.start))
    }

    /// The steps in which the kernel at each of these positions occurs once.
    fn steps(&self, anchor: &[usize]) -> Option<Vec<Span>> {
        let period = median(&mut distances(anchor))?;
        // Each layer would be a graph of its own, so that what repeats with one graph is a step, though the host
        // never waits.
        let offset = match self.replays_in(anchor, period) {
            true => self.offset(anchor, period, anchor.len() / 2).unwrap_or(0),
            false => self.offset(anchor, period, 0)?,
        };
        let starts = anchor.iter().map(|at| at + offset);
        let starts: Vec<usize> = starts.filter(|at| *at < self.kinds.len()).collect();
        let whole = starts.iter().zip(starts.iter().skip(1));
        let whole: Vec<Option<&[u32]>> = whole
            .map(|(from, until)| self.kinds.get(*from..*until))
            .collect();
        let mut typical = StepWork::of((*whole.get(whole.len() / 2)?)?, &self.tasks);
        let (first, last) = (*starts.first()?, *starts.last()?);
        let tail = self.kinds.get(last..)?;
        let ends_whole = typical.is_same(tail);
        // Where both ends of a capture may be anywhere in a step, the repetition may be one of its layers.
        if self.without_launch > 0 && !ends_whole {
            return None;
        }
        // What is left at the end must be part of a step, else the repetition is not one of steps; but after
        // steps between which the host waits each time, something longer than a step may follow.
        let mut known = vec![false; self.tasks.len()];
        for kind in self.kinds.get(first..last)? {
            if let Some(known) = known.get_mut(*kind as usize) {
                *known = true;
            }
        }
        let is_new = |kind: &u32| known.get(*kind as usize) != Some(&true);
        let waits = (starts.iter()).filter(|at| self.begins.get(**at).is_some_and(Option::is_some));
        let goes_on =
            waits.count() as f64 >= REGULAR * starts.len() as f64 && tail.len() > 2 * period;
        if !goes_on && tail.iter().any(is_new) {
            return None;
        }
        let is_same = |step: &Option<&[u32]>| step.is_some_and(|step| typical.is_same(step));
        let mut same: Vec<bool> = whole.iter().map(is_same).collect();
        same.push(ends_whole);
        // The first iterations may differ: only a run of equal ones at the end is taken.
        if same.last() == Some(&false) {
            same.pop();
        }
        let complete = same.iter().rposition(|same| !same);
        let complete = complete.map_or(0, |at| at + 1);
        let steps = starts.get(complete..same.len())?;
        if steps.len() < FEWEST_REPETITIONS {
            return None;
        }
        let begin = |at: &usize| {
            let marked = self.begins.get(*at).copied().flatten();
            marked.or_else(|| self.launched.get(*at).copied())
        };
        let end = match starts.get(same.len()) {
            Some(next) => begin(next)?,
            None => self.launched.last()?.saturating_add(1),
        };
        let begins: Vec<i64> = steps.iter().filter_map(begin).collect();
        let ends = begins.iter().skip(1).copied().chain(std::iter::once(end));
        let spans = begins.iter().zip(ends);
        let spans = spans.map(|(start, end)| Span { start: *start, end });
        Some(spans.filter(|span| span.end > span.start).collect())
    }

    /// The place in the period, counted from the anchor, before which the host waited or copied in most
    /// repetitions; the first one of several. `None` if it did so in no more than `few` of them.
    fn offset(&self, anchor: &[usize], period: usize, few: usize) -> Option<usize> {
        let marked = |offset: usize| {
            let places = anchor.iter().filter_map(|at| self.begins.get(at + offset));
            places.filter(|place| place.is_some()).count()
        };
        let marked = (0..period).map(|offset| (marked(offset), offset));
        marked
            .max_by_key(|(count, offset)| (*count, std::cmp::Reverse(*offset)))
            .filter(|(count, _)| *count > few)
            .map(|(_, offset)| offset)
    }

    /// Whether a known graph is launched in the period that begins with the first of these positions.
    fn replays_in(&self, anchor: &[usize], period: usize) -> bool {
        let kinds = anchor.first().and_then(|first| self.kinds.get(*first..));
        let mut kinds = kinds.unwrap_or_default().iter().take(period);
        kinds.any(|kind| {
            let task = self.tasks.get(*kind as usize);
            task.is_some_and(|(_, known_graph)| *known_graph)
        })
    }
}

/// How often each task occurs in a step.
struct StepWork<'a> {
    /// See [`KernelSequence::tasks`].
    tasks: &'a [(u32, bool)],
    counts: Vec<u32>,
    size: usize,
    /// The counts of another step while it is compared, otherwise all 0.
    others: Vec<u32>,
}

impl<'a> StepWork<'a> {
    /// The work of launches of these kinds.
    fn of(kinds: &[u32], tasks: &'a [(u32, bool)]) -> StepWork<'a> {
        let mut work = StepWork {
            tasks,
            counts: vec![0; tasks.len()],
            size: kinds.len(),
            others: vec![0; tasks.len()],
        };
        for kind in kinds {
            let task = work.task(*kind);
            if let Some(count) = work.counts.get_mut(task) {
                *count += 1;
            }
        }
        work
    }

    fn task(&self, kind: u32) -> usize {
        self.tasks
            .get(kind as usize)
            .map_or(usize::MAX, |(task, _)| *task as usize)
    }

    /// Whether launches of these kinds are of the same tasks as often, but for a few.
    fn is_same(&mut self, kinds: &[u32]) -> bool {
        let mut common = 0_usize;
        for kind in kinds {
            let task = self.task(*kind);
            if let (Some(other), Some(count)) = (self.others.get_mut(task), self.counts.get(task)) {
                common += usize::from(*other < *count);
                *other += 1;
            }
        }
        for kind in kinds {
            let task = self.task(*kind);
            if let Some(other) = self.others.get_mut(task) {
                *other = 0;
            }
        }
        let larger = self.size.max(kinds.len());
        larger.saturating_sub(common) as f64 <= SAME_WORK * larger as f64
    }
}

/// When a process waited for the GPU or copied between host and GPU, and when a step that follows would
/// begin: after a wait or a copy to the host, with a copy to the GPU. In time order.
fn host_marks(profile: &Profile, process: ProcessId) -> Vec<(i64, i64)> {
    // The map has a place for each process up to the last one, and these are the numbers of a single one.
    const ONLY: ProcessId = ProcessId(0);
    let own = profile.copies.iter().filter(|copy| copy.process == process);
    let copies = CorrelationMap::of(own.map(|copy| (ONLY, copy.correlation, copy.kind)));
    let mut marks: Vec<(i64, i64)> = calls_of(profile, process)
        .filter_map(|call| {
            let copied = copies.get(ONLY, call.correlation);
            match (call.class, copied) {
                (_, Some(CopyKind::HtoD)) => Some((call.span.start, call.span.start)),
                (ApiClass::Sync, _) | (_, Some(CopyKind::DtoH)) => {
                    Some((call.span.start, call.span.end))
                }
                _ => None,
            }
        })
        .collect();
    marks.sort_unstable();
    marks
}

#[cfg(test)]
mod tests {
    use super::kind_of_step;
    use crate::correlate::Run;
    use crate::correlate::testing::ProfileBuilder;
    use crate::profile::{Device, DeviceId, ThreadId};

    #[test]
    fn ranges_inside_one_benchmark_are_steps_where_the_host_waits_in_each() {
        let steps = |range: &str, waits: bool| {
            let mut b = ProfileBuilder::new();
            b.range("Warm-up", 0, 3_000);
            b.range("Benchmark", 3_000, 8_000);
            for step in 0..8 {
                let at = step * 1_000;
                b.range(range, at, at + 900);
                for kernel in 0..4 {
                    b.launch(at + 100 + kernel * 50);
                }
                if waits {
                    b.call(ThreadId(0), "cudaDeviceSynchronize", at + 600, 100);
                }
            }
            let steps = b.run().steps;
            steps.iter().map(|s| s.span.start).collect::<Vec<_>>()
        };
        assert_eq!(steps("Forward", true), [3_000, 4_000, 5_000, 6_000, 7_000]);
        // Layers of one forward pass.
        assert!(steps("Block", false).is_empty());
    }

    /// Five times ten kernels, after each of which the host waits, but for the first `left_out` of them.
    fn repeating(left_out: i64, change: &dyn Fn(&mut ProfileBuilder, usize)) -> Run {
        let mut b = ProfileBuilder::new();
        b.profile.devices.push(Device::default());
        for launch in left_out..50 {
            let (step, place) = (launch / 10, launch % 10);
            let at = step * 1_000 + place * 50;
            let kernel = b.launch(at);
            let name = ["embedding", "gemm", "add"][(place.min(1) + (place & 1)) as usize];
            b.profile.kernels[kernel].name = b.profile.strings.intern(name);
            change(&mut b, kernel);
            if place == 9 {
                b.call(ThreadId(0), "cudaDeviceSynchronize", at + 200, 100);
            }
        }
        b.run()
    }

    #[test]
    fn a_sequence_repeats_whatever_a_few_of_its_kernels_are() {
        let steps = |change: &dyn Fn(&mut ProfileBuilder, usize)| repeating(0, change).steps.len();
        let nothing = steps(&|_, _| {});
        assert!(nothing >= 3, "{nothing}");
        let without_launch = |is: &'static dyn Fn(usize) -> bool| {
            steps(&move |b, at| {
                if is(at) {
                    b.profile.kernels[at].correlation = None;
                }
            })
        };
        // Queued before the capture began, or a row that is lost; but not every tenth.
        assert!(without_launch(&|at| at < 5) >= 3);
        assert!(without_launch(&|at| at == 15) >= 3);
        assert_eq!(without_launch(&|at| at % 10 == 5), 0);
        assert_eq!(
            steps(&|b, at| b.profile.kernels[at].in_graph = true),
            nothing
        );
        let second = |b: &mut ProfileBuilder, at: usize| {
            b.profile.kernels[at].device = DeviceId(u32::from(at == 25));
        };
        assert_eq!(steps(&second), nothing);
    }

    #[test]
    fn what_repeats_between_two_ends_anywhere_may_be_layers() {
        let steps = |queued: bool, last: usize| {
            let run = repeating(0, &|b, at| {
                b.profile.kernels[at].correlation = b.profile.kernels[at]
                    .correlation
                    .filter(|_| !queued || at > 0);
                if at > last {
                    b.profile.kernels.pop();
                    b.profile.calls.pop();
                }
            });
            run.steps.len()
        };
        assert!(steps(true, 49) >= 3);
        assert!(steps(false, 45) >= 3);
        assert_eq!(steps(true, 45), 0);
    }

    #[test]
    fn the_incomplete_first_step_of_a_capture_is_not_analysed() {
        // With two of five steps incomplete, more than a fifth of the work is outside of the whole ones.
        let run = repeating(15, &|_, _| {});
        assert_eq!(run.steps.len(), 3);
        let analysed: u64 = run.sites.iter().map(|site| u64::from(site.calls)).sum();
        assert_eq!(analysed, 30);
    }

    #[test]
    fn steps_are_named_by_their_first_word_or_by_their_kind() {
        for (text, kind) in [
            ("step[EXTEND bs=15]", "step"),
            ("Iteration", "iteration"),
            ("train_step", "train"),
            ("train_step[bs=4]", "train"),
            ("moe_train_step", "train"),
            ("model.training_step", "training"),
            ("Decode step", "decode"),
        ] {
            assert_eq!(kind_of_step(text), Some(kind), "{text}");
        }
        for text in [
            "optimizer_step",
            "lr_scheduler.step",
            "stepper",
            "trainstep",
            "step_lr",
        ] {
            assert_eq!(kind_of_step(text), None, "{text}");
        }
    }

    #[test]
    fn steps_are_of_the_kind_with_most_work() {
        let mut b = ProfileBuilder::new();
        for step in 0..6 {
            let at = step * 1_000;
            let validates = step % 2 == 0;
            b.range(
                ["train_step", "val_step"][usize::from(validates)],
                at,
                at + 900,
            );
            for kernel in 0..if validates { 3 } else { 9 } {
                b.launch(at + 100 + kernel * 50);
            }
        }
        let run = b.run();
        let steps: Vec<_> = run.steps.iter().map(|s| s.span.start).collect();
        assert_eq!(steps, [1_000, 3_000, 5_000]);
        assert_eq!(run.step_origin.unwrap().text, "train_step");
    }
}
