//! Where a redirect leads a check: to the allocation's own ports on the same address, or nowhere.

/// What an HTTP probe asks next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpTarget {
    /// The address, without brackets.
    pub ip: String,
    /// The port on it.
    pub port: u16,
    /// Whether it is asked with TLS.
    pub is_tls: bool,
    /// Path and query, beginning with a slash.
    pub path: String,
}

/// Why a redirect is not followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RedirectError {
    /// It leads to another host.
    #[error("redirected to {0}: a check follows redirects on its own address only")]
    OtherHost(String),
    /// It leads to a port that the allocation does not hold.
    #[error("redirected to port {0}, which the allocation does not hold")]
    OtherPort(u16),
    /// It is no address of http or https.
    #[error("redirected to {0}, which is no address of http or https")]
    Unreadable(String),
}

/// Follows a redirect by the text of its `Location`. `host` is what the check calls itself (its `Host` header), which
/// counts as its own address; `held` are the allocation's ports.
///
/// # Errors
/// When it leads off the address or the ports of the allocation.
pub fn redirect(from: &HttpTarget, location: &str, host: &str, held: &[u16]) -> Result<HttpTarget, RedirectError> {
    let location = location.split('#').next().unwrap_or_default();
    let shown = || location.chars().take(128).collect::<String>();
    let lower = location.get(..8).unwrap_or(location).to_ascii_lowercase();
    let (is_tls, rest) = if lower.starts_with("http://") {
        (false, &location[7..])
    } else if lower.starts_with("https://") {
        (true, &location[8..])
    } else if let Some(rest) = location.strip_prefix("//") {
        (from.is_tls, rest)
    } else if location.split(['/', '?']).next().is_some_and(|first| first.contains(':')) {
        return Err(RedirectError::Unreadable(shown()));
    } else {
        let path = if location.starts_with('/') {
            location.to_owned()
        } else if location.starts_with('?') {
            format!("{}{location}", from.path.split('?').next().unwrap_or("/"))
        } else {
            let folder = from.path.split('?').next().and_then(|path| path.rsplit_once('/')).map_or("", |(up, _)| up);
            format!("{folder}/{location}")
        };
        return Ok(HttpTarget { path, ..from.clone() });
    };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let (name, port) = name_and_port(authority).ok_or_else(|| RedirectError::Unreadable(shown()))?;
    let own = name_and_port(host).map_or(host, |(name, _)| name);
    let is_alias = !host.is_empty() && name.eq_ignore_ascii_case(own);
    if name != from.ip && !is_alias {
        return Err(RedirectError::OtherHost(name.chars().take(128).collect()));
    }
    // Under the name of its own, what is given without a port is the port that was asked.
    let usual = if is_tls { 443 } else { 80 };
    let port = port.unwrap_or(if is_alias { from.port } else { usual });
    if port != from.port && !held.contains(&port) {
        return Err(RedirectError::OtherPort(port));
    }
    Ok(HttpTarget { ip: from.ip.clone(), port, is_tls, path })
}

/// The parts of `name`, `name:port` or `[v6]:port`; none for what has a user in it, or a port that is no number.
fn name_and_port(authority: &str) -> Option<(&str, Option<u16>)> {
    if authority.is_empty() || authority.contains('@') {
        return None;
    }
    if let Some(rest) = authority.strip_prefix('[') {
        let (name, rest) = rest.split_once(']')?;
        let port = rest.strip_prefix(':').map(str::parse).transpose().ok()?;
        return Some((name, port));
    }
    match authority.split_once(':') {
        Some((name, port)) => Some((name, Some(port.parse().ok()?))),
        None => Some((authority, None)),
    }
}

#[cfg(test)]
mod tests {
    mod locations;

    use super::*;

    #[test]
    fn b_042_a_redirect_stays_on_the_host_and_on_the_ports_of_the_allocation() {
        let from =
            HttpTarget { ip: "10.0.0.7".to_owned(), port: 21000, is_tls: false, path: "/a/health?x=1".to_owned() };
        let to = |location: &str, host: &str| redirect(&from, location, host, &[21000, 21001]);
        let there = |port, is_tls, path: &str| Ok(HttpTarget { port, is_tls, path: path.to_owned(), ..from.clone() });
        for (location, host, expected) in [
            ("/login", "", there(21000, false, "/login")),
            ("login#top", "", there(21000, false, "/a/login")),
            ("?y=2", "", there(21000, false, "/a/health?y=2")),
            ("http://10.0.0.7:21001", "", there(21001, false, "/")),
            ("HTTPS://10.0.0.7:21001/x", "", there(21001, true, "/x")),
            ("//10.0.0.7:21000/x", "", there(21000, false, "/x")),
            ("https://shop.example/x", "shop.example", there(21000, true, "/x")),
            ("http://Shop.example:21001/x", "shop.example:80", there(21001, false, "/x")),
            ("http://10.0.0.8:21000/", "", Err(RedirectError::OtherHost("10.0.0.8".to_owned()))),
            ("http://localhost:21000/", "", Err(RedirectError::OtherHost("localhost".to_owned()))),
            ("http://shop.example/", "", Err(RedirectError::OtherHost("shop.example".to_owned()))),
            ("http://169.254.169.254/", "shop.example", Err(RedirectError::OtherHost("169.254.169.254".to_owned()))),
            ("https://10.0.0.7:10250/", "", Err(RedirectError::OtherPort(10250))),
            ("http://10.0.0.7/", "", Err(RedirectError::OtherPort(80))),
            ("http://shop.example:10250/", "shop.example", Err(RedirectError::OtherPort(10250))),
        ] {
            assert_eq!(to(location, host), expected, "{location} as {host:?}");
        }
        for odd in ["file:///etc/passwd", "http://", "http://a@10.0.0.7:21000/", "http://10.0.0.7:70000/", "gopher:x"] {
            assert!(matches!(to(odd, ""), Err(RedirectError::Unreadable(_))), "{odd}");
        }
    }

    #[test]
    fn an_address_of_version_6_stands_in_brackets() {
        let from = HttpTarget { ip: "fd00::7".to_owned(), port: 21000, is_tls: false, path: "/".to_owned() };
        let to = redirect(&from, "http://[fd00::7]:21000/x", "", &[21000]);
        assert_eq!(to.map(|to| (to.ip, to.port, to.path)), Ok(("fd00::7".to_owned(), 21000, "/x".to_owned())));
    }
}
