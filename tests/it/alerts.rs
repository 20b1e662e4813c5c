//! Prometheus reads what the chart renders as rules and what was scraped, and says which alerts are raised.

use std::process::Command;

use drover_testkit::progress::Progress;
use serde_json::Value;

use crate::cluster::Cluster;
use crate::helm::{helm, run, said};

/// A scrape's name, which tells its target from others, and what was scraped.
pub(crate) type Scrape<'a> = (&'a str, &'a str);

/// Those that fire at the end of each of these times, one after the other, a line of JSON for each: during it all of
/// its scrapes gave what they hold.
pub(crate) async fn firing(cluster: &Cluster, times: &[(Vec<Scrape<'_>>, &str)]) -> String {
    let chart = crate::chart::chart();
    let render = ["template", "drover", &chart, "--set", "metrics.prometheusRule.enabled=true"];
    let rendered = said(&run(helm(cluster, "drover-system", &render)).await, true);
    let rules = rendered.split("\n---\n").find(|object| object.contains("kind: PrometheusRule\n")).expect("rules");
    let rules: Value = serde_saphyr::from_str(rules).expect("an object");
    let file = |name: &str, text: &str| {
        std::fs::write(cluster.path(name), text).expect("a file");
        cluster.path(name).display().to_string()
    };
    let program = tokio::task::spawn_blocking(|| drover_testkit::alerts::find_or_build(&Progress::silent()));
    let mut command = Command::new(program.await.expect("an end").expect("tools/alerts"));
    command.arg(file("rules", &rules["spec"].to_string()));
    for (scrapes, time) in times {
        let files: Vec<String> = scrapes.iter().map(|(name, text)| file(name, text)).collect();
        command.arg(format!("{}={time}", files.join(",")));
    }
    said(&run(command).await, true)
}
