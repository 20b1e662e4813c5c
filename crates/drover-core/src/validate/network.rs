//! Networks and ports of a group.

use std::collections::BTreeSet;

use drover_api::group::Group;
use drover_api::network::{Network, NetworkMode, Port};

use super::found::{At, Violations, shown};

/// Highest port.
const PORT_LIMIT: i64 = 65_535;

impl Violations {
    pub(super) fn networks(&mut self, at: At<'_>, group: &Group) {
        let (mut labels, mut statics) = (BTreeSet::new(), BTreeSet::new());
        for (n, network) in group.networks.iter().enumerate() {
            let at = format_args!("{at}.networks[{n}]");
            let name = network.hostname.as_str();
            let is_wrong = !name.is_empty() && !name.contains("${") && !is_dns_name(name);
            let message = format_args!("{} is no DNS name; take letters, digits, - and dots", shown(name));
            self.when(is_wrong, "Hostname", format_args!("{at}.hostname"), message);
            let is_nameless =
                network.mode == NetworkMode::Cni && network.cni.as_ref().is_none_or(|cni| cni.name.is_empty());
            let message = "is missing with mode cni; name a CNI network of the node";
            self.when(is_nameless, "CniName", format_args!("{at}.cni.name"), message);
            for (m, port) in network.ports.iter().enumerate() {
                let at = format_args!("{at}.ports[{m}]");
                self.port(at, network, port);
                let is_new = labels.insert(port.label.as_str());
                let message = format_args!("{} is used twice in the group; rename one", shown(&port.label));
                self.when(!is_new, "PortLabelDuplicate", format_args!("{at}.label"), message);
                let host = port.host_network.as_deref().filter(|name| !name.is_empty()).unwrap_or("default");
                if let Some(value) = port.r#static.filter(|_| !port.ignore_collision) {
                    let is_new = statics.insert((host, value));
                    let message =
                        format_args!("{value} is asked for twice on host network {}; change one", shown(host));
                    self.when(!is_new, "StaticPortDuplicate", format_args!("{at}.static"), message);
                }
            }
        }
    }

    fn port(&mut self, at: At<'_>, network: &Network, port: &Port) {
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        let is_wrong = port.label.is_empty() || !port.label.bytes().all(is_word);
        let message = format_args!(
            "{} must consist of letters, digits, _ and -, as in http; it becomes part of NOMAD_PORT_<label>",
            shown(&port.label)
        );
        self.when(is_wrong, "PortLabel", format_args!("{at}.label"), message);
        if let Some(value) = port.r#static {
            let message = format_args!("{value} is no port; take 1 to {PORT_LIMIT}, or leave it out for a free one");
            self.when(!(1..=PORT_LIMIT).contains(&value), "PortRange", format_args!("{at}.static"), message);
        }
        if let Some(value) = port.to {
            let message = format_args!("{value} is no port; take 1 to {PORT_LIMIT}, or -1 for the same as on the node");
            self.when(!(-1..=PORT_LIMIT).contains(&value), "PortTo", format_args!("{at}.to"), message);
        }
        let is_wrong = port.ignore_collision && network.mode != NetworkMode::Host;
        let message = format_args!("is for mode host, not for {}; remove it, or change mode", network.mode);
        self.when(is_wrong, "IgnoreCollisionMode", format_args!("{at}.ignoreCollision"), message);
    }
}

fn is_dns_name(name: &str) -> bool {
    name.len() <= 253
        && name.split('.').all(|label| {
            let bytes = label.as_bytes();
            let is_edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
            bytes.len() <= 63
                && is_edge(bytes.first())
                && is_edge(bytes.last())
                && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
        })
}
