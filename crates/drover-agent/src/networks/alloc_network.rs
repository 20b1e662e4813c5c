//! The network of one allocation, as its tasks have it.

use std::net::IpAddr;
use std::path::PathBuf;

use drover_api::allocation::NetworkStatus;
use drover_api::network::{Dns, Network};
use drover_core::task::environment::TooLong;

use super::resolver::{Resolver, resolv_conf};

/// The network of an allocation, once it is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AllocNetwork {
    /// The file by which its namespace is entered.
    pub(crate) path: PathBuf,
    /// The device within it.
    pub(crate) interface: String,
    /// Its address; none: its plugins gave none.
    pub(crate) address: Option<IpAddr>,
    /// What its plugins say of name servers.
    pub(crate) dns: Option<Dns>,
}

/// What a driver gives a task of its allocation's network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TaskNetwork {
    /// The file by which the namespace is entered.
    pub(crate) path: PathBuf,
    /// The host name; empty: the node's.
    pub(crate) hostname: String,
    /// The text of `/etc/hosts`.
    pub(crate) hosts: String,
    /// The text of `/etc/resolv.conf`.
    pub(crate) resolv_conf: String,
}

impl AllocNetwork {
    /// What the allocation's status says of it.
    pub(crate) fn status(&self) -> NetworkStatus {
        let text = |address: Option<IpAddr>| address.map(|address| address.to_string()).unwrap_or_default();
        NetworkStatus {
            interface_name: self.interface.clone(),
            address: text(self.address.filter(IpAddr::is_ipv4)),
            address_v6: text(self.address.filter(IpAddr::is_ipv6)),
            dns: None,
        }
    }

    /// What a task gets of it. References in the group's words are replaced first.
    ///
    /// # Errors
    /// When one of them becomes too long, or no host name.
    pub(super) fn task_network(
        &self,
        asked: &Network,
        namespace: &str,
        resolver: &Resolver,
        interpolated: impl Fn(&str) -> Result<String, TooLong>,
    ) -> Result<TaskNetwork, String> {
        let text =
            |field: &str, text: &str| interpolated(text).map_err(|error| format!("networks[0].{field}: {error}"));
        let all = |field: &str, texts: &[String]| texts.iter().map(|one| text(field, one)).collect::<Result<_, _>>();
        let hostname = text("hostname", &asked.hostname)?;
        if !hostname.is_empty() && !is_host_name(&hostname) {
            return Err(format!(
                "networks[0].hostname: {hostname:?} is no host name; take letters, digits, - and dots, at most 63 of them"
            ));
        }
        let own = match &asked.dns {
            Some(dns) => Some(Dns {
                servers: all("dns.servers", &dns.servers)?,
                searches: all("dns.searches", &dns.searches)?,
                options: all("dns.options", &dns.options)?,
            }),
            None => self.dns.clone(),
        };
        let dns = resolver.for_task(namespace, own.as_ref());
        let is_one_word = |word: &&String| !word.is_empty() && !word.contains(|it: char| it.is_whitespace());
        let words = [&dns.servers, &dns.searches, &dns.options];
        if let Some(word) = words.into_iter().flatten().find(|word| !is_one_word(word)) {
            return Err(format!("networks[0].dns: {word:?} is not one word; give each its own entry of the list"));
        }
        Ok(TaskNetwork {
            path: self.path.clone(),
            hosts: self.hosts(&hostname),
            hostname,
            resolv_conf: resolv_conf(&dns),
        })
    }

    fn hosts(&self, hostname: &str) -> String {
        let own = self.address.filter(|_| !hostname.is_empty()).map(|address| format!("{address} {hostname}\n"));
        ["127.0.0.1 localhost\n", "::1 localhost ip6-localhost ip6-loopback\n"]
            .into_iter()
            .map(str::to_owned)
            .chain(own)
            .collect()
    }
}

/// A name that the kernel takes (64 bytes), and that programs may put into messages.
fn is_host_name(name: &str) -> bool {
    name.len() <= 63 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made() -> AllocNetwork {
        let address = Some(IpAddr::from([172, 26, 64, 2]));
        AllocNetwork { path: "/netns/a".into(), interface: "eth0".into(), address, dns: None }
    }

    fn of_task(asked: &Network) -> Result<TaskNetwork, String> {
        let interpolated = |text: &str| Ok(text.replace("${NOMAD_ALLOC_INDEX}", "3"));
        made().task_network(asked, "shop", &Resolver::default(), interpolated)
    }

    #[test]
    fn a_task_finds_itself_under_its_host_name() {
        let asked = Network { hostname: "web-${NOMAD_ALLOC_INDEX}".into(), ..Network::default() };
        let task = of_task(&asked).expect("a network");
        assert_eq!((task.hostname.as_str(), task.hosts.lines().last()), ("web-3", Some("172.26.64.2 web-3")));
        let plain = of_task(&Network::default()).expect("a network");
        assert_eq!((plain.hostname.as_str(), plain.hosts.lines().count(), plain.resolv_conf.as_str()), ("", 2, ""));
        assert_eq!(made().status().address, "172.26.64.2");
    }

    #[test]
    fn words_that_would_be_more_than_one_are_refused_by_name() {
        let dns = |server: &str| Network {
            dns: Some(Dns { servers: vec![server.to_owned()], ..Dns::default() }),
            ..Network::default()
        };
        let named = |name: &str| Network { hostname: name.to_owned(), ..Network::default() };
        for (asked, field) in [
            (dns("10.0.0.1\nsearch evil"), "networks[0].dns"),
            (dns(""), "networks[0].dns"),
            (named("a\nb"), "networks[0].hostname"),
            (named(&"a".repeat(64)), "networks[0].hostname"),
        ] {
            let error = of_task(&asked).expect_err("refused");
            assert!(error.contains(field), "{error}");
        }
    }
}
