//! The operators of the parameter update.

use std::sync::Arc;

use super::enclosing_ops::plain_name;
use super::framework_signs::OPTIMIZER_STEP;
use crate::correlate::{Direction, Site};
use crate::cost::{Costed, Family};

/// The names of the operators that update parameters; of kernels without an operator those of
/// `foreach` optimizers, which their names tell. Where optimizers have ranges, `foreach` operators outside
/// are those of other work on lists of tensors, such as clipping gradients.
pub(super) fn of(costed: &Costed) -> Arc<[Arc<str>]> {
    let run = &costed.run;
    let in_step = |site: &Site| {
        let layer = run.layer_of(site);
        layer.is_some_and(|layer| layer.name.contains(OPTIMIZER_STEP))
    };
    let updates = || (run.sites.iter()).filter(|s| s.direction == Direction::Update);
    let have_ranges = updates().any(in_step);
    let mut names: Vec<String> = updates()
        .filter_map(|site| Some((site, plain_name(&site.op.as_ref()?.name))))
        .filter(|(site, name)| !have_ranges || !is_list_math(name) || in_step(site))
        .map(|(_, name)| name.to_owned())
        .chain(foreach_kernels(costed))
        .collect();
    names.sort_unstable();
    names.dedup();
    names.truncate(1024);
    names.into_iter().map(Arc::from).collect()
}

/// Whether it calculates with lists of tensors; norms and fills are no part of an optimizer's step anyway.
fn is_list_math(name: &str) -> bool {
    name.starts_with("foreach_") && !matches!(name, "foreach_norm" | "foreach_zero")
}

/// `foreach_addcdiv` for each kernel `foreach: addcdiv` without an operator.
fn foreach_kernels(costed: &Costed) -> impl Iterator<Item = String> {
    let sites = costed.run.sites.iter().zip(&costed.kernels);
    let unknown = sites.filter(|(site, _)| site.op.is_none());
    unknown
        .flat_map(|(_, decoded)| decoded)
        .filter_map(|kernel| {
            let op = kernel.label.strip_prefix("foreach: ")?;
            (kernel.family == Family::Optimizer).then(|| format!("foreach_{op}"))
        })
}

#[cfg(test)]
mod tests {
    use crate::correlate::testing::ProfileBuilder;

    /// The operators of the update where gradients are scaled outside this range.
    fn names(step: &str) -> Vec<String> {
        let mut b = ProfileBuilder::new();
        b.range("aten::_foreach_mul_, sizes = [[8]]", 0, 50);
        b.launch(10);
        b.range(step, 100, 200);
        b.range("aten::_foreach_add_, sizes = [[8]]", 110, 150);
        b.launch(120);
        let costed = crate::cost::estimate_costs(b.run(), None);
        super::of(&costed).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn clipping_outside_the_range_of_an_optimizer_is_no_update() {
        assert_eq!(names("Optimizer.step#SGD.step"), ["foreach_add"]);
        assert_eq!(names("my step"), ["foreach_add", "foreach_mul"]);
    }
}
