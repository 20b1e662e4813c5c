//! Ranges of addresses, against a comparison of their bits as text.

use fastrand::Rng;

use super::*;

fn bits_of(address: IpAddr) -> String {
    match address {
        IpAddr::V4(four) => format!("{:032b}", four.to_bits()),
        IpAddr::V6(six) => format!("{:0128b}", six.to_bits()),
    }
}

/// Whether an address begins with as many bits of the range's as its length says; an IPv4 one is no IPv6 one.
fn slow_contains(base: IpAddr, length: usize, address: IpAddr) -> bool {
    base.is_ipv4() == address.is_ipv4() && bits_of(base)[..length] == bits_of(address)[..length]
}

fn random(rng: &mut Rng, is_six: bool, near: Option<IpAddr>) -> IpAddr {
    // An address that shares its first bits with another one meets edges more often.
    let kept = rng.u32(0..129);
    match (is_six, near) {
        (true, Some(IpAddr::V6(near))) => {
            let mask = u128::MAX.checked_shl(128 - kept).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(near.to_bits() & mask | rng.u128(..) & !mask))
        }
        (false, Some(IpAddr::V4(near))) => {
            let mask = u32::MAX.checked_shl(32 - kept / 4).unwrap_or(0);
            IpAddr::V4(std::net::Ipv4Addr::from_bits(near.to_bits() & mask | rng.u32(..) & !mask))
        }
        // The first part is never that of an IPv4 address in other clothes.
        (true, _) => IpAddr::V6(Ipv6Addr::from_bits(rng.u128(..) | 1 << 127)),
        (false, _) => IpAddr::V4(std::net::Ipv4Addr::from_bits(rng.u32(..))),
    }
}

#[test]
fn a_range_has_the_addresses_that_begin_with_its_bits() {
    let mut rng = Rng::with_seed(39);
    let (mut n_within, mut n_without) = (0, 0);
    for _ in 0..20_000 {
        let is_six = rng.bool();
        let base = random(&mut rng, is_six, None);
        let length = rng.usize(..=if is_six { 128 } else { 32 });
        let address = random(&mut rng, is_six, Some(base));
        let range: Cidr = format!("{base}/{length}").parse().expect("a range");
        let wanted = slow_contains(base, length, address);
        if wanted {
            n_within += 1;
        } else {
            n_without += 1;
        }
        assert_eq!(range.contains(address), wanted, "{base}/{length} and {address}");
        let other = random(&mut rng, !is_six, None);
        assert!(!range.contains(other), "{base}/{length} and {other}");
    }
    assert!(n_within > 2000 && n_without > 2000, "{n_within} {n_without}");
}

#[test]
fn who_allows_all_of_ipv6_allows_nothing_of_ipv4() {
    let (all, mapped): (Cidr, Cidr) =
        ("::/0".parse().expect("a range"), "::ffff:10.0.0.0/104".parse().expect("a range"));
    for (address, of_all, of_mapped) in [
        ("127.0.0.1", false, false),
        ("::ffff:127.0.0.1", false, false),
        ("10.1.2.3", false, true),
        ("::1", true, false),
    ] {
        let address: IpAddr = address.parse().expect("an address");
        assert_eq!((all.contains(address), mapped.contains(address)), (of_all, of_mapped), "{address}");
    }
}

#[test]
fn a_range_is_written_with_its_first_address() {
    for (text, written) in [
        ("10.1.2.3/8", "10.0.0.0/8"),
        ("10.1.2.3/32", "10.1.2.3/32"),
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("255.255.255.255/1", "128.0.0.0/1"),
        ("fd00::1:2/16", "fd00::/16"),
        ("fd00::1/128", "fd00::1/128"),
        ("::/0", "::/0"),
    ] {
        let range: Cidr = text.parse().expect("a range");
        assert_eq!(range.to_string(), written, "{text}");
        assert_eq!(written.parse(), Ok(range), "{written}");
    }
}

#[test]
fn a_range_that_is_none_is_shown_shortened() {
    for text in ["/8", "10.0.0.0/", "10.0.0.0/-1", "10.0.0.0/8/8", "10.0.0/8", " 10.0.0.0/8", "fd00::/129", "::1"] {
        assert_eq!(text.parse::<Cidr>(), Err(NoCidr(text.to_owned())), "{text}");
    }
    assert_eq!("x".repeat(100).parse::<Cidr>(), Err(NoCidr("x".repeat(64))));
}

#[test]
fn no_address_that_slices_refuse_is_permitted_although_all_are_allowed() {
    let all: Vec<Cidr> = ["0.0.0.0/0", "::/0"].map(|text| text.parse().expect("a range")).into();
    for (address, is_permitted_here) in [
        ("127.255.255.255", false),
        ("128.0.0.0", true),
        ("126.255.255.255", true),
        ("169.253.255.255", true),
        ("169.254.0.0", false),
        ("169.254.255.255", false),
        ("169.255.0.0", true),
        ("223.255.255.255", true),
        ("224.0.0.0", false),
        ("239.255.255.255", false),
        ("240.0.0.0", true),
        ("0.0.0.0", false),
        ("0.0.0.1", true),
        ("::", false),
        ("::1", false),
        ("::2", true),
        ("fe80::", false),
        ("febf::1", false),
        ("fec0::1", true),
        ("ff00::", false),
        ("10.0.0.1 ", false),
        ("[fd00::1]", false),
    ] {
        assert_eq!(is_permitted(address, &[], &all), is_permitted_here, "{address}");
        let node = [address.to_owned()];
        assert_eq!(is_permitted(address, &node, &[]), is_permitted_here, "{address} of its node");
    }
}
