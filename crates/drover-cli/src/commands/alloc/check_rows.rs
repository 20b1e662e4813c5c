//! What checks found, as people read it.

use std::collections::BTreeMap;

use drover_api::allocation::CheckStatus;
use jiff::Timestamp;

use crate::ui::output;
use crate::ui::table::Table;

/// A row for each check.
pub(super) fn rows(checks: &BTreeMap<String, CheckStatus>, now: Timestamp) -> Table {
    let mut table = Table::new(&["SERVICE", "CHECK", "STATUS", "MODE", "SINCE", "OUTPUT"]);
    for check in checks.values() {
        let since = check.timestamp.map(|at| format!("{} ago", output::span(now.duration_since(at).as_secs())));
        let code = check.status_code.map_or_else(String::new, |code| format!("{code}: "));
        // One line each, whatever was answered.
        let text: String = check.output.split_whitespace().collect::<Vec<_>>().join(" ");
        table.row(vec![
            check.service.clone(),
            check.check.clone(),
            check.status.to_string(),
            check.mode.clone(),
            since.unwrap_or_else(|| "-".to_owned()),
            format!("{code}{text}"),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use drover_api::allocation::CheckResult;

    use super::*;

    #[test]
    fn each_check_is_a_line_with_what_it_was_answered() {
        let check = |name: &str, status, code, text: &str| CheckStatus {
            check: name.to_owned(),
            service: "api".to_owned(),
            mode: "healthiness".to_owned(),
            status,
            status_code: code,
            output: text.to_owned(),
            timestamp: (status != CheckResult::Pending).then_some(Timestamp::UNIX_EPOCH),
            ..CheckStatus::default()
        };
        let checks = BTreeMap::from([
            ("a".to_owned(), check("up", CheckResult::Failure, Some(503), "not\n  yet")),
            ("b".to_owned(), check("port", CheckResult::Success, None, "tcp ok")),
            ("c".to_owned(), check("new", CheckResult::Pending, None, "")),
        ]);
        let mut text = String::new();
        rows(&checks, Timestamp::from_second(90).unwrap()).write(&mut text);
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let expected = [
            "SERVICE  CHECK  STATUS   MODE         SINCE    OUTPUT",
            "api      up     failure  healthiness  90s ago  503: not yet",
            "api      port   success  healthiness  90s ago  tcp ok",
            "api      new    pending  healthiness  -",
        ];
        assert_eq!(lines, expected);
    }
}
