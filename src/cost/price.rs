//! Prices every site of a run: the station between `correlate` and the fact table.

use super::Costed;
use crate::correlate::Run;
use crate::gpu::Choice;

/// Costs, decodes and rooflines every site of `run` on `gpu`.
pub fn price(run: Run, gpu: Option<Choice>) -> Costed {
    let _ = (&run, &gpu);
    unimplemented!()
}
