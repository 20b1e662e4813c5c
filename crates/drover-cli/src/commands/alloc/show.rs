//! What people and programs see of allocations, files and usage.

use serde_json::json;

use crate::ui::output::{self, Output};
use crate::ui::table::Table;
use drover_socket::protocol::{AllocStats, AllocationInfo, FileInfo, TaskStats};

/// Prints what runs on the node.
pub(crate) fn allocations(all: &[AllocationInfo], output: &Output) -> anyhow::Result<()> {
    let names = || all.iter().map(|it| format!("alloc/{}", it.name)).collect();
    output::value(&json!({ "allocations": all }), output, names, || allocation_rows(all))
}

fn allocation_rows(all: &[AllocationInfo]) -> Table {
    let mut table = Table::new(&["ID", "NAMESPACE", "NAME", "STATUS", "TASKS"]);
    for it in all {
        let tasks: Vec<String> = it.tasks.iter().map(|(name, state)| format!("{name}={state}")).collect();
        let short = it.id.chars().take(8).collect();
        table.row(vec![short, it.namespace.clone(), it.name.clone(), it.client_status.clone(), tasks.join(",")]);
    }
    table
}

/// Prints files.
pub(crate) fn files(all: &[FileInfo], output: &Output) -> anyhow::Result<()> {
    let names = || all.iter().map(|it| it.name.clone()).collect();
    output::value(&json!({ "files": all }), output, names, || file_rows(all))
}

fn file_rows(all: &[FileInfo]) -> Table {
    let mut table = Table::new(&["MODE", "SIZE", "MODIFIED", "NAME"]);
    for it in all {
        let name = if it.is_dir { format!("{}/", it.name) } else { it.name.clone() };
        let modified =
            it.modified_at.map_or_else(|| "-".to_owned(), |at| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        table.row(vec![it.mode.clone(), it.size.to_string(), modified, name]);
    }
    table
}

/// Prints what tasks use.
pub(crate) fn stats(stats: &AllocStats, output: &Output) -> anyhow::Result<()> {
    let names = || stats.tasks.keys().cloned().collect();
    output::value(stats, output, names, || stats_rows(stats))
}

fn stats_rows(stats: &AllocStats) -> Table {
    let mut table = Table::new(&["TASK", "CPU", "MEMORY", "PEAK", "PIDS"]);
    let row = |name: &str, it: &TaskStats| {
        let mib = |bytes: u64| format!("{}Mi", bytes.div_ceil(1024 * 1024));
        vec![
            name.to_owned(),
            format!("{:.1}%", it.cpu_fraction * 100.0),
            mib(it.memory_bytes),
            mib(it.memory_peak_bytes),
            it.pids.to_string(),
        ]
    };
    for (name, it) in &stats.tasks {
        table.row(row(name, it));
    }
    if stats.tasks.len() > 1 {
        table.row(row("(all)", &stats.total));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn check(table: &Table, expected: &Expect) {
        let mut text = String::new();
        table.write(&mut text);
        // The indentation of all lines is stripped from what is expected, and with it the table's own.
        let lines: Vec<String> = text.lines().map(|line| format!("{}\n", &line[2..])).collect();
        expected.assert_eq(&lines.concat());
    }

    #[test]
    fn what_runs_is_a_line_each() {
        let info = |id: &str, name: &str, tasks: &[(&str, &str)]| AllocationInfo {
            id: id.into(),
            namespace: "default".into(),
            name: name.into(),
            client_status: "running".into(),
            tasks: tasks.iter().map(|(name, state)| ((*name).to_owned(), (*state).to_owned())).collect(),
        };
        let all = [
            info("8f7a2c31-0000", "web-g-0-1", &[("web", "running"), ("init", "dead")]),
            info("11112222-0000", "batch-g-0-2", &[("run", "pending")]),
        ];
        check(
            &allocation_rows(&all),
            &expect![[r"
                  ID        NAMESPACE  NAME         STATUS   TASKS
                  8f7a2c31  default    web-g-0-1    running  init=dead,web=running
                  11112222  default    batch-g-0-2  running  run=pending
            "]],
        );
    }

    #[test]
    fn files_look_as_with_ls() {
        let file = |name: &str, is_dir, size, mode: &str| FileInfo {
            name: name.into(),
            is_dir,
            size,
            mode: mode.into(),
            modified_at: Some(jiff::Timestamp::constant(1_800_000_000, 0)),
            content_type: String::new(),
        };
        let all = [file("local", true, 4096, "drwxrwxrwx"), file("app.log", false, 120, "-rw-r--r--")];
        check(
            &file_rows(&all),
            &expect![[r"
                  MODE        SIZE  MODIFIED              NAME
                  drwxrwxrwx  4096  2027-01-15T08:00:00Z  local/
                  -rw-r--r--  120   2027-01-15T08:00:00Z  app.log
            "]],
        );
    }

    #[test]
    fn several_tasks_have_a_sum() {
        let task = TaskStats {
            cpu_nanos: 1,
            cpu_fraction: 0.256,
            memory_bytes: 5 << 20,
            memory_peak_bytes: (6 << 20) + 1,
            pids: 2,
        };
        let one =
            AllocStats { time: jiff::Timestamp::UNIX_EPOCH, total: task, tasks: [("web".to_owned(), task)].into() };
        check(
            &stats_rows(&one),
            &expect![[r"
                  TASK  CPU    MEMORY  PEAK  PIDS
                  web   25.6%  5Mi     7Mi   2
            "]],
        );
        let two = AllocStats { tasks: [("a".to_owned(), task), ("b".to_owned(), task)].into(), ..one };
        check(
            &stats_rows(&two),
            &expect![[r"
                  TASK   CPU    MEMORY  PEAK  PIDS
                  a      25.6%  5Mi     7Mi   2
                  b      25.6%  5Mi     7Mi   2
                  (all)  25.6%  5Mi     7Mi   2
            "]],
        );
    }
}
