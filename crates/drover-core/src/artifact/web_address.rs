//! An address of http or https, and where a redirect from it leads.

use std::collections::BTreeMap;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// What a value in a query is encoded for: all but the unreserved characters of RFC 3986, section 2.3.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Longest address.
const MAX_BYTES: usize = 8 * 1024;

/// An address of http or https. Holding one is the proof that it has a host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebAddress {
    /// Whether it is asked with TLS.
    pub is_tls: bool,
    /// A name, or an address without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Path and query, beginning with a slash; encoded as it was given.
    pub path: String,
}

/// Why a text is no such address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WebAddressError {
    /// Another scheme.
    #[error("{0} is no address of http or https")]
    Scheme(String),
    /// It has a user in it.
    #[error("it names a user; give the header Authorization instead")]
    User,
    /// No host, or no port.
    #[error("{0} has no host and port that can be asked")]
    Host(String),
    /// A character that an address must not have, or too many.
    #[error("it has a character that must be encoded by %, or more than 8 KiB")]
    Text,
}

impl WebAddress {
    /// Reads an address.
    ///
    /// # Errors
    /// When it is none of http or https.
    pub fn parse(text: &str) -> Result<Self, WebAddressError> {
        if text.len() > MAX_BYTES || text.bytes().any(|byte| byte <= b' ' || byte >= 0x7f || byte == b'\\') {
            return Err(WebAddressError::Text);
        }
        let text = text.split('#').next().unwrap_or_default();
        let shown = || text.chars().take(128).collect::<String>();
        let (scheme, rest) = text.split_once("://").ok_or_else(|| WebAddressError::Scheme(shown()))?;
        let is_tls = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return Err(WebAddressError::Scheme(shown())),
        };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if authority.contains('@') {
            return Err(WebAddressError::User);
        }
        let (host, port) = host_and_port(authority, is_tls).ok_or_else(|| WebAddressError::Host(shown()))?;
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Self { is_tls, host, port, path })
    }

    /// Where a `Location` leads.
    ///
    /// # Errors
    /// When it is no address of http or https.
    pub fn join(&self, location: &str) -> Result<Self, WebAddressError> {
        let head = location.split(['/', '?', '#']).next().unwrap_or_default();
        if head.contains(':') {
            return Self::parse(location);
        }
        let scheme = if self.is_tls { "https" } else { "http" };
        if location.starts_with("//") {
            return Self::parse(&format!("{scheme}:{location}"));
        }
        let own = self.path.split('?').next().unwrap_or("/");
        let path = if location.starts_with('/') {
            location.to_owned()
        } else if location.starts_with('?') || location.is_empty() {
            format!("{own}{location}")
        } else {
            format!("{}/{location}", own.rsplit_once('/').map_or("", |(folder, _)| folder))
        };
        Self::parse(&format!("{scheme}://{}{path}", self.authority()))
    }

    /// Host and port as a `Host` header has them: without a port that goes without saying.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let usual = if self.is_tls { 443 } else { 80 };
        if self.port == usual { host } else { format!("{host}:{}", self.port) }
    }

    /// Whether what goes to one may go to the other: scheme, host and port are the same.
    pub fn is_same_origin(&self, other: &Self) -> bool {
        (self.is_tls, self.port) == (other.is_tls, other.port) && self.host.eq_ignore_ascii_case(&other.host)
    }
}

/// Moves what a query says into options, as far as its names are meant, and returns the other pairs as they stand. What
/// the options have already holds.
pub(super) fn take_query<'a>(
    query: &'a str,
    options: &mut BTreeMap<String, String>,
    is_meant: impl Fn(&str) -> bool,
) -> Vec<&'a str> {
    let mut rest = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if is_meant(name) {
            options.entry(name.to_owned()).or_insert_with(|| decoded(value));
        } else {
            rest.push(pair);
        }
    }
    rest
}

fn host_and_port(authority: &str, is_tls: bool) -> Option<(String, u16)> {
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (six, after) = rest.split_once(']')?;
        six.parse::<std::net::Ipv6Addr>().ok()?;
        (six, if after.is_empty() { None } else { Some(after.strip_prefix(':')?) })
    } else {
        match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        }
    };
    let is_host = !host.is_empty() && host.len() <= 253 && !host.contains(['[', ']', '%', '"', '<', '>', '|', '^']);
    let port = match port.filter(|port| !port.is_empty()) {
        None => {
            if is_tls {
                443
            } else {
                80
            }
        }
        Some(port) => port.parse().ok().filter(|port| *port > 0)?,
    };
    is_host.then(|| (host.to_owned(), port))
}

/// Bytes behind `%`; what is no such sequence stays as it is.
pub(super) fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

pub(super) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

#[cfg(test)]
mod tests {
    mod parts;

    use super::*;

    #[test]
    fn an_address_is_read_with_the_port_that_goes_without_saying() {
        for (text, host, port, path) in [
            ("http://a.example", "a.example", 80, "/"),
            ("HTTPS://a.example:8443/b/c.tgz?x=1#top", "a.example", 8443, "/b/c.tgz?x=1"),
            ("https://[fd00::1]/x", "fd00::1", 443, "/x"),
            ("http://10.0.0.7:?q", "10.0.0.7", 80, "/?q"),
        ] {
            let found = WebAddress::parse(text).expect(text);
            assert_eq!((found.host.as_str(), found.port, found.path.as_str()), (host, port, path), "{text}");
        }
        for text in [
            "ftp://a/",
            "a.example/x",
            "http:///x",
            "http://u:p@a/",
            "http://a:0/",
            "http://[1]/",
            "http://a/b c",
            "http://a:b/",
        ] {
            WebAddress::parse(text).expect_err(text);
        }
    }

    #[test]
    fn a_redirect_is_followed_from_where_it_was_said() {
        let from = WebAddress::parse("https://a.example:8443/b/c?x=1").expect("an address");
        for (location, leads) in [
            ("http://b.example/d", "b.example /d"),
            ("//b.example:1/d", "b.example:1 /d"),
            ("/d", "a.example:8443 /d"),
            ("d?y=2", "a.example:8443 /b/d?y=2"),
            ("?y=2", "a.example:8443 /b/c?y=2"),
        ] {
            let found = from.join(location).expect(location);
            assert_eq!(format!("{} {}", found.authority(), found.path), leads, "{location}");
        }
        from.join("file:///etc/passwd").expect_err("another scheme");
        from.join("gopher://a").expect_err("another scheme");
    }
}
