//! Which certificate is needed next: plain functions over what is stored, what is published, and the time.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use time::OffsetDateTime;
use x509_parser::extensions::GeneralName;
use x509_parser::pem::Pem;

/// A certificate and its key, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) certificate: String,
    pub(super) key: String,
}

/// A key is never shown.
impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pair").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

/// What the Secret holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Kept {
    /// The authority that signs.
    pub(super) authority: Option<Pair>,
    /// The certificate of the one before it, which is trusted until it expires.
    pub(super) earlier: Option<String>,
    /// The gateway's own.
    pub(super) leaf: Option<Pair>,
}

impl Kept {
    /// The authorities that are trusted, in PEM.
    pub(super) fn authorities(&self) -> String {
        let now = self.authority.as_ref().map(|pair| pair.certificate.as_str()).unwrap_or_default();
        format!("{now}{}", self.earlier.as_deref().unwrap_or_default())
    }
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Store this; look again.
    Store(Kept),
    /// Publish these certificates of authorities, then look again: what an unpublished one signs is not trusted.
    Publish(String),
    /// All is well; look again at this time at the latest.
    Wait(Timestamp),
}

/// For how long certificates are made, and for which names.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) authority_for: Duration,
    pub(super) leaf_for: Duration,
    pub(super) names: Vec<String>,
}

/// Why a certificate could not be made.
#[derive(Debug, thiserror::Error)]
#[error("making a certificate: {0}")]
pub(super) struct MakingError(#[from] rcgen::Error);

/// How long before its making a certificate holds: clocks of two machines differ.
const BACKDATED: Duration = Duration::from_mins(5);

/// Decides what is needed now, given what is stored and what is published.
pub(super) fn step(kept: &Kept, published: &str, wanted: &Wanted, now: Timestamp) -> Result<Step, MakingError> {
    let Some((authority, renew_authority)) = usable(kept.authority.as_ref(), wanted.authority_for, now) else {
        let earlier = kept.authority.as_ref().map(|pair| pair.certificate.clone()).filter(|it| holds(it, now));
        return Ok(Step::Store(Kept {
            authority: Some(new_authority(wanted, now)?),
            earlier,
            leaf: kept.leaf.clone(),
        }));
    };
    let earlier = kept.earlier.as_deref().filter(|it| holds(it, now)).unwrap_or_default();
    let bundle = format!("{}{earlier}", authority.certificate);
    if bundle != published {
        return Ok(Step::Publish(bundle));
    }
    let leaf = usable(kept.leaf.as_ref(), wanted.leaf_for, now)
        .filter(|(leaf, _)| is_issued_by(&leaf.certificate, &authority.certificate) && is_fit(leaf, &wanted.names));
    match leaf {
        Some((_, renew_leaf)) => Ok(Step::Wait(renew_leaf.min(renew_authority))),
        None => Ok(Step::Store(Kept { leaf: Some(new_leaf(authority, wanted, now)?), ..kept.clone() })),
    }
}

/// A certificate that needs not be renewed yet, and when it will have to be.
fn usable(pair: Option<&Pair>, lasts: Duration, now: Timestamp) -> Option<(&Pair, Timestamp)> {
    let pair = pair?;
    KeyPair::from_pem(&pair.key).ok()?;
    let renew_at = ends_at(&pair.certificate)?.checked_sub(lasts / 3).ok()?;
    (now < renew_at).then_some((pair, renew_at))
}

fn holds(certificate: &str, now: Timestamp) -> bool {
    ends_at(certificate).is_some_and(|end| now < end)
}

/// When a certificate ends; none: it is none.
pub(super) fn ends_at(certificate: &str) -> Option<Timestamp> {
    let pem = parsed(certificate)?;
    let end = pem.parse_x509().ok()?.validity().not_after.timestamp();
    Timestamp::from_second(end).ok()
}

fn parsed(certificate: &str) -> Option<Pem> {
    x509_parser::pem::parse_x509_pem(certificate.as_bytes()).ok().map(|(_, pem)| pem)
}

/// Names of authorities are unique, so that a name tells which one has signed.
fn is_issued_by(leaf: &str, authority: &str) -> bool {
    let (Some(leaf), Some(authority)) = (parsed(leaf), parsed(authority)) else { return false };
    match (leaf.parse_x509(), authority.parse_x509()) {
        (Ok(leaf), Ok(authority)) => leaf.issuer().as_raw() == authority.subject().as_raw(),
        (Ok(_) | Err(_), _) => false,
    }
}

/// Whether it has these names, and may be shown by both sides of a connection: replicas know each other by it.
fn is_fit(leaf: &Pair, names: &[String]) -> bool {
    let Some(pem) = parsed(&leaf.certificate) else { return false };
    let Ok(certificate) = pem.parse_x509() else { return false };
    let usage = certificate.extended_key_usage().ok().flatten();
    if !usage.is_some_and(|usage| usage.value.server_auth && usage.value.client_auth) {
        return false;
    }
    let Ok(Some(found)) = certificate.subject_alternative_name() else { return false };
    let found: BTreeSet<String> = found.value.general_names.iter().filter_map(text_of).collect();
    found == names.iter().cloned().collect()
}

fn text_of(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => {
            let four = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            four.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from)).ok().map(|address| address.to_string())
        }
        _ => None,
    }
}

fn new_authority(wanted: &Wanted, now: Timestamp) -> Result<Pair, MakingError> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(Vec::new())?;
    // Two replicas that make one each have different ones even at the same time: the one that is not stored is lost.
    let unique = key.public_key_raw().iter().rev().take(4).fold(String::new(), |text, it| text + &format!("{it:02x}"));
    params.distinguished_name = named(&format!("drover gateway authority {unique}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_span(&mut params, now, wanted.authority_for);
    let certificate = params.self_signed(&key)?;
    Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem() })
}

fn new_leaf(authority: &Pair, wanted: &Wanted, now: Timestamp) -> Result<Pair, MakingError> {
    let issuer = Issuer::from_ca_cert_pem(&authority.certificate, KeyPair::from_pem(&authority.key)?)?;
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(wanted.names.clone())?;
    params.distinguished_name = named("drover gateway");
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    set_span(&mut params, now, wanted.leaf_for);
    let certificate = params.signed_by(&key, &issuer)?;
    Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem() })
}

fn named(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

fn set_span(params: &mut CertificateParams, now: Timestamp, lasts: Duration) {
    params.not_before = moment(now.checked_sub(BACKDATED).unwrap_or(now));
    params.not_after = moment(now.checked_add(lasts).unwrap_or(Timestamp::MAX));
}

fn moment(at: Timestamp) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(at.as_second()).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted() -> Wanted {
        Wanted {
            authority_for: Duration::from_mins(5),
            leaf_for: Duration::from_mins(1),
            names: vec!["drover-gateway.drover-system.svc".to_owned(), "127.0.0.1".to_owned()],
        }
    }

    /// Carries steps out until all is well.
    fn settle(kept: &mut Kept, published: &mut String, now: Timestamp) -> (Vec<&'static str>, Timestamp) {
        let mut seen = Vec::new();
        loop {
            match step(kept, published, &wanted(), now).expect("a step") {
                Step::Store(next) => {
                    seen.push(if next.authority == kept.authority { "leaf" } else { "authority" });
                    *kept = next;
                }
                Step::Publish(bundle) => {
                    seen.push("publish");
                    *published = bundle;
                }
                Step::Wait(until) => return (seen, until),
            }
        }
    }

    #[test]
    fn an_authority_is_published_before_it_signs_and_the_one_before_stays_trusted() {
        let (mut kept, mut published) = (Kept::default(), String::new());
        let mut now = Timestamp::from_second(1_800_000_000).expect("a time");
        let (seen, until) = settle(&mut kept, &mut published, now);
        assert_eq!(seen, ["authority", "publish", "leaf"]);
        assert_eq!(until.as_second() - now.as_second(), 40, "two thirds of the leaf's minute");

        now = until;
        let (seen, _) = settle(&mut kept, &mut published, now);
        assert_eq!(seen, ["leaf"]);

        let first = kept.authority.clone().expect("an authority");
        now = Timestamp::from_second(1_800_000_000 + 210).expect("a time");
        let (seen, _) = settle(&mut kept, &mut published, now);
        assert_eq!(seen, ["authority", "publish", "leaf"]);
        assert!(published.contains(&first.certificate) && kept.authority.as_ref() != Some(&first));

        // Expired: no longer trusted.
        now = Timestamp::from_second(1_800_000_000 + 301).expect("a time");
        let (seen, _) = settle(&mut kept, &mut published, now);
        assert!(seen.contains(&"publish") && !published.contains(&first.certificate), "{seen:?}");
    }

    #[test]
    fn what_is_damaged_or_of_other_names_is_made_again() {
        let (mut kept, mut published) = (Kept::default(), String::new());
        let now = Timestamp::from_second(1_800_000_000).expect("a time");
        settle(&mut kept, &mut published, now);
        let whole = kept.clone();
        let more = Wanted { names: vec!["other".to_owned()], ..wanted() };
        assert!(matches!(step(&kept, &published, &more, now), Ok(Step::Store(_))));
        let leaf = kept.leaf.clone().expect("a leaf");
        kept.leaf = Some(Pair { key: "damaged".to_owned(), ..leaf });
        assert_eq!(settle(&mut kept, &mut published, now).0, ["leaf"]);
        kept = Kept { authority: None, ..whole };
        assert_eq!(settle(&mut kept, &mut published, now).0, ["authority", "publish", "leaf"]);
        assert!(!format!("{kept:?}").contains("PRIVATE"), "keys are not shown");
    }
}
