//! Coverage of the cost model: how much of a profile's time has a known cost, and that a cost belongs
//! to the operator call, so that it is counted once for any number of kernels.

use crate::{shared, synthetic};
use std::path::Path;

use pyprof_advise::base::diag::Source;
use pyprof_advise::correlate::{ArgValue, Direction, Site, Vocabulary, correlate};
use pyprof_advise::cost::user::UserCosts;
use pyprof_advise::cost::{
    Costed, Role, SiteCost, UnknownCost, estimate_costs_with, kernel_name, ops,
};
use pyprof_advise::gpu::select;
use pyprof_advise::profile::Profile;
use pyprof_advise::read;

fn costed(path: &Path, user: &UserCosts) -> Costed {
    let profile = read::open(path, &read::NoProgress).unwrap_or_else(|error| panic!("{error}"));
    costed_profile(profile, user)
}

fn costed_profile(profile: Profile, user: &UserCosts) -> Costed {
    let gpu = select::choose(Some("v100"), &profile).unwrap();
    let run = correlate(
        profile,
        &Vocabulary {
            knows_op: &|op| ops::knows(op) || user.knows(op),
            is_communication: &kernel_name::is_communication,
        },
    );
    estimate_costs_with(run, gpu, user)
}

/// The sites of a described capture with this operator, with their costs.
fn sites_of<'c>(
    costed: &'c Costed,
    op: &str,
    direction: Direction,
) -> Vec<(&'c Site, &'c SiteCost)> {
    let named = |site: &Site| site.op.as_ref().is_some_and(|o| o.display() == op);
    (costed.run.sites.iter().zip(&costed.sites))
        .filter(|(site, _)| named(site) && site.direction == direction)
        .collect()
}

fn built(description: &str) -> Costed {
    let built = synthetic::build(description);
    costed(&built.path(), &UserCosts::default())
}

/// The only site of an operator.
fn only<'c>(costed: &'c Costed, op: &str, direction: Direction) -> (&'c Site, &'c SiteCost) {
    let sites = sites_of(costed, op, direction);
    let [site] = sites.as_slice() else {
        panic!("{} sites of {op}", sites.len());
    };
    *site
}

/// Profiles in which less than 99 % of the time of shaped calls has a known cost, with that share:
/// `aten::cat` of lists without types in the trace, and compiled or searched kernels.
const BELOW_99_PERCENT: &[(&str, f64)] = &[
    ("dlprof_wrelu_nsys.sqlite", 0.987),
    ("saf_False_b.json.gz", 0.977),
    ("saf_True_b.json.gz", 0.857),
    ("saf_True_c.json.gz", 0.924),
];

#[test]
fn shaped_calls_of_known_operators_have_a_known_cost() {
    let mut files = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/net.sqlite")];
    files.extend(shared::profiles_or_fixtures());
    let mut judged = Vec::new();
    for file in &files {
        // Some captures contain no kernels; other tests check their errors.
        let Ok(profile) = read::open(file, &read::NoProgress) else {
            continue;
        };
        let costed = costed_profile(profile, &UserCosts::default());
        let (mut shaped, mut priced) = (0_i64, 0_i64);
        let mut unpriced = Vec::new();
        for (site, cost) in costed.run.sites.iter().zip(&costed.sites) {
            let args = site.args.and_then(|id| costed.run.args.get(id.idx()));
            let has_shapes = args.is_some_and(|a| a.tensors().any(|t| !t.shape.is_empty()));
            let Some(op) = site.op.as_ref().filter(|op| has_shapes && ops::knows(op)) else {
                continue;
            };
            // Traces before 2023 record no scalars, and no trace records lengths and indices.
            let silent = args.is_some_and(|a| a.items.iter().any(|a| is_silent(&a.value)));
            if matches!(&cost.cost, Err(UnknownCost::DataDependent))
                || matches!(&cost.cost, Err(UnknownCost::NoScalars))
                || matches!(&cost.cost, Err(UnknownCost::NoShapes) if silent)
            {
                continue;
            }
            shaped += site.time_ns;
            match &cost.cost {
                Ok(_) => priced += site.time_ns,
                Err(why) => {
                    unpriced.push(format!("{}: {why:?}, {} ns", op.display(), site.time_ns));
                }
            }
        }
        if shaped == 0 {
            continue;
        }
        let share = priced as f64 / shaped as f64;
        judged.push((share, file, unpriced));
    }
    // The fixtures, and the real profiles with recorded shapes, if they are available.
    let floor = if shared::path_if_set("profiles").is_some() {
        15
    } else {
        7
    };
    assert!(judged.len() >= floor, "{}", judged.len());
    let floor = |file: &Path| {
        let exception = (BELOW_99_PERCENT.iter()).find(|(name, _)| file.ends_with(name));
        exception.map_or(0.99, |(_, share)| *share)
    };
    let short: Vec<String> = (judged.iter())
        .filter(|(share, file, _)| *share < floor(file))
        .map(|(share, file, unpriced)| {
            let file = file.display();
            format!("{file}: {share:.4} is priced\n{}", unpriced.join("\n"))
        })
        .collect();
    assert!(short.is_empty(), "{}", short.join("\n"));
}

/// Whether a profile lists an argument without recording its value.
fn is_silent(value: &ArgValue) -> bool {
    match value {
        ArgValue::Unknown => true,
        ArgValue::List(items) => items.is_empty() || items.iter().any(is_silent),
        _ => false,
    }
}

#[test]
fn unknown_costs_have_a_reason() {
    let costed = built(
        "\
device 0 cc=7.0 sms=80 bandwidth=898GB/s = Tesla V100-SXM2-16GB
op torch.einsum 'ij,jk,kl->il' f16[8,8] f16[8,8] f16[8,8] @ net.py:1
  kernel some_kernel 4 20us
op my_lib.fused_mlp f16[8,8] @ net.py:2
  kernel some_kernel 4 20us
kernel some_kernel 4 20us
",
    );
    let reason = |op: &str| {
        let sites = sites_of(&costed, op, Direction::Fprop);
        sites
            .first()
            .map(|(_, cost)| cost.cost.clone().unwrap_err())
    };
    assert_eq!(reason("torch.einsum"), Some(UnknownCost::DataDependent));
    for (site, cost) in costed.run.sites.iter().zip(&costed.sites) {
        assert!(cost.cost.is_err(), "{site:?}");
        assert!(!cost.cost.as_ref().unwrap_err().describe().is_empty());
        assert_eq!((cost.flops, cost.bytes), (None, None));
    }
}

const GEMM: u64 = 2 * 64 * 128 * 32;

#[test]
fn split_k_reduction_does_not_multiply_the_cost_of_a_product() {
    let costed = built(
        "\
device 0 cc=7.0 sms=80 bandwidth=898GB/s = Tesla V100-SXM2-16GB
define gemm block=256 = volta_fp16_s884gemm_fp16_128x128_ldg8_splitK_relu_f2f_tn
define reduce block=256 = void splitKreduce_kernel<32, 16, int, float, __half, float, __half>(x)
range step 0
  op torch.nn.functional.linear f16[64,32] f16[128,32] None @ net.py:1
    kernel gemm 8 30us
    kernel reduce 8 5us
    kernel gemm 8 30us
    kernel reduce 8 5us
",
    );
    let (site, cost) = only(&costed, "torch.nn.functional.linear", Direction::Fprop);
    assert_eq!(site.calls, 1);
    assert_eq!(cost.flops, Some(GEMM as f64));
    assert!(!cost.autotuning);
}

#[test]
fn layout_transforms_do_not_multiply_the_cost_of_a_convolution() {
    let costed = built(
        "\
device 0 cc=7.0 sms=80 bandwidth=898GB/s = Tesla V100-SXM2-16GB
define to_nhwc block=256 = void cudnn::ops::nchwToNhwcKernel<__half, __half, float, true, true, (cudnnKernelDataType_t)0>(x)
define conv block=256 = volta_fp16_s884cudnn_fp16_256x64_ldg8_relu_f2f_exp_small_nhwc_tn_v1
op torch.conv2d f16[1,16,8,8] f16[32,16,3,3] None (1,1) (1,1) (1,1) 1 @ net.py:1
  kernel to_nhwc 8 3us
  kernel to_nhwc 8 3us
  kernel conv 8 30us
  kernel to_nhwc 8 3us
op torch.conv2d f16[1,16,8,8] f16[32,16,3,3] None (1,1) (1,1) (1,1) 1 @ net.py:1
  kernel conv 8 30us
",
    );
    let (site, cost) = only(&costed, "torch.conv2d", Direction::Fprop);
    assert_eq!(site.calls, 2);
    assert_eq!(cost.flops, Some(f64::from(2 * 2 * 64 * 32 * 16 * 9)));
}

#[test]
fn algorithm_search_is_one_call_marked_as_autotuning() {
    let kernels: String = (0..12)
        .map(|i| format!("  kernel algorithm{i} 8 30us\n"))
        .collect();
    let defines: String = (0..12)
        .map(|i| {
            format!("define algorithm{i} block=256 = volta_scudnn_128x{i}_relu_interior_nn_v1\n")
        })
        .collect();
    let costed = built(&format!(
        "device 0 cc=7.0 sms=80 bandwidth=898GB/s = Tesla V100-SXM2-16GB\n{defines}\
         op torch.conv2d f32[1,16,8,8] f32[32,16,3,3] None (1,1) (1,1) (1,1) 1 @ net.py:1\n{kernels}"
    ));
    let (site, cost) = only(&costed, "torch.conv2d", Direction::Fprop);
    assert_eq!((site.calls, site.kernels.len()), (1, 12));
    let price = cost.cost.as_ref().unwrap();
    assert_eq!(price.flops(), 2 * 64 * 32 * 16 * 9);
    assert!(cost.autotuning);
    assert_eq!((cost.flops, cost.reachable_ns), (None, None));
}

#[test]
fn two_backward_nodes_of_one_loss_count_its_cost_once() {
    let costed = built(
        "\
device 0 cc=7.0 sms=80 bandwidth=898GB/s = Tesla V100-SXM2-16GB
define log_softmax block=1024 = void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float, at::native::(anonymous namespace)::LogSoftMaxForwardEpilogue>(x)
define nll block=32 = void cunn_ClassNLLCriterion_updateOutput_kernel<float, float>(x)
op torch.nn.functional.cross_entropy f32[64,1000] i64[64] @ net.py:1
  op log_softmax
    kernel log_softmax 64 10us
    grad LogSoftmaxBackward0
      kernel log_softmax 64 15us
  op nll_loss
    kernel nll 1 5us
    grad NllLossBackward0
      kernel nll 1 6us
backward
",
    );
    let loss = "torch.nn.functional.cross_entropy";
    let (site, cost) = only(&costed, loss, Direction::Fprop);
    assert_eq!((site.calls, cost.flops), (1, Some(320_064.0)));
    let (site, cost) = only(&costed, loss, Direction::Bprop);
    assert_eq!((site.calls, site.kernels.len()), (1, 2));
    assert_eq!(cost.flops, Some(256_064.0));
}

const FUSED: &str = r#"
[[cost]]
op     = "my_lib::fused_*"
family = "gemm"
args   = ["x", "up", "down"]
flops  = '2 * numel("x") * dim("up", 0) * 2'
bytes  = 'bytes() + bytes("x")'

[[cost]]
op        = "my_lib::fused_*"
family    = "gemm"
direction = "bprop"
flops     = '2 * 2 * numel(0) * dim(1, 0) * 2'
bytes     = '2 * bytes()'

[[test]]
op    = "my_lib::fused_mlp"
args  = ["fp16[8, 64]", "fp16[256, 64]", "fp16[64, 256]"]
flops = 524288
bytes = 67584

[[test]]
op        = "my_lib::fused_mlp"
direction = "bprop"
args      = ["fp16[8, 64]", "fp16[256, 64]", "fp16[64, 256]"]
flops     = 1048576
bytes     = 133120
"#;

const OWN_OPERATOR: &str = "\
device 0 cc=7.0 sms=80 bandwidth=898GB/s = Tesla V100-SXM2-16GB
define fused block=256 = fused_mlp_kernel
define other block=256 = fused_mlp_epilogue
repeat step 0 1 2
  range step {step}
    op my_lib.fused_mlp f16[8,64] f16[256,64] f16[64,256] @ net.py:1
      kernel fused 8 30us
      kernel other 8 10us
      grad FusedMlpBackward
        kernel fused 8 60us
    backward
";

#[test]
fn user_costs_are_counted_once_per_call() {
    let user = UserCosts::read(&[Source::new("own.toml", FUSED)]).unwrap_or_else(|c| panic!("{c}"));
    let built = synthetic::build(OWN_OPERATOR);
    let costed = costed(&built.path(), &user);
    let (site, cost) = only(&costed, "my_lib::fused_mlp", Direction::Fprop);
    assert_eq!((site.calls, site.kernels.len()), (3, 2));
    assert_eq!(cost.flops, Some(3.0 * 524_288.0));
    assert_eq!(cost.cost_file.as_deref(), Some("own.toml"));
    let (_, cost) = only(&costed, "my_lib::fused_mlp", Direction::Bprop);
    assert_eq!(cost.flops, Some(3.0 * 1_048_576.0));
    assert_eq!(cost.cost.as_ref().unwrap().roles[0].role, Role::Bwd);
    assert_eq!(costed.coverage.cost_known_ns, costed.coverage.kernel_ns);
}

#[test]
fn user_costs_take_precedence_over_built_in_costs() {
    let text = FUSED
        .replace("my_lib::fused_*", "torch.nn.functional.linear")
        .replace("my_lib::fused_mlp", "torch.nn.functional.linear");
    let user = UserCosts::read(&[Source::new("own.toml", text)]).unwrap_or_else(|c| panic!("{c}"));
    let built = synthetic::build(
        "\
device 0 cc=7.0 sms=80 bandwidth=898GB/s = Tesla V100-SXM2-16GB
op torch.nn.functional.linear f16[64,32] f16[128,32] None @ net.py:1
  kernel volta_sgemm_128x64_tn 8 30us
",
    );
    let with = costed(&built.path(), &user);
    let (_, cost) = only(&with, "torch.nn.functional.linear", Direction::Fprop);
    assert_eq!(cost.flops, Some(2.0 * GEMM as f64));
    let without = costed(&built.path(), &UserCosts::default());
    let (_, cost) = only(&without, "torch.nn.functional.linear", Direction::Fprop);
    assert_eq!((cost.flops, &cost.cost_file), (Some(GEMM as f64), &None));
}

mod command_line {
    use assert_cmd::Command;
    use predicates::prelude::*;
    use predicates::str::contains;

    use super::*;

    /// A folder with the capture and the cost file, and a command that runs the program in it.
    fn program(costs: &str) -> (tempfile::TempDir, Command) {
        let folder = tempfile::tempdir().unwrap();
        let built = synthetic::build(OWN_OPERATOR);
        std::fs::copy(built.path(), folder.path().join("net.sqlite")).unwrap();
        std::fs::write(folder.path().join("own.toml"), costs).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_pyprof-advise"));
        command.current_dir(folder.path()).env("NO_COLOR", "1");
        (folder, command)
    }

    #[test]
    fn report_names_the_cost_file() {
        let (_folder, mut command) = program(FUSED);
        command
            .args(["net.sqlite", "--costs", "own.toml"])
            .assert()
            .success()
            .stdout(contains(
                "Cost from `own.toml` instead of the built-in model: `my_lib::fused_mlp` (6 calls",
            ))
            .stderr(contains("no operator of this profile").not());
    }

    #[test]
    fn cost_files_without_effect_cause_a_warning() {
        let (_folder, mut command) = program(&FUSED.replace("fused_", "other_"));
        command
            .args(["net.sqlite", "--costs", "own.toml"])
            .assert()
            .success()
            .stderr(contains("own.toml: this profile has none of its operators"));
    }

    #[test]
    fn invalid_cost_files_fail_with_all_their_mistakes() {
        let wrong = FUSED
            .replace("family", "famly")
            .replace("numel(0)", "nummel(0)");
        for (arguments, status) in [
            (&["net.sqlite", "--costs", "own.toml"][..], 2),
            (&["costs", "check", "own.toml"], 1),
            (&["costs", "test", "own.toml"], 1),
            (&["net.sqlite", "--costs", "missing.toml"], 2),
        ] {
            let (_folder, mut command) = program(&wrong);
            let assert = command.args(arguments).assert().code(status);
            if !arguments.contains(&"missing.toml") {
                assert
                    .stderr(contains("did you mean `family`?").count(2))
                    .stderr(contains("did you mean `numel`?"))
                    .stderr(contains("own.toml:4:1"));
            }
        }
    }

    #[test]
    fn tests_of_cost_files_run() {
        let (_folder, mut command) = program(FUSED);
        command
            .args(["costs", "test", "own.toml"])
            .assert()
            .success()
            .stdout("2 passed, 0 failed\n");
        let (_folder, mut command) = program(&FUSED.replace("bytes = 67584", "bytes = 67585"));
        command
            .args(["costs", "test", "own.toml"])
            .assert()
            .code(1)
            .stdout(contains("my_lib::fused_mlp(fp16[8, 64], fp16[256, 64], fp16[64, 256]): 67,584 bytes, not 67,585"))
            .stdout(contains("1 passed, 1 failed"));
    }

    #[test]
    fn costs_are_explained() {
        for (operator, words) in [
            ("aten::addmm", "2 batch m n k"),
            ("AddmmBackward0", "dgrad and wgrad"),
            ("my_lib::fused_mlp", "1.05 MFLOP"),
            ("triton_poi_fused_add_0", "every pointer argument once"),
            ("nccl::all_reduce", "nccl-tests"),
        ] {
            let (_folder, mut command) = program(FUSED);
            command
                .args(["costs", "explain", operator, "--costs", "own.toml"])
                .assert()
                .success()
                .stdout(contains(words));
        }
        let (_folder, mut command) = program(FUSED);
        command
            .args(["costs", "explain", "aten::admm"])
            .assert()
            .code(2)
            .stderr(contains("did you mean `addmm`?"));
    }
}

/// Adam of a network of 784, 2048, 1024 and 10 units: the types of the tensors in a list are those of the kernel.
#[test]
fn optimizers_of_traces_have_a_cost() {
    let Some(path) = shared::path("profiles_pairs/incredere_t4/fp32.json.gz") else {
        return;
    };
    let costed = costed(&path, &UserCosts::default());
    let parameters = 2048 * 784 + 2048 + 1024 * 2048 + 1024 + 10 * 1024 + 10;
    // fp32 tensors of that size that an operator reads or writes.
    let tensors = [
        ("_foreach_sqrt", 2),
        ("_foreach_mul_", 2),
        ("_foreach_lerp_", 3),
    ];
    for (name, tensors) in tensors {
        let sites = costed.run.sites.iter().zip(&costed.sites);
        let mut own = sites.filter(|(site, _)| site.op.as_ref().is_some_and(|op| op.name == name));
        let (site, cost) = own.next().unwrap_or_else(|| panic!("{name}"));
        let bytes = f64::from(site.calls) * f64::from(4 * tensors * parameters);
        let counted = cost
            .bytes
            .unwrap_or_else(|| panic!("{name}: {:?}", cost.cost));
        // With the numbers of steps.
        assert!(
            (counted - bytes).abs() <= 1e-5 * bytes,
            "{name}: {counted} of {bytes} bytes"
        );
    }
}
