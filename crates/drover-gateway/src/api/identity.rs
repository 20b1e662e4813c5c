//! Who asks, by what a request and its connection show.

use std::collections::BTreeMap;

use http::HeaderMap;
use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::answers::Refusal;
use crate::reviews::Identity;

/// The headers in which the API server says who asks; in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct HeaderNames {
    pub(super) user: Vec<String>,
    pub(super) uid: Vec<String>,
    pub(super) group: Vec<String>,
    /// How the names of the others begin.
    pub(super) extra: Vec<String>,
}

/// The subject of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Subject {
    pub(super) name: String,
    pub(super) organizations: Vec<String>,
}

/// Reads the subject of a certificate that was verified.
///
/// # Errors
/// 401, when it has none.
pub(super) fn subject(certificate: &CertificateDer<'_>) -> Result<Subject, Refusal> {
    let wrong = || Refusal::new(401, "the certificate names no user");
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| wrong())?;
    let name = parsed.subject().iter_common_name().next().and_then(|it| it.as_str().ok()).ok_or_else(wrong)?;
    let organizations =
        parsed.subject().iter_organization().filter_map(|it| it.as_str().ok()).map(str::to_owned).collect();
    Ok(Subject { name: name.to_owned(), organizations })
}

impl From<Subject> for Identity {
    fn from(subject: Subject) -> Self {
        let mut groups = subject.organizations;
        groups.push("system:authenticated".to_owned());
        Self { user: subject.name, groups, ..Self::default() }
    }
}

/// Reads who asks from the headers of a proxy that was proved.
///
/// # Errors
/// 401, when they name no user.
pub(super) fn from_headers(headers: &HeaderMap, names: &HeaderNames) -> Result<Identity, Refusal> {
    let first = |names: &[String]| names.iter().find_map(|name| text(headers.get(name)?)).filter(|it| !it.is_empty());
    let user = first(&names.user).ok_or_else(|| Refusal::new(401, "the proxy names no user"))?;
    let groups = names.group.iter().flat_map(|name| headers.get_all(name)).filter_map(text).collect();
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers {
        let key = names.extra.iter().find_map(|prefix| name.as_str().strip_prefix(prefix.as_str()));
        if let (Some(key), Some(value)) = (key, text(value)) {
            let key = percent_encoding::percent_decode_str(key).decode_utf8_lossy().to_lowercase();
            extra.entry(key).or_default().push(value);
        }
    }
    Ok(Identity { user, uid: first(&names.uid), groups, extra })
}

fn text(value: &http::HeaderValue) -> Option<String> {
    std::str::from_utf8(value.as_bytes()).ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> HeaderNames {
        let one = |name: &str| vec![name.to_owned()];
        HeaderNames {
            user: one("x-remote-user"),
            uid: one("x-remote-uid"),
            group: one("x-remote-group"),
            extra: one("x-remote-extra-"),
        }
    }

    #[test]
    fn headers_of_the_proxy_name_user_groups_and_more() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("X-Remote-User", "ann"),
            ("X-Remote-Uid", "7"),
            ("X-Remote-Group", "dev"),
            ("X-Remote-Group", "system:authenticated"),
            ("X-Remote-Extra-Example.com%2fScope", "a"),
        ] {
            let name: http::HeaderName = name.parse().expect("a name");
            headers.append(name, http::HeaderValue::from_static(value));
        }
        let found = from_headers(&headers, &names()).expect("an identity");
        assert_eq!((found.user.as_str(), found.uid.as_deref()), ("ann", Some("7")));
        assert_eq!(found.groups, ["dev", "system:authenticated"]);
        assert_eq!(found.extra["example.com/scope"], ["a"]);
        headers.remove("x-remote-user");
        assert_eq!(from_headers(&headers, &names()).map_err(|refusal| refusal.code), Err(401));
    }

    #[test]
    fn a_certificate_names_a_user_and_groups() {
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut params = rcgen::CertificateParams::new(Vec::new()).expect("parameters");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, "ann");
        params.distinguished_name.push(rcgen::DnType::OrganizationName, "dev");
        let certificate = params.self_signed(&key).expect("a certificate");
        let found = Identity::from(subject(certificate.der()).expect("a subject"));
        assert_eq!(
            (found.user.as_str(), found.groups.as_slice()),
            ("ann", &["dev".to_owned(), "system:authenticated".to_owned()][..])
        );
        assert!(subject(&CertificateDer::from(vec![1, 2, 3])).is_err());
    }
}
