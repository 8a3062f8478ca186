//! Estimates the cost of every site of a run: the step between `correlate` and the fact table.

use std::sync::{Arc, OnceLock};

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use super::kernel_name::{DecodedName, Family, TensorCore, decode};
use super::model::{Costed, Coverage, Dims, OpCost, SiteCost, UnknownCost};
use super::ops;
use super::roofline::roofline;
use super::user::{UserCost, UserCosts};
use crate::base::DType;
use crate::correlate::{
    Arg, ArgValue, Direction, OpArgs, OpCallId, OpName, Run, Site, SiteId, SiteKernel,
};
use crate::gpu::{Choice, Gpu};
use crate::profile::StrId;

/// Decodes every kernel name, estimates the cost of every site and places it on the roofline of `gpu`.
pub fn estimate_costs(run: Run, gpu: Option<Choice>) -> Costed {
    estimate_costs_with(run, gpu, &UserCosts::default())
}

/// Like [`estimate_costs`], with user-defined costs, which take precedence over the built-in ones.
pub fn estimate_costs_with(run: Run, gpu: Option<Choice>, user: &UserCosts) -> Costed {
    let names = decode_names(&run);
    let kernels: Vec<Vec<Arc<DecodedName>>> = run
        .sites
        .iter()
        .map(|site| {
            site.kernels
                .iter()
                .filter_map(|k| names.get(&k.name).cloned())
                .collect()
        })
        .collect();
    let partners: OnceLock<Partners> = OnceLock::new();
    let sites: Vec<SiteCost> = run
        .sites
        .par_iter()
        .enumerate()
        .zip(&kernels)
        .map(|((index, site), decoded)| {
            let gpu = gpu.as_ref().map(|g| &g.gpu);
            let partners = || {
                let all = partners.get_or_init(|| Partners::of(&run));
                all.of_site(&run, SiteId::new(index))
            };
            site_cost(&run, site, &partners, decoded, gpu, user)
        })
        .collect();
    let coverage = coverage(&run, &sites);
    let proven_cc = names
        .values()
        .filter_map(|d| d.arch)
        .filter(|_| {
            gpu.as_ref()
                .is_none_or(|g| g.gpu.compute_capability.is_some())
        })
        .max();
    Costed {
        run,
        gpu,
        sites,
        kernels,
        coverage,
        proven_cc,
    }
}

/// The decoded form of each distinct kernel name.
fn decode_names(run: &Run) -> FxHashMap<StrId, Arc<DecodedName>> {
    let mut distinct: Vec<StrId> = run
        .sites
        .iter()
        .flat_map(|s| s.kernels.iter().map(|k| k.name))
        .collect();
    distinct.sort_unstable();
    distinct.dedup();
    distinct
        .into_par_iter()
        .map(|id| (id, Arc::new(decode(run.profile.text(id)))))
        .collect()
}

fn site_cost(
    run: &Run,
    site: &Site,
    partners: &PartnersOf<'_>,
    decoded: &[Arc<DecodedName>],
    gpu: Option<&Gpu>,
    user: &UserCosts,
) -> SiteCost {
    let args = run.arguments_of(site);
    let own =
        (site.op.as_ref()).and_then(|op| user.find(op, site.direction, site.args_from_forward));
    let op_family = match own {
        Some(own) => Some(own.family),
        None => site.op.as_ref().and_then(ops::family),
    };
    let main = MainKernels::of(site, decoded, op_family);
    let in_group = args.filter(|_| op_family == Some(Family::Communication));
    let in_group = in_group.and_then(|args| with_group_size(run, args));
    let mut cost = cost_of(site, in_group.as_ref().or(args), partners, main.stored, own);
    let fills = || decoded.iter().any(|kernel| kernel.family == Family::Fill);
    if own.is_none()
        && site.direction == Direction::Bprop
        && let (Ok(cost), Some(op), Some(args)) = (&mut cost, &site.op, args)
        && cost.family == Family::Loss
        && fills()
    {
        ops::add_zero_fill(cost, op, args, site.args_from_forward, main.stored);
    }
    if own.is_none()
        && cost == Err(UnknownCost::DataDependent)
        && let Some(served) = served_attention(run, site, args, decoded)
    {
        cost = Ok(served);
    }
    if own.is_none()
        && cost == Err(UnknownCost::DataDependent)
        && let Some(experts) = generated_experts(run, site, args, decoded)
    {
        cost = Ok(experts);
    }
    if own.is_none()
        && let Some(sent) = message_cost(run, site, &main, &cost)
    {
        cost = Ok(sent);
    }
    let family = match &cost {
        Ok(cost) if cost.family != Family::Unknown => cost.family,
        _ => op_family
            .filter(|f| *f != Family::Unknown)
            .unwrap_or(main.family),
    };
    let arg_dtype = args.and_then(float_dtype);
    let half = |dtype: &DType| matches!(dtype, DType::Fp16 | DType::Bf16);
    let math_dtype = match (main.dtype, arg_dtype, main.tensor_core) {
        // The names of cuDNN's attention kernels hold `f16` for both 16-bit types.
        (Some(named), Some(arg), _)
            if family == Family::Attention && half(&named) && half(&arg) =>
        {
            Some(arg)
        }
        // FFT convolutions multiply complex numbers, but the operator's work is on real ones.
        (Some(DType::Complex64 | DType::Complex128), Some(arg), _) => Some(arg),
        // Some names hold the type of the sums only: `gemmSN_TN_kernel<float, ...>` multiplies bf16.
        (Some(DType::Fp32), Some(arg), _)
            if family == Family::Gemm && args.is_some_and(has_half_operands) =>
        {
            Some(arg)
        }
        (Some(named), _, _) => Some(named),
        // fp32 operands are multiplied as TF32 on Tensor Cores.
        (None, Some(DType::Fp32), TensorCore::Yes) if family.is_math() => Some(DType::Tf32),
        (None, arg, _) => arg,
    };
    // A user-defined operator may legitimately run many matrix products.
    let autotuning = own.is_none() && cost.as_ref().is_ok_and(|c| is_search(site, &main, c));
    let calls = f64::from(site.calls);
    // Kernels that only move data may name an element size but no type. They have no FLOPs, so the type
    // affects no peak rate.
    let sized = math_dtype.or_else(|| main.stored.filter(|_| moves_only(&cost)));
    let line = match (&cost, gpu, sized) {
        (Ok(cost), Some(gpu), Some(dtype)) if !autotuning => Some(roofline(
            gpu,
            cost,
            dtype,
            main.tensor_core,
            if main.half_accumulation {
                gpu.half_accumulation_gain()
            } else {
                1.0
            },
            is_causal(cost, decoded),
        )),
        _ => None,
    };
    let known = cost.as_ref().ok().filter(|_| !autotuning);
    SiteCost {
        family,
        math_dtype,
        tensor_core: if family.is_math() {
            main.tensor_core
        } else {
            TensorCore::Unknown
        },
        flops: known.map(|c| c.flops() as f64 * calls),
        bytes: known
            .filter(|c| c.bytes_known)
            .map(|c| c.bytes() as f64 * calls),
        ideal_ns: line.and_then(|l| l.ideal_ns).map(|ns| ns * calls),
        best_ideal_ns: line.map(|l| l.best_ideal_ns * calls),
        reachable_ns: line.map(|l| l.reachable_ns * calls),
        best_dtype: line.and_then(|l| l.best_dtype),
        bound: line.map(|l| l.bound),
        autotuning,
        cost_file: own.map(|own| Arc::clone(&own.file)),
        least_bytes: least_bytes(run, site).map(|bytes| bytes as f64 * calls),
        cost,
    }
}

/// Bytes that one call of replayed work reads at least.
fn least_bytes(run: &Run, site: &Site) -> Option<u64> {
    let names = run.replay_names.as_ref()?;
    let work = names.work.get(site.replayed? as usize)?;
    let cached = || work.bytes_per_key?.checked_mul(run.batch?.keys()?);
    work.weight_bytes.or_else(cached)
}

/// The arguments of a collective with the number of ranks of every process group, where that is known.
fn with_group_size(run: &Run, args: &OpArgs) -> Option<OpArgs> {
    let mut processes = run.profile.processes.iter();
    let size = processes.next()?.group_size?;
    if processes.any(|process| process.group_size != Some(size)) {
        return None;
    }
    let mut args = args.clone();
    args.items.push(Arg {
        name: Some(ops::EVERY_GROUP_SIZE.to_owned()),
        value: ArgValue::Int(i64::from(size)),
    });
    Some(args)
}

fn cost_of(
    site: &Site,
    args: Option<&OpArgs>,
    partners: &PartnersOf<'_>,
    stored: Option<DType>,
    own: Option<&UserCost>,
) -> Result<OpCost, UnknownCost> {
    let op = site.op.as_ref().ok_or(UnknownCost::NoOperator)?;
    let args = args.ok_or(UnknownCost::NoShapes)?;
    if let Some(own) = own {
        return own.cost(args, site.direction, stored);
    }
    let from_forward = site.args_from_forward;
    ops::cost_of_call(op, args, site.direction, from_forward, stored, partners)
}

/// The cost of attention over cached keys, if the range of the engine tells their lengths and the names of
/// the kernels tell that all of them are read.
fn served_attention(
    run: &Run,
    site: &Site,
    args: Option<&OpArgs>,
    decoded: &[Arc<DecodedName>],
) -> Option<OpCost> {
    let batch = run.batch?;
    let kernels = || {
        let attention = |name: &&Arc<DecodedName>| name.family == Family::Attention && !name.helper;
        decoded.iter().filter(attention)
    };
    let all = |holds: fn(&DecodedName) -> bool| kernels().all(|name| holds(name));
    let cache = kernels().find_map(|name| dtype_in_memory(name))?;
    if !all(|name| name.windowed == Some(false)) {
        return None;
    }
    // One new token of each request sees all of its keys, with and without a mask.
    let decodes = batch.tokens() == Some(batch.sequences());
    let pairs = if decodes || all(|name| name.causal == Some(true)) {
        batch.causal_pairs()?
    } else if all(|name| name.causal == Some(false)) {
        batch.pairs()?
    } else {
        return None;
    };
    let lengths = ops::CachedLengths {
        tokens: batch.tokens()?,
        keys: batch.keys()?,
        pairs,
        cache,
    };
    ops::cost_with_lengths(site.op.as_ref()?, args?, lengths).ok()
}

/// The cost of experts, if the kernels that multiply with them tell their sizes.
fn generated_experts(
    run: &Run,
    site: &Site,
    args: Option<&OpArgs>,
    decoded: &[Arc<DecodedName>],
) -> Option<OpCost> {
    let products = (site.kernels.iter().zip(decoded))
        .filter(|(_, name)| name.family == Family::Gemm && !name.helper);
    let launched = products.map(|(kernel, name)| {
        let config = run.profile.configs.get(kernel.config.idx())?;
        Some(ops::Launched {
            name: &name.base,
            tile: name.tile?,
            grid: config.grid,
        })
    });
    let launched: Vec<_> = launched.collect::<Option<_>>()?;
    ops::cost_of_experts(site.op.as_ref()?, args?, &launched).ok()
}

/// Finds the partners of one site. Few sites need them, and finding them visits every call.
type PartnersOf<'r> = dyn Fn() -> Vec<(&'r OpName, &'r OpArgs)> + 'r;

/// The cost of a collective from the message size in its kernels, if the operator is unknown or records
/// less.
fn message_cost(
    run: &Run,
    site: &Site,
    main: &MainKernels,
    cost: &Result<OpCost, UnknownCost>,
) -> Option<OpCost> {
    let sends = main.family == Family::Communication;
    let args = run.arguments(site.message.filter(|_| sends)?)?;
    if matches!(cost, Ok(cost) if cost.family != Family::Communication) {
        return None;
    }
    let name = match args.get(usize::MAX, "Collective name") {
        Some(ArgValue::Str(name)) => name.clone(),
        _ => String::new(),
    };
    // In this namespace, every operator costs its message.
    let op = OpName {
        module: "nccl".to_owned(),
        name,
    };
    ops::cost(&op, args, site.direction, false, main.stored).ok()
}

/// The sites of the other direction: the backward sites of a forward site, or the forward sites of a
/// backward site.
#[derive(Debug, Default)]
struct Partners(Vec<Vec<SiteId>>);

impl Partners {
    /// Maximum number of partners with different arguments that are kept per site. With so many, the
    /// calls of a site have little in common, and those kept already show it.
    const MOST: usize = 16;

    fn of(run: &Run) -> Partners {
        let mut site_of: Vec<Option<SiteId>> = vec![None; run.op_calls.len()];
        for link in &run.links {
            if let Some(slot) = link.op.and_then(|op| site_of.get_mut(op.idx())) {
                *slot = link.site;
            }
        }
        let site = |call: OpCallId| site_of.get(call.idx()).copied().flatten();
        let mut partners = Partners(vec![Vec::new(); run.sites.len()]);
        for (id, call) in (0..).map(OpCallId).zip(&run.op_calls) {
            if let (Some(backward), Some(forward)) = (site(id), call.forward.and_then(site)) {
                partners.add(backward, forward);
                partners.add(forward, backward);
            }
        }
        partners
    }

    fn add(&mut self, site: SiteId, partner: SiteId) {
        if let Some(known) = self.0.get_mut(site.idx())
            && known.len() < Self::MOST
            && !known.contains(&partner)
        {
            known.push(partner);
        }
    }

    fn of_site<'r>(&self, run: &'r Run, site: SiteId) -> Vec<(&'r OpName, &'r OpArgs)> {
        let partners = self.0.get(site.idx()).map_or(&[][..], Vec::as_slice);
        partners
            .iter()
            .filter_map(|id| run.site(*id))
            .filter_map(|site| Some((site.op.as_ref()?, run.arguments(site.args?)?)))
            .collect()
    }
}

fn moves_only(cost: &Result<OpCost, UnknownCost>) -> bool {
    cost.as_ref().is_ok_and(|cost| cost.flops() == 0)
}

/// The first floating-point element type among the tensors.
fn float_dtype(args: &OpArgs) -> Option<DType> {
    args.tensors()
        .filter_map(|t| t.dtype)
        .find(|d| d.is_float())
}

/// Whether all floating-point tensors of an operator are of one 16-bit type.
fn has_half_operands(args: &OpArgs) -> bool {
    let mut types = args
        .tensors()
        .filter_map(|t| t.dtype)
        .filter(|d| d.is_float());
    let first = types.next();
    matches!(first, Some(DType::Fp16 | DType::Bf16)) && types.all(|dtype| Some(dtype) == first)
}

/// Common properties of the kernels that do the main work of a site.
struct MainKernels {
    /// Family of the kernel that takes the most time.
    family: Family,
    dtype: Option<DType>,
    /// Type of the elements in memory, or any type of the same size if the name has only the size.
    stored: Option<DType>,
    tensor_core: TensorCore,
    /// Whether all of them add up in fp16.
    half_accumulation: bool,
    /// Executions of math kernels.
    count: u64,
    distinct: usize,
}

impl MainKernels {
    fn of(site: &Site, decoded: &[Arc<DecodedName>], op_family: Option<Family>) -> MainKernels {
        let rows = || site.kernels.iter().zip(decoded);
        let family = rows().find(|(_, d)| !d.helper).map_or_else(
            || rows().next().map_or(Family::Unknown, |(_, d)| d.family),
            |(_, d)| d.family,
        );
        let wants_math = op_family.unwrap_or(family).is_math();
        let mains: Vec<_> = rows()
            .filter(|(_, d)| !d.helper && (!wants_math || d.family.is_math()))
            .collect();
        // The dtype and unit of the largest main kernel; the unit is unknown if main kernels differ.
        let dtype = mains.iter().find_map(|(_, d)| d.dtype);
        let mut units = mains.iter().map(|(_, d)| d.tensor_core);
        let first = units.next().unwrap_or(TensorCore::Unknown);
        let tensor_core = if units.all(|u| u == first) {
            first
        } else {
            TensorCore::Unknown
        };
        MainKernels {
            family,
            dtype,
            stored: dtype.map_or_else(|| sized(&mains), |dtype| Some(in_memory(dtype))),
            tensor_core,
            half_accumulation: !mains.is_empty() && mains.iter().all(|(_, d)| d.half_accumulation),
            count: mains.iter().map(|(k, _)| u64::from(k.count)).sum(),
            distinct: mains.len(),
        }
    }
}

/// The element type in memory: TF32 math reads fp32 tensors.
fn in_memory(dtype: DType) -> DType {
    if dtype == DType::Tf32 {
        DType::Fp32
    } else {
        dtype
    }
}

/// The element type in memory of a kernel, if its name has one.
pub(crate) fn dtype_in_memory(kernel: &DecodedName) -> Option<DType> {
    let sized = || of_size(kernel.element_bytes?);
    kernel.dtype.map(in_memory).or_else(sized)
}

/// Any type of the size of the elements, for kernels whose name has the size only.
fn sized(mains: &[(&SiteKernel, &Arc<DecodedName>)]) -> Option<DType> {
    of_size(mains.iter().find_map(|(_, d)| d.element_bytes)?)
}

fn of_size(bytes: u32) -> Option<DType> {
    Some(match bytes {
        1 => DType::Uint8,
        2 => DType::Int16,
        4 => DType::Int32,
        8 => DType::Int64,
        16 => DType::Complex128,
        _ => return None,
    })
}

/// Whether one call ran more different math kernels than its work has parts, as in cuDNN's benchmark
/// mode, which tries every algorithm once.
fn is_search(site: &Site, main: &MainKernels, cost: &OpCost) -> bool {
    let roles = cost.roles.len() as u64;
    matches!(cost.family, Family::Gemm | Family::Conv)
        && site.direction != Direction::Update
        && main.distinct as u64 > roles + 1
        && main.count > (roles + 1) * u64::from(site.calls)
}

fn is_causal(cost: &OpCost, decoded: &[Arc<DecodedName>]) -> bool {
    let causal = |dims| matches!(dims, Dims::Attention(a) if a.causal == Some(true));
    cost.roles.iter().any(|r| causal(r.dims)) || decoded.iter().any(|d| d.causal == Some(true))
}

fn coverage(run: &Run, sites: &[SiteCost]) -> Coverage {
    let mut coverage = Coverage::default();
    for (site, cost) in run.sites.iter().zip(sites) {
        coverage.kernel_ns += site.time_ns;
        if site.op.is_some() {
            coverage.attributable_ns += site.time_ns;
        }
        // The candidates of a search are no work of the model: what they should take is not known.
        if cost.cost.is_ok() && !cost.autotuning {
            coverage.cost_known_ns += site.time_ns;
            if site.op.is_some() {
                coverage.attributable_cost_known_ns += site.time_ns;
            }
        }
    }
    coverage
}
