use std::collections::BTreeSet;
use std::path::Path;

use super::*;
use crate::judge::RuleSet;
use crate::report::{Evidence, FactValue, OperatorUse};

fn tensor(dtype: &str, shape: &[u64], strides: Option<&[i64]>) -> CallArgument {
    CallArgument::Tensor {
        shape: shape.to_vec(),
        dtype: Some(dtype.to_owned()),
        strides: strides.map(<[i64]>::to_vec),
    }
}

fn used(operator: &str, call: Vec<CallArgument>) -> OperatorUse {
    OperatorUse {
        operator: operator.to_owned(),
        direction: "fprop".to_owned(),
        arguments: String::new(),
        arguments_from_forward: false,
        call,
        calls: 1,
        time_ns: 1,
    }
}

fn finding(rule: &str, operators: Vec<OperatorUse>) -> FindingReport {
    let mut finding = example();
    finding.rule = rule.to_owned();
    finding.evidence = Evidence {
        operators,
        ..Evidence::default()
    };
    finding
}

/// Any finding of the example profile.
fn example() -> FindingReport {
    let advisor = crate::Advisor::new().unwrap();
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/net.sqlite");
    advisor.report(fixture).unwrap().findings.swap_remove(0)
}

#[test]
fn every_kind_is_listed_and_about_existing_rules() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/repro/kinds");
    let files: BTreeSet<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            entry
                .unwrap()
                .path()
                .file_stem()
                .unwrap()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    let listed: BTreeSet<String> = KINDS.iter().map(|kind| kind.name.to_owned()).collect();
    assert_eq!(files, listed);
    let rules = RuleSet::builtin().unwrap_or_else(|complaints| panic!("{complaints}"));
    for rule in KINDS.iter().flat_map(|kind| kind.rules) {
        assert!(
            rules.rules().iter().any(|r| r.id == *rule),
            "there is no rule `{rule}`"
        );
    }
}

#[test]
fn text_of_a_profile_never_becomes_code() {
    let attack = "mm\"\"\")\nimport os; os.system('touch /tmp/x')#";
    let plain = || {
        vec![
            tensor("fp32", &[64, 64], None),
            tensor("fp32", &[64, 64], None),
        ]
    };
    let refused = |operators| {
        let error = script(&finding("precision/tf32-off", operators)).unwrap_err();
        assert!(
            [
                "operators of PyTorch only",
                "not the operators that it calls",
                "does not have all",
                "does not say"
            ]
            .iter()
            .any(|why| error.to_string().contains(why)),
            "{error}"
        );
    };
    refused(vec![used(&format!("aten::{attack}"), plain())]);
    refused(vec![used("my_lib::mm", plain())]);
    refused(vec![used("aten::__import__.system", plain())]);
    refused(vec![used("torch.nn.functional.os", plain())]);
    refused(vec![used(&format!("Tensor.{attack}"), plain())]);
    refused(vec![used(
        "aten::mm",
        vec![tensor(attack, &[64, 64], None)],
    )]);
    refused(vec![used(
        "aten::mm",
        vec![tensor("fp32", &[u64::MAX, 3], None)],
    )]);
    refused(vec![used(
        "aten::mm",
        vec![tensor("fp32", &[4, 4], Some(&[-1, 4]))],
    )]);
    refused(vec![used(
        "aten::mm",
        vec![tensor("fp32", &[4, 4], Some(&[i64::MAX, 1]))],
    )]);
    refused(Vec::new());
    let mut hostile = finding("precision/tf32-off", vec![used("aten::mm", plain())]);
    hostile.title = attack.to_owned();
    hostile.place = attack.to_owned();
    hostile.message = attack.to_owned();
    assert!(!script(&hostile).unwrap().contains("os.system"));
    hostile.rule = attack.to_owned();
    assert!(script(&hostile).is_err());
}

#[test]
fn page_of_kinds_is_fresh() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/repro.md");
    let page = std::fs::read_to_string(file).unwrap();
    let rows = KINDS.iter().map(|kind| {
        let rules: Vec<String> = kind.rules.iter().map(|rule| format!("`{rule}`")).collect();
        format!("| {} | {} |\n", kind.about, rules.join(", "))
    });
    let made: String = rows.collect();
    let (before, rest) = page.split_once("| --- | --- |\n").unwrap();
    let (_, after) = rest.split_once("\n## What a script contains").unwrap();
    let whole = format!("{before}| --- | --- |\n{made}\n## What a script contains{after}");
    if std::env::var_os("PYPROF_ADVISE_BLESS").is_some() {
        std::fs::write(file, whole).unwrap();
    } else {
        assert!(
            page == whole,
            "docs/repro.md is stale: PYPROF_ADVISE_BLESS=1 cargo test fresh"
        );
    }
}

#[test]
fn strides_and_types_are_those_of_the_profile() {
    let operands = vec![
        tensor("bf16", &[8192, 1600], None),
        // A transposed weight.
        tensor("bf16", &[1600, 50257], Some(&[1, 1600])),
    ];
    let gemm = finding(
        "tensor-cores/gemm-unaligned",
        vec![used("aten::mm", operands)],
    );
    let text = script(&gemm).unwrap();
    let flat: String = text.split_whitespace().collect();
    assert!(
        flat.contains(r#""shape":[1600,50257],"strides":[1,1600]"#),
        "{text}"
    );
    assert!(text.contains("\"bfloat16\"") && text.contains("`tensor-cores/gemm-unaligned`"));
}

#[test]
fn the_optimizer_is_that_of_the_finding() {
    let parameters = || CallArgument::List {
        items: vec![tensor("fp32", &[1024, 1024], None)],
    };
    let of = |rule: &str, message: &str, call: Vec<CallArgument>| {
        let mut found = finding(rule, vec![used("aten::_foreach_add_", call)]);
        message.clone_into(&mut found.message);
        script(&found).unwrap()
    };
    let foreach = "layers/optimizer-foreach";
    let sgd = of(foreach, "SGD spends 8.0 % of GPU time", vec![parameters()]);
    assert!(
        sgd.contains("torch.optim.SGD(") && sgd.contains("\"momentum\": 0.9"),
        "{sgd}"
    );
    assert!(sgd.contains("optimizer(foreach=True)"), "{sgd}");
    let adam = of(foreach, "An optimizer of Adam's kind", vec![parameters()]);
    assert!(adam.contains("torch.optim.AdamW("), "{adam}");
    let single = of(
        "layers/optimizer-unfused",
        "800 small operators update the parameters",
        vec![tensor("fp32", &[1024], None)],
    );
    assert!(single.contains("optimizer(foreach=False)"), "{single}");
}

/// The sentences that kinds look for are those of the rules.
#[test]
fn words_of_rules_that_decide_about_scripts_exist() {
    let rules = RuleSet::builtin().unwrap_or_else(|complaints| panic!("{complaints}"));
    let of = |id: &str| rules.rules().iter().find(|rule| rule.id == id).unwrap();
    let foreach = &of("layers/optimizer-foreach")
        .advice()
        .unwrap()
        .message
        .source;
    assert!(foreach.contains("{% elif sgd %}SGD{% else %}"), "{foreach}");
    let norm = of("layers/norm-unfused");
    let texts = || {
        norm.advice()
            .unwrap()
            .fixes
            .iter()
            .map(|fix| fix.text.source.as_str())
    };
    assert_eq!(
        texts()
            .filter(|text| text.contains("The mean is subtracted"))
            .count(),
        1
    );
    let products = &of("layers/projections-unfused")
        .advice()
        .unwrap()
        .message
        .source;
    assert!(
        products.contains("{{ chain.length }} products follow each other"),
        "{products}"
    );
}

#[test]
fn norms_with_a_mean_are_layer_norms() {
    let x = || tensor("bf16", &[8, 1024, 768], None);
    let of = |operator: &str| {
        let operator = used(operator, vec![x(), tensor("bf16", &[768], None)]);
        script(&finding("layers/norm-unfused", vec![operator])).unwrap()
    };
    assert!(of("aten::sub").contains("if True:"));
    let rms = of("aten::mul");
    assert!(
        rms.contains("if False:") && rms.contains("in [8192, 768]"),
        "{rms}"
    );
}

#[test]
fn copies_take_their_size_from_a_number_only() {
    let of = |value: &str, place: &str| {
        let mut found = finding("copies/pageable", Vec::new());
        found.evidence.facts = vec![FactValue {
            name: "copy.mean_bytes".to_owned(),
            value: value.to_owned(),
        }];
        place.clone_into(&mut found.place);
        script(&found)
    };
    let up = of("9.63 MB", "copies").unwrap();
    assert!(
        up.contains("9630000 // 4") && up.contains("if False:"),
        "{up}"
    );
    let down = of("64.0 kB", "device to host copies to pageable memory").unwrap();
    assert!(down.contains("if True:"), "{down}");
    for attack in ["", "1 MB; import os", "__import__('os') MB", "1e300 GB"] {
        let error = of(attack, "copies").unwrap_err().to_string();
        assert!(error.contains("does not have the size"), "{error}");
    }
}
