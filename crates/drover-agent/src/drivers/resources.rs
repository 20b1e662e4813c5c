//! From what an allocation holds to what the kernel is told: shares, limits, capabilities.

use std::collections::BTreeSet;

use drover_api::allocation::TaskResources;

use drover_supervisor::{CAPABILITIES, held_capabilities};

const MEBIBYTE: u64 = 1 << 20;
/// The range of CPU shares.
const SHARES: (u64, u64) = (2, 262_144);
/// Microseconds of the period that a quota is of.
const PERIOD_US: u64 = 100_000;

/// The capabilities that a task which asks for none could get back by a program that has them (it gets none of them at
/// its start, and no program can give it more): those of container runtimes without the ones that reach files, users
/// and devices of others.
const DEFAULT_CAPABILITIES: [&str; 5] = ["CHOWN", "FSETID", "KILL", "NET_BIND_SERVICE", "SETPCAP"];

/// What makes and ends a sandbox, beside what the tasks in it may have: namespaces and mounts, devices and a network of
/// its own, the files and the user of the task, signals to it, and a look at its processes.
const FOR_SANDBOXES: [&str; 12] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "KILL",
    "MKNOD",
    "NET_ADMIN",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_ADMIN",
    "SYS_CHROOT",
    "SYS_PTRACE",
];

/// Limits of memory in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryLimits {
    /// More ends the task.
    pub(crate) hard: Option<u64>,
    /// Down to this much it is left in peace.
    pub(crate) soft: Option<u64>,
}

/// The limits of a task that reserves `memory_mb` and may use up to `memory_max_mb` (0: no more; -1: without limit).
pub(crate) fn memory_limits(resources: &TaskResources) -> MemoryLimits {
    let bytes = |mb: i64| u64::try_from(mb).ok().map(|mb| mb.saturating_mul(MEBIBYTE));
    let reserved = bytes(resources.memory_mb);
    match resources.memory_max_mb {
        0 => MemoryLimits { hard: reserved, soft: None },
        max if max > 0 => MemoryLimits { hard: bytes(max), soft: reserved },
        _ => MemoryLimits { hard: None, soft: reserved },
    }
}

/// The shares of a task that reserves this many MHz, on a node that has `total`.
pub(crate) fn cpu_shares(mhz: u64, total: u64) -> u64 {
    let shares = if total >= SHARES.1 { mhz.saturating_mul(SHARES.1) / total } else { mhz };
    shares.clamp(SHARES.0, SHARES.1)
}

/// The CPU time per period of a task that may use no more than this many MHz of `total`, which are spread over `cores`.
pub(crate) fn cpu_quota_us(mhz: u64, total: u64, cores: u64) -> u64 {
    (mhz.saturating_mul(PERIOD_US).saturating_mul(cores.max(1)) / total.max(1)).max(1000)
}

/// A capability's name without `CAP_`, in upper case.
fn capability(name: &str) -> String {
    let upper = name.trim().to_uppercase();
    upper.strip_prefix("CAP_").map(str::to_owned).unwrap_or(upper)
}

fn expanded(names: &[String]) -> BTreeSet<String> {
    let names: BTreeSet<String> = names.iter().map(|name| capability(name)).collect();
    if names.contains("ALL") { CAPABILITIES.iter().map(|name| (*name).to_owned()).collect() } else { names }
}

/// The capabilities of a sandboxed task: the defaults without what it drops, and what it adds.
///
/// # Errors
/// What it adds and the node does not allow, or what is none.
pub(crate) fn capabilities(allowed: &[String], add: &[String], drop: &[String]) -> Result<BTreeSet<String>, String> {
    capabilities_of(("drivers.exec.allowCaps", allowed), &DEFAULT_CAPABILITIES, (add, drop))
}

/// The capabilities of a task: these defaults without what it drops, and what it adds. What the node allows comes with
/// the name of its setting.
///
/// # Errors
/// What it adds and the node does not allow, or what is none.
pub(crate) fn capabilities_of(
    (setting, allowed): (&str, &[String]),
    defaults: &[&str],
    (add, drop): (&[String], &[String]),
) -> Result<BTreeSet<String>, String> {
    let (allowed, add, drop) = (expanded(allowed), expanded(add), expanded(drop));
    let unknown = add.iter().chain(&drop).find(|name| !CAPABILITIES.contains(&name.as_str()));
    if let Some(name) = unknown {
        return Err(format!("there is no capability {}", name.to_lowercase()));
    }
    let refused: Vec<String> = add.difference(&allowed).map(|name| name.to_lowercase()).collect();
    if !refused.is_empty() {
        return Err(format!(
            "config.capAdd: this node does not allow {}: leave it out, or let the administrator of the node add it to \
             {setting} in the agent's configuration",
            refused.join(", ")
        ));
    }
    let kept = defaults.iter().map(|name| (*name).to_owned()).filter(|name| !drop.contains(name));
    Ok(kept.chain(add.iter().cloned()).collect())
}

/// Why this process cannot give tasks a sandbox with the capabilities that the node allows; none: it can. Of `all`
/// those count that there are.
pub(crate) fn missing_rights(allowed: &[String]) -> Option<String> {
    let held = match held_capabilities() {
        Ok(held) => held,
        Err(error) => return Some(format!("the capabilities of the agent's process are unknown: {error}")),
    };
    let lacking = lacking(&held, allowed);
    (!lacking.is_empty()).then(|| {
        format!(
            "the agent's process lacks the capabilities {}: add them to its container, make that privileged (agent.privileged of the \
             chart), or take them from drivers.exec.allowCaps",
            lacking.join(", ")
        )
    })
}

fn lacking(held: &BTreeSet<&str>, allowed: &[String]) -> Vec<String> {
    let allowed = allowed.iter().map(|name| capability(name)).filter(|name| CAPABILITIES.contains(&name.as_str()));
    let needed: BTreeSet<String> = FOR_SANDBOXES.iter().map(|name| (*name).to_owned()).chain(allowed).collect();
    needed.into_iter().filter(|name| !held.contains(name.as_str())).map(|name| name.to_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_lacks_what_sandboxes_need_and_what_tasks_may_have() {
        let all: BTreeSet<&str> = CAPABILITIES.into_iter().collect();
        let without = |names: &[&str]| all.iter().copied().filter(|name| !names.contains(name)).collect();
        assert_eq!(lacking(&all, &names(&["all"])), [""; 0]);
        assert_eq!(lacking(&without(&["SYS_ADMIN", "NET_RAW"]), &names(&["chown"])), ["sys_admin"]);
        assert_eq!(lacking(&without(&["SYS_ADMIN", "NET_RAW"]), &names(&["CAP_NET_RAW"])), ["net_raw", "sys_admin"]);
        assert_eq!(lacking(&without(&["SYS_RESOURCE"]), &names(&["all"])), [""; 0]);
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_127_memory_limits() {
        let limits = |memory_mb, memory_max_mb| {
            memory_limits(&TaskResources { memory_mb, memory_max_mb, ..TaskResources::default() })
        };
        let mb = |n: u64| Some(n * MEBIBYTE);
        assert_eq!(limits(100, 0), MemoryLimits { hard: mb(100), soft: None });
        assert_eq!(limits(100, 200), MemoryLimits { hard: mb(200), soft: mb(100) });
        assert_eq!(limits(100, -1), MemoryLimits { hard: None, soft: mb(100) });
    }

    #[test]
    fn a_128_shares_are_clamped() {
        assert_eq!(cpu_shares(262_144, 262_145), 262_143);
        assert_eq!(cpu_shares(1000, 524_288), 500);
        assert_eq!(cpu_shares(1, 4000), 2);
        assert_eq!(cpu_shares(500, 4000), 500);
    }

    #[test]
    fn a_quota_is_a_share_of_all_cores() {
        assert_eq!(cpu_quota_us(1000, 4000, 2), 50_000);
        assert_eq!(cpu_quota_us(1, 4000, 2), 1000);
    }

    #[test]
    fn a_129_added_capabilities_join_the_defaults() {
        let allowed = names(&["net_raw", "chown", "CAP_SYS_TIME"]);
        let found = capabilities(&allowed, &names(&["net_raw", "sys_time"]), &names(&["kill", "cap_setpcap"]));
        let wanted = ["CHOWN", "FSETID", "NET_BIND_SERVICE", "NET_RAW", "SYS_TIME"];
        assert_eq!(found.expect("allowed").into_iter().collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn a_130_what_the_node_does_not_allow_is_named() {
        for name in ["net_raw", "mknod", "dac_override", "setuid", "sys_admin", "chown"] {
            let error = capabilities(&[], &names(&[name]), &[]).expect_err("refused");
            assert!(error.contains(name) && error.contains("allowCaps"), "{error}");
        }
        assert!(capabilities(&names(&["all"]), &names(&["net_raw"]), &[]).is_ok());
        let without = capabilities(&[], &[], &names(&["all"])).expect("allowed");
        assert!(without.is_empty());
        assert!(capabilities(&[], &names(&["fly"]), &[]).expect_err("refused").contains("fly"));
    }
}
