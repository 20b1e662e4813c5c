//! Certificates of clients that need not show one, by whom they are believed at the moment of each handshake.

use std::fmt::Debug;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

/// Who believes a client's certificate. May change its mind while connections are open.
pub(crate) trait Believer: Debug + Send + Sync {
    /// Believes a certificate with those between it and its authority.
    ///
    /// # Errors
    /// Why it is not believed.
    fn believe(
        &self,
        own: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error>;
}

/// Takes the certificates that are believed, and connections that show none: a token may prove those. Any other
/// certificate ends the connection.
#[derive(Debug)]
pub(crate) struct OptionalCertificates<B> {
    believer: B,
    provider: CryptoProvider,
}

impl<B> OptionalCertificates<B> {
    /// Those that this one believes.
    pub(crate) const fn new(believer: B, provider: CryptoProvider) -> Self {
        Self { believer, provider }
    }
}

impl<B: Believer> ClientCertVerifier for OptionalCertificates<B> {
    fn offer_client_auth(&self) -> bool {
        true
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.believer.believe(own, between, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
