//! Correlates the rows of a profile: the launch of each kernel, the ranges around that launch, and the
//! operator call with its arguments, layer, direction and step; also the timeline of each GPU.

use crate::profile::{CallId, Profile, RangeId, Strings};

pub(crate) mod args;
mod attribution;
mod attribution_totals;
mod fwd_bwd_pairs;
mod launches;
mod layers;
pub(crate) mod literal;
mod model;
mod op_calls;
mod profiler_overhead;
mod pruning;
pub(crate) mod python_frame;
mod range_meaning;
mod range_syntax;
mod scope_builder;
mod scope_query;
mod scope_tree;
mod sites;
mod steps;
mod timeline;

#[cfg(test)]
mod real_profile_tests;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use args::Arguments;
use attribution::KernelOrigins;
use layers::FsdpBrackets;
pub use model::{
    Arg, ArgValue, ArgsId, AttributionTotals, DeviceTimeline, Direction, Gap, GapCause, Layer,
    LayerId, LayerPattern, LayerSource, Link, OpArgs, OpCall, OpCallId, OpName, OpNameId,
    PatternId, Run, Scope, ScopeId, SetUp, Site, SiteId, SiteKernel, Step, StepId, Tensor,
    Timeline, Vocabulary, Window, WithoutOperator,
};
pub(crate) use profiler_overhead::waited_share;
pub use pruning::UnneededRanges;
use range_meaning::{RangeClass, RangeInfo, RangeInfos, RangeTexts};
use scope_tree::ScopeTree;
pub use steps::StepTime;
use steps::Steps;
pub(crate) use timeline::is_profilers_own;
use timeline::{DeviceTimes, TimelineInputs};

/// Correlates all rows of a profile.
pub fn correlate(profile: Profile, vocabulary: &Vocabulary<'_>) -> Run {
    let mut labels = Strings::default();
    let mut arguments = Arguments::default();
    let (launches, texts) = rayon::join(
        || launches::launches(&profile),
        || {
            let said = RangeTexts::by_ranges(&profile);
            let texts = RangeInfos::read(&profile, &said, vocabulary, &mut arguments, &mut labels);
            arguments.read(&profile, &said.args, &mut labels);
            texts
        },
    );
    let ((brackets, unreliable_idle), steps) = rayon::join(
        || {
            let brackets = FsdpBrackets::read(&profile, &texts);
            let unreliable_idle =
                profiler_overhead::reason(&profile, &texts, &arguments, &launches);
            (brackets, unreliable_idle)
        },
        || Steps::read(&profile, &texts),
    );
    // The timeline and the attribution do not depend on each other, so they run in parallel.
    let (times, origins) = rayon::join(
        || times(&profile, &texts, &launches, &steps, vocabulary),
        || {
            let grown =
                ScopeTree::grow(&profile, &texts, &arguments, &steps, &mut labels, &launches);
            KernelOrigins::find(&profile, &texts, grown, &brackets, &steps, &launches)
        },
    );
    let op_names = texts.op_names;
    drop((launches, brackets));
    let messages = arguments.messages(&profile);
    let KernelOrigins {
        mut links,
        settings,
        scopes,
        op_calls,
        lines,
        layers,
    } = origins;
    let process_steps = steps.by_process;
    let steps = steps::on_the_gpu(steps.steps, &profile, &links);
    let members = sites::SiteInputs {
        profile: &profile,
        arguments: &arguments,
        labels: &labels,
        times: &times,
        calls: &op_calls,
        op_names: &op_names,
        lines: &lines,
        settings: &settings,
        messages: &messages,
    };
    let ((sites, site_of), (sums, layer_source)) = rayon::join(
        || sites::group(&members, &links),
        || {
            let sums = attribution_totals::sums(&members, &links);
            (
                sums,
                attribution_totals::layer_source(&members, &links, &layers),
            )
        },
    );
    for (link, site) in links.iter_mut().zip(site_of) {
        link.site = site;
    }
    Run {
        links,
        scopes,
        op_calls,
        op_names,
        args: arguments.table,
        layers: layers.layers,
        patterns: layers.patterns,
        sites,
        steps,
        process_steps,
        window: times.window,
        timeline: times.timeline,
        attribution: sums,
        unreliable_idle,
        layer_source,
        profile,
    }
}

fn times(
    profile: &Profile,
    texts: &RangeInfos,
    launches: &[Option<CallId>],
    steps: &Steps,
    vocabulary: &Vocabulary<'_>,
) -> DeviceTimes {
    let loads = |meaning: &RangeInfo| matches!(meaning.what, RangeClass::DataLoading);
    let data_loading = texts.ranges(profile, loads).map(|(id, ..)| id);
    let data_loading: Vec<RangeId> = data_loading.collect();
    let warm = |call: &Option<CallId>| {
        call.and_then(|c| profile.calls.get(c.idx()))
            .is_none_or(|c| steps.is_warmup(c.span.start))
    };
    // If the whole capture is declared warm-up, analyse it anyway.
    let all_warmup = launches.iter().all(warm);
    let hints = TimelineInputs {
        launches,
        data_loading: &data_loading,
        warmup: if all_warmup { &[] } else { &steps.warmup },
    };
    timeline::times(profile, &hints, vocabulary.is_communication)
}
