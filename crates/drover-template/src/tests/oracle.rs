//! consul-template itself, which renders the same templates with the same values.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use drover_testkit::progress::Progress;
use serde_json::{Value, json};

use crate::RenderOrder;

/// What consul-template makes of orders: each text or error.
pub(super) fn answers(orders: &[RenderOrder]) -> Vec<Result<Vec<u8>, String>> {
    let program = drover_testkit::consul_template::find_or_build(&Progress::silent()).expect("consul-template");
    let mut child = Command::new(program)
        .env("TZ", "UTC")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("consul-template runs");
    let lines: String = orders.iter().map(|order| request(order).to_string() + "\n").collect();
    let mut input = child.stdin.take().expect("an input");
    let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = BufReader::new(child.stdout.take().expect("an output"));
    let answers = output.lines().map(|line| answer(&line.expect("a line"))).collect::<Vec<_>>();
    writer.join().expect("a writer").expect("all is written");
    child.wait().expect("an end");
    assert_eq!(answers.len(), orders.len(), "an answer to each: it ended at {:?}", orders.get(answers.len()));
    answers
}

fn answer(line: &str) -> Result<Vec<u8>, String> {
    let answer: Value = serde_json::from_str(line).expect("an answer");
    if let Some(error) = answer["Error"].as_str().filter(|error| !error.is_empty()) {
        return Err(error.to_owned());
    }
    if answer["Missing"].as_array().is_some_and(|missing| !missing.is_empty()) {
        return Err(format!("missing {}", answer["Missing"]));
    }
    Ok(STANDARD.decode(answer["Text"].as_str().unwrap_or_default()).expect("base64"))
}

fn request(order: &RenderOrder) -> Value {
    let services = order.values.services.iter().map(|(name, instances)| {
        let instances = instances.iter().map(|is| {
            json!({ "ID": is.id, "Node": is.node, "Address": is.address, "Port": is.port, "Tags": is.tags,
                "Datacenter": is.datacenter, "JobID": is.job, "AllocID": is.allocation })
        });
        (name.clone(), instances.collect::<Value>())
    });
    json!({
        "Template": String::from_utf8_lossy(&order.template.0),
        "Left": order.left_delimiter,
        "Right": order.right_delimiter,
        "ErrMissingKey": order.err_missing_key,
        "Env": order.values.env,
        "Secrets": order.values.secrets,
        "ConfigMaps": order.values.config_maps,
        "Services": services.collect::<serde_json::Map<_, _>>(),
    })
}
