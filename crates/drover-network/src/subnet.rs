//! The addresses of a node's bridge.

use std::fmt::{self, Display};
use std::net::Ipv4Addr;
use std::str::FromStr;

use serde::Deserialize;

/// Fewest and most bits that a subnet's addresses have in common: between half a million and fourteen of them.
const PREFIXES: std::ops::RangeInclusive<u8> = 13..=28;

/// Addresses of version 4 that a bridge gives: the first is the bridge's own, the last one is for the trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Subnet {
    base: u32,
    prefix: u8,
}

/// Why a text is no subnet for a bridge.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SubnetError(String);

impl FromStr for Subnet {
    type Err = SubnetError;

    fn from_str(text: &str) -> Result<Self, SubnetError> {
        let form = || SubnetError(format!("{text:?} is no range of IPv4 addresses: write one as 172.26.64.0/20"));
        let (address, prefix) = text.split_once('/').ok_or_else(form)?;
        let address: Ipv4Addr = address.parse().map_err(|_| form())?;
        let prefix: u8 = prefix.parse().map_err(|_| form())?;
        if !PREFIXES.contains(&prefix) {
            let (first, last) = (PREFIXES.start(), PREFIXES.end());
            return Err(SubnetError(format!("{text} is too large or too small: give from /{first} to /{last}")));
        }
        let subnet = Self { base: address.to_bits(), prefix };
        let base = Ipv4Addr::from_bits(subnet.base & subnet.mask().to_bits());
        if base != address {
            return Err(SubnetError(format!("{text} does not begin a range: did you mean {base}/{prefix}?")));
        }
        Ok(subnet)
    }
}

impl TryFrom<String> for Subnet {
    type Error = SubnetError;

    fn try_from(text: String) -> Result<Self, SubnetError> {
        text.parse()
    }
}

impl Display for Subnet {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}/{}", self.network(), self.prefix)
    }
}

impl Subnet {
    /// The bits that its addresses have in common.
    pub fn prefix(self) -> u8 {
        self.prefix
    }

    /// These bits, as an address.
    pub fn mask(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(u32::MAX << (32 - u32::from(self.prefix)))
    }

    /// Its first number, which no device has.
    pub fn network(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.base)
    }

    /// The bridge's own address, over which its networks reach everything else.
    pub fn gateway(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.base + 1)
    }

    /// The address of the trial.
    pub fn trial(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.last() - 1)
    }

    /// Whether it is one of these.
    pub fn contains(self, address: Ipv4Addr) -> bool {
        address.to_bits() & self.mask().to_bits() == self.base
    }

    /// What networks get, from the lowest.
    pub fn addresses(self) -> impl DoubleEndedIterator<Item = Ipv4Addr> {
        (self.base + 2..self.last() - 1).map(Ipv4Addr::from_bits)
    }

    /// Its last number, which means all of them.
    fn last(self) -> u32 {
        self.base | !self.mask().to_bits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subnet_knows_its_addresses() {
        let subnet: Subnet = "10.1.0.16/28".parse().expect("a subnet");
        let all: Vec<String> = subnet.addresses().map(|address| address.to_string()).collect();
        assert_eq!(all, (18..=29).map(|n| format!("10.1.0.{n}")).collect::<Vec<_>>());
        assert_eq!(
            [subnet.network(), subnet.gateway(), subnet.trial(), subnet.mask()].map(|it| it.to_string()),
            ["10.1.0.16", "10.1.0.17", "10.1.0.30", "255.255.255.240"]
        );
        assert!(subnet.contains(subnet.trial()) && !subnet.contains(Ipv4Addr::new(10, 1, 0, 32)));
        assert_eq!(subnet.to_string(), "10.1.0.16/28");
    }

    #[test]
    fn what_is_no_subnet_is_refused_with_the_remedy() {
        for (text, remedy) in [
            ("here", "write one as"),
            ("10.0.0.0", "write one as"),
            ("fd00::/64", "write one as"),
            ("10.0.0.0/8", "from /13 to /28"),
            ("10.0.0.0/30", "from /13 to /28"),
            ("10.0.0.1/24", "did you mean 10.0.0.0/24?"),
        ] {
            let error = text.parse::<Subnet>().expect_err(text).to_string();
            assert!(error.contains(text) && error.contains(remedy), "{error}");
        }
    }
}
