//! Correlates the rows of a profile: the launch of each kernel, the ranges around that launch, and the
//! operator call with its arguments, layer, direction and step; also the timeline of each GPU.

use std::sync::Arc;

use crate::host::Classes;
use crate::profile::{CallId, Profile, RangeId, RangeKind, Span, Strings};

pub(crate) mod args;
mod attribution;
mod clock_offset;
mod exclusions;
mod first_calls;
mod fwd_bwd_pairs;
mod gap_activity;
mod host_parts;
mod host_samples;
mod host_time;
mod idle_limits;
mod launches;
mod layer_source;
mod layers;
pub(crate) mod literal;
mod model;
mod op_calls;
mod optimizer_pauses;
mod optimizer_steps;
mod profiler_overhead;
mod pruning;
pub(crate) mod python_frame;
mod range_meaning;
mod range_syntax;
mod replay_names;
mod rows;
mod scope_builder;
mod scope_query;
mod scope_tree;
mod serving_batch;
mod sites;
mod step_sources;
mod step_work;
mod steps;
mod timeline;
mod waits;

#[cfg(test)]
mod capture_tests;
#[cfg(test)]
mod real_profile_tests;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use args::Arguments;
use attribution::KernelOrigins;
use exclusions::Exclusions;
pub(crate) use first_calls::DriverTime;
pub use host_parts::{HostPart, HostParts, HostTime, LateTime, PartSum, SampledFunction};
pub(crate) use host_samples::name_of;
pub use host_samples::{Alignment, add_host_samples};
pub(crate) use host_time::GARBAGE_COLLECTION;
use layers::FsdpBrackets;
pub use model::{
    Activity, Arg, ArgValue, ArgsId, CpuOps, DeviceTimeline, Direction, ExcludedTime, ExcludedWork,
    Exclusion, Gap, GapCause, GapKey, Layer, LayerId, LayerPattern, LayerSource, Link, OpArgs,
    OpCall, OpCallId, OpName, OpNameId, PatternId, ReplayNames, ReplayedWork, Run, Scope, ScopeId,
    SetUp, Site, SiteId, SiteKernel, Step, StepId, StepOrigin, StepSource, Tensor, Timeline,
    Vocabulary, Wait, Window, WithoutOperator,
};
use profiler_overhead::HostOverhead;
pub(crate) use profiler_overhead::{launches_block, waited_share};
pub use pruning::UnneededRanges;
pub(crate) use python_frame::{PythonFrame, function_in, readable_name};
use range_meaning::{RangeClass, RangeInfo, RangeInfos, RangeRole, RangeTexts};
pub(crate) use range_syntax::EVALUATES;
use scope_tree::ScopeTree;
pub use serving_batch::{Requests, ServingBatch};
pub(crate) use sites::compare_kernels;
use step_work::Launches;
pub(crate) use step_work::recurs_regularly;
use steps::Steps;
pub use steps::{AnalysedGraph, StepTime};
use timeline::{DeviceTimes, TimelineInputs};
pub(crate) use timeline::{HOST_BUSY_NS, is_profilers_own};

/// Correlates all rows of a profile.
pub fn correlate(profile: Profile, vocabulary: &Vocabulary<'_>) -> Run {
    correlate_with(profile, vocabulary, Hints::default())
}

/// What a first look at a profile, or another profile, tells of its kernels.
#[derive(Debug, Default)]
pub struct Hints {
    /// Host time of searches for the best algorithm. The work launched there is left out of the analysis.
    pub searches: Vec<Span>,
    /// Operators and layers of kernels in graph replays.
    pub replay_names: Option<ReplayNames>,
    /// What functions of the host do.
    pub classes: Arc<Classes>,
}

/// Correlates all rows of a profile as [`correlate`] does, with knowledge from elsewhere.
pub fn correlate_with(mut profile: Profile, vocabulary: &Vocabulary<'_>, hints: Hints) -> Run {
    let Hints {
        searches,
        replay_names,
        classes,
    } = hints;
    host_samples::place_python_samples(&mut profile, &classes);
    let mut labels = Strings::default();
    let mut arguments = Arguments::default();
    let ((mut launches, work_calls), texts) = rayon::join(
        || {
            rayon::join(
                || launches::launches(&profile),
                || launches::work_calls(&profile),
            )
        },
        || {
            let distinct = RangeTexts::by_ranges(&profile);
            let texts =
                RangeInfos::read(&profile, &distinct, vocabulary, &mut arguments, &mut labels);
            arguments.read(&profile, &distinct.args, &mut labels);
            texts
        },
    );
    let graph_calls: Vec<Option<CallId>> = (profile.graphs.iter())
        .map(|graph| work_calls.get(graph.process, graph.correlation))
        .collect();
    let overhead_and_steps = |profile: &Profile, launches: &[Option<CallId>]| {
        let work = Launches {
            kernels: launches,
            graphs: &graph_calls,
        };
        rayon::join(
            || HostOverhead::find(profile, &texts, &arguments, launches),
            || Steps::read(profile, &texts, work),
        )
    };
    let ((brackets, marked, clock_offsets), (mut overhead, mut steps)) = rayon::join(
        || {
            let brackets = FsdpBrackets::read(&profile, &texts);
            let marked = MarkedRanges::read(&profile, &texts);
            let clock_offsets = clock_offset::find(&profile, &launches, &work_calls);
            (brackets, marked, clock_offsets)
        },
        || overhead_and_steps(&profile, &launches),
    );
    if !clock_offsets.is_empty() {
        clock_offset::correct(&mut profile, &clock_offsets);
        launches = launches::launches(&profile);
        (overhead, steps) = overhead_and_steps(&profile, &launches);
    }
    let work_launches = Launches {
        kernels: &launches,
        graphs: &graph_calls,
    };
    let exclusions = Exclusions::decide(&profile, &mut steps, work_launches, &searches);
    let analysed = steps.steps.iter().filter(|step| !step.warmup).count();
    // The timeline and the attribution do not depend on each other, so they run in parallel.
    let (times, origins) = rayon::join(
        || {
            let first_calls = first_calls::slow_first_calls(&profile, &texts, &steps);
            let inputs = TimelineInputs {
                launches: &launches,
                work_calls: &work_calls,
                data_loading: &marked.data_loading,
                compiling: &marked.compiling,
                first_calls: &first_calls,
                excluded: &exclusions.times,
                steps: &exclusions.steps,
                step_count: analysed,
                user_ranges: &marked.of_user,
            };
            timeline::times(&profile, &inputs, vocabulary.is_communication)
        },
        || {
            let grown =
                ScopeTree::grow(&profile, &texts, &arguments, &steps, &mut labels, &launches);
            KernelOrigins::find(&profile, &texts, grown, &brackets, &steps, &launches)
        },
    );
    let DeviceTimes {
        mut timeline,
        mut window,
        exposed,
        inside,
        loads,
        shared,
    } = times;
    let messages = arguments.messages(&profile);
    let KernelOrigins {
        mut links,
        mut placements,
        scopes,
        capture_scopes,
        op_calls,
        lines,
        mut layers,
        waits_in_layers,
    } = origins;
    replay_names::place_regions(&profile, &mut placements, &mut layers, &mut labels);
    if let Some(names) = &replay_names {
        names.place(&mut placements, &mut layers, &mut labels);
    }
    let inputs = sites::SiteInputs {
        profile: &profile,
        arguments: &arguments,
        labels: &labels,
        exposed: &exposed,
        inside: &inside,
        calls: &op_calls,
        op_names: &texts.op_names,
        lines: &lines,
        placements: &placements,
        messages: &messages,
        replay_names: replay_names.as_ref(),
    };
    let graph_steps = steps.of_graphs(&profile, &graph_calls);
    let analyzed_time = (window.span, window.excluded_spans());
    // Idle time and the work of the GPU do not depend on each other either.
    let (idle, work) = rayon::join(
        || {
            let limit = || match overhead {
                Some(overhead) => overhead.limit(&mut timeline, &profile),
                None => {
                    for gap in timeline.devices.iter_mut().flat_map(|d| &mut d.gaps) {
                        gap.reliable_ns = gap.span.ns();
                    }
                }
            };
            let waits = || {
                (analyzed_time.0).map_or_else(Vec::new, |span| {
                    waits::waits_in(&profile, span, &analyzed_time.1)
                })
            };
            let ((), waits) = rayon::join(limit, waits);
            waits::blame_for_late_launches(&mut timeline, &profile, &waits, &steps.steps);
            optimizer_pauses::are_late_launches(&mut timeline, &profile, &texts, |kernel| {
                let call = links.get(kernel.idx()).and_then(|link| link.op);
                let call = call.and_then(|call| op_calls.get(call.idx()));
                call.is_some_and(|call| call.direction == Direction::Update)
            });
            let in_graphs = idle_limits::limit_graphs(&mut timeline, &profile, &launches);
            if analysed == 1 {
                timeline.devices.iter_mut().for_each(forget_start);
            }
            let unreliable = profiler_overhead::is_unreliable(&timeline);
            let unreliable_idle = overhead.filter(|_| unreliable).map(HostOverhead::reason);
            // What no recording explains does not make the rest less reliable.
            let calls = (launches.as_slice(), &work_calls);
            idle_limits::limit_starts(&mut timeline, &profile, calls, &steps.steps);
            idle_limits::limit_to_unrecorded(&mut timeline, &profile, &launches, &steps.steps);
            let (host, (of_gpu, activities)) = rayon::join(
                || HostTime::of(&profile, &timeline, &loads, classes),
                || {
                    let of_gpu = steps::on_the_gpu(steps.steps, &profile, &links, &graph_steps);
                    let activities = gap_activity::activities(&profile, &timeline, &of_gpu);
                    (of_gpu, activities)
                },
            );
            (in_graphs, unreliable_idle, host, of_gpu, activities, waits)
        },
        || {
            let launched = launched(&profile, &launches, &inside);
            window.inside = launched.and_then(|span| window_range(&profile, &texts, span));
            (
                launched.and_then(|span| serving_batch::of_window(&profile, span)),
                {
                    let (mut sites, site_of) = sites::group(&inputs, &links);
                    shared.add_to(&mut sites, &profile, &site_of);
                    (sites, site_of)
                },
                layer_source::of_most_time(&inputs, &links, &layers),
            )
        },
    );
    let (in_graphs, unreliable_idle, host, gpu_steps, activities, waits) = idle;
    let (batch, (sites, site_of), layer_source) = work;
    let (batch, executions) = batch.map_or((None, 0), |(batch, n)| (Some(batch), n));
    let op_names = texts.op_names;
    for (link, site) in links.iter_mut().zip(site_of) {
        link.site = site;
    }
    let call = |process, correlation| work_calls.get(process, correlation);
    let copies = profile.copies.iter();
    let sets = profile.sets.iter();
    Run {
        copy_calls: copies.map(|c| call(c.process, c.correlation)).collect(),
        set_calls: sets.map(|s| call(s.process, s.correlation)).collect(),
        graph_calls,
        graph_steps,
        links,
        scopes,
        capture_scopes,
        op_calls,
        op_names,
        args: arguments.table,
        layers: layers.layers,
        patterns: layers.patterns,
        sites,
        steps: gpu_steps,
        step_origin: steps.origin,
        process_steps: steps.by_process,
        user_ranges: marked.of_user,
        window,
        timeline,
        host,
        unreliable_idle,
        recording_overhead: overhead.map(HostOverhead::what),
        unexplained_idle_ns: in_graphs.waiting_ns,
        graph_launch_idle_ns: in_graphs.launching_ns,
        activities,
        waits,
        waits_in_layers,
        layer_source,
        batch,
        executions,
        replay_names,
        profile,
    }
}

/// Does not rely on idle time before the first work of a single step, unless the host shows why: with steps
/// before it, the GPU may still have worked for those.
fn forget_start(device: &mut DeviceTimeline) {
    let start = device.span.start;
    if let Some(gap) = device
        .gaps
        .first_mut()
        .filter(|gap| gap.span.start == start)
        && matches!(gap.cause, GapCause::Waiting | GapCause::Unknown)
    {
        gap.reliable_ns = 0;
    }
}

/// Ranges that explain idle time, each kind in the order of the profile.
struct MarkedRanges {
    /// A data loader was asked for its next batch.
    data_loading: Vec<RangeId>,
    /// `torch.compile` worked.
    compiling: Vec<RangeId>,
    /// The closed ranges of the user that have a length.
    of_user: Vec<RangeId>,
}

impl MarkedRanges {
    fn read(profile: &Profile, texts: &RangeInfos) -> MarkedRanges {
        let ids = |such: fn(&RangeInfo) -> bool| -> Vec<RangeId> {
            texts.parts(profile, such).map(|(id, ..)| id).collect()
        };
        let other = |meaning: &RangeInfo| matches!(meaning.what, RangeClass::Other { .. });
        let of_user = texts.parts(profile, other).filter(|(_, range, meaning)| {
            range.span.end < i64::MAX
                && range.span.ns() > 0
                && range.kind != RangeKind::Mark
                && texts.role(range, meaning) == RangeRole::User
        });
        MarkedRanges {
            data_loading: ids(|meaning| matches!(meaning.what, RangeClass::DataLoading)),
            compiling: ids(|meaning| matches!(meaning.what, RangeClass::Compiling)),
            of_user: of_user.map(|(id, ..)| id).collect(),
        }
    }
}

/// From the first to the last launch of the analyzed kernels.
fn launched(profile: &Profile, launches: &[Option<CallId>], inside: &[bool]) -> Option<Span> {
    let analyzed = launches.iter().zip(inside).filter(|(_, inside)| **inside);
    let calls = analyzed.filter_map(|(call, _)| profile.call((*call)?));
    calls.map(|call| call.span).reduce(Span::around)
}

/// The shortest range of the user around the launches of all analyzed kernels.
fn window_range(profile: &Profile, texts: &RangeInfos, launched: Span) -> Option<String> {
    let other = |meaning: &RangeInfo| matches!(meaning.what, RangeClass::Other { .. });
    let around = texts.parts(profile, other).filter(|(_, range, meaning)| {
        range.span.start <= launched.start
            && range.span.end >= launched.end
            && texts.role(range, meaning) == RangeRole::User
    });
    let (_, range, _) = around.min_by_key(|(_, range, _)| range.span.ns())?;
    Some(profile.text(range.text).to_owned())
}
