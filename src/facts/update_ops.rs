//! The operators of the parameter update.

use std::sync::Arc;

use super::chain::plain_name;
use crate::correlate::Direction;
use crate::cost::{Costed, Family};

/// The names of the operators that update parameters; of kernels without an operator those of
/// `foreach` optimizers, which their names tell.
pub(super) fn of(costed: &Costed) -> Arc<[Arc<str>]> {
    let sites = &costed.run.sites;
    let mut names: Vec<String> = sites
        .iter()
        .filter(|s| s.direction == Direction::Update)
        .filter_map(|s| s.op.as_ref())
        .map(|op| plain_name(&op.name).to_owned())
        .chain(foreach_kernels(costed))
        .collect();
    names.sort_unstable();
    names.dedup();
    names.truncate(1024);
    names.into_iter().map(Arc::from).collect()
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
