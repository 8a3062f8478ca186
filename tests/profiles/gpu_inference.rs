//! The GPU that kernels show, compared with the GPU that real profiles state.

use pyprof_advise::Advisor;
use pyprof_advise::cost::infer_gpu;
use pyprof_advise::gpu::select;
use pyprof_advise::read;

use crate::support::shared;

/// With its description taken away, a real profile shows either no GPU, or the one that it was
/// recorded on: its SMs and compute capability, and no higher rates.
#[test]
fn inferred_gpus_agree_with_the_recorded_ones() {
    let Some(files) = shared::profiles() else {
        return;
    };
    let mut inferred = 0;
    for path in files {
        let Ok(mut profile) = read::open(&path, &read::NoProgress) else {
            continue;
        };
        let Some(recorded) = select::choose(None, &profile).unwrap() else {
            continue;
        };
        profile.devices.clear();
        let Some(choice) = infer_gpu(&profile) else {
            continue;
        };
        let file = path.display();
        let (truth, gpu) = (&recorded.gpu, &choice.gpu);
        assert_eq!(gpu.sms(), truth.sms(), "{file}");
        assert_eq!(gpu.compute_capability, truth.compute_capability, "{file}");
        // Profiles state bandwidths that differ from the published ones by up to 1 %.
        assert!(gpu.bandwidth <= truth.bandwidth * 1.01, "{file}");
        for (dtype, rate) in &gpu.tensor_flops {
            assert!(*rate <= truth.tensor_flops[dtype], "{file}: {dtype}");
        }
        inferred += 1;
    }
    assert!(inferred >= 10, "{inferred}");
}

#[test]
fn gpus_of_profiles_without_a_device_table_are_inferred() {
    for (file, name) in [
        ("mfu_2gpu_before.sqlite", Some("GH100 with 132 SMs")),
        ("hta_sampled_rank0.json.gz", Some("GA100 with 108 SMs")),
        ("h100_2gpu_1s.sqlite", None),
    ] {
        let Some(path) = shared::path(&format!("profiles/{file}")) else {
            return;
        };
        let report = Advisor::new().unwrap().report(path).unwrap();
        let gpu = report.method.gpu.as_ref();
        assert_eq!(gpu.map(|g| g.name.as_str()), name, "{file}");
        assert!(gpu.is_none_or(|g| g.inferred), "{file}");
        let said = report.cautions.join("\n");
        assert!(said.contains("`--gpu"), "{file}: {said}");
    }
}
