//! Whole answers of an agent, in Nomad's words.

use std::collections::BTreeMap;

use drover_api::allocation::{CheckResult, CheckStatus};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::placed::Placed;
use crate::wire::times::{date, nanos};

/// A file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileFacts {
    /// Its name.
    pub name: String,
    /// Whether it is a folder.
    pub is_dir: bool,
    /// In bytes.
    pub size: u64,
    /// As `ls -l` shows it.
    pub mode: String,
    /// When it was changed.
    pub modified_at: Option<Timestamp>,
    /// What it seems to hold.
    pub content_type: String,
}

/// A file, as its description says.
pub fn file(file: &FileFacts) -> Value {
    json!({
        "Name": file.name, "IsDir": file.is_dir, "Size": file.size, "FileMode": file.mode,
        "ModTime": date(file.modified_at), "ContentType": file.content_type,
    })
}

/// The files of a folder.
pub fn files(all: &[FileFacts]) -> Value {
    all.iter().map(file).collect()
}

/// What a task uses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TaskUsage {
    /// How much of one core.
    pub cores: f64,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// The most memory that it had.
    pub memory_peak_bytes: u64,
}

/// What an allocation uses.
#[derive(Clone, Debug, PartialEq)]
pub struct Usage {
    /// When it was looked at.
    pub time: Timestamp,
    /// All its tasks together.
    pub total: TaskUsage,
    /// Each that runs.
    pub tasks: BTreeMap<String, TaskUsage>,
}

/// What an allocation uses, or one task of it: of a task that is not there, nothing.
pub fn usage(usage: &Usage, task: Option<&str>, placed: &Placed) -> Value {
    let time = nanos(usage.time);
    let tasks: Map<String, Value> = usage
        .tasks
        .iter()
        .filter(|(name, _)| task.is_none_or(|task| task == name.as_str()))
        .map(|(name, used)| {
            let value = json!({ "ResourceUsage": resources(*used, placed), "Timestamp": time, "Pids": null });
            (name.clone(), value)
        })
        .collect();
    let total = match task {
        None => usage.total,
        Some(task) => usage.tasks.get(task).copied().unwrap_or_default(),
    };
    json!({ "ResourceUsage": resources(total, placed), "Tasks": tasks, "Timestamp": time })
}

fn resources(used: TaskUsage, placed: &Placed) -> Value {
    json!({
        "CpuStats": {
            "SystemMode": 0.0, "UserMode": 0.0, "TotalTicks": used.cores * placed.core_mhz, "ThrottledPeriods": 0,
            "ThrottledTime": 0, "Percent": used.cores * 100.0, "Measured": ["Percent", "Total Ticks"],
        },
        "MemoryStats": {
            "RSS": 0, "Cache": 0, "Swap": 0, "Usage": used.memory_bytes,
            "MaxUsage": used.memory_peak_bytes, "KernelUsage": 0, "KernelMaxUsage": 0,
            "Measured": ["Usage", "Max Usage"],
        },
        "DeviceStats": [],
    })
}

/// The results of an allocation's checks by their ids; null without any.
pub fn check_results(checks: &BTreeMap<String, CheckStatus>, group: &str) -> Value {
    if checks.is_empty() {
        return Value::Null;
    }
    checks.iter().map(|(id, check)| (id.clone(), result(id, check, group))).collect::<Map<_, _>>().into()
}

fn result(id: &str, check: &CheckStatus, group: &str) -> Value {
    let status = match check.status {
        CheckResult::Success | CheckResult::Warning => "success",
        CheckResult::Failure => "failure",
        CheckResult::Pending => "pending",
    };
    let mut result = json!({
        "ID": id, "Check": check.check, "Group": group, "Mode": check.mode, "Output": check.output,
        "Service": check.service, "Status": status, "Timestamp": check.timestamp.map_or(0, Timestamp::as_second),
    });
    if !check.task.is_empty() {
        result["Task"] = json!(check.task);
    }
    if let Some(code) = check.status_code {
        result["StatusCode"] = json!(code);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed() -> Placed {
        Placed {
            namespace: "shop".to_owned(),
            name: "web-api-0".to_owned(),
            uid: "u".to_owned(),
            node: "n-1".to_owned(),
            shown_name: "web.api[0]".to_owned(),
            core_mhz: 2000.0,
        }
    }

    #[test]
    fn a_file_has_a_date_also_where_none_is_known() {
        let facts = FileFacts { name: "a".to_owned(), size: 7, mode: "-rw-r--r--".to_owned(), ..FileFacts::default() };
        let wanted = json!({ "Name": "a", "IsDir": false, "Size": 7, "FileMode": "-rw-r--r--",
                             "ModTime": "0001-01-01T00:00:00Z", "ContentType": "" });
        assert_eq!((file(&facts), files(&[])), (wanted, json!([])));
    }

    #[test]
    fn usage_is_in_parts_of_a_core_and_in_mhz_and_of_an_unknown_task_nothing() {
        let of = |cores, memory_bytes| TaskUsage { cores, memory_bytes, memory_peak_bytes: memory_bytes * 2 };
        let all = Usage {
            time: Timestamp::from_second(9).expect("a time"),
            total: of(0.75, 30),
            tasks: [("a".to_owned(), of(0.5, 10)), ("b".to_owned(), of(0.25, 20))].into(),
        };
        let whole = usage(&all, None, &placed());
        assert_eq!(whole["ResourceUsage"]["CpuStats"]["TotalTicks"], 1500.0);
        assert_eq!(whole["Tasks"]["b"]["ResourceUsage"]["CpuStats"]["Percent"], 25.0);
        assert_eq!(
            (&whole["Timestamp"], &whole["Tasks"]["b"]["Timestamp"]),
            (&json!(9_000_000_000_u64), &json!(9_000_000_000_u64))
        );
        let one = usage(&all, Some("a"), &placed());
        assert_eq!(one["ResourceUsage"]["MemoryStats"]["MaxUsage"], 20);
        assert_eq!(one["Tasks"].as_object().expect("a map").keys().collect::<Vec<_>>(), ["a"]);
        let none = usage(&all, Some("c"), &placed());
        assert_eq!((&none["ResourceUsage"]["MemoryStats"]["Usage"], &none["Tasks"]), (&json!(0), &json!({})));
    }

    #[test]
    fn results_of_checks_are_by_id_and_without_any_there_is_null() {
        let check = |status, task: &str, status_code| CheckStatus {
            check: "up".to_owned(),
            service: "web".to_owned(),
            task: task.to_owned(),
            status,
            mode: "healthiness".to_owned(),
            output: "o".to_owned(),
            status_code,
            timestamp: Timestamp::from_second(9).ok(),
        };
        let all = [
            ("a".to_owned(), check(CheckResult::Failure, "", None)),
            ("b".to_owned(), check(CheckResult::Success, "t", Some(200))),
        ];
        let found = check_results(&all.into(), "web.api[0]");
        let wanted = json!({ "ID": "a", "Check": "up", "Group": "web.api[0]", "Mode": "healthiness", "Output": "o",
                             "Service": "web", "Status": "failure", "Timestamp": 9 });
        assert_eq!(found["a"], wanted);
        let of_task = &found["b"];
        assert_eq!(
            (&of_task["Task"], &of_task["StatusCode"], &of_task["Status"]),
            (&json!("t"), &json!(200), &json!("success"))
        );
        assert_eq!(check_results(&BTreeMap::new(), "x"), Value::Null);
    }
}
