//! Follows what the cluster says of its authorities: the `ConfigMap` `extension-apiserver-authentication`.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_daemon::monitor::Health;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::watch_object;
use kube::{Api, Client};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

use super::identity::HeaderNames;
use super::trust::{Authorities, FrontProxy, Trust};
use crate::certificates::provider;

/// The part of the gateway's health that is the API server as a proxy.
pub(crate) const FRONT_PROXY: &str = "front proxy";
const MAP: &str = "extension-apiserver-authentication";

/// Follows it until it is dropped. What was trusted stays so while the API server is not reached.
pub(crate) async fn follow(client: Client, trust: Trust, health: Health) {
    let maps: Api<ConfigMap> = Api::namespaced(client, "kube-system");
    let mut states = std::pin::pin!(watch_object(maps, MAP).default_backoff());
    while let Some(state) = states.next().await {
        match state {
            Ok(map) => match read(&map.and_then(|map| map.data).unwrap_or_default()) {
                (authorities, None) => {
                    trust.replace(authorities);
                    health.well(FRONT_PROXY);
                }
                (authorities, Some(reason)) => {
                    trust.replace(authorities);
                    health.ill(FRONT_PROXY, reason);
                }
            },
            Err(error) => tracing::debug!(%error, "the watch of the cluster's authorities restarts"),
        }
    }
}

/// What the map says; with a reason where the API server cannot be trusted as a proxy.
fn read(data: &BTreeMap<String, String>) -> (Authorities, Option<String>) {
    let people = match data.get("client-ca-file").filter(|text| !text.trim().is_empty()) {
        None => None,
        Some(pem) => match verifier(pem) {
            Ok(people) => Some(people),
            Err(reason) => return (Authorities::default(), Some(format!("client-ca-file: {reason}"))),
        },
    };
    match front_proxy(data) {
        Ok(front_proxy) => (Authorities { front_proxy: Some(front_proxy), people }, None),
        Err(reason) => (Authorities { front_proxy: None, people }, Some(reason)),
    }
}

/// The API server as a proxy, or why it cannot be trusted as one.
fn front_proxy(data: &BTreeMap<String, String>) -> Result<FrontProxy, String> {
    let pem = |name: &str| data.get(name).map(String::as_str).filter(|text| !text.trim().is_empty());
    let Some(authority) = pem("requestheader-client-ca-file") else {
        let remedy = "the API server needs --requestheader-client-ca-file and --proxy-client-cert-file";
        return Err(format!("the cluster has no aggregation layer: {remedy}"));
    };
    let list = |name: &str| -> Result<Vec<String>, String> {
        let text = data.get(name).map_or("[]", String::as_str);
        serde_json::from_str(text).map_err(|error| format!("{name}: {error}"))
    };
    let lower = |name: &str| Ok::<_, String>(list(name)?.iter().map(|it| it.to_lowercase()).collect());
    let names = list("requestheader-allowed-names")?;
    if names.is_empty() && pem("client-ca-file") == Some(authority) {
        return Err("the API server's --requestheader-client-ca-file is its --client-ca-file, and --requestheader-allowed-names \
             is empty: every user of the cluster could pose as any other. Give one of both another value"
            .to_owned());
    }
    let headers = HeaderNames {
        user: lower("requestheader-username-headers")?,
        uid: lower("requestheader-uid-headers")?,
        group: lower("requestheader-group-headers")?,
        extra: lower("requestheader-extra-headers-prefix")?,
    };
    let verifier = verifier(authority).map_err(|reason| format!("requestheader-client-ca-file: {reason}"))?;
    Ok(FrontProxy { verifier, names, headers })
}

fn verifier(pem: &str) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(provider()));
    let verifier: Arc<dyn ClientCertVerifier> = verifier.build().map_err(|error| error.to_string())?;
    Ok(verifier)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::trust::Worth;

    /// A certificate of an authority, and the authority's in PEM.
    fn issued(name: &str) -> (CertificateDer<'static>, String) {
        use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.distinguished_name.push(DnType::CommonName, format!("authority of {name}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = params.self_signed(&key).expect("an authority");
        let issuer = Issuer::new(params, key);
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let leaf = params.signed_by(&KeyPair::generate().expect("a key"), &issuer).expect("a certificate");
        (leaf.der().clone(), authority.pem())
    }

    fn map(parts: &[(&str, &str)]) -> BTreeMap<String, String> {
        parts.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn a_certificate_is_worth_what_its_authority_is_for_and_changes_with_the_map() {
        let (proxy, proxies) = issued("proxy");
        let (ann, people) = issued("ann");
        let trust = Trust::default();
        assert!(matches!(trust.worth(std::slice::from_ref(&proxy)), Worth::Nothing));
        let data = map(&[
            ("requestheader-client-ca-file", &proxies),
            ("client-ca-file", &people),
            ("requestheader-allowed-names", "[\"proxy\"]"),
            ("requestheader-username-headers", "[\"X-Remote-User\"]"),
        ]);
        trust.replace(read(&data).0);
        let Worth::FrontProxy(found) = trust.worth(std::slice::from_ref(&proxy)) else { unreachable!("not trusted") };
        assert_eq!((found.names, found.headers.user), (vec!["proxy".to_owned()], vec!["x-remote-user".to_owned()]));
        assert!(matches!(trust.worth(std::slice::from_ref(&ann)), Worth::Person));
        assert!(matches!(trust.worth(&[]), Worth::Nothing));
        let (_, rotated) = issued("proxy");
        trust.replace(read(&map(&[("requestheader-client-ca-file", &rotated)])).0);
        assert!(matches!(trust.worth(&[proxy]), Worth::Nothing));
    }

    #[test]
    fn one_authority_for_both_and_no_names_is_no_proxy_and_says_why() {
        let (_, both) = issued("proxy");
        let parts = [("requestheader-client-ca-file", both.as_str()), ("client-ca-file", both.as_str())];
        let (authorities, reason) = read(&map(&parts));
        let reason = reason.expect("a reason");
        assert!(authorities.front_proxy.is_none() && authorities.people.is_some());
        assert!(reason.contains("--requestheader-allowed-names"), "{reason}");
        let named = [&parts[..], &[("requestheader-allowed-names", "[\"proxy\"]")]].concat();
        assert_eq!(read(&map(&named)).1, None);
    }

    #[test]
    fn a_cluster_without_aggregation_and_a_damaged_map_are_named() {
        let reason = read(&map(&[])).1.expect("a reason");
        assert!(reason.contains("no aggregation layer"), "{reason}");
        let reason = read(&map(&[("requestheader-client-ca-file", "x")])).1.expect("a reason");
        assert!(reason.contains("requestheader-client-ca-file"), "{reason}");
        let (_, pem) = issued("proxy");
        let parts = [("requestheader-client-ca-file", pem.as_str()), ("requestheader-allowed-names", "[")];
        let reason = read(&map(&parts)).1.expect("a reason");
        assert!(reason.contains("requestheader-allowed-names"), "{reason}");
    }
}
