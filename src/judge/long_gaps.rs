//! Names the longest gaps of a finding, where they lie in different places.

use super::floors::FLOOR;
use super::grouping::FindingDraft;
use crate::base::{text, units};
use crate::facts::{LongGap, Totals};

/// The longest gaps as a sentence; `None` where fewer than two of [`FLOOR`] of the window lie in different places.
pub(super) fn sentence(draft: &FindingDraft, totals: &Totals) -> Option<String> {
    let gaps = draft.matches.iter().flat_map(|m| &m.affected.long_gaps);
    let shortest = FLOOR * totals.window_ns / totals.device_count();
    let named = longest(gaps.filter(|gap| gap.ns >= shortest).collect());
    (named.len() > 1).then(|| format!(" The longest gaps: {}.", text::list(&named)))
}

/// The longest gap in each place, longest first.
fn longest(mut gaps: Vec<&LongGap>) -> Vec<String> {
    gaps.sort_by(|a, b| b.ns.total_cmp(&a.ns).then_with(|| a.place.cmp(&b.place)));
    let kept = LongGap::in_each_place(gaps.into_iter().cloned());
    let named = kept.iter();
    named
        .map(|gap| format!("{} {}", units::ns(gap.ns), gap.place))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_is_named_once_with_its_longest_gap() {
        let gap = |ns: f64, place: &str| LongGap {
            ns,
            place: place.to_owned(),
        };
        let gaps = [
            gap(6.18e6, "before `b`"),
            gap(5e7, "before `a`"),
            gap(4e7, "before `a`"),
            gap(4.56e6, "in `c`"),
            gap(3e6, "in `d`"),
            gap(2e6, "in `e`"),
        ];
        assert_eq!(
            longest(gaps.iter().collect()),
            [
                "50.0 ms before `a`",
                "6.18 ms before `b`",
                "4.56 ms in `c`",
                "3.00 ms in `d`"
            ]
        );
    }
}
