//! The text of `resolv.conf` for tasks that have a network of their own.

use std::net::IpAddr;
use std::path::Path;

use drover_api::network::Dns;

use super::config::DnsSource;

/// Where systemd-resolved names the servers that it asks itself.
const BEHIND_THE_STUB: &str = "/run/systemd/resolve/resolv.conf";
/// The resolver's file.
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// Name servers, search domains and options, as a file names them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resolver {
    servers: Vec<String>,
    searches: Vec<String>,
    options: Vec<String>,
    /// The namespace whose name the search domains have; none: they stay as they are.
    own_namespace: Option<String>,
}

impl Resolver {
    /// What this process's file says. A pod's agent asks before it leaves the pod.
    pub(crate) fn of_this_place(source: DnsSource, own_namespace: &str) -> Self {
        let mut found = Self::read(RESOLV_CONF);
        match source {
            DnsSource::Cluster => found.own_namespace = Some(own_namespace.to_owned()),
            // A stub on the node's loopback device is out of reach for other networks.
            DnsSource::Node if found.is_out_of_reach() => {
                let behind = Self::read(BEHIND_THE_STUB);
                if !behind.servers.is_empty() {
                    found.servers = behind.servers;
                }
            }
            DnsSource::Node => {}
        }
        found
    }

    fn read(path: &str) -> Self {
        let text = std::fs::read_to_string(Path::new(path)).unwrap_or_else(|error| {
            tracing::debug!(path, error = %error, "there are no name servers");
            String::new()
        });
        Self::parse(&text)
    }

    fn parse(text: &str) -> Self {
        let mut found = Self::default();
        for line in text.lines() {
            let mut words = line.split_whitespace().map(str::to_owned);
            match words.next().as_deref() {
                Some("nameserver") => found.servers.extend(words.next()),
                Some("search" | "domain") => found.searches = words.collect(),
                Some("options") => found.options.extend(words),
                Some(_) | None => {}
            }
        }
        found
    }

    fn is_out_of_reach(&self) -> bool {
        let is_loopback = |server: &String| server.parse().is_ok_and(|address: IpAddr| address.is_loopback());
        self.servers.iter().all(is_loopback)
    }

    /// What a task of this namespace gets: the job's own words where it has any.
    pub(crate) fn for_task(&self, namespace: &str, own: Option<&Dns>) -> Dns {
        let empty = Dns::default();
        let own = own.unwrap_or(&empty);
        let or = |own: &[String], else_: &[String]| if own.is_empty() { else_.to_vec() } else { own.to_vec() };
        let searches: Vec<String> = self.searches.iter().map(|domain| self.of_namespace(domain, namespace)).collect();
        Dns {
            servers: or(&own.servers, &self.servers),
            searches: or(&own.searches, &searches),
            options: or(&own.options, &self.options),
        }
    }

    fn of_namespace(&self, domain: &str, namespace: &str) -> String {
        let rest = self.own_namespace.as_deref().and_then(|own| domain.strip_prefix(own)?.strip_prefix(".svc."));
        rest.map_or_else(|| domain.to_owned(), |rest| format!("{namespace}.svc.{rest}"))
    }
}

/// The file's text.
pub(crate) fn resolv_conf(dns: &Dns) -> String {
    let servers = dns.servers.iter().map(|server| format!("nameserver {server}\n"));
    let line = |word: &str, values: &[String]| (!values.is_empty()).then(|| format!("{word} {}\n", values.join(" ")));
    servers.chain(line("search", &dns.searches)).chain(line("options", &dns.options)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_a_pod() -> Resolver {
        let text = "search drover-system.svc.cluster.local svc.cluster.local cluster.local\n# x\nnameserver 10.96.0.10\noptions ndots:5\n";
        Resolver { own_namespace: Some("drover-system".to_owned()), ..Resolver::parse(text) }
    }

    #[test]
    fn b_030_names_are_looked_for_in_the_jobs_namespace() {
        assert_eq!(
            resolv_conf(&of_a_pod().for_task("shop", None)),
            "nameserver 10.96.0.10\nsearch shop.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n"
        );
        let of_a_node = Resolver { own_namespace: None, ..of_a_pod() };
        assert!(resolv_conf(&of_a_node.for_task("shop", None)).contains("search drover-system.svc."));
    }

    #[test]
    fn b_030_the_jobs_own_words_win_one_by_one() {
        let own = Dns { servers: vec!["10.0.0.53".to_owned()], ..Dns::default() };
        assert_eq!(
            resolv_conf(&of_a_pod().for_task("shop", Some(&own))),
            "nameserver 10.0.0.53\nsearch shop.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n"
        );
        let all = Dns { searches: vec!["a".into(), "b".into()], options: vec!["rotate".into()], ..own };
        let text = resolv_conf(&of_a_pod().for_task("shop", Some(&all)));
        assert_eq!(text, "nameserver 10.0.0.53\nsearch a b\noptions rotate\n");
    }

    #[test]
    fn a_stub_on_the_loopback_device_is_out_of_reach() {
        assert!(Resolver::parse("nameserver 127.0.0.53\n").is_out_of_reach());
        assert!(!of_a_pod().is_out_of_reach());
        assert_eq!(Resolver::parse("garbage\nnameserver\n"), Resolver::default());
    }
}
