//! Whether each alert of the chart has a runbook, and each runbook an alert.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::documents::{DocumentLine, Documents, lines};

/// The chart's alerts.
const ALERTS: &str = "charts/drover/templates/monitoring.yaml";
/// The document with the runbooks, and the beginning of the headings that are alerts.
const RUNBOOKS: (&str, &str) = ("docs/operations.md", "### Drover");

/// Alerts without a runbook, and runbooks without an alert.
///
/// # Errors
/// When the chart's alerts cannot be read.
pub(super) fn missing(root: &Path, documents: &Documents) -> Result<Vec<String>> {
    let path = root.join(ALERTS);
    let rules = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    Ok(differing(&rules, documents.text(RUNBOOKS.0).unwrap_or_default()))
}

fn differing(rules: &str, runbooks: &str) -> Vec<String> {
    let alerts: BTreeSet<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    let heading = |(_, line)| match line {
        DocumentLine::Text(line) if line.starts_with(RUNBOOKS.1) => Some(line.trim_start_matches("### ")),
        DocumentLine::Text(_) | DocumentLine::Opens(_) | DocumentLine::Code(..) | DocumentLine::Closes => None,
    };
    let written: BTreeSet<&str> = lines(runbooks).filter_map(heading).collect();
    let without = alerts.difference(&written).map(|name| format!("{}: alert {name} has no runbook", RUNBOOKS.0));
    let left_over = written.difference(&alerts).map(|name| format!("{}: there is no alert {name}", RUNBOOKS.0));
    without.chain(left_over).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alert_without_runbook_and_a_runbook_without_alert_are_named() {
        let rules = "    - alert: DroverA\n      expr: 1\n    - alert: DroverB\n";
        assert_eq!(
            differing(rules, "### DroverB\n### DroverC\n"),
            ["docs/operations.md: alert DroverA has no runbook", "docs/operations.md: there is no alert DroverC"]
        );
    }
}
