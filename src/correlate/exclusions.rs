//! Decides which time of a capture is not analyzed: declared warm-up, first iterations, work outside the
//! steps, and the search of a library for the best algorithm. It is not representative of a steady run, so
//! figures and savings leave it out.

use rayon::prelude::*;

use super::model::{ExcludedTime, Exclusion, StepSource};
use super::step_work::Launches;
use super::steps::Steps;
use super::timeline::launch_time;
use crate::base::statistics::median;
use crate::profile::{ApiClass, Profile, Span};

/// Largest share of the kernel time outside declared warm-up that may come before it to be excluded with
/// it: weight initialisation.
const LITTLE: f64 = 0.1;
/// Largest share of the kernel time that may lie outside the steps for the window to be trimmed to them.
const OUTSIDE: f64 = 0.2;
/// A first iteration that takes so many times the median of the others is not like them (nsys-ai uses the
/// same ratio).
const SLOW_ITERATION: f64 = 1.5;
/// The same for one that is longer than each of the others, and the only one that allocates GPU memory: the
/// allocator still fills its cache.
const FILLS_CACHE: f64 = 1.1;
/// Largest difference in kernel time between iterations with the same work.
const SAME_WORK: f64 = 0.5;
/// Minimum number of steps from which there is a median to compare the first one with.
const FEWEST_STEPS: usize = 3;
/// Share of the time by which a first iteration is longer that loading code or allocating must take to explain
/// it.
const LOADING: f64 = 0.2;
/// Largest time for allocations in another iteration, as a share of that in one that fills the cache.
const ALLOCATES_LITTLE: f64 = 0.1;
/// Most steps that are looked at as first iterations; bounds the work for hostile files.
const MOST_FIRST: usize = 1_000;

/// What is not analyzed, in time order, and per process the time from its first to its last analyzed
/// step, where the window is trimmed to steps.
#[derive(Debug, Default)]
pub(super) struct Exclusions {
    pub(super) times: Vec<ExcludedTime>,
    pub(super) steps: Vec<Option<Span>>,
}

/// A kernel or whole graph by when it was launched, and its duration in ns.
type Launched = (i64, i64);

impl Exclusions {
    /// Marks the first iterations that are not like the others as warm-up; decides what else is excluded.
    /// `searches` is host time in which a library tried algorithms.
    pub(super) fn decide(
        profile: &Profile,
        steps: &mut Steps,
        launches: Launches<'_>,
        searches: &[Span],
    ) -> Exclusions {
        let launched = launched(profile, launches);
        let times = || launched.iter().map(|(at, _)| *at);
        let ends = times().min().zip(times().max());
        let all = |span: &Span| {
            ends.is_none_or(|(first, last)| span.contains(first) && span.contains(last))
        };
        let mut exclusions = Exclusions::default();
        let mut add = |span: Span, why: Exclusion| {
            if span.end > span.start {
                exclusions.times.push(ExcludedTime { span, why });
            }
        };
        // If the whole capture is declared warm-up, it is analyzed anyway.
        let graphs = profile
            .graphs
            .iter()
            .any(|g| !steps.is_warmup(g.span.start));
        let declared = graphs || !launched.iter().all(|(at, _)| steps.is_warmup(*at));
        if declared {
            for span in before_warm_up(steps, &launched).iter().chain(&steps.warmup) {
                add(*span, Exclusion::WarmUp);
            }
        } else {
            steps.steps.iter_mut().for_each(|step| step.warmup = false);
        }
        for span in searches.iter().filter(|span| !all(span)) {
            add(*span, Exclusion::AlgorithmSearch);
        }
        for span in mark_first_iterations(profile, steps, &launched) {
            add(span, Exclusion::FirstIteration);
        }
        let analysed = analysed_steps(steps);
        let bounds = analysed.iter().flatten().copied().reduce(Span::around);
        if let Some(bounds) = bounds {
            let excluded = exclusions.times.iter().map(|e| e.span);
            let excluded = Span::union(excluded.collect());
            let counts = |at: i64| !Span::one_contains(&excluded, at);
            let (mut before, mut after, mut sum) = (0_i64, 0_i64, 0_i64);
            for (at, ns) in launched.iter().filter(|(at, _)| counts(*at)) {
                sum = sum.saturating_add(*ns);
                match (*at < bounds.start, *at < bounds.end) {
                    (true, _) => before = before.saturating_add(*ns),
                    (_, false) => after = after.saturating_add(*ns),
                    _ => {}
                }
            }
            let outside = before.saturating_add(after);
            let few = outside as f64 <= OUTSIDE * sum as f64;
            // About one step at most before and behind steps without gaps between them: incomplete ones.
            let whole = || (1.0 + SAME_WORK) * work_of_longest(steps, &launched) as f64;
            let incomplete = || is_sequence(steps) && before.max(after) as f64 <= whole();
            if (few || incomplete()) && outside < sum {
                for span in [
                    Span {
                        start: i64::MIN,
                        end: bounds.start,
                    },
                    Span {
                        start: bounds.end,
                        end: i64::MAX,
                    },
                ] {
                    exclusions.times.push(ExcludedTime {
                        span,
                        why: Exclusion::OutsideSteps,
                    });
                }
                exclusions.steps = analysed;
            }
        }
        exclusions.times.sort_by_key(|e| (e.span, e.why));
        exclusions
    }
}

fn launched(profile: &Profile, launches: Launches<'_>) -> Vec<Launched> {
    let kernels = profile.kernels.par_iter().map(|kernel| kernel.span);
    let graphs = profile.graphs.par_iter().map(|graph| graph.span);
    let kernels = kernels.zip(launches.kernels);
    let work = kernels.chain(graphs.zip(launches.graphs));
    work.map(|(span, call)| (launch_time(profile, span, *call), span.ns()))
        .collect()
}

/// Whether the steps are a sequence of kernels that repeats: nothing is launched between two of them.
fn is_sequence(steps: &Steps) -> bool {
    let origin = steps.origin.as_ref();
    origin.is_some_and(|origin| origin.source == StepSource::KernelSequence)
}

/// The most kernel time of an analyzed step, in ns.
fn work_of_longest(steps: &Steps, launched: &[Launched]) -> i64 {
    let analysed = steps.steps.iter().filter(|step| !step.warmup);
    let spans: Vec<Span> = analysed.map(|step| step.span).collect();
    let work = times_in(&spans, launched);
    work.into_iter().max().unwrap_or(0)
}

/// The time before the first declared warm-up, if little work was launched in it.
fn before_warm_up(steps: &Steps, launched: &[Launched]) -> Option<Span> {
    let first = steps.warmup.first()?.start;
    let (mut before, mut sum) = (0_i64, 0_i64);
    for (at, ns) in launched.iter().filter(|(at, _)| !steps.is_warmup(*at)) {
        sum = sum.saturating_add(*ns);
        before = before.saturating_add(if *at < first { *ns } else { 0 });
    }
    (before as f64 <= LITTLE * sum as f64).then_some(Span {
        start: i64::MIN,
        end: first,
    })
}

/// Marks leading steps as warm-up that take far longer than the others, or longer because they alone allocate
/// memory, if they do the same work, or if code was loaded in them. A step that has more to do, such as the prefill of
/// a served model, stays.
fn mark_first_iterations(profile: &Profile, steps: &mut Steps, launched: &[Launched]) -> Vec<Span> {
    let analysed: Vec<usize> = (steps.steps.iter().enumerate())
        .filter(|(_, step)| !step.warmup)
        .map(|(at, _)| at)
        .collect();
    let spans: Vec<Span> = analysed
        .iter()
        .filter_map(|at| Some(steps.steps.get(*at)?.span))
        .collect();
    let work = times_in(&spans, launched);
    let allocations = times_in(&spans, &allocations(profile));
    let loads = loads(profile);
    // A host that runs ahead only queues the work: its step lasts as long as the GPU works on it.
    let length = |(span, work): (&Span, &i64)| span.ns().max(*work);
    let mut marked = Vec::new();
    for (row, step) in analysed.into_iter().enumerate().take(MOST_FIRST) {
        let (Some([first, rest @ ..]), Some([own, others @ ..])) =
            (spans.get(row..), work.get(row..))
        else {
            break;
        };
        // Half of the steps are always analyzed.
        if rest.len() + 1 < FEWEST_STEPS || marked.len() >= rest.len() {
            break;
        }
        let mut lengths: Vec<i64> = rest.iter().zip(others).map(length).collect();
        let longest = lengths.iter().max().copied().unwrap_or(0);
        let typical = median(&mut lengths).unwrap_or(0);
        let own_length = length((first, own));
        let excess = own_length.saturating_sub(typical);
        let takes = |times: f64| own_length as f64 > times * typical as f64;
        let fills_cache = || {
            let allocating = allocations.get(row..).and_then(<[i64]>::split_first);
            allocating.is_some_and(|(own, others)| {
                let most = others.iter().max().copied().unwrap_or(0);
                *own as f64 >= LOADING * excess as f64
                    && most as f64 <= ALLOCATES_LITTLE * *own as f64
            })
        };
        let alone_allocates = || takes(FILLS_CACHE) && own_length > longest && fills_cache();
        if !takes(SLOW_ITERATION) && !alone_allocates() {
            break;
        }
        let typical_work = median(&mut others.to_vec()).unwrap_or(0);
        let same = *own as f64 <= (1.0 + SAME_WORK) * typical_work as f64;
        let loading = || {
            let inside = loads.iter().map(|load| load.clip(*first).ns());
            inside.fold(0, i64::saturating_add)
        };
        if !same && (loading() as f64) < LOADING * excess as f64 {
            break;
        }
        if let Some(step) = steps.steps.get_mut(step) {
            step.warmup = true;
        }
        marked.push(*first);
    }
    marked
}

/// Per span, the time of what was launched or called in it, in ns. The spans are in time order; where two
/// overlap, work belongs to the later one.
fn times_in(spans: &[Span], launched: &[Launched]) -> Vec<i64> {
    let mut times = vec![0_i64; spans.len()];
    for (at, ns) in launched {
        let inside = Span::position(spans, *at);
        if let Some(time) = inside.and_then(|step| times.get_mut(step)) {
            *time = time.saturating_add(*ns);
        }
    }
    times
}

/// When the host was in calls that load code.
fn loads(profile: &Profile) -> Vec<Span> {
    let loads = profile.calls.iter().filter(|call| {
        call.class == ApiClass::ModuleLoad
            || (call.class == ApiClass::Launch && call.span.ns() >= 1_000_000)
    });
    loads.map(|call| call.span).collect()
}

/// When the host allocated memory, and for how long, in ns.
fn allocations(profile: &Profile) -> Vec<(i64, i64)> {
    let calls = profile.calls.iter();
    let allocations = calls.filter(|call| call.class == ApiClass::Alloc);
    allocations
        .map(|call| (call.span.start, call.span.ns()))
        .collect()
}

/// Per process: from the start of its first to the end of its last analyzed step.
fn analysed_steps(steps: &Steps) -> Vec<Option<Span>> {
    let of_process = steps.by_process.iter().map(|spans| {
        let analysed = spans.iter().filter(|(_, id)| {
            let step = steps.steps.get(id.idx());
            step.is_some_and(|step| !step.warmup)
        });
        analysed.map(|(span, _)| *span).reduce(Span::around)
    });
    of_process.collect()
}

#[cfg(test)]
mod tests {
    use crate::correlate::testing::ProfileBuilder;
    use crate::profile::ThreadId;

    #[test]
    fn a_first_iteration_that_alone_allocates_is_not_analysed() {
        let analysed = |lengths: [i64; 5], allocations: [i64; 5]| -> Vec<u64> {
            let mut b = ProfileBuilder::new();
            let mut at = 0;
            for (step, (length, ns)) in lengths.iter().zip(allocations).enumerate() {
                b.range(&format!("step {step}"), at, at + length);
                if ns > 0 {
                    b.call(ThreadId(0), "cudaMalloc", at + 10, 1_000 + step as u64)
                        .span
                        .end = at + 10 + ns;
                }
                b.launch(at + 500);
                at += length;
            }
            let run = b.run();
            let steps = run.steps.iter().filter(|step| !step.warmup);
            steps.map(|step| step.number).collect()
        };
        let lengths = [5_000, 1_300, 1_000, 990, 1_010];
        assert_eq!(analysed(lengths, [900, 100, 0, 0, 9]), [2, 3, 4]);
        // Others allocate as well, the allocations explain little, or another step is as long.
        assert_eq!(analysed(lengths, [900, 100, 0, 0, 11]), [1, 2, 3, 4]);
        assert_eq!(analysed(lengths, [900, 59, 0, 0, 0]), [1, 2, 3, 4]);
        let long = [5_000, 1_300, 1_000, 990, 1_300];
        assert_eq!(analysed(long, [900, 100, 0, 0, 0]), [1, 2, 3, 4]);
        let hardly = [5_000, 1_100, 1_000, 990, 1_010];
        assert_eq!(analysed(hardly, [900, 100, 0, 0, 0]), [1, 2, 3, 4]);
    }
}
