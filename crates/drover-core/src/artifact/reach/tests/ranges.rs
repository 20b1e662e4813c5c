//! Refused addresses as the ranges of the specification, and IPv4 ones in the clothes of IPv6.

use fastrand::Rng;

use super::*;

/// What is refused of IPv4, and why, as an operator would write the ranges.
const REFUSED: [(&str, &str); 7] = [
    ("127.0.0.0/8", "it is this node's loopback device"),
    ("169.254.0.0/16", "it is link-local"),
    ("100.100.100.200/32", "it is a cloud's metadata service"),
    ("192.0.0.192/32", "it is a cloud's metadata service"),
    ("0.0.0.0/8", "it is no address of a host"),
    ("224.0.0.0/4", "it is no address of a host"),
    ("240.0.0.0/4", "it is no address of a host"),
];

fn slow_refusal(four: Ipv4Addr) -> Option<&'static str> {
    let holds = |text: &str| text.parse::<Cidr>().expect("a range").contains(IpAddr::V4(four));
    REFUSED.iter().find(|(range, _)| holds(range)).map(|(_, reason)| *reason)
}

fn edges() -> Vec<Ipv4Addr> {
    let near = |text: &str| {
        let bits = text.parse::<Ipv4Addr>().expect("an address").to_bits();
        [bits.wrapping_sub(1), bits, bits.wrapping_add(1)].map(Ipv4Addr::from_bits)
    };
    let ends = ["0.0.0.0", "1.0.0.0", "127.0.0.0", "128.0.0.0", "169.254.0.0", "169.255.0.0", "100.100.100.200"];
    let more = ["192.0.0.192", "224.0.0.0", "240.0.0.0", "255.255.255.255"];
    ends.into_iter().chain(more).flat_map(near).collect()
}

#[test]
fn the_ranges_of_the_specification_are_refused_to_their_last_address() {
    let mut rng = Rng::with_seed(46);
    let random = (0..5000).map(|_| Ipv4Addr::from_bits(rng.u32(..))).collect::<Vec<_>>();
    for four in edges().into_iter().chain(random) {
        assert_eq!(refusal(IpAddr::V4(four), &[]), slow_refusal(four), "{four}");
    }
}

#[test]
fn clothes_of_ipv6_hide_no_address() {
    let mut rng = Rng::with_seed(47);
    let random = (0..2000).map(|_| Ipv4Addr::from_bits(rng.u32(..))).collect::<Vec<_>>();
    for four in edges().into_iter().chain(random) {
        let [a, b, c, d] = four.octets().map(u16::from);
        let (high, low) = (a << 8 | b, c << 8 | d);
        let mut clothes = vec![
            Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, high, low),
            Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
            Ipv6Addr::new(0x2002, high, low, rng.u16(..), rng.u16(..), 0, 0, 1),
        ];
        if high != 0 {
            clothes.push(Ipv6Addr::new(0, 0, 0, 0, 0, 0, high, low));
        }
        for six in clothes {
            assert_eq!(refusal(IpAddr::V6(six), &[]), slow_refusal(four), "{six} leads to {four}");
        }
    }
}

#[test]
fn addresses_of_ipv6_are_refused_by_their_kind() {
    for (text, reason) in [
        ("::1", Some("it is this node's loopback device")),
        ("::", Some("it is no address of a host")),
        ("fe80::1", Some("it is link-local")),
        ("febf:ffff::1", Some("it is link-local")),
        ("fec0::1", None),
        ("fd00:ec2::254", Some("it is a cloud's metadata service")),
        ("fd00:ec2::253", None),
        ("ff00::", Some("it is no address of a host")),
        ("feff::1", None),
        ("2001:db8::7f00:1", None),
        ("64:ff9b:1::7f00:1", None),
        ("::2", None),
    ] {
        assert_eq!(refusal(text.parse().expect("an address"), &[]), reason, "{text}");
    }
}

#[test]
fn what_is_allowed_is_judged_by_where_it_leads() {
    let allowed: Vec<Cidr> = ["169.254.169.254/32", "::1/128"].map(|text| text.parse().expect("a range")).into();
    for (text, is_asked) in [
        ("169.254.169.254", true),
        ("::ffff:169.254.169.254", true),
        ("2002:a9fe:a9fe::1", true),
        ("64:ff9b::a9fe:a9fe", true),
        ("169.254.169.253", false),
        ("::1", true),
        ("127.0.0.1", false),
    ] {
        assert_eq!(refusal(text.parse().expect("an address"), &allowed).is_none(), is_asked, "{text}");
    }
}
