//! Locations in every form, and names that only look like the check's own.

use super::*;

fn from() -> HttpTarget {
    HttpTarget { ip: "10.0.0.7".to_owned(), port: 21000, is_tls: true, path: "/a/b?x=/y".to_owned() }
}

fn to(location: &str, host: &str) -> Result<String, RedirectError> {
    let to = redirect(&from(), location, host, &[21001])?;
    assert_eq!(to.ip, "10.0.0.7", "a redirect never leaves the address");
    Ok(format!("{} {} {}", to.is_tls, to.port, to.path))
}

#[test]
fn a_relative_location_stays_on_port_and_scheme() {
    for (location, leads) in [
        ("", "true 21000 /a/"),
        ("c", "true 21000 /a/c"),
        ("/c:d", "true 21000 /c:d"),
        ("./c", "true 21000 /a/./c"),
        ("?z", "true 21000 /a/b?z"),
        ("c?u=http://x", "true 21000 /a/c?u=http://x"),
        ("#top", "true 21000 /a/"),
        ("é", "true 21000 /a/é"),
    ] {
        assert_eq!(to(location, "").as_deref(), Ok(leads), "{location}");
    }
}

#[test]
fn an_absolute_location_has_the_port_of_its_scheme_unless_it_is_the_checks_own_name() {
    for (location, host, leads) in [
        ("http://10.0.0.7:21001", "", Ok("false 21001 /")),
        ("//10.0.0.7:21001?q", "", Ok("true 21001 /?q")),
        ("hTTp://10.0.0.7:21000/c#d", "", Ok("false 21000 /c")),
        ("http://10.0.0.7", "", Err(RedirectError::OtherPort(80))),
        ("https://10.0.0.7", "", Err(RedirectError::OtherPort(443))),
        ("//10.0.0.7", "", Err(RedirectError::OtherPort(443))),
        ("http://shop", "SHOP:8080", Ok("false 21000 /")),
        ("http://shop:80", "shop", Err(RedirectError::OtherPort(80))),
        ("http://shop.x", "shop", Err(RedirectError::OtherHost("shop.x".to_owned()))),
        ("http://xshop", "shop", Err(RedirectError::OtherHost("xshop".to_owned()))),
        ("http://shop", "", Err(RedirectError::OtherHost("shop".to_owned()))),
        ("http://10.0.0.7.evil:21000", "", Err(RedirectError::OtherHost("10.0.0.7.evil".to_owned()))),
        ("http://010.0.0.7:21000", "", Err(RedirectError::OtherHost("010.0.0.7".to_owned()))),
        ("http://:21000", "", Err(RedirectError::OtherHost(String::new()))),
    ] {
        assert_eq!(to(location, host).as_deref(), leads.as_ref().map(|leads| *leads), "{location} as {host:?}");
    }
}

#[test]
fn what_cannot_be_read_is_shown_shortened() {
    for location in
        ["http:///x", "https://", "//", "a:b", "http://a@b", "http://10.0.0.7:", "http://10.0.0.7:x", "//[fd00"]
    {
        assert_eq!(to(location, ""), Err(RedirectError::Unreadable(location.to_owned())), "{location}");
    }
    let long = format!("ftp:{}", "é".repeat(200));
    let shown = long.chars().take(128).collect();
    assert_eq!(to(&long, ""), Err(RedirectError::Unreadable(shown)));
    let host = "h".repeat(200);
    assert_eq!(to(&format!("http://{host}"), ""), Err(RedirectError::OtherHost("h".repeat(128))));
}
