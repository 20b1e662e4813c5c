//! Which addresses a Service may lead to: the node's own, or those that an operator allows.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A range of addresses, as `10.0.0.0/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    base: u128,
    /// Bits of the range that are fixed, in an IPv6 address.
    mask: u128,
}

/// It is no range of addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is no range of addresses; write it as in 10.0.0.0/8 or fd00::/8")]
pub struct NoCidr(String);

fn bits(address: IpAddr) -> u128 {
    let six: Ipv6Addr = match address {
        IpAddr::V4(four) => four.to_ipv6_mapped(),
        IpAddr::V6(six) => six,
    };
    six.to_bits()
}

impl Cidr {
    /// Whether it has this address. A range of IPv6 addresses has no IPv4 ones, however wide it is and however they are
    /// written.
    pub fn contains(self, address: IpAddr) -> bool {
        let is_of_v4 = self.mask >> 32 == u128::MAX >> 32;
        (is_of_v4 || !address.to_canonical().is_ipv4()) && bits(address) & self.mask == self.base
    }
}

impl FromStr for Cidr {
    type Err = NoCidr;

    fn from_str(text: &str) -> Result<Self, NoCidr> {
        let wrong = || NoCidr(text.chars().take(64).collect());
        let (address, length) = text.split_once('/').ok_or_else(wrong)?;
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let length: u32 = length.parse().map_err(|_| wrong())?;
        let length = match address {
            IpAddr::V4(_) if length <= 32 => 96 + length,
            IpAddr::V6(_) if length <= 128 => length,
            IpAddr::V4(_) | IpAddr::V6(_) => return Err(wrong()),
        };
        let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
        Ok(Self { base: bits(address) & mask, mask })
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (base, length) = (Ipv6Addr::from_bits(self.base), self.mask.count_ones());
        match base.to_ipv4_mapped().filter(|_| length >= 96) {
            Some(four) => write!(to, "{four}/{}", length - 96),
            None => write!(to, "{base}/{length}"),
        }
    }
}

impl Serialize for Cidr {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Cidr {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Whether a Service may lead to an address: one of its node, or one that is allowed. Loopback, link-local, multicast
/// and unspecified ones never are: the API server refuses them in slices.
pub fn is_permitted(address: &str, of_node: &[String], allowed: &[Cidr]) -> bool {
    let Ok(parsed) = address.parse::<IpAddr>() else { return false };
    let is_link_local = match parsed {
        IpAddr::V4(four) => four.is_link_local(),
        IpAddr::V6(six) => six.is_unicast_link_local(),
    };
    let is_usual = !parsed.is_loopback() && !parsed.is_multicast() && !parsed.is_unspecified() && !is_link_local;
    let is_of_node = || of_node.iter().any(|known| known.parse() == Ok(parsed));
    is_usual && (is_of_node() || allowed.iter().any(|range| range.contains(parsed)))
}

#[cfg(test)]
mod tests {
    mod bits;

    use super::*;

    #[test]
    fn b_039_a_service_leads_to_the_node_and_to_what_is_allowed() {
        let node = ["10.0.0.7".to_owned(), "fd00:0::7".to_owned()];
        let allowed: Vec<Cidr> =
            ["192.168.0.0/16", "127.0.0.0/8", "fd01::/16"].map(|text| text.parse().unwrap()).into();
        for (address, expected) in [
            ("10.0.0.7", true),
            ("fd00::7", true),
            ("10.0.0.8", false),
            ("192.168.3.4", true),
            ("192.169.3.4", false),
            ("fd01::1", true),
            ("127.0.0.1", false),
            ("169.254.169.254", false),
            ("fe80::1", false),
            ("0.0.0.0", false),
            ("224.0.0.1", false),
            ("localhost", false),
            ("", false),
        ] {
            assert_eq!(is_permitted(address, &node, &allowed), expected, "{address}");
        }
    }

    #[test]
    fn a_range_that_is_none_is_refused_by_its_text() {
        for text in ["10.0.0.0", "10.0.0.0/33", "fd00::/129", "a/8", "10.0.0.0/x", ""] {
            assert!(text.parse::<Cidr>().is_err_and(|error| error.to_string().starts_with(text)), "{text}");
        }
        assert!("0.0.0.0/0".parse::<Cidr>().unwrap().contains("1.2.3.4".parse().unwrap()));
        assert!(!"0.0.0.0/0".parse::<Cidr>().unwrap().contains("fd00::1".parse().unwrap()));
        assert!("::/0".parse::<Cidr>().unwrap().contains("fd00::1".parse().unwrap()));
    }
}
