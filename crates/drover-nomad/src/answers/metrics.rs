//! What a replica counts: as it is scraped, or in Nomad's words.
//!
//! Input: a text in the format of `OpenMetrics`. A counter becomes one sample, what it has come to since the replica
//! began, and a histogram how often and how much; of neither is known how single values differ.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::agent::Counted;
use super::reply::{Form, Reply};
use super::view::View;
use crate::fault::Fault;

/// What the replica that answers has counted.
pub(super) fn answer(view: View<'_>) -> Result<Reply, Fault> {
    let Counted { text, at } = &view.facts.counted;
    match view.query.text("format") {
        None => Reply::of(&summary(text, *at), view.query),
        Some("prometheus") => Ok(Reply::text(Form::Metrics, text)),
        Some(other) => Err(Fault::bad(format!("format is {other:?}: give prometheus, or none for JSON"))),
    }
}

/// A line of a text: the name of what is counted, its labels, how much.
struct Sample<'a> {
    name: &'a str,
    labels: Map<String, Value>,
    value: f64,
}

/// Values of which are known how many they are and what they come to.
#[derive(Debug, Default)]
struct Totals {
    labels: Map<String, Value>,
    count: f64,
    sum: f64,
}

fn summary(text: &str, at: Timestamp) -> Value {
    let (mut gauges, mut counters) = (Vec::new(), Vec::new());
    // By name and labels.
    let mut histograms: BTreeMap<(&str, String), Totals> = BTreeMap::new();
    let mut family = ("", "");
    for line in text.lines() {
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            family = kind.split_once(' ').unwrap_or_default();
        }
        let Some(Sample { name, labels, value }) = sample(line) else { continue };
        match (family.1, name.strip_prefix(family.0)) {
            ("gauge", _) => gauges.push(json!({ "Name": name, "Value": value, "Labels": labels })),
            ("counter", Some("_total")) => counters.push(of(name, &Totals { labels, count: 1.0, sum: value })),
            ("histogram", Some(part @ ("_count" | "_sum"))) => {
                let key = (family.0, Value::from(labels.clone()).to_string());
                let known = histograms.entry(key).or_insert(Totals { labels, ..Totals::default() });
                *(if part == "_sum" { &mut known.sum } else { &mut known.count }) = value;
            }
            _ => {}
        }
    }
    let samples = histograms.iter().map(|((name, _), totals)| of(name, totals));
    json!({
        "Timestamp": at.strftime("%Y-%m-%d %H:%M:%S +0000 UTC").to_string(),
        "Gauges": gauges, "Counters": counters, "Samples": samples.collect::<Vec<_>>(), "Points": [],
    })
}

fn of(name: &str, Totals { labels, count, sum }: &Totals) -> Value {
    let mean = if *count > 0.0 { sum / count } else { 0.0 };
    // Of many none is known by itself.
    let each = if *count > 1.0 { 0.0 } else { mean };
    json!({
        "Name": name, "Labels": labels, "Count": whole(*count), "Sum": sum, "Mean": mean, "Min": each, "Max": each,
        "Stddev": 0.0, "Rate": 0.0,
    })
}

/// How many, as clients read it.
fn whole(count: f64) -> Value {
    let text = format!("{count:.0}");
    text.parse::<u64>().map_or_else(|_| json!(0), Value::from)
}

/// Reads a line; comments are none.
fn sample(line: &str) -> Option<Sample<'_>> {
    if line.starts_with('#') {
        return None;
    }
    let end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (Map::new(), rest),
    };
    let value: f64 = rest.split_whitespace().next()?.parse().ok()?;
    // JSON has no number for the others.
    value.is_finite().then_some(Sample { name, labels, value })
}

/// The labels of a line, and what stands behind them.
fn labels(text: &str) -> Option<(Map<String, Value>, &str)> {
    let (mut labels, mut rest) = (Map::new(), text);
    loop {
        rest = rest.trim_start_matches(',');
        if let Some(behind) = rest.strip_prefix('}') {
            return Some((labels, behind));
        }
        let (name, quoted) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut chars = quoted.char_indices();
        let end = loop {
            match chars.next()? {
                (end, '"') => break end,
                (_, '\\') => value.push(match chars.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, other) => value.push(other),
            }
        };
        labels.insert(name.to_owned(), value.into());
        rest = quoted.get(end + 1..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# HELP drover_gateway_tunnels Nodes with a tunnel.
# TYPE drover_gateway_tunnels gauge
drover_gateway_tunnels 3
# HELP drover_gateway_calls Calls.
# TYPE drover_gateway_calls counter
drover_gateway_calls_total{verb=\"nomad\",code=\"200\"} 12
drover_gateway_calls_total{verb=\"a \\\"b\\\" \\\\ } c\",code=\"403\"} 1
# TYPE drover_wait_seconds histogram
drover_wait_seconds_sum{type=\"service\"} 1.5
drover_wait_seconds_count{type=\"service\"} 3
drover_wait_seconds_bucket{le=\"1.0\",type=\"service\"} 2
drover_wait_seconds_bucket{le=\"+Inf\",type=\"service\"} 3
# TYPE drover_build info
drover_build_info{version=\"1\"} 1
# TYPE drover_none gauge
drover_none NaN
# EOF
";

    #[test]
    fn what_is_scraped_becomes_gauges_counters_and_samples() {
        let found = summary(TEXT, "2026-01-02T03:04:05.6Z".parse().expect("a time"));
        let counter = |verb: &str, code: &str, sum: f64| {
            json!({ "Name": "drover_gateway_calls_total", "Labels": { "verb": verb, "code": code }, "Count": 1,
                    "Sum": sum, "Mean": sum, "Min": sum, "Max": sum, "Stddev": 0.0, "Rate": 0.0 })
        };
        let wanted = json!({
            "Timestamp": "2026-01-02 03:04:05 +0000 UTC",
            "Gauges": [{ "Name": "drover_gateway_tunnels", "Value": 3.0, "Labels": {} }],
            "Counters": [counter("nomad", "200", 12.0), counter("a \"b\" \\ } c", "403", 1.0)],
            "Samples": [{ "Name": "drover_wait_seconds", "Labels": { "type": "service" }, "Count": 3, "Sum": 1.5,
                          "Mean": 0.5, "Min": 0.0, "Max": 0.0, "Stddev": 0.0, "Rate": 0.0 }],
            "Points": [],
        });
        assert_eq!(found, wanted);
        let none = summary("", Timestamp::UNIX_EPOCH);
        assert_eq!((&none["Gauges"], &none["Samples"]), (&json!([]), &json!([])));
    }

    #[test]
    fn a_line_that_is_none_is_left_out() {
        let begun = "# TYPE a gauge\n";
        for line in ["a", "a{", "a{b", "a{b=\"", "a{b=\"\\", "a{b=\"c\"", "a x", "a{} ", "a inf", "{} "] {
            assert_eq!(
                summary(&format!("{begun}{line}\na 1\n"), Timestamp::UNIX_EPOCH)["Gauges"][0]["Value"],
                1.0,
                "{line}"
            );
        }
    }
}
