//! Where float64 enters a run that otherwise has none.

use super::fact::{Answer, FactEntry, facts};
use super::site::SiteScope;
use super::table::{FactTable, Runs};
use crate::base::DType;
use crate::correlate::{OpArgs, SiteId};
use crate::cost::Family;

/// Whether an operator has an operand of float64. A Python number is recorded as a tensor of float64
/// without dimensions, which makes the result of others no wider.
fn has_fp64(args: &OpArgs) -> bool {
    let numbers_only = args.tensors().all(|tensor| tensor.shape.is_empty());
    args.tensors().any(|tensor| {
        tensor.dtype == Some(DType::Fp64) && (numbers_only || !tensor.shape.is_empty())
    })
}

/// The first site in time that computes in float64.
fn first_fp64<'a>(t: &'a FactTable<'a>) -> Option<SiteScope<'a>> {
    let sites = t.costed.run.sites.iter().zip(&t.costed.sites).enumerate();
    let of_fp64 = sites.filter_map(|(row, (site, cost))| {
        let scope = SiteScope::new(t, SiteId::new(row))?;
        let kernel = || scope.decoded().iter().any(|d| d.dtype == Some(DType::Fp64));
        let sends = cost.family == Family::Communication;
        (!sends && site.op.is_some() && (scope.args().is_some_and(has_fp64) || kernel()))
            .then_some((site.first, scope))
    });
    of_fp64
        .min_by_key(|(first, _)| *first)
        .map(|(_, scope)| scope)
}

pub(super) const ENTRIES: &[FactEntry<Runs>] = facts! {
    /// The first operator in time that computes in float64, with the shapes of its tensors; silent where no
    /// operator is known to
    "run.first_fp64_op": STR => |t| {
        let first = first_fp64(t).and_then(|s| {
            let op = s.site.op.as_ref()?.display();
            Some(match s.shapes() {
                Some(shapes) if !shapes.is_empty() => format!("{op} {shapes}"),
                _ => op.to_string(),
            })
        });
        Answer::or_silent(first)
    },
    /// Where `run.first_fp64_op` is: the line of the program, else its layer
    "run.first_fp64_place": STR needs LAYERS => |t| {
        first_fp64(t).and_then(|s| {
            let layer = t.costed.run.layer_of(s.site);
            let line = s.site.source_line.clone();
            line.or_else(|| Some(layer?.name.clone()))
        })
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::testing::ProfileBuilder;
    use crate::correlate::{Arg, ArgValue, Tensor};
    use crate::facts::Value;
    use crate::facts::testing::of_run;

    fn first(kernels: &[(&str, &str)]) -> Answer {
        let mut b = ProfileBuilder::new();
        for (row, (op, kernel)) in kernels.iter().enumerate() {
            let at = 1000 * row as i64;
            b.range(
                &format!("aten::{op}, seq = {row}, sizes = [[4, 8]]"),
                at,
                at + 100,
            );
            let launched = b.launch(at + 10);
            b.profile.kernels[launched].name = b.profile.strings.intern(kernel);
        }
        of_run(b, "run.first_fp64_op")
    }

    #[test]
    fn python_numbers_are_no_float64() {
        let args = |tensors: &[(&[u64], DType)]| OpArgs {
            items: (tensors.iter())
                .map(|(shape, dtype)| Arg {
                    name: None,
                    value: ArgValue::Tensor(Tensor {
                        shape: shape.to_vec(),
                        dtype: Some(*dtype),
                        strides: None,
                    }),
                })
                .collect(),
        };
        assert!(!has_fp64(&args(&[
            (&[14, 1], DType::Int64),
            (&[], DType::Fp64)
        ])));
        assert!(has_fp64(&args(&[
            (&[64, 2], DType::Fp64),
            (&[], DType::Fp64)
        ])));
        assert!(has_fp64(&args(&[(&[], DType::Fp64)])));
        assert!(!has_fp64(&args(&[(&[64, 2], DType::Fp32)])));
    }

    #[test]
    fn the_first_operator_on_float64_is_named() {
        let mm = |letter| format!("volta_{letter}gemm_64x64_nn");
        let (single, double) = (mm('s'), mm('d'));
        let named = first(&[("add", &single), ("mm", &double), ("mul", &double)]);
        assert_eq!(named, Answer::Value(Value::Str("aten::mm [4, 8]".into())));
        assert_eq!(first(&[("mm", &single)]), Answer::DoesNotApply);
    }
}
