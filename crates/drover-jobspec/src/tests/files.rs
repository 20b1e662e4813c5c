//! Job files of `testdata` and what they become.

use expect_test::expect_file;
use serde_json::Value;

use crate::{Inputs, manifests};

/// The manifests of a file of `testdata`, as YAML documents.
fn converted(name: &str, text: &str) -> String {
    let found = manifests(name, text, &Inputs::default()).unwrap_or_else(|faults| panic!("{faults:#?}"));
    let documents: Vec<String> = found.iter().map(|manifest| serde_saphyr::to_string(manifest).unwrap()).collect();
    format!("---\n{}", documents.join("---\n"))
}

#[test]
fn a_service_with_variables_dynamic_blocks_and_heredocs_becomes_a_job() {
    let text = include_str!("../../testdata/web.nomad.hcl");
    expect_file!["../../testdata/web.nomad.yaml"].assert_eq(&converted("web.nomad.hcl", text));
}

#[test]
fn a_periodic_task_without_a_group_becomes_a_job_with_one() {
    let text = include_str!("../../testdata/report.nomad.hcl");
    expect_file!["../../testdata/report.nomad.yaml"].assert_eq(&converted("report.nomad.hcl", text));
}

#[test]
fn a_volume_file_becomes_a_volume_and_the_secret_that_it_names() {
    let text = include_str!("../../testdata/data.volume.hcl");
    expect_file!["../../testdata/data.volume.yaml"].assert_eq(&converted("data.volume.hcl", text));
}

/// Every field that a table names is one of the resource, so that no import is refused for a name of ours.
#[test]
fn every_field_of_the_tables_is_one_of_the_schema() {
    for text in [include_str!("../../testdata/web.nomad.hcl"), include_str!("../../testdata/every.nomad.hcl")] {
        let found = manifests("job.hcl", text, &Inputs::default()).unwrap_or_else(|faults| panic!("{faults:#?}"));
        let job: drover_api::Job = serde_json::from_value(found[0].clone()).unwrap();
        let again = serde_json::to_value(&job).unwrap();
        let mut lost = Vec::new();
        compare(&found[0], &again, "", &mut lost);
        assert!(lost.is_empty(), "{lost:#?}");
    }
}

/// Names what one value holds and the other one does not.
fn compare(written: &Value, read: &Value, path: &str, lost: &mut Vec<String>) {
    match (written, read) {
        (Value::Object(written), Value::Object(read)) => {
            for (key, value) in written {
                match read.get(key) {
                    Some(other) => compare(value, other, &format!("{path}.{key}"), lost),
                    // A default is not written.
                    None if is_default(value) => {}
                    None => lost.push(format!("{path}.{key}")),
                }
            }
        }
        (Value::Array(written), Value::Array(read)) => {
            for (at, (value, other)) in written.iter().zip(read).enumerate() {
                compare(value, other, &format!("{path}[{at}]"), lost);
            }
        }
        _ => {}
    }
}

fn is_default(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(values) => values.is_empty(),
        Value::Object(values) => values.is_empty(),
        _ => false,
    }
}
