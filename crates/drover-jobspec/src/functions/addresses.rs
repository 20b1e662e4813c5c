//! Functions on ranges of addresses in CIDR notation.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::arguments::Arguments;
use super::context::Outcome;
use crate::value::Value;

/// Calls one of them; nothing where the name is none of theirs.
pub(super) fn call(name: &str, arguments: &Arguments<'_>) -> Option<Outcome> {
    Some(match name {
        "cidrhost" => arguments.count(2).and_then(|()| {
            let range = Range::parse(&arguments.text(0)?)?;
            let n_hosts = 1_i128.checked_shl(range.host_bits()).unwrap_or(i128::MAX);
            let asked = arguments.whole(1)?;
            let number = if asked < 0 { asked.saturating_add(n_hosts) } else { asked };
            if !(0..n_hosts).contains(&number) {
                return Err(format!("the range has no host {asked}"));
            }
            Ok(Value::Text(range.address(range.base | number.unsigned_abs()).to_string()))
        }),
        "cidrnetmask" => arguments.count(1).and_then(|()| {
            let range = Range::parse(&arguments.text(0)?)?;
            if range.bits != 32 {
                return Err("needs a range of IPv4".to_owned());
            }
            Ok(Value::Text(range.address(mask(range.prefix, 32)).to_string()))
        }),
        "cidrsubnet" => arguments.count(3).and_then(|()| {
            let range = Range::parse(&arguments.text(0)?)?;
            let part = range.part(arguments.index(1)?, arguments.whole(2)?.unsigned_abs())?;
            Ok(Value::Text(part.to_string()))
        }),
        "cidrsubnets" => subnets(arguments),
        _ => return None,
    })
}

/// Subnets of the asked sizes one behind the other.
fn subnets(arguments: &Arguments<'_>) -> Outcome {
    arguments.between(2, usize::MAX)?;
    let range = Range::parse(&arguments.text(0)?)?;
    let (mut parts, mut next) = (Vec::new(), range.base);
    for at in 1..arguments.all().len() {
        let new_bits = arguments.index(at)?;
        let first = range.part(new_bits, 0)?;
        let size = 1_u128.checked_shl(u32::from(first.bits - first.prefix)).unwrap_or(0);
        let start = if size == 0 { next } else { next.div_ceil(size).checked_mul(size).ok_or("the range is full")? };
        let part = Range { base: start, ..first };
        if start & mask(range.prefix, range.bits) != range.base {
            return Err(format!("the range has no room for subnet {at}"));
        }
        next = start.checked_add(size).ok_or("the range is full")?;
        parts.push(Value::Text(part.to_string()));
    }
    Ok(Value::List(parts))
}

/// A range of addresses.
#[derive(Debug, Clone, Copy)]
struct Range {
    base: u128,
    prefix: u8,
    /// 32 or 128.
    bits: u8,
}

impl std::fmt::Display for Range {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}", self.address(self.base), self.prefix)
    }
}

impl Range {
    fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no range of addresses, as 10.0.0.0/8");
        let (address, prefix) = text.split_once('/').ok_or_else(wrong)?;
        let (number, bits) = match address.parse().map_err(|_| wrong())? {
            IpAddr::V4(address) => (u128::from(u32::from(address)), 32),
            IpAddr::V6(address) => (u128::from(address), 128),
        };
        let prefix: u8 = prefix.parse().ok().filter(|prefix| *prefix <= bits).ok_or_else(wrong)?;
        Ok(Self { base: number & mask(prefix, bits), prefix, bits })
    }

    fn host_bits(self) -> u32 {
        u32::from(self.bits - self.prefix)
    }

    fn address(self, number: u128) -> IpAddr {
        if self.bits == 32 {
            IpAddr::V4(Ipv4Addr::from(u32::try_from(number).unwrap_or(u32::MAX)))
        } else {
            IpAddr::V6(Ipv6Addr::from(number))
        }
    }

    /// The subnet of a number, where the prefix is longer by some bits.
    fn part(self, new_bits: usize, number: u128) -> Result<Self, String> {
        let longer = u8::try_from(new_bits).ok().and_then(|bits| self.prefix.checked_add(bits));
        let prefix = longer.filter(|prefix| *prefix <= self.bits).ok_or("the range has no so small a part")?;
        let n_new = prefix - self.prefix;
        if n_new < 128 && number >> n_new != 0 {
            return Err(format!("the range has no part {number}"));
        }
        let shifted = number.checked_shl(u32::from(self.bits - prefix)).unwrap_or(0);
        Ok(Self { base: self.base | shifted, prefix, bits: self.bits })
    }
}

fn mask(prefix: u8, bits: u8) -> u128 {
    let all = if bits == 32 { u128::from(u32::MAX) } else { u128::MAX };
    let host = u32::from(bits - prefix);
    all & u128::MAX.checked_shl(host).unwrap_or(0)
}
