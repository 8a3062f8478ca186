use super::*;
use crate::correlate::model::Run;
use crate::correlate::testing::ProfileBuilder;

const MS: i64 = 1_000_000;

/// The last gap of the only device, and the texts of what ran in it.
fn last(run: &Run) -> (Gap, Option<&str>, Option<&str>) {
    let device = &run.timeline.devices[0];
    let at = device.gaps.len() - 1;
    let activity = run.activities.get(&(0, at)).copied().unwrap_or_default();
    let text = |id: Option<StrId>| id.map(|id| run.profile.text(id));
    (
        device.gaps[at],
        text(activity.op),
        text(activity.short_calls),
    )
}

fn step_with(after_the_work: &str) -> Run {
    let mut b = ProfileBuilder::new();
    b.range("ProfilerStep#1", 0, 20 * MS);
    b.launch(MS);
    if !after_the_work.is_empty() {
        b.range(after_the_work, 2 * MS, 19 * MS);
    }
    b.run()
}

#[test]
fn what_runs_after_the_last_work_of_a_step_is_named() {
    let run = step_with("postprocess");
    let (gap, op, _) = last(&run);
    assert!(run.timeline.devices[0].is_at_end(&gap));
    assert_eq!((gap.cause, op), (GapCause::HostBusy, Some("postprocess")));
    assert_eq!(gap.reliable_ns, gap.span.ns());

    let run = step_with("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__");
    assert_eq!(last(&run).0.cause, GapCause::DataLoading);

    let run = step_with("");
    let (gap, op, _) = last(&run);
    assert!(run.timeline.devices[0].is_at_end(&gap));
    assert_eq!((gap.cause, op), (GapCause::HostBusy, None));
}

#[test]
fn many_short_calls_are_named_beside_their_caller() {
    let calls = |caller: bool, ns: i64| {
        let mut b = ProfileBuilder::new();
        b.launch(0);
        if caller {
            b.range("preprocess", MS, 99 * MS);
        }
        for at in 1..99 {
            b.range("resize", at * MS, at * MS + ns);
        }
        b.launch(100 * MS);
        b.run()
    };
    let run = calls(true, 900_000);
    let (_, op, short) = last(&run);
    assert_eq!((op, short), (Some("preprocess"), Some("resize")));
    let run = calls(false, 900_000);
    let (_, op, short) = last(&run);
    assert_eq!((op, short), (Some("resize"), None));
    // Less than half of the gap.
    let run = calls(true, 400_000);
    let (_, op, short) = last(&run);
    assert_eq!((op, short), (Some("preprocess"), None));
}
