//! Parts of addresses at their edges.

use fastrand::Rng;

use super::*;

fn shown(text: &str) -> Result<String, WebAddressError> {
    WebAddress::parse(text).map(|it| format!("{} {} {} {}", it.is_tls, it.host, it.port, it.path))
}

#[test]
fn each_part_is_read_up_to_its_own_end() {
    for (text, expected) in [
        ("http://a", "false a 80 /"),
        ("https://a?x", "true a 443 /?x"),
        ("http://a#x", "false a 80 /"),
        ("http://a/b@c", "false a 80 /b@c"),
        ("http://a/?u=http://b:c@d/", "false a 80 /?u=http://b:c@d/"),
        ("http://a:65535/", "false a 65535 /"),
        ("http://a:/x", "false a 80 /x"),
        ("https://[::1]:8443", "true ::1 8443 /"),
        ("https://[fd00::1]:", "true fd00::1 443 /"),
        ("hTTp://A/", "false A 80 /"),
    ] {
        assert_eq!(shown(text).as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn what_is_wrong_with_an_address_is_told_apart() {
    let host = |text: &str| WebAddressError::Host(text.to_owned());
    for (text, wrong) in [
        ("a/b", WebAddressError::Scheme("a/b".to_owned())),
        ("ws://a", WebAddressError::Scheme("ws://a".to_owned())),
        ("http:/a", WebAddressError::Scheme("http:/a".to_owned())),
        ("http://u@a/", WebAddressError::User),
        ("http://:p@a/", WebAddressError::User),
        ("http://a\\b", WebAddressError::Text),
        ("http://é", WebAddressError::Text),
        ("http://a\u{7f}", WebAddressError::Text),
        ("http://a\n", WebAddressError::Text),
        ("http://a:65536/", host("http://a:65536/")),
        ("http://a:1:2/", host("http://a:1:2/")),
        ("http://[fd00::1", host("http://[fd00::1")),
        ("http://[fd00::1]8", host("http://[fd00::1]8")),
        ("http://[10.0.0.1]/", host("http://[10.0.0.1]/")),
        ("http://a%41/", host("http://a%41/")),
        ("http://:80/", host("http://:80/")),
    ] {
        assert_eq!(shown(text), Err(wrong), "{text:?}");
    }
}

#[test]
fn an_address_has_at_most_8_kib_and_a_host_253_letters() {
    let of_length = |bytes: usize| format!("http://a/{}", "x".repeat(bytes - 9));
    assert!(WebAddress::parse(&of_length(8192)).is_ok());
    assert_eq!(WebAddress::parse(&of_length(8193)), Err(WebAddressError::Text));
    let of_host = |letters: usize| WebAddress::parse(&format!("http://{}", "a".repeat(letters)));
    assert!(of_host(253).is_ok() && of_host(254).is_err());
}

#[test]
fn an_address_that_is_written_again_is_the_same_one() {
    let mut rng = Rng::with_seed(45);
    for _ in 0..2000 {
        let mut one = |of: &[&str]| of[rng.usize(..of.len())].to_owned();
        let (scheme, host) = (one(&["http", "https"]), one(&["a", "10.0.0.7", "[fd00::1]"]));
        let port = one(&["", ":", ":80", ":443", ":8080"]);
        let text = format!("{scheme}://{host}{port}{}", one(&["", "/", "/a/b?c=d", "?c"]));
        let read = WebAddress::parse(&text).expect("an address");
        let again = format!("{scheme}://{}{}", read.authority(), read.path);
        assert_eq!(WebAddress::parse(&again).as_ref(), Ok(&read), "{text} became {again}");
        let usual = if scheme == "https" { ":443" } else { ":80" };
        assert!(!read.authority().ends_with(usual), "{again}");
    }
}

#[test]
fn a_location_leads_on_from_the_folder_of_what_was_asked() {
    let from = |path: &str| WebAddress::parse(&format!("http://a{path}")).expect("an address");
    for (path, location, leads) in [
        ("/b/c", "", "/b/c"),
        ("/b/c?x", "", "/b/c"),
        ("/b/c", "d/e", "/b/d/e"),
        ("/b/", "d", "/b/d"),
        ("/", "d", "/d"),
        ("/b?x=/y/z", "d", "/d"),
        ("/b/c", "d?e=f:g", "/b/d?e=f:g"),
        ("/b/c", "/d:e", "/d:e"),
        ("/b/c", "#top", "/b/#top"),
        ("/b/c", "../d", "/b/../d"),
    ] {
        let found = from(path).join(location).map(|to| to.path);
        let leads = leads.split('#').next().unwrap_or_default();
        assert_eq!(found.as_deref(), Ok(leads), "{path} {location}");
    }
    for location in ["http://u@b/", "ftp://b", "b:c", "//", "d e"] {
        from("/b/c").join(location).expect_err(location);
    }
}

#[test]
fn origins_are_the_same_by_scheme_host_and_port() {
    let of = |text: &str| WebAddress::parse(text).expect("an address");
    for (other, is_same) in [
        ("https://a.example/x", true),
        ("https://A.EXAMPLE:443", true),
        ("http://a.example:443", false),
        ("https://a.example:444", false),
        ("https://b.a.example", false),
    ] {
        assert_eq!(of("https://a.example/y?z").is_same_origin(&of(other)), is_same, "{other}");
    }
}

#[test]
fn what_is_encoded_is_read_again_and_only_unreserved_letters_stay() {
    assert_eq!(encoded("aZ0-._~/?&= +é%"), "aZ0-._~%2F%3F%26%3D%20%2B%C3%A9%25");
    assert_eq!(decoded("%zz%4%41+%ff"), "%zz%4A+\u{fffd}");
    let mut rng = Rng::with_seed(46);
    for _ in 0..1000 {
        let text: String = (0..rng.usize(..12)).map(|_| rng.char(..)).collect();
        assert_eq!(decoded(&encoded(&text)), text);
    }
}
