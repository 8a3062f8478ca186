//! A run and its findings, built by hand, for tests of the report.

use pyprof_advise::base::DType;
use pyprof_advise::correlate::{
    Arg, ArgValue, ArgsId, DeviceTimeline, Direction, Layer, LayerId, LayerPattern, LayerSource,
    OpArgs, OpName, PatternId, Run, Site, SiteId, SiteKernel, Tensor, Timeline, Window,
};
use pyprof_advise::cost::{
    Bound, Costed, Coverage, DecodedName, Family, FlopsClass, OpCost, SiteCost, TensorCore,
    UnknownCost,
};
use pyprof_advise::facts::{FactTable, Member};
use pyprof_advise::gpu::{Choice, Gpu, SelectedBy, Vendor, calibration};
use pyprof_advise::judge::{
    Confidence, Finding, MissingFact, RuleResults, Saving, SavingKind, Severity,
};
use pyprof_advise::profile::{ConfigId, Device, DeviceId, KernelId, Profile, Span};
use pyprof_advise::report::{Options, Report, markdown};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) const MS: f64 = 1e6;

pub(crate) fn gpu() -> Gpu {
    Gpu {
        id: "v100-sxm2-16gb".into(),
        name: "V100 SXM2 16GB".into(),
        vendor: Vendor::Nvidia,
        architecture: "Volta".into(),
        compute_capability: Some((7, 0)),
        sm_count: 80,
        flops: BTreeMap::from([(DType::Fp32, 15.7e12)]),
        tensor_flops: BTreeMap::from([(DType::Fp16, 125e12)]),
        tensor_align: BTreeMap::from([(DType::Fp16, 8)]),
        bandwidth: 900e9,
        memory_bytes: None,
        l2_bytes: None,
        shared_per_sm: None,
        registers_per_sm: None,
        max_threads_per_sm: None,
        max_blocks_per_sm: None,
        warp_schedulers: None,
        pcie_gen: None,
        nvlink: None,
        reachable: calibration::of_architecture("Volta")
            .unwrap()
            .reachable("")
            .unwrap(),
        sources: vec![],
    }
}

pub(crate) fn decoded(base: &str, family: Family) -> DecodedName {
    DecodedName {
        base: base.into(),
        label: base.into(),
        family,
        tensor_core: TensorCore::No,
        dtype: None,
        element_bytes: None,
        tile: None,
        tile_k: None,
        align: None,
        layout: None,
        half_accumulation: false,
        split_k: false,
        persistent: false,
        arch: None,
        conv_role: None,
        strided: None,
        per_thread: None,
        triton: false,
        helper: false,
        causal: None,
        windowed: None,
        collective: None,
        fast_conv: false,
        wraps: None,
    }
}

/// A run and its findings, built site by site.
pub(crate) struct Sample {
    pub(crate) costed: Costed,
    pub(crate) results: RuleResults,
}

impl Sample {
    pub(crate) fn new() -> Sample {
        let mut profile = Profile::new(&pyprof_advise::read::NSYS_SQLITE, "/home/alice/net.sqlite");
        profile.file_bytes = 1_440_000;
        profile.tool_version = Some("2024.2.1.106".into());
        profile.devices.push(Device {
            name: Some("Tesla V100-SXM2-16GB".into()),
            ..Device::default()
        });
        let span = Span {
            start: 0,
            end: 50_000_000,
        };
        let run = Run {
            profile,
            copy_calls: vec![],
            set_calls: vec![],
            graph_calls: vec![],
            graph_steps: vec![],
            links: vec![],
            scopes: vec![],
            capture_scopes: Vec::new(),
            op_calls: vec![],
            op_names: vec![],
            args: vec![],
            layers: vec![],
            patterns: vec![],
            sites: vec![],
            steps: vec![],
            step_origin: None,
            process_steps: vec![],
            user_ranges: vec![],
            window: Window {
                span: Some(span),
                ..Window::default()
            },
            timeline: Timeline {
                devices: vec![DeviceTimeline {
                    device: DeviceId(0),
                    span,
                    excluded: vec![],
                    busy_ns: 40_000_000,
                    kernel_ns: 40_000_000,
                    copy_ns: 0,
                    comm_ns: 0,
                    exposed_copy_ns: 0,
                    exposed_comm_ns: 0,
                    comm_slack_ns: 0,
                    graph_ns: 0,
                    gaps: vec![],
                    end_thread: None,
                    idle_is_unrecorded: false,
                }],
            },
            host: pyprof_advise::correlate::HostTime::default(),
            unreliable_idle: None,
            recording_overhead: None,
            unexplained_idle_ns: 0,
            graph_launch_idle_ns: 0,
            waits: Vec::new(),
            waits_in_layers: Default::default(),
            activities: Default::default(),
            layer_source: Some(LayerSource::Module),
            batch: None,
            executions: 0,
            replay_names: None,
        };
        Sample {
            costed: Costed {
                run,
                gpu: Some(Choice {
                    gpu: gpu(),
                    how: SelectedBy::Named,
                    remarks: vec![],
                }),
                sites: vec![],
                kernels: vec![],
                coverage: Coverage {
                    kernel_ns: 40_000_000,
                    cost_known_ns: 36_000_000,
                    attributable_ns: 38_000_000,
                    attributable_cost_known_ns: 36_000_000,
                },
                proven_cc: None,
            },
            results: RuleResults {
                rules_run: 100,
                ..RuleResults::default()
            },
        }
    }

    /// Adds a site with one kernel; without `reachable`, its cost is unknown.
    pub(crate) fn site(
        &mut self,
        layer: &str,
        op: &str,
        ms: f64,
        reachable: Option<f64>,
    ) -> SiteId {
        let run = &mut self.costed.run;
        run.patterns.push(LayerPattern {
            name: layer.into(),
            layers: 24,
        });
        run.layers.push(Layer {
            name: layer.into(),
            source: LayerSource::Module,
            pattern: PatternId::new(run.patterns.len() - 1),
        });
        run.args.push(OpArgs {
            items: vec![Arg {
                name: None,
                value: ArgValue::Tensor(Tensor {
                    shape: vec![64, 128],
                    dtype: Some(DType::Fp32),
                    strides: None,
                }),
            }],
        });
        let time_ns = (ms * MS) as i64;
        let kernel = run.profile.strings.intern("volta_sgemm_128x64_nn");
        run.sites.push(Site {
            op: Some(OpName {
                module: "aten".into(),
                name: op.into(),
            }),
            args: Some(ArgsId::new(run.args.len() - 1)),
            args_from_forward: false,
            message: None,
            direction: Direction::Fprop,
            recomputed: false,
            layer: Some(LayerId::new(run.layers.len() - 1)),
            missing: None,
            replayed: None,
            calls: 24,
            time_ns,
            exposed_ns: time_ns,
            beside_comm_ns: 0,
            kernels: vec![SiteKernel {
                name: kernel,
                config: ConfigId(0),
                count: 24,
                time_ns,
                exposed_ns: time_ns,
                beside_comm_ns: 0,
                min_ns: time_ns / 24,
                max_ns: time_ns / 24,
            }],
            source_line: Some("/home/alice/net.py:42".into()),
            first: KernelId(0),
        });
        self.costed.kernels.push(vec![Arc::new(decoded(
            "volta_sgemm_128x64_nn",
            Family::Gemm,
        ))]);
        let cost = OpCost {
            family: Family::Gemm,
            class: FlopsClass::Exact,
            roles: vec![],
            note: Some("causal mask not discounted"),
            bytes_known: true,
            at_most: false,
            sequence: 1,
        };
        self.costed.sites.push(SiteCost {
            family: Family::Gemm,
            cost: reachable.map(|_| cost).ok_or(UnknownCost::UnknownOp),
            math_dtype: Some(DType::Fp32),
            tensor_core: TensorCore::No,
            flops: None,
            bytes: None,
            ideal_ns: reachable.map(|r| r * MS * 0.8),
            best_ideal_ns: reachable.map(|r| r * MS * 0.8),
            reachable_ns: reachable.map(|r| r * MS),
            best_dtype: Some(DType::Fp16),
            bound: reachable.map(|_| Bound::Math),
            autotuning: false,
            cost_file: None,
            least_bytes: None,
        });
        SiteId::new(self.costed.sites.len() - 1)
    }

    pub(crate) fn finding(&mut self, site: SiteId, title: &str, place: &str, saving_ms: f64) {
        self.results
            .findings
            .push(finding(site, title, place, saving_ms));
    }

    pub(crate) fn saving(&mut self, finding: usize) -> &mut Saving {
        self.results.findings[finding].saving.as_mut().unwrap()
    }

    pub(crate) fn report(&self) -> Report {
        Report::new(
            &FactTable::new(&self.costed),
            &self.results,
            &Options::default(),
        )
    }

    pub(crate) fn markdown(&self) -> String {
        markdown(&self.report()).unwrap()
    }
}

pub(crate) const FIX: &str = "Wrap the step:\n\n```python\nwith torch.autocast(\"cuda\", torch.float16):\n    \
                   loss = model(x)\n```";

pub(crate) fn finding(site: SiteId, title: &str, place: &str, saving_ms: f64) -> Finding {
    Finding {
        rule: "tensor-cores/amp-off".into(),
        file: "rules/tensor-cores/amp-off.toml".into(),
        category: "tensor-cores".into(),
        title: title.into(),
        severity: Severity::Warning,
        confidence: Confidence::High,
        members: vec![Member::Site(site)],
        sites: vec![site],
        covered: BTreeMap::new(),
        parts: BTreeMap::new(),
        backward: Vec::new(),
        replaces_work: false,
        place: place.into(),
        subject: place.into(),
        places: vec![(place.into(), 20.0 * MS)],
        calls: 24,
        time_ns: 20.0 * MS,
        share: 0.5,
        saving: Some(Saving {
            high_ns: saving_ms * MS,
            low_ns: saving_ms * MS / 2.0,
            claimed_ns: saving_ms * MS,
            claimed_low_ns: saving_ms * MS / 2.0,
            overlap_ns: 0.0,
            step_ns: Some(saving_ms * MS),
            step_low_ns: Some(saving_ms * MS / 2.0),
            kind: SavingKind::Gpu,
        }),
        outside_ns: None,
        message: "The matmuls run in `fp32`.".into(),
        why: "Tensor Cores are 8x faster.".into(),
        fix: FIX.into(),
        edits: Vec::new(),
        references: vec!["https://docs.nvidia.com/deeplearning/performance/".into()],
        evidence: vec![("site.math_dtype".into(), "fp32".into())],
        changes: BTreeMap::new(),
        variant: None,
        also_fixes: Vec::new(),
        removes_launches: false,
        after: None,
        is_minor: false,
        of_light: false,
    }
}

pub(crate) fn sample() -> Sample {
    let mut s = Sample::new();
    let slow = s.site("blocks.*.mlp", "addmm", 24.0, Some(6.0));
    s.site("head", "mm", 12.0, Some(11.5));
    s.site("embed", "embedding_custom", 4.0, None);
    s.finding(
        slow,
        "Matmuls do not use Tensor Cores",
        "blocks.*.mlp (24 layers)",
        16.0,
    );
    s.results.skipped.push(MissingFact {
        fact: "site.m".into(),
        needs: "shapes: `emit_nvtx(record_shapes=True)`".into(),
        rules: vec!["shapes/x".into()],
        members: 1,
        time_ns: 4.0 * MS,
    });
    s
}
