//! JSON, SARIF and workflow commands, checked against their schemas and grammars.

use jsonschema::validator_for;
use pyprof_advise::report::{SCHEMA, github, json, read_json, sarif};
use serde_json::Value;

use super::{all, check, example, reports};

/// The SARIF 2.1.0 schema of OASIS.
const SARIF: &str = include_str!("schema/sarif-2.1.0.json");

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Forbids additional fields in a schema. The published schema allows them, because reports may get new
/// fields; here it must list all.
fn strict(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            if let Some(properties) = object.get("properties").and_then(Value::as_object) {
                let names = properties.keys().cloned().map(Value::String).collect();
                object.insert("required".to_owned(), Value::Array(names));
                object.insert("additionalProperties".to_owned(), Value::Bool(false));
            }
            object.values_mut().for_each(strict);
        }
        Value::Array(items) => items.iter_mut().for_each(strict),
        _ => {}
    }
}

#[test]
fn json_conforms_to_its_schema() {
    let mut schema = parsed(SCHEMA);
    strict(&mut schema);
    let validator = validator_for(&schema).unwrap();
    for (name, text) in all() {
        let errors: Vec<String> = validator
            .iter_errors(&parsed(text))
            .map(|e| format!("{}: {e}", e.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{name}: {errors:#?}");
    }
    let mut wrong = parsed(&all()[0].1);
    wrong["summary"]["busy_ns"] = Value::String("much".into());
    assert!(!validator.is_valid(&wrong), "the schema allows anything");
}

#[test]
fn json_round_trips() {
    for (name, text) in all() {
        assert!(json(&read_json(text).unwrap()) == *text, "{name}");
    }
}

#[test]
fn site_times_add_up() {
    for (name, report) in reports() {
        let listed: i64 = report.sites.iter().map(|s| s.time_ns).sum();
        let total = listed + report.sites_omitted.time_ns;
        assert_eq!(total, report.summary.kernel_time_ns, "{name}");
        let parts: i64 = report.timeline.parts.iter().map(|p| p.ns).sum();
        assert_eq!(parts, report.summary.device_window_ns, "{name}");
        for pair in report.sites.windows(2) {
            assert!(pair[0].time_ns >= pair[1].time_ns, "{name}");
        }
        for device in &report.timeline.devices {
            let mean = device.busy.iter().sum::<f64>() / device.busy.len().max(1) as f64;
            let share = device.busy_ns as f64 / device.ns.max(1) as f64;
            assert!((mean - share).abs() < 0.01, "{name}: {mean} {share}");
        }
    }
}

#[test]
fn sarif_is_valid() {
    let mut schema = parsed(SARIF);
    // Only JavaScript accepts a closing bracket without an opening one in a pattern; we write no
    // `language`.
    for part in ["run", "toolComponent"] {
        let language = &mut schema["definitions"][part]["properties"]["language"];
        language.as_object_mut().unwrap().remove("pattern");
    }
    let validator = validator_for(&schema).unwrap();
    for (name, report) in reports() {
        let log = parsed(&sarif(&report));
        let errors: Vec<String> = validator
            .iter_errors(&log)
            .map(|e| format!("{}: {e}", e.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{name}: {errors:#?}");
        let run = &log["runs"][0];
        let results = run["results"].as_array().unwrap();
        assert_eq!(results.len(), report.findings.len(), "{name}");
        let mut prints = Vec::new();
        for (result, finding) in results.iter().zip(&report.findings) {
            let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
            let rule = &run["tool"]["driver"]["rules"][index];
            assert_eq!(rule["id"], result["ruleId"], "{name}");
            assert!(!rule["help"]["markdown"].as_str().unwrap().is_empty());
            prints.push(result["partialFingerprints"]["ruleAndPlace/v1"].clone());
            let location = &result["locations"][0];
            let layer = &location["logicalLocations"][0]["fullyQualifiedName"];
            assert!(!layer.as_str().unwrap().is_empty());
            let line = &location["physicalLocation"]["region"]["startLine"];
            let known = finding
                .evidence
                .source_lines
                .iter()
                .any(|l| !l.contains('…'));
            assert_eq!(line.is_u64(), known, "{name}: {location}");
        }
        let count = prints.len();
        prints.sort_by_key(ToString::to_string);
        prints.dedup();
        assert_eq!(prints.len(), count, "{name}: a fingerprint twice");
    }
}

#[test]
fn sarif_results_have_source_lines() {
    let log = parsed(&sarif(&example()));
    let result = &log["runs"][0]["results"][0];
    let place = &result["locations"][0]["physicalLocation"];
    assert_eq!(place["artifactLocation"]["uri"], "net/model.py");
    assert_eq!(place["artifactLocation"]["uriBaseId"], "SRCROOT");
    assert_eq!(place["region"]["startLine"], 111);
    assert_eq!(result["level"], "error");
}

#[test]
fn workflow_commands_are_capped_and_escaped() {
    let mut many = example();
    let finding = many.findings[1].clone();
    many.findings = vec![finding; 40];
    let text = github(&many);
    check::commands(&text, "many");
    assert_eq!(text.matches("::warning ").count(), 10);
    assert!(text.ends_with("30 findings not annotated: GitHub shows 10 of a level per step.\n"));
}
