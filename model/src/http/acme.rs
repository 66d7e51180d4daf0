//! Certificates from ACME servers (RFC 8555): the time of orders, and the answers to challenges.

use std::collections::{BTreeMap, BTreeSet};

use super::{certificate::CertificateFacts, hosts::HostMap, objects::HttpObjects};
use crate::{
    cluster::snapshot::Snapshot,
    kinds::{
        certificate::{
            ACME_CONTACTS_MAX, ACME_NAMES_MAX, ACME_TEXT_BYTES_MAX, AcmeSettings, CertificateSpec,
            ExternalAccount,
        },
        gateway::ListenerProtocol,
        resource::Kind,
    },
    primitives::{
        hostname_pattern::HostnamePattern,
        name::Namespace,
        quantity::{Port, Timestamp},
        violation::{
            Violation,
            ViolationCode::{Duplicate, Invalid, TooLong},
        },
    },
};

/// Prefix of the paths of challenges (RFC 8555 §8.3).
pub const CHALLENGE_PREFIX: &str = "/.well-known/acme-challenge/";
/// Delay before an order is repeated for the first time, in seconds. It doubles with each failure, so that at most five orders
/// fail in an hour, as Let's Encrypt permits.
const RETRY_SECS_MIN: i64 = 120;
/// Maximum delay before an order is repeated, in seconds.
const RETRY_SECS_MAX: i64 = 6 * 3600;

/// Answers of the gateways to the requests of ACME servers.
///
/// A listener answers for the Certificates in the namespaces of its Gateways only. Otherwise the owner of another namespace
/// could order certificates for its host names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChallengeTable {
    owners: BTreeMap<Port, HostMap<BTreeSet<Namespace>>>,
    /// Namespace of the Certificate and key authorization of each token.
    answers: BTreeMap<String, (Namespace, String)>,
}

impl ChallengeTable {
    /// Collects the challenges of all Certificates, and the owners of the listeners without TLS.
    #[must_use]
    pub fn compile(objects: &HttpObjects<'_>, snapshot: &Snapshot) -> Self {
        let mut table = Self::default();
        for object in snapshot.list(Kind::Certificate, None, None) {
            let (Some(namespace), Some(spec)) = (&object.metadata.namespace, object.as_certificate()) else {
                continue;
            };
            for (token, answer) in spec.issuance.iter().flat_map(|record| &record.challenges) {
                table.answers.insert(token.clone(), (namespace.clone(), answer.clone()));
            }
        }
        if table.answers.is_empty() {
            return table;
        }
        let uses = objects.uses();
        for (gateway, spec) in &objects.gateways {
            let listeners = spec.listeners.iter().filter(|one| one.protocol == ListenerProtocol::Http);
            for one in listeners.filter(|one| uses.serve(one)) {
                let owners = table.owners.entry(one.port).or_default().entry(one.hostname.as_ref());
                owners.insert(gateway.namespace.clone());
            }
        }
        table
    }

    /// Returns the answer to a request with a path at a port for a host name in lower case; `None` if it is not for a
    /// challenge of the owners of the listener.
    #[must_use]
    pub fn answer(&self, port: Port, host: &str, path: &str) -> Option<&str> {
        let (namespace, answer) = self.answers.get(path.strip_prefix(CHALLENGE_PREFIX)?)?;
        let owners = self.owners.get(&port)?.candidates(host).next()?;
        owners.contains(namespace).then_some(answer)
    }
}

/// Returns true if the certificate has the DNS names of its settings.
#[must_use]
pub fn is_issued(spec: &CertificateSpec, settings: &AcmeSettings) -> bool {
    let wanted: BTreeSet<_> = settings.dns_names.iter().map(HostnamePattern::as_str).collect();
    CertificateFacts::read(&spec.certificate)
        .is_ok_and(|facts| facts.dns_names.iter().map(String::as_str).collect::<BTreeSet<_>>() == wanted)
}

/// Returns true if a Certificate must be ordered at a time: it has none for its DNS names, or the time of the renewal has
/// come, and no pause after a failure lasts.
#[must_use]
pub fn is_order_due(spec: &CertificateSpec, now: Timestamp) -> bool {
    let Some(settings) = &spec.acme else { return false };
    let record = spec.issuance.clone().unwrap_or_default();
    if record.retry_after.is_some_and(|time| now < time) {
        return false;
    }
    if !is_issued(spec, settings) {
        return true;
    }
    let renewal = || CertificateFacts::read(&spec.certificate).ok().map(|facts| renewal_time(&facts, 0));
    record.renew_at.or_else(renewal).is_some_and(|time| now >= time)
}

/// Returns the time at which a certificate is renewed: after two thirds of its validity, less up to a twelfth of it by a
/// random number, so that certificates of the same age are not renewed together.
#[must_use]
pub fn renewal_time(facts: &CertificateFacts, random: u64) -> Timestamp {
    let (from, until) = (facts.not_before.unix_seconds(), facts.not_after.unix_seconds());
    let validity = until.saturating_sub(from).max(0);
    let jitter = i64::try_from(random % (validity.unsigned_abs() / 12 + 1)).unwrap_or_default();
    Timestamp::from_unix_seconds(from.saturating_add(validity / 3 * 2).saturating_sub(jitter))
}

/// Returns the time of the renewal in the window that an ACME server suggests (RFC 9773 §4.2), by a random number.
#[must_use]
pub fn renewal_in_window(start: Timestamp, end: Timestamp, random: u64) -> Timestamp {
    let (start, end) = (start.unix_seconds(), end.unix_seconds());
    let length = end.saturating_sub(start).max(0).unsigned_abs();
    Timestamp::from_unix_seconds(start.saturating_add_unsigned(random % (length + 1)))
}

/// Returns the delay in seconds before an order is repeated after a number of consecutive failures, at least 1. By a random
/// number it is up to a quarter longer.
#[must_use]
pub fn retry_delay(failures: u32, random: u64) -> i64 {
    let doublings = failures.saturating_sub(1).min(16);
    let delay = RETRY_SECS_MIN.saturating_mul(1 << doublings).min(RETRY_SECS_MAX);
    delay.saturating_add_unsigned(random % (delay.unsigned_abs() / 4))
}

/// Adds the violations of the rules for the settings of an ACME server.
pub(super) fn validate_acme(settings: &AcmeSettings, found: &mut Vec<Violation>) {
    let AcmeSettings { directory, dns_names, contacts, external_account } = settings;
    let at = "/spec/acme";
    let host = directory.strip_prefix("https://").and_then(|rest| rest.split(['/', '?', '#']).next());
    let is_plain = directory.bytes().all(|byte| byte.is_ascii_graphic());
    if directory.len() > ACME_TEXT_BYTES_MAX
        || !is_plain
        || host.is_none_or(|host| host.is_empty() || host.contains('@'))
    {
        let message = format!(
            "must be a URL that begins with `https://`, without user name, of at most {ACME_TEXT_BYTES_MAX} bytes"
        );
        found.push(Violation::new(format!("{at}/directory"), Invalid, message));
    }
    if !(1..=ACME_NAMES_MAX).contains(&dns_names.len()) {
        let message = format!("must have 1 to {ACME_NAMES_MAX} names, not {}", dns_names.len());
        found.push(Violation::new(format!("{at}/dnsNames"), Invalid, message));
    }
    let mut seen = BTreeSet::new();
    for (index, name) in dns_names.iter().enumerate() {
        let at = format!("{at}/dnsNames/{index}");
        if name.wildcard_base().is_some() {
            let message = "must not be a wildcard name, which HTTP-01 cannot verify";
            found.push(
                Violation::new(at, Invalid, message)
                    .hint("list each host name, or give a wildcard certificate with its private key"),
            );
        } else if !seen.insert(name) {
            found.push(Violation::new(at, Duplicate, format!("must not repeat `{name}`")));
        }
    }
    if contacts.len() > ACME_CONTACTS_MAX {
        let message = format!("must have at most {ACME_CONTACTS_MAX} addresses, not {}", contacts.len());
        found.push(Violation::new(format!("{at}/contacts"), TooLong, message));
    }
    for (index, contact) in contacts.iter().enumerate() {
        let is_address =
            contact.split_once('@').is_some_and(|(user, host)| !user.is_empty() && !host.is_empty());
        let is_plain = contact.bytes().all(|byte| byte.is_ascii_graphic() && !b",?&<>".contains(&byte));
        if !is_address || !is_plain || contact.len() > ACME_TEXT_BYTES_MAX {
            let message = "must be an email address, such as hostmaster@example.org";
            found.push(Violation::new(format!("{at}/contacts/{index}"), Invalid, message));
        }
    }
    let Some(ExternalAccount { key_id, key }) = external_account else { return };
    let key = key.as_ref().map(|key| key.reveal());
    let is_key = |key: &str| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_=".contains(&byte);
        (1..=ACME_TEXT_BYTES_MAX).contains(&key.len()) && key.bytes().all(is_allowed)
    };
    let at = format!("{at}/externalAccount");
    if !(1..=ACME_TEXT_BYTES_MAX).contains(&key_id.len()) {
        let message = format!("must have 1 to {ACME_TEXT_BYTES_MAX} bytes");
        found.push(Violation::new(format!("{at}/keyId"), Invalid, message));
    }
    if key.is_some_and(|key| !is_key(key)) {
        found.push(Violation::new(format!("{at}/key"), Invalid, "must be base64url"));
    }
}
