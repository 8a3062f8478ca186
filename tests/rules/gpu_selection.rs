//! The selection of a GPU for a profile.

use std::path::Path;

use pyprof_advise::base::DType;
use pyprof_advise::gpu::select::{self, SelectError};
use pyprof_advise::gpu::{Choice, SelectedBy};
use pyprof_advise::profile::{ConfigId, Device, DeviceId, Kernel, ProcessId, Profile, Span, StrId};

use crate::gpu_specs::{MINIMAL, spec};
use crate::shared;

fn profile(devices: Vec<Device>) -> Profile {
    let mut profile = Profile::new(&pyprof_advise::read::NSYS_SQLITE, "x.sqlite");
    profile.devices = devices;
    profile
}

fn device(name: &str) -> Device {
    Device {
        name: Some(name.into()),
        ..Device::default()
    }
}

fn kernel(device: u32, ns: i64) -> Kernel {
    Kernel {
        span: Span { start: 0, end: ns },
        name: StrId(0),
        device: DeviceId(device),
        process: ProcessId(0),
        stream: 0,
        context: 0,
        correlation: None,
        config: ConfigId(0),
        in_graph: false,
        captured: None,
    }
}

fn chosen(asked: Option<&str>, devices: Vec<Device>) -> Choice {
    select::choose(asked, &profile(devices)).unwrap().unwrap()
}

#[test]
fn device_names_of_real_profiles_are_known() {
    for (name, id) in [
        ("Tesla V100-SXM2-16GB", "v100-sxm2-16gb"),
        ("Tesla V100-SXM2-32GB", "v100-sxm2-32gb"),
        ("Tesla V100-DGXS-32GB", "v100-dgxs-32gb"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm4-40gb"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("NVIDIA A100-PG509-200", "a100-sxm4-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("NVIDIA GeForce RTX 3080", "rtx-3080-10gb"),
        ("NVIDIA GeForce RTX 4070 Ti", "rtx-4070-ti"),
        ("NVIDIA RTX A2000 12GB", "rtx-a2000-12gb"),
        ("NVIDIA TITAN RTX", "titan-rtx"),
        ("NVIDIA B200", "b200-sxm"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm5-80gb"),
        ("AMD Instinct MI210", "mi210"),
        ("AMD Instinct MI300X", "mi300x"),
        ("AMD Instinct MI300X VF", "mi300x"),
        // Other spellings.
        ("A100-SXM4-40GB", "a100-sxm4-40gb"),
        ("nvidia a100_sxm4_40gb", "a100-sxm4-40gb"),
        ("V100-SXM2-16GB", "v100-sxm2-16gb"),
    ] {
        let choice = chosen(None, vec![device(name)]);
        assert_eq!(
            (choice.gpu.id.as_str(), choice.how),
            (id, SelectedBy::Named),
            "{name}"
        );
    }
}

#[test]
fn gpus_of_real_profiles_are_selected() {
    let Some(files) = shared::profiles() else {
        return;
    };
    let mut seen = 0;
    for path in files {
        if path.extension().is_none_or(|e| e != "sqlite") {
            continue;
        }
        for device in nsys_devices(&path) {
            let choice = select::choose(None, &profile(vec![device.clone()])).unwrap();
            let choice = choice.unwrap_or_else(|| panic!("{}: {device:?}", path.display()));
            assert_eq!(
                choice.how,
                SelectedBy::Named,
                "{}: {device:?}",
                path.display()
            );
            // The driver reports twice the bandwidth that NVIDIA states for the unified memory of GB10.
            if device.name.as_deref() != Some("NVIDIA GB10") {
                assert_eq!(Some(choice.gpu.bandwidth), device.bandwidth);
            }
            seen += 1;
        }
    }
    assert!(seen > 0, "no device in any profile");
}

fn nsys_devices(path: &Path) -> Vec<Device> {
    let url = format!("file:{}?mode=ro&immutable=1", path.display());
    let db = rusqlite::Connection::open(url).unwrap();
    let sql = "SELECT name, smCount, memoryBandwidth, clockRate, l2CacheSize, totalMemory, \
               computeMajor, computeMinor FROM TARGET_INFO_GPU WHERE smCount > 0";
    let Ok(mut query) = db.prepare(sql) else {
        return Vec::new();
    };
    let rows = query.query_map([], |r| {
        Ok(Device {
            name: r.get(0)?,
            sm_count: r.get(1)?,
            bandwidth: r.get::<_, Option<i64>>(2)?.map(|b| b as f64),
            clock_hz: r.get::<_, Option<i64>>(3)?.map(|b| b as f64),
            l2_bytes: r.get::<_, Option<i64>>(4)?.map(|b| b as u64),
            memory_bytes: r.get::<_, Option<i64>>(5)?.map(|b| b as u64),
            compute_capability: Some((r.get(6)?, r.get(7)?)),
            ..Device::default()
        })
    });
    rows.unwrap().map(Result::unwrap).collect()
}

#[test]
fn no_gpu_is_selected_without_known_properties() {
    assert_eq!(select::choose(None, &profile(vec![])).unwrap(), None);
    for name in [
        "",
        "AMD Radeon Graphics",
        "Intel(R) Iris(R) Xe",
        "AD102",
        "NVIDIA Next 1",
    ] {
        assert_eq!(
            select::choose(None, &profile(vec![device(name)])).unwrap(),
            None,
            "{name}"
        );
    }
    // ROCm's 9.0 is not Hopper.
    let rocm = Device {
        compute_capability: Some((9, 4)),
        sm_count: Some(132),
        bandwidth: Some(1e12),
        clock_hz: Some(1e9),
        ..device("")
    };
    assert_eq!(select::choose(None, &profile(vec![rocm])).unwrap(), None);
}

#[test]
fn values_of_the_profile_take_precedence() {
    let own = Device {
        sm_count: Some(108),
        bandwidth: Some(1.2e12),
        clock_hz: Some(1.2e9),
        l2_bytes: Some(20 << 20),
        memory_bytes: Some(42_297_786_368),
        max_warps_per_sm: Some(48),
        max_blocks_per_sm: Some(16),
        ..device("NVIDIA A100-SXM4-40GB")
    };
    let choice = chosen(None, vec![own]);
    let table = &spec("a100-sxm4-40gb").gpu;
    assert_eq!(choice.gpu.tensor_flops, table.tensor_flops);
    assert_eq!(
        (choice.gpu.bandwidth, choice.gpu.l2_bytes),
        (1.2e12, Some(f64::from(20 << 20)))
    );
    assert_eq!(
        (choice.gpu.max_threads_per_sm, choice.gpu.max_blocks_per_sm),
        (Some(1536), Some(16))
    );
    let said = choice.remarks.join("\n");
    assert_eq!(choice.remarks.len(), 3, "{said}");
    assert!(
        said.contains("1.20 TB/s of DRAM bandwidth where the table has 1.55 TB/s"),
        "{said}"
    );
    assert!(
        said.contains("20.0 MiB of L2 cache where the table has 40.0 MiB"),
        "{said}"
    );
    assert!(
        said.contains("1200 MHz where the table has 1410 MHz"),
        "{said}"
    );
    // A difference within 3 % is not mentioned.
    let near = Device {
        sm_count: Some(80),
        bandwidth: Some(898_048_000_000.0),
        clock_hz: Some(1.53e9),
        ..device("Tesla V100-SXM2-16GB")
    };
    let choice = chosen(None, vec![near]);
    assert_eq!(
        (choice.gpu.bandwidth, choice.remarks.len()),
        (898_048_000_000.0, 0)
    );
}

#[test]
fn bandwidth_of_gb10_comes_from_the_table() {
    let own = Device {
        sm_count: Some(48),
        bandwidth: Some(546e9),
        ..device("NVIDIA GB10")
    };
    let choice = chosen(None, vec![own]);
    assert_eq!(choice.gpu.bandwidth, 273e9);
    assert!(
        choice.remarks[0].contains("known to be wrong"),
        "{:?}",
        choice.remarks
    );
}

#[test]
fn rates_scale_with_the_sm_count_of_another_bin() {
    let own = Device {
        sm_count: Some(70),
        bandwidth: Some(936e9),
        ..device("NVIDIA GeForce RTX 3080 Ti")
    };
    let gpu = chosen(None, vec![own]).gpu;
    let table = spec("rtx-3080-ti").gpu.flops[&DType::Fp32];
    assert_eq!((gpu.sm_count, gpu.bandwidth), (70, 936e9));
    assert_eq!(gpu.flops[&DType::Fp32], table * 70.0 / 80.0);
    let own = Device {
        sm_count: Some(152),
        ..device("NVIDIA B200")
    };
    let half = Device {
        sm_count: Some(74),
        ..device("NVIDIA B200")
    };
    assert_eq!(
        chosen(None, vec![own]).gpu.flops,
        spec("b200-sxm").gpu.flops
    );
    let gpu = chosen(None, vec![half]).gpu;
    assert_eq!(
        gpu.flops[&DType::Fp32],
        spec("b200-sxm").gpu.flops[&DType::Fp32] / 2.0
    );
}

#[test]
fn mig_slices_are_parts_of_their_board() {
    let slice = Device {
        sm_count: Some(14),
        bandwidth: Some(1555.2e9),
        ..device("NVIDIA A100-SXM4-40GB MIG 1g.5gb")
    };
    let choice = chosen(None, vec![slice]);
    let table = &spec("a100-sxm4-40gb").gpu;
    assert_eq!(
        (choice.gpu.id.as_str(), choice.gpu.sm_count),
        ("a100-sxm4-40gb", 14)
    );
    assert_eq!(choice.gpu.bandwidth, table.bandwidth / 8.0);
    let rate = choice.gpu.tensor_flops[&DType::Bf16] / table.tensor_flops[&DType::Bf16];
    assert!((rate - 14.0 / 108.0).abs() < 1e-12, "{rate}");
    assert!(
        choice.remarks[0].contains("MIG slice"),
        "{:?}",
        choice.remarks
    );
}

#[test]
fn unlisted_gpus_are_derived_with_a_remark() {
    let own = Device {
        compute_capability: Some((8, 6)),
        sm_count: Some(20),
        bandwidth: Some(224e9),
        clock_hz: Some(1.777e9),
        l2_bytes: Some(2 << 20),
        ..device("NVIDIA GeForce RTX 3050")
    };
    let choice = chosen(None, vec![own.clone()]);
    assert_eq!(choice.how, SelectedBy::Derived);
    let tflops = |d| (choice.gpu.tensor_flops[&d] / 1e11).round() / 10.0;
    assert_eq!((tflops(DType::Fp16), tflops(DType::Int8)), (18.2, 72.8));
    assert_eq!(choice.gpu.tensor_align[&DType::Bf16], 8);
    assert_eq!(choice.gpu.max_threads_per_sm, Some(1536));
    assert_eq!(choice.gpu.bandwidth, 224e9);
    assert!(choice.remarks[0].contains("compute capability 8.6, 20 SMs and 1.78 GHz"));
    let clockless = Device {
        clock_hz: None,
        ..own
    };
    let choice = chosen(None, vec![clockless]);
    assert!(
        choice.remarks[0].contains("the usual clock of its generation, 1.73 GHz"),
        "{:?}",
        choice.remarks
    );
}

#[test]
fn nameless_amd_gpus_are_identified_by_their_attributes() {
    let mi300 = Device {
        compute_capability: Some((9, 4)),
        sm_count: Some(304),
        memory_bytes: Some(206_141_652_992),
        ..device("")
    };
    let choice = chosen(None, vec![mi300]);
    assert_eq!(
        (choice.gpu.id.as_str(), choice.how),
        ("mi300x", SelectedBy::Attributes)
    );
    let mi250 = Device {
        compute_capability: Some((9, 0)),
        sm_count: Some(104),
        memory_bytes: Some(68_702_699_520),
        ..device("AMD Radeon Graphics")
    };
    let choice = chosen(None, vec![mi250]);
    assert_eq!(choice.gpu.name, "MI210 or MI250");
    assert_eq!(
        choice.gpu.tensor_flops[&DType::Fp16],
        spec("mi210").gpu.tensor_flops[&DType::Fp16]
    );
}

#[test]
fn boards_with_one_name_are_told_apart_by_attributes() {
    for (name, sms, gib, id) in [
        ("NVIDIA GeForce RTX 3080", 68, 10, "rtx-3080-10gb"),
        ("NVIDIA GeForce RTX 3080", 70, 12, "rtx-3080-12gb"),
        ("NVIDIA GeForce RTX 3060", 28, 12, "rtx-3060-12gb"),
        ("NVIDIA GeForce RTX 3060", 28, 8, "rtx-3060-8gb"),
        ("AMD Instinct MI250X/MI250", 104, 64, "mi250"),
        ("AMD Instinct MI250X/MI250", 110, 64, "mi250x"),
    ] {
        let own = Device {
            sm_count: Some(sms),
            memory_bytes: Some(gib << 30),
            ..device(name)
        };
        let choice = chosen(None, vec![own]);
        assert_eq!(
            (choice.gpu.id.as_str(), choice.how),
            (id, SelectedBy::Named)
        );
    }
    // Without attributes, the usual one.
    let choice = chosen(None, vec![device("NVIDIA GeForce RTX 3080")]);
    assert_eq!(choice.gpu.id, "rtx-3080-10gb");
}

#[test]
fn boards_with_engineering_names_are_identified_by_their_attributes() {
    let own = Device {
        compute_capability: Some((8, 0)),
        sm_count: Some(108),
        memory_bytes: Some(85_095_874_560),
        ..device("NVIDIA PG506-230")
    };
    let choice = chosen(None, vec![own]);
    assert_eq!(
        (choice.gpu.name.as_str(), choice.how),
        ("GA100 with 108 SMs", SelectedBy::Attributes)
    );
    // The lowest rates of the A100 and A800 boards with 80 GB.
    assert_eq!(choice.gpu.bandwidth, 1935e9);
    assert_eq!(
        choice.gpu.tensor_flops,
        spec("a100-sxm4-80gb").gpu.tensor_flops
    );
    assert_eq!(choice.gpu.nvlink, None);
    assert_eq!(choice.gpu.pcie_gen, Some(4));
    assert!(
        choice.remarks[0]
            .starts_with("NVIDIA PG506-230 is not in the table of GPUs; compute capability"),
        "{:?}",
        choice.remarks
    );
    // A laptop with the SMs and the memory of another board is not that board.
    let laptop = Device {
        compute_capability: Some((8, 9)),
        sm_count: Some(76),
        memory_bytes: Some(16 << 30),
        ..device("NVIDIA RTX 5001 Ada Generation Laptop GPU")
    };
    assert_eq!(select::choose(None, &profile(vec![laptop])).unwrap(), None);
}

#[test]
fn rates_of_laptops_follow_the_clock_of_the_profile() {
    let own = Device {
        sm_count: Some(76),
        clock_hz: Some(1.68e9),
        ..device("NVIDIA RTX 5000 Ada Generation Laptop GPU")
    };
    let choice = chosen(None, vec![own]);
    let fp32 = choice.gpu.flops[&DType::Fp32] / 1e12;
    assert!((fp32 - 76.0 * 256.0 * 1680.0 / 1e6).abs() < 0.05, "{fp32}");
    assert_eq!(choice.remarks, Vec::<String>::new());
    let choice = chosen(None, vec![device("NVIDIA GeForce RTX 4090 Laptop GPU")]);
    assert!(
        choice.remarks[0].contains("depends on the laptop"),
        "{:?}",
        choice.remarks
    );
}

#[test]
fn gpu_option_takes_precedence_with_all_values() {
    let v100 = Device {
        sm_count: Some(80),
        bandwidth: Some(8e11),
        compute_capability: Some((7, 0)),
        ..device("Tesla V100-SXM2-16GB")
    };
    let choice = chosen(Some("a100-sxm4-40gb"), vec![v100.clone()]);
    assert_eq!(
        (choice.how, &choice.gpu),
        (SelectedBy::WhatIf, &spec("a100-sxm4-40gb").gpu)
    );
    assert!(
        choice.remarks[0].starts_with("What if: the profile was taken on Tesla V100-SXM2-16GB")
    );
    // Naming the board that the profile names changes no value.
    let choice = chosen(Some("v100-sxm2-16gb"), vec![v100.clone()]);
    assert_eq!(
        (choice.how, choice.gpu.bandwidth),
        (SelectedBy::Asked, 8e11)
    );
    assert_eq!(choice.gpu, chosen(None, vec![v100.clone()]).gpu);
    // Without a device in the profile there is no contradiction.
    let choice = chosen(Some("t4"), vec![]);
    assert_eq!((choice.how, choice.remarks.len()), (SelectedBy::Asked, 0));
}

#[test]
fn aliases_select_the_board_named_by_the_profile() {
    let choice = chosen(Some("v100"), vec![device("Tesla V100-PCIE-32GB")]);
    assert_eq!(
        (choice.gpu.id.as_str(), choice.how),
        ("v100-pcie-32gb", SelectedBy::Asked)
    );
    assert!(
        choice.remarks[0].contains("the one the profile names"),
        "{:?}",
        choice.remarks
    );
    let choice = chosen(Some("v100"), vec![]);
    assert_eq!(choice.gpu.id, "v100-sxm2-16gb");
    assert!(
        choice.remarks[0].contains("the usual one"),
        "{:?}",
        choice.remarks
    );
    let choice = chosen(Some("v100"), vec![device("NVIDIA A10")]);
    assert_eq!(
        (choice.gpu.id.as_str(), choice.how),
        ("v100-sxm2-16gb", SelectedBy::WhatIf)
    );
}

#[test]
fn busiest_device_is_selected() {
    let mut profile = profile(vec![
        Device {
            sm_count: Some(0),
            ..device("Intel Iris")
        },
        device("NVIDIA A10"),
        device("Tesla T4"),
    ]);
    assert_eq!(
        select::choose(None, &profile).unwrap().unwrap().gpu.id,
        "a10"
    );
    profile.kernels = vec![
        kernel(1, 10),
        kernel(2, 8),
        kernel(2, 8),
        kernel(77, i64::MAX),
    ];
    let choice = select::choose(None, &profile).unwrap().unwrap();
    assert_eq!(choice.gpu.id, "t4");
    assert!(
        choice.remarks[0].contains("Kernels also ran on NVIDIA A10"),
        "{:?}",
        choice.remarks
    );
}

#[test]
fn unknown_names_get_the_nearest_suggestion() {
    let error = select::choose(Some("v10"), &profile(vec![])).unwrap_err();
    let said = error.to_string();
    assert!(
        said.starts_with("no such GPU `v10`; did you mean `v100`? `pyprof-advise gpus list`"),
        "{said}"
    );
    assert!(
        said.contains("`pyprof-advise gpus list` lists all"),
        "{said}"
    );
    let said = select::find("quantum").unwrap_err().to_string();
    assert!(
        said.starts_with("no such GPU `quantum`. `pyprof-advise"),
        "{said}"
    );
    assert!(matches!(
        select::find("").unwrap_err(),
        SelectError::Unknown { .. }
    ));
}

#[test]
fn gpu_option_accepts_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    std::fs::write(&path, MINIMAL).unwrap();
    let choice = chosen(path.to_str(), vec![device("Tesla T4")]);
    assert_eq!(
        (choice.gpu.id.as_str(), choice.how),
        ("mine", SelectedBy::WhatIf)
    );
    let named = MINIMAL.replace("[flops]", "device_names = [\"NVIDIA X1\"]\n[flops]");
    std::fs::write(&path, named).unwrap();
    assert_eq!(
        chosen(path.to_str(), vec![device("NVIDIA X1")]).how,
        SelectedBy::Asked
    );
    std::fs::write(&path, "name = 1\n").unwrap();
    let SelectError::File(complaints) = select::find(path.to_str().unwrap()).unwrap_err() else {
        panic!("not a complaint about the file");
    };
    assert!(complaints.len() > 3);
    let said = select::find("nowhere/x.toml").unwrap_err().to_string();
    assert!(said.contains("this file cannot be read"), "{said}");
}
