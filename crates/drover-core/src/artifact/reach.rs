//! Which addresses a download may reach: not the node itself, and nothing that trusts who is near it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::service::Cidr;

/// Why an address is not asked; none: it may be. What an operator allows may be reached whatever it is.
///
/// Refused are the loopback device, link-local addresses (where clouds answer with a machine's credentials), the other
/// addresses of such services, multicast, and what is no address of a host. Private networks are not: artifacts are
/// served there.
pub fn refusal(address: IpAddr, allowed: &[Cidr]) -> Option<&'static str> {
    let address = plain(address);
    if allowed.iter().any(|range| range.contains(address)) {
        return None;
    }
    match address {
        IpAddr::V4(four) => refusal_of_four(four),
        IpAddr::V6(six) => refusal_of_six(six),
    }
}

/// Answers with credentials in some clouds, at an address that looks like another machine's.
const METADATA_FOUR: [Ipv4Addr; 2] = [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(192, 0, 0, 192)];
/// The same in IPv6.
const METADATA_SIX: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

fn refusal_of_four(four: Ipv4Addr) -> Option<&'static str> {
    if four.is_loopback() {
        Some("it is this node's loopback device")
    } else if four.is_link_local() {
        Some("it is link-local")
    } else if METADATA_FOUR.contains(&four) {
        Some("it is a cloud's metadata service")
    } else if four.is_multicast() || four.octets()[0] == 0 || four.octets()[0] >= 240 {
        Some("it is no address of a host")
    } else {
        None
    }
}

fn refusal_of_six(six: Ipv6Addr) -> Option<&'static str> {
    if six.is_loopback() {
        Some("it is this node's loopback device")
    } else if six.is_unicast_link_local() {
        Some("it is link-local")
    } else if six == METADATA_SIX {
        Some("it is a cloud's metadata service")
    } else if six.is_multicast() || six.is_unspecified() {
        Some("it is no address of a host")
    } else {
        None
    }
}

/// An IPv4 address in the clothes of an IPv6 one counts as what it leads to: mapped, compatible, translated (NAT64),
/// and tunnelled (6to4).
fn plain(address: IpAddr) -> IpAddr {
    let IpAddr::V6(six) = address else { return address };
    let parts = six.segments();
    let four = |high: u16, low: u16| IpAddr::V4(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    match parts {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
            four(high, low)
        }
        // The loopback and the unspecified address look alike and are none.
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 => four(high, low),
        _ => address,
    }
}

#[cfg(test)]
mod tests {
    mod ranges;

    use super::*;

    fn is_refused(text: &str, allowed: &[Cidr]) -> bool {
        refusal(text.parse().expect(text), allowed).is_some()
    }

    #[test]
    fn the_node_and_services_that_trust_who_is_near_are_not_asked() {
        for text in [
            "127.0.0.1",
            "127.9.9.9",
            "::1",
            "169.254.169.254",
            "169.254.0.1",
            "fe80::1",
            "::ffff:169.254.169.254",
            "::ffff:127.0.0.1",
            "64:ff9b::a9fe:a9fe",
            "2002:a9fe:a9fe::1",
            "::127.0.0.1",
            "100.100.100.200",
            "fd00:ec2::254",
            "0.0.0.0",
            "0.1.2.3",
            "::",
            "224.0.0.1",
            "255.255.255.255",
            "240.0.0.1",
            "ff02::1",
        ] {
            assert!(is_refused(text, &[]), "{text}");
        }
        for text in ["10.0.0.7", "192.168.1.1", "172.16.0.1", "93.184.215.14", "2606:2800::1", "fd00::7"] {
            assert!(!is_refused(text, &[]), "{text}");
        }
    }

    #[test]
    fn what_an_operator_allows_is_asked() {
        let allowed = ["127.0.0.0/8".parse().expect("a range")];
        assert!(!is_refused("127.0.0.1", &allowed) && !is_refused("::ffff:127.0.0.1", &allowed));
        assert!(is_refused("169.254.169.254", &allowed) && is_refused("::1", &allowed));
    }
}
