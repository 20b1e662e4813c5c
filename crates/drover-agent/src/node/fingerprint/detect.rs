//! Takes the fingerprints: one function per fact group, in one ordered table.

use std::collections::BTreeMap;

use drover_api::client_node::{Fingerprint, FingerprintMeta, OfferedVolume, PortRange, ReservedResources};

use super::attribute::put;
use super::{host, machine, network};
use crate::config::AgentConfig;
use crate::drivers::Drivers;
use crate::drivers::SIGNALS;
use drover_supervisor::protocol::Slice;

/// Why the agent does not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FingerprintError {
    /// A fact could not be read.
    #[error("fingerprint {name}: {reason}")]
    Unreadable {
        /// Which fingerprint.
        name: &'static str,
        /// Why.
        reason: String,
    },
    /// A configured host volume is missing.
    #[error("host volume {name}: {path} does not exist: create it, or take the volume out of hostVolumes")]
    MissingVolume {
        /// The volume.
        name: String,
        /// Its path.
        path: String,
    },
}

type Detect = fn(&AgentConfig, &mut Fingerprint) -> Result<(), String>;

/// The fingerprints, in alphabetical order.
const DETECTORS: &[(&str, Detect)] = &[
    ("agent", host::agent),
    ("arch", machine::arch),
    ("cgroup", host::cgroup),
    ("cpu", machine::cpu),
    ("host", host::host),
    ("memory", machine::memory),
    ("network", network::network),
    ("signal", signal),
    ("storage", machine::storage),
];

/// Takes all fingerprints that the configuration permits.
pub(crate) fn detect(config: &AgentConfig, drivers: &Drivers) -> Result<Fingerprint, FingerprintError> {
    let mut found = Fingerprint {
        meta: FingerprintMeta { static_meta: config.meta.clone(), dynamic: BTreeMap::new() },
        reserved: reserved(config),
        host_volumes: host_volumes(config)?,
        dynamic_ports: Some(PortRange { min: config.dynamic_ports.min.into(), max: config.dynamic_ports.max.into() }),
        max_allocs: config.max_allocs.map(i64::from),
        ..Fingerprint::default()
    };
    for (name, detect) in DETECTORS.iter().filter(|(name, _)| config.fingerprint.permits(name)) {
        detect(config, &mut found).map_err(|reason| FingerprintError::Unreadable { name, reason })?;
    }
    found.drivers = drivers.fingerprint().into_iter().filter(|(name, _)| config.driver.permits(name)).collect();
    for (name, _) in found.drivers.iter().filter(|(_, driver)| driver.detected) {
        found.attributes.insert(format!("driver.{name}"), "1".to_owned());
    }
    override_resources(config, &mut found);
    Ok(found)
}

/// MHz of all cores together, and their number; configured totals win.
pub(crate) fn cpu(config: &AgentConfig) -> (u64, u64) {
    let mut found = Fingerprint::default();
    if let Err(error) = machine::cpu(config, &mut found) {
        tracing::warn!(error, "the cores cannot be read: shares of CPU are what tasks ask for");
    }
    override_resources(config, &mut found);
    let number = |value: i64| u64::try_from(value).unwrap_or(0).max(1);
    (number(found.resources.cpu), number(found.resources.cores))
}

/// What all tasks together may use: what the node offers.
pub(crate) fn offered_slice(config: &AgentConfig) -> Slice {
    let mut detected = Fingerprint { reserved: reserved(config), ..Fingerprint::default() };
    for detect in [machine::cpu, machine::memory] {
        if let Err(error) = detect(config, &mut detected) {
            tracing::warn!(error, "what tasks together may use is not capped");
            return Slice::default();
        }
    }
    let (machine_mhz, cores) = (detected.resources.cpu, detected.resources.cores);
    override_resources(config, &mut detected);
    let offered = |all: i64, reserved: i64| u64::try_from(all.saturating_sub(reserved)).unwrap_or(0);
    let memory_mb = offered(detected.resources.memory_mb, detected.reserved.memory_mb);
    let mhz = offered(detected.resources.cpu, detected.reserved.cpu);
    let machine_mhz = u64::try_from(machine_mhz).unwrap_or(0);
    let period_us = u64::try_from(cores).unwrap_or(1).saturating_mul(100_000);
    Slice {
        memory_bytes: Some(memory_mb.saturating_mul(1024 * 1024)),
        // The kernel takes no quota below a millisecond.
        cpu_quota_us: (mhz < machine_mhz).then(|| (mhz.saturating_mul(period_us) / machine_mhz.max(1)).max(1000)),
    }
}

fn override_resources(config: &AgentConfig, found: &mut Fingerprint) {
    let resources = &mut found.resources;
    for (configured, value) in [
        (config.resources.cpu, &mut resources.cpu),
        (config.resources.memory_mb, &mut resources.memory_mb),
        (config.resources.disk_mb, &mut resources.disk_mb),
        (config.resources.cores, &mut resources.cores),
    ] {
        if let Some(configured) = configured {
            *value = i64::from(configured);
        }
    }
    let usable = resources.cpu.saturating_sub(found.reserved.cpu);
    put(found, "cpu.usablecompute", usable.to_string());
}

fn reserved(config: &AgentConfig) -> ReservedResources {
    let reserved = &config.reserved;
    ReservedResources {
        cpu: i64::from(reserved.cpu),
        memory_mb: i64::from(reserved.memory_mb),
        disk_mb: i64::from(reserved.disk_mb),
        cores: reserved.cores.iter().map(|core| i64::from(*core)).collect(),
        ports: reserved.ports.clone(),
    }
}

fn host_volumes(config: &AgentConfig) -> Result<BTreeMap<String, OfferedVolume>, FingerprintError> {
    let check = |(name, volume): (&String, &crate::config::HostVolumeConfig)| {
        let path = volume.path.to_string_lossy().into_owned();
        if !volume.path.exists() {
            return Err(FingerprintError::MissingVolume { name: name.clone(), path });
        }
        Ok((name.clone(), OfferedVolume { path, read_only: volume.read_only, ..OfferedVolume::default() }))
    };
    config.host_volumes.iter().map(check).collect()
}

#[expect(clippy::unnecessary_wraps, reason = "all detectors have one signature")]
fn signal(_: &AgentConfig, found: &mut Fingerprint) -> Result<(), String> {
    let names: Vec<String> = SIGNALS.iter().map(|(name, _)| format!("SIG{name}")).collect();
    put(found, "os.signals", names.join(","));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn config(more: &str) -> AgentConfig {
        let text = format!("stateDir: /tmp\nallocDir: /tmp\naddress: 10.1.2.3\n{more}");
        AgentConfig::parse(&text, Path::new("agent.yaml")).expect("a configuration")
    }

    fn take(more: &str) -> Fingerprint {
        detect(&config(more), &Drivers::default()).expect("a fingerprint")
    }

    #[test]
    fn this_machine_has_the_basic_facts() {
        let found = take("");
        for name in [
            "cpu.arch",
            "cpu.numcores",
            "cpu.totalcompute",
            "memory.totalbytes",
            "unique.storage.bytestotal",
            "kernel.name",
            "kernel.version",
            "unique.hostname",
            "unique.network.ip-address",
            "os.signals",
            "drover.version",
        ] {
            assert!(found.attributes.contains_key(name), "{name} is missing");
        }
        assert_eq!(found.cgroup_parent.is_empty(), drover_supervisor::missing_cgroups().is_some());
        assert!(found.resources.cpu > 0 && found.resources.memory_mb > 0 && found.resources.disk_mb > 0);
        assert_eq!(
            (found.host_networks[0].name.as_str(), found.host_networks[0].cidr.as_str()),
            ("default", "10.1.2.3/32")
        );
    }

    #[test]
    fn what_the_configuration_offers_is_offered() {
        let found =
            take("dynamicPorts: {min: 21000, max: 21999}\nmaxAllocs: 7\nhostNetworks: {inner: {interface: lo}}\n");
        let range = found.dynamic_ports.expect("a range");
        assert_eq!((range.min, range.max, found.max_allocs), (21_000, 21_999, Some(7)));
        let inner = found.host_networks.iter().find(|network| network.name == "inner").expect("a network");
        assert_eq!(inner.cidr, "127.0.0.1/32");
    }

    #[test]
    fn all_tasks_together_get_what_the_node_offers() {
        let all = offered_slice(&config(""));
        let half = offered_slice(&config("reserved: {memoryMB: 100}\n"));
        let (all_memory, less) = (all.memory_bytes.expect("a cap"), half.memory_bytes.expect("a cap"));
        assert_eq!((all_memory - less, all.cpu_quota_us), (100 << 20, None));
        let (mhz, cores) = cpu(&config(""));
        let small = offered_slice(&config(&format!("resources: {{cpu: {}, memoryMB: 64}}\n", mhz / 2)));
        assert_eq!(small.memory_bytes, Some(64 << 20));
        let quota = small.cpu_quota_us.expect("a cap");
        assert!(quota.abs_diff(cores * 50_000) < 1000, "{quota} of {cores} cores");
    }

    #[test]
    fn a_003_a_missing_host_volume_is_named() {
        let config = config("hostVolumes: {certs: {path: /no/such/folder}}\n");
        let error = detect(&config, &Drivers::default()).expect_err("refused").to_string();
        assert!(error.contains("certs") && error.contains("/no/such/folder"), "{error}");
    }

    #[test]
    fn a_019_a_denied_fingerprint_is_left_out() {
        let found = take("fingerprint: {denylist: [network]}\n");
        assert!(
            !found.attributes.contains_key("unique.network.ip-address") && found.attributes.contains_key("cpu.arch")
        );
    }
}
