//! Which certificates clients may show, and what each is worth: the API server's own as a proxy for others, or that of
//! a person of the cluster. Changes while connections are open.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, Error};

use super::identity::HeaderNames;
use crate::certificates::Believer;

/// The API server as a proxy: whose name it may bear, and in which headers it says who asks.
#[derive(Clone, Debug)]
pub(super) struct FrontProxy {
    pub(super) verifier: Arc<dyn ClientCertVerifier>,
    /// The names that its certificate may have; any, where there are none.
    pub(super) names: Vec<String>,
    pub(super) headers: HeaderNames,
}

/// Authorities of clients' certificates.
#[derive(Clone, Debug, Default)]
pub(super) struct Authorities {
    pub(super) front_proxy: Option<FrontProxy>,
    pub(super) people: Option<Arc<dyn ClientCertVerifier>>,
}

/// The authorities that hold; clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trust(Arc<RwLock<Arc<Authorities>>>);

/// What a certificate is worth.
#[derive(Debug)]
pub(super) enum Worth {
    /// None was shown, or its authority is not one any more.
    Nothing,
    /// It is that of the API server's proxy.
    FrontProxy(FrontProxy),
    /// It is a person's.
    Person,
}

impl Trust {
    /// Trusts these from now on.
    pub(super) fn replace(&self, authorities: Authorities) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(authorities);
    }

    fn now(&self) -> Arc<Authorities> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What the certificates of a connection are worth now.
    pub(super) fn worth(&self, chain: &[CertificateDer<'_>]) -> Worth {
        let Some((own, between)) = chain.split_first() else { return Worth::Nothing };
        let is_of =
            |verifier: &Arc<dyn ClientCertVerifier>| verifier.verify_client_cert(own, between, UnixTime::now()).is_ok();
        let authorities = self.now();
        if let Some(front_proxy) = authorities.front_proxy.as_ref().filter(|it| is_of(&it.verifier)) {
            return Worth::FrontProxy(front_proxy.clone());
        }
        if authorities.people.as_ref().is_some_and(is_of) { Worth::Person } else { Worth::Nothing }
    }
}

impl Believer for Trust {
    fn believe(
        &self,
        own: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let authorities = self.now();
        let front_proxy = authorities.front_proxy.as_ref().map(|it| &it.verifier);
        let all = front_proxy.into_iter().chain(&authorities.people);
        let mut reason = Error::InvalidCertificate(CertificateError::UnknownIssuer);
        for verifier in all {
            match verifier.verify_client_cert(own, between, now) {
                Ok(verified) => return Ok(verified),
                Err(error) => reason = error,
            }
        }
        Err(reason)
    }
}
