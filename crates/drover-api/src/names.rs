//! Names of objects, derived from what they fill: a retried create meets what exists instead of making a second one.

use sha2::{Digest, Sha256};

/// Longest name of an object that is also used as a label value.
pub const LABEL_LIMIT: usize = 63;
/// Longest name of any object.
pub const NAME_LIMIT: usize = 253;

/// The first `n` bytes of the SHA-256 of `parts` (each followed by a zero byte), as hexadecimal digits.
fn hash_hex(parts: &[&str], n: usize) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part.as_bytes());
        hasher.update([0]);
    }
    hex(&hasher.finalize()[..n])
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

/// Whether `text` can be an object's name that is also a label value: a DNS label.
pub fn is_dns_label(text: &str) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    text.len() <= LABEL_LIMIT
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        && edge(text.chars().next())
        && edge(text.chars().last())
}

/// The object name of one of Nomad's ids: the id where it is a DNS label, else lower case with `-` for every other
/// character, cut to 54 characters, `-` and 8 hexadecimal digits of the id's SHA-256 (CONVENTIONS, section 1).
///
/// A per-allocation volume `data[2]` becomes `data-2`, because people write it.
pub fn object_name(id: &str) -> String {
    if is_dns_label(id) {
        return id.to_owned();
    }
    if let Some((source, index)) = id.strip_suffix(']').and_then(|head| head.rsplit_once('[')) {
        let plain = format!("{source}-{index}");
        if !index.is_empty() && index.chars().all(|c| c.is_ascii_digit()) && is_dns_label(&plain) {
            return plain;
        }
    }
    let mut mapped: String = id
        .to_lowercase()
        .chars()
        .map(|c| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' })
        .take(54)
        .collect();
    if !mapped.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        mapped.replace_range(..mapped.chars().next().map_or(0, char::len_utf8), "x");
    }
    format!("{mapped}-{}", hex(&Sha256::digest(id.as_bytes())[..4]))
}

/// The name of a job that a periodic or parameterized one made: `<parent>-<suffix>`, cut like an id's where that is no
/// DNS label.
pub fn child_name(parent: &str, suffix: &str) -> String {
    object_name(&format!("{parent}-{suffix}"))
}

/// The name of the VolumeAttachment of a CSIVolume (by its metadata.uid) to a node: there is one for both, however many
/// use it.
pub fn attachment_name(volume_uid: &str, node: &str) -> String {
    format!("drover-{}", hash_hex(&[volume_uid, node], 16))
}

/// The name under which a provider is asked to make a CSIVolume. A provider keeps one volume for each name: the
/// object's own (by its metadata.uid), and no other object's of the same name later.
pub fn provider_name(name: &str, uid: &str) -> String {
    let first = if name.is_empty() { "drover" } else { name };
    format!("{first}-{uid}")
}

/// What makes an allocation's slot: two leaders that fill the same slot meet in one name.
#[derive(Clone, Copy, Debug)]
pub struct Slot<'a> {
    /// Name of the job.
    pub job: &'a str,
    /// metadata.uid of the job.
    pub job_uid: &'a str,
    /// The group.
    pub group: &'a str,
    /// The slot's index.
    pub index: i64,
    /// The node, for system and sysbatch jobs only: there every node has index 0.
    pub node: Option<&'a str>,
    /// The deployment, for canaries only.
    pub canary_of: Option<&'a str>,
    /// metadata.uid of the newest allocation that held the slot in the same role.
    pub previous_uid: Option<&'a str>,
}

/// The name of the allocation that fills `slot`: `<job>-<group>-<index>-<8 hex>` (DESIGN, section 2).
pub fn allocation_name(slot: Slot<'_>) -> String {
    let index = slot.index.to_string();
    let hash = hash_hex(
        &[
            slot.job_uid,
            slot.group,
            &index,
            slot.node.unwrap_or_default(),
            slot.canary_of.unwrap_or_default(),
            slot.previous_uid.unwrap_or_default(),
        ],
        4,
    );
    format!("{}-{}-{index}-{hash}", slot.job, slot.group)
}

/// The name of a version of a job: `<job>-v<version>`. A job that was deleted and created again meets the versions of
/// the old one by name; their `jobUID` tells them apart, and the garbage collector removes them.
pub fn job_version_name(job: &str, version: i64) -> String {
    format!("{job}-v{version}")
}

/// The name of a deployment: `<job>-<8 hex>` over the job's UID, the version and the UID of the job's newest
/// deployment.
pub fn deployment_name(job: &str, job_uid: &str, version: i64, newest_uid: Option<&str>) -> String {
    format!("{job}-{}", hash_hex(&[job_uid, &version.to_string(), newest_uid.unwrap_or_default()], 4))
}

/// The name of a node's Lease.
pub fn node_lease_name(node: &str) -> String {
    format!("node-{node}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_become_object_names() {
        assert_eq!(object_name("web"), "web");
        assert_eq!(object_name("data[2]"), "data-2");
        assert_eq!(object_name("Web_1"), format!("web-1-{}", &digits("Web_1")));
        assert_eq!(object_name("a/periodic-1"), format!("a-periodic-1-{}", &digits("a/periodic-1")));
        let long = object_name(&"x".repeat(200));
        assert_eq!(long.len(), 63);
        for odd in ["/x", "-", "ÄÖ", "x/", "data[]", "[2]"] {
            assert!(is_dns_label(&object_name(odd)), "{odd} gave {}", object_name(odd));
        }
    }

    fn digits(id: &str) -> String {
        hex(&Sha256::digest(id.as_bytes())[..4])
    }

    #[test]
    fn children_are_named_after_their_parents_and_long_names_are_cut() {
        assert_eq!(child_name("report", "periodic-1"), "report-periodic-1");
        let long = child_name(&"x".repeat(60), "periodic-1700000000");
        assert!(long.len() == 63 && is_dns_label(&long), "{long}");
        assert_ne!(long, child_name(&"x".repeat(60), "periodic-1700000060"));
    }

    #[test]
    fn a_volume_has_one_attachment_to_a_node() {
        let name = attachment_name("u", "n-1");
        assert_eq!((name.len(), attachment_name("u", "n-1")), (39, name.clone()));
        assert!(is_dns_label(&name) && name.starts_with("drover-"), "{name}");
        assert_ne!(name, attachment_name("u", "n-2"));
        assert_ne!(name, attachment_name("un", "-1"));
    }

    #[test]
    fn a_slot_has_one_name_and_its_successor_another() {
        let slot =
            Slot { job: "web", job_uid: "u", group: "api", index: 0, node: None, canary_of: None, previous_uid: None };
        assert_eq!(allocation_name(slot), allocation_name(slot));
        for other in [
            Slot { job_uid: "v", ..slot },
            Slot { index: 1, ..slot },
            Slot { node: Some("n"), ..slot },
            Slot { canary_of: Some("d"), ..slot },
            Slot { previous_uid: Some("p"), ..slot },
        ] {
            assert_ne!(allocation_name(slot), allocation_name(other));
        }
        assert!(allocation_name(slot).starts_with("web-api-0-"));
    }
}
