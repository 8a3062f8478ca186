//! Facts of a built profile.

use super::{Answer, FactTable, Lookup as _, MemberKind};
use crate::correlate::testing::ProfileBuilder;
use crate::cost::estimate_costs;

/// These facts of each member of a kind.
pub(super) fn answers<const N: usize>(
    profile: ProfileBuilder,
    kind: MemberKind,
    names: [&str; N],
) -> Vec<[Answer; N]> {
    let costed = estimate_costs(profile.run(), None);
    let table = FactTable::new(&costed);
    let views = table
        .members(kind)
        .into_iter()
        .map(|member| table.view(member));
    views.map(|view| names.map(|name| view.get(name))).collect()
}

/// A fact of the run.
pub(super) fn of_run(profile: ProfileBuilder, name: &str) -> Answer {
    let [answer] = answers(profile, MemberKind::Run, [name]).remove(0);
    answer
}
