//! The calibration of every architecture: what well-tuned work reaches, and where the numbers come from.

use std::collections::BTreeSet;

use pyprof_advise::base::diag::Source;
use pyprof_advise::gpu::calibration::{self, Calibration};
use pyprof_advise::gpu::load::{self, Spec};
use pyprof_advise::gpu::{Vendor, family, show};

use crate::gpu_specs::{MINIMAL, spec};

/// The name that a GPU's architecture has in files: without the gfx name that AMD's is shown with.
fn architecture(spec: &Spec) -> &str {
    spec.gpu.architecture.split(" (").next().unwrap()
}

fn user_file(text: &str) -> Spec {
    load::parse_source("mine", &Source::new("mine.toml", text)).unwrap()
}

#[test]
fn gpu_calibrations_load_without_complaints() {
    let (files, complaints) = calibration::check_built_in();
    assert_eq!(complaints.render(false), "");
    assert_eq!(files.len(), calibration::built_in().len());
}

#[test]
fn gpu_calibrations_cover_every_architecture() {
    let boards = load::built_in().iter().map(|s| architecture(s).to_owned());
    let derived = family::architectures().map(str::to_owned);
    let wanted: BTreeSet<String> = boards.chain(derived).collect();
    let had: BTreeSet<String> = calibration::built_in()
        .iter()
        .map(|c| c.architecture.clone())
        .collect();
    assert_eq!(had, wanted);
    for file in calibration::built_in() {
        for s in load::built_in() {
            if architecture(s) == file.architecture {
                assert_eq!(s.gpu.vendor, file.vendor, "{}", s.gpu.id);
            }
        }
    }
}

/// Rules about alignment read these constants on every NVIDIA GPU with Tensor Cores, and on AMD for products.
#[test]
fn gpu_calibrations_have_the_constants_of_tensor_cores() {
    for s in load::built_in() {
        let reachable = s.gpu.reachable;
        let has_units = s.gpu.has_tensor_cores();
        let id = &s.gpu.id;
        assert!(!has_units || reachable.aligned_gemm.is_some(), "{id}");
        assert!(
            !has_units || s.gpu.vendor == Vendor::Amd || reachable.aligned_conv.is_some(),
            "{id}"
        );
        let newer =
            matches!(s.gpu.compute_capability, Some((major, _)) if (9..11).contains(&major));
        assert!(!newer || reachable.large_gemm.is_some(), "{id}");
    }
}

#[test]
fn gpu_calibrations_name_known_boards_and_sources() {
    let mut exceptions = 0;
    for file in calibration::built_in() {
        for (name, constant) in &file.constants {
            for (id, own) in &constant.boards {
                assert_eq!(architecture(spec(id)), file.architecture, "{name} {id}");
                assert_ne!(own.value, constant.usual.value, "{name} {id}");
                exceptions += 1;
            }
        }
    }
    assert!(exceptions >= 10, "{exceptions}");
}

/// Built-in boards take everything from the calibration, so that each value has one place.
#[test]
fn gpu_files_have_no_values_of_the_calibration() {
    for s in load::built_in() {
        let text = load::text_of(&s.gpu.id).unwrap();
        assert!(!text.contains("reachable"), "{}", s.gpu.id);
    }
    let reached = |id: &str| (spec(id).gpu.reachable.math, spec(id).gpu.reachable.memory);
    assert_eq!(reached("h100-pcie-80gb"), (0.80, 0.85));
    // Measured on this board.
    assert_eq!(reached("h100-sxm5-80gb"), (0.756, 0.89));
    assert_eq!(reached("t4"), (0.60, 0.85));
    assert_eq!(reached("mi300x"), (0.60, 0.85));
}

#[test]
fn gpu_files_of_users_take_precedence_over_the_calibration() {
    let own = user_file(&format!(
        "{MINIMAL}[reachable]\nmath = 0.5\nkernel_ns = 3000\n"
    ));
    let usual = user_file(MINIMAL).gpu.reachable;
    assert_eq!((own.gpu.reachable.math, usual.math), (0.5, 0.8));
    assert_eq!(
        (own.gpu.reachable.kernel_ns, usual.kernel_ns),
        (3000.0, 2000.0)
    );
    assert_eq!(own.gpu.reachable.memory, usual.memory);
    assert_eq!(own.gpu.reachable.aligned_gemm, usual.aligned_gemm);
}

#[test]
fn gpu_files_of_unknown_architectures_take_the_least_of_their_vendor() {
    let other = user_file(&MINIMAL.replace("Ampere", "Unheard Of"))
        .gpu
        .reachable;
    let nvidia = || (calibration::built_in().iter()).filter(|c| c.vendor == Vendor::Nvidia);
    let least = |of: fn(&Calibration) -> f64| nvidia().map(of).fold(f64::INFINITY, f64::min);
    assert_eq!(other.math, least(|c| c.constants["math"].usual.value));
    assert_eq!(other.memory, least(|c| c.constants["memory"].usual.value));
    assert!(other.math < 0.80, "{}", other.math);
}

/// The file that `gpus show` prints for a board, with its calibration, is one that reads back equal.
#[test]
fn gpu_files_shown_with_their_calibration_read_back_equal() {
    for s in load::built_in() {
        let file = calibration::of_architecture(architecture(s)).unwrap();
        let table = show::reachable_table(s, file);
        assert!(table.matches("  # ").count() >= 6, "{table}");
        let text = format!("{}{table}", load::text_of(&s.gpu.id).unwrap());
        let again = load::parse_source(&s.gpu.id, &Source::new("mine.toml", text)).unwrap();
        assert_eq!(again, *s);
        let renamed = user_file(&format!("{}{table}", load::text_of(&s.gpu.id).unwrap()));
        assert_eq!(renamed.gpu.reachable, s.gpu.reachable, "{}", s.gpu.id);
    }
}

#[test]
fn gpu_calibrations_without_a_source_are_refused() {
    let text = "architecture = \"X\"\nvendor = \"nvidia\"\n[math]\nvalue = 1.2\n[memory]\nvalue = 0.8\nsource = \"\"\nboards.A = 3\n";
    let shown = calibration::parse_source(&Source::new("x.toml", text))
        .unwrap_err()
        .render(false);
    for part in [
        "`math.value` cannot be 1.2",
        "`math.source` is missing",
        "`memory.source`",
        "`attention` is missing",
        "`kernel_ns` is missing",
        "memory.boards",
    ] {
        assert!(shown.contains(part), "{part:?} is not in\n{shown}");
    }
}
