//! What is asked of the agent of a node about the node itself.
//!
//! Input: a method, a path below `/v1/`, a body. Output: the call, and of what an agent says Nomad's words. Must never
//! know who asks.

use std::collections::BTreeMap;

use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::fault::Fault;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeCall {
    /// What it uses.
    Stats,
    /// Its metadata.
    Meta,
    /// Its metadata is changed.
    SetMeta,
    /// The files of all allocations that have ended there go.
    Gc,
}

impl NodeCall {
    /// What is asked at a path; none: it is none of these.
    pub(crate) fn of(method: &Method, path: &str) -> Option<Result<Self, Fault>> {
        let (call, names) = match (path, method) {
            ("client/stats", &Method::GET) => (Some(Self::Stats), ""),
            ("client/stats", _) => (None, "GET"),
            ("client/metadata", &Method::GET) => (Some(Self::Meta), ""),
            ("client/metadata", &Method::POST) => (Some(Self::SetMeta), ""),
            ("client/metadata", _) => (None, "GET or POST"),
            // As for one allocation.
            ("client/gc", &Method::GET | &Method::PUT | &Method::POST) => (Some(Self::Gc), ""),
            ("client/gc", _) => (None, "GET, PUT or POST"),
            _ => return None,
        };
        Some(call.ok_or_else(|| Fault::new(405, format!("/v1/{path} is asked for by {names}"))))
    }

    /// Whether something is changed, and not only looked at.
    pub const fn changes_something(self) -> bool {
        matches!(self, Self::SetMeta | Self::Gc)
    }
}

/// Metadata that is to change: none takes a key away, and hides it where the agent's configuration has it.
pub type MetaChanges = BTreeMap<String, Option<String>>;

/// Reads the body of a change, which may name the node too.
///
/// # Errors
/// 400 for what is no such body, or changes nothing.
pub fn meta_changes(body: &[u8]) -> Result<(String, MetaChanges), Fault> {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "PascalCase", default)]
    struct Body {
        #[serde(rename = "NodeID")]
        node_id: String,
        meta: MetaChanges,
    }
    let read: Result<Body, _> = serde_json::from_slice(body);
    let Body { node_id, meta } = read.map_err(|error| Fault::bad(format!("the body cannot be read: {error}")))?;
    if meta.is_empty() {
        return Err(Fault::bad("Meta is empty: give the keys that are to change, with null for those that go"));
    }
    Ok((node_id, meta))
}

/// The metadata of a node: what holds, what was set at run time, what is configured.
pub fn node_meta(meta: &BTreeMap<String, String>, dynamic: &MetaChanges, fixed: &BTreeMap<String, String>) -> Value {
    json!({ "Meta": meta, "Dynamic": dynamic, "Static": fixed })
}

/// What a node uses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostUsage {
    /// Each core: programs, the kernel, nothing, from 0 to 1.
    pub cores: Vec<(f64, f64, f64)>,
    /// MHz of a core; 0 where that is not known.
    pub core_mhz: f64,
    /// Memory in bytes: all, what could be had, what is free.
    pub memory: (u64, u64, u64),
    /// The folder of the allocations, and its file system in bytes: all, what could be had.
    pub disk: (String, u64, u64),
    /// What part of its inodes is used, from 0 to 1.
    pub inodes_used: f64,
    /// Since its start.
    pub uptime_seconds: u64,
}

/// What a node uses, as clients read it: parts of a core are per cent, and ticks MHz.
pub fn host_stats(usage: &HostUsage) -> Value {
    let (all, available, free) = usage.memory;
    let (path, size, could_be_had) = &usage.disk;
    let used = size.saturating_sub(*could_be_had);
    let core = |(number, (user, system, idle)): (usize, &(f64, f64, f64))| json!({ "CPU": format!("cpu{number}"), "User": user * 100.0, "System": system * 100.0, "Idle": idle * 100.0 });
    let cores: Vec<Value> = usage.cores.iter().enumerate().map(core).collect();
    let ticks: f64 = usage.cores.iter().map(|(user, system, _)| (user + system) * usage.core_mhz).sum();
    let disk = json!({
        "Device": "", "Mountpoint": path, "Size": size, "Used": used, "Available": could_be_had,
        "UsedPercent": percent(used, *size), "InodesUsedPercent": usage.inodes_used * 100.0,
    });
    json!({
        "Memory": { "Total": all, "Available": available, "Used": all.saturating_sub(available), "Free": free },
        "CPU": cores, "DiskStats": [disk], "AllocDirStats": disk, "DeviceStats": [],
        "Uptime": usage.uptime_seconds, "CPUTicksConsumed": ticks,
    })
}

fn percent(part: u64, whole: u64) -> f64 {
    let number = |n: u64| std::time::Duration::from_nanos(n).as_secs_f64();
    if whole == 0 { 0.0 } else { number(part) / number(whole) * 100.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p_081_metadata_is_read_by_get_and_changed_by_post() {
        let code =
            |method: Method, path: &str| NodeCall::of(&method, path).map(|found| found.map_err(|fault| fault.code));
        assert_eq!(code(Method::PUT, "client/metadata"), Some(Err(405)));
        assert_eq!(code(Method::POST, "client/metadata"), Some(Ok(NodeCall::SetMeta)));
        assert_eq!(code(Method::GET, "client/metadata"), Some(Ok(NodeCall::Meta)));
        assert_eq!(code(Method::POST, "client/stats"), Some(Err(405)));
        for (method, wanted) in [
            (Method::GET, Ok(NodeCall::Gc)),
            (Method::PUT, Ok(NodeCall::Gc)),
            (Method::POST, Ok(NodeCall::Gc)),
            (Method::DELETE, Err(405)),
        ] {
            assert_eq!(code(method, "client/gc"), Some(wanted));
        }
        assert_eq!(code(Method::GET, "client/gcs"), None);
        let (node, changes) = meta_changes(br#"{"NodeID": "u", "Meta": {"a": "b", "c": null}}"#).expect("changes");
        assert_eq!((node.as_str(), changes["a"].as_deref(), changes["c"].as_deref()), ("u", Some("b"), None));
        for body in [&b"{}"[..], b"", b"[]", br#"{"Meta": {"a": 1}}"#] {
            assert_eq!(meta_changes(body).map_err(|fault| fault.code), Err(400));
        }
    }

    #[test]
    fn a_node_uses_parts_of_its_cores_in_mhz_and_of_its_disk_in_per_cent() {
        let usage = HostUsage {
            cores: vec![(0.25, 0.25, 0.5), (0.0, 0.0, 1.0)],
            core_mhz: 2000.0,
            memory: (100, 60, 10),
            disk: ("/alloc".to_owned(), 200, 150),
            inodes_used: 0.5,
            uptime_seconds: 7,
        };
        let told = host_stats(&usage);
        assert_eq!((&told["CPUTicksConsumed"], &told["CPU"][0]["User"]), (&json!(1000.0), &json!(25.0)));
        assert_eq!((&told["Memory"]["Used"], &told["AllocDirStats"]["UsedPercent"]), (&json!(40), &json!(25.0)));
    }
}
