//! Private key and certificate of this node, saved in one file so that they always match.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use anyhow::{Context as _, ensure};
use model::primitives::{name::Name, quantity::Timestamp, secret::Secret};
use rcgen::{KeyPair, SigningKey as _};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use x509_parser::extensions::GeneralName;

use tls_trust::{certificates, expired_renewal_message};

/// File in the state directory with the key, the certificate and the intermediate certificates.
const FILE: &str = "identity.pem";
const NEW_FILE: &str = "identity.pem.new";
/// File in the state directory with the CA certificates of the control servers.
const CA_FILE: &str = "ca.pem";
const CA_NEW_FILE: &str = "ca.pem.new";
/// File in the state directory with the key of a requested certificate that has not arrived yet.
const NEXT_KEY_FILE: &str = "next-key.pem";
const NEXT_KEY_NEW_FILE: &str = "next-key.pem.new";
/// Permissions of the files: only the user of the agent may read the key.
const MODE: u32 = 0o600;
/// Maximum size in bytes of the identity file and of the CA file.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Time in seconds by which the control server backdates certificates, to tolerate clock skew.
const CLOCK_SKEW_SECS: i64 = 300;
/// Last line of a certificate in PEM.
const END: &str = "-----END CERTIFICATE-----";
/// Prefix of the URI in the certificate; the node name follows.
const NODE_URI_PREFIX: &str = "spiffe://tidegate/node/";

/// Private key and certificate of this node.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    key: Secret,
    chain: String,
    /// Time at which the certificate was issued: start of its validity plus the clock skew.
    pub(super) issued: Timestamp,
    /// End of validity of the certificate.
    pub(super) expires: Timestamp,
}

impl Identity {
    /// Creates an identity from a private key and a certificate chain signed by the control server.
    ///
    /// # Errors
    /// Returns an error if the certificate is not valid for this node.
    pub(super) fn new(key: Secret, chain: String, node: &Name) -> anyhow::Result<Self> {
        let parsed = certificates(chain.as_bytes()).context("the certificate is not PEM")?;
        let leaf = parsed.first().context("there is no certificate")?;
        let (_, leaf) = x509_parser::parse_x509_certificate(leaf).context("the certificate is malformed")?;
        let names = leaf.subject_alternative_name().ok().flatten();
        let names = names.map(|names| names.value.general_names.as_slice()).unwrap_or_default();
        let uri = format!("{NODE_URI_PREFIX}{node}");
        ensure!(
            names.contains(&GeneralName::URI(&uri)),
            "the certificate belongs to another node; this one is {node}"
        );
        let validity = leaf.validity();
        let issued = validity.not_before.timestamp().saturating_add(CLOCK_SKEW_SECS);
        let issued = Timestamp::from_unix_seconds(issued);
        let expires = Timestamp::from_unix_seconds(validity.not_after.timestamp());
        Ok(Self { key, chain, issued, expires })
    }

    /// Loads the identity and the CA certificates from a state directory, or returns `None` if there is none.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read, or the certificate belongs to another node.
    pub(super) fn load(dir: &Path, node: &Name) -> anyhow::Result<Option<(Self, String)>> {
        let Some(text) = read(&dir.join(FILE)).with_context(|| format!("cannot read {FILE}"))? else {
            return Ok(None);
        };
        let at =
            text.find("-----BEGIN CERTIFICATE").with_context(|| format!("{FILE} contains no certificate"))?;
        let (key, chain) = text.split_at(at);
        let identity = Self::new(Secret::new(key.to_owned()), chain.to_owned(), node)?;
        let authorities = read(&dir.join(CA_FILE)).with_context(|| format!("cannot read {CA_FILE}"))?;
        let authorities = authorities.unwrap_or_default();
        certificates(authorities.as_bytes()).with_context(|| format!("{CA_FILE} is damaged"))?;
        identity.shown()?;
        Ok(Some((identity, authorities)))
    }

    /// Saves the identity and the CA certificates. Files are replaced atomically, so after a crash either the
    /// old or the new version exists.
    ///
    /// # Errors
    /// Returns an I/O error if a file cannot be written.
    pub(super) fn save(&self, dir: &Path, authorities: &str) -> io::Result<()> {
        replace(dir, CA_NEW_FILE, CA_FILE, authorities)?;
        replace(dir, NEW_FILE, FILE, &format!("{}{}", self.key.reveal(), self.chain))?;
        File::open(dir)?.sync_all()
    }

    /// Returns the certificate chain and the key for TLS.
    ///
    /// # Errors
    /// Returns an error if the key cannot be parsed. The error does not contain the key.
    pub(super) fn shown(&self) -> anyhow::Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
        let key = PrivateKeyDer::from_pem_slice(self.key.reveal().as_bytes());
        let key = key.map_err(|_| anyhow::anyhow!("the saved key is not PEM"))?;
        Ok((certificates(self.chain.as_bytes())?, key))
    }

    /// Returns the certificate without intermediate certificates as PEM, and a signature by which the control server renews
    /// it after it has expired.
    ///
    /// # Errors
    /// Returns an error if the saved key cannot be used. The error does not contain the key.
    pub(super) fn prove(&self, csr: &str, time: Timestamp) -> anyhow::Result<(String, Vec<u8>)> {
        let chain = certificates(self.chain.as_bytes())?;
        let leaf = chain.first().context("there is no certificate")?;
        let key = KeyPair::from_pem(self.key.reveal());
        let key = key.map_err(|_| anyhow::anyhow!("the saved key cannot be used"))?;
        let signature = key.sign(&expired_renewal_message(leaf, csr, time.unix_seconds()))?;
        let end = self.chain.find(END).context("the certificate is not PEM")?;
        let (leaf, _) = self.chain.split_at(end + END.len());
        Ok((format!("{leaf}\n"), signature))
    }
}

/// Returns the key for the next certificate. The key is saved and used for all requests until a certificate for it has
/// arrived: control regards the certificate with the newest key as the newest one, even if the response that
/// contained it was lost.
///
/// # Errors
/// Returns an error if the key cannot be created or saved.
pub(super) fn next_key(dir: &Path) -> anyhow::Result<KeyPair> {
    let saved = read(&dir.join(NEXT_KEY_FILE)).with_context(|| format!("cannot read {NEXT_KEY_FILE}"))?;
    if let Some(key) = saved.and_then(|saved| KeyPair::from_pem(&saved).ok()) {
        return Ok(key);
    }
    let key = KeyPair::generate()?;
    replace(dir, NEXT_KEY_NEW_FILE, NEXT_KEY_FILE, &key.serialize_pem())
        .with_context(|| format!("cannot write {NEXT_KEY_FILE}"))?;
    Ok(key)
}

/// Removes the key for the next certificate, after the certificate was saved with its key.
pub(super) fn forget_next_key(dir: &Path) {
    // If the file stays, the next certificate has the same key as the current one.
    let _gone = fs::remove_file(dir.join(NEXT_KEY_FILE));
}

fn replace(dir: &Path, new: &str, name: &str, text: &str) -> io::Result<()> {
    // A file left by a crash may have another mode.
    match fs::remove_file(dir.join(new)) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(dir.join(new))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(dir.join(new), dir.join(name))
}

fn read(path: &Path) -> io::Result<Option<String>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use rcgen::{CertificateParams, KeyPair, SanType};

    use super::*;

    #[test]
    fn what_is_kept_is_for_this_node_and_for_nobody_else_to_read() {
        let dir = tempfile::tempdir().unwrap();
        let (node, other) = (Name::parse("n1").unwrap(), Name::parse("n2").unwrap());
        assert!(Identity::load(dir.path(), &node).unwrap().is_none());
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![SanType::URI("spiffe://tidegate/node/n1".try_into().unwrap())];
        let chain = params.self_signed(&key).unwrap().pem();
        let secret = Secret::new(key.serialize_pem());
        let identity = Identity::new(secret.clone(), chain.clone(), &node).unwrap();
        for authorities in ["first", "second"] {
            identity.save(dir.path(), authorities).unwrap();
            let (loaded, found) = Identity::load(dir.path(), &node).unwrap().unwrap();
            assert_eq!(
                (loaded.key.reveal(), loaded.chain.as_str(), found.as_str()),
                (key.serialize_pem().as_str(), chain.as_str(), authorities)
            );
            assert!(loaded.shown().is_ok());
        }
        let mode = fs::metadata(dir.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, MODE);
        assert!(!format!("{identity:?}").contains("PRIVATE"));
        let error = Identity::load(dir.path(), &other).unwrap_err().to_string();
        assert!(error.contains("another node") && error.contains("n2"), "{error}");
        assert!(Identity::new(secret, "x".to_owned(), &node).is_err());
    }

    /// Input: requests for a certificate whose responses are lost, also over a restart. Output: all of them are for the same key.
    #[test]
    fn the_next_key_stays_the_same_until_its_certificate_has_arrived() {
        let dir = tempfile::tempdir().unwrap();
        let first = next_key(dir.path()).unwrap().serialize_pem();
        assert_eq!(next_key(dir.path()).unwrap().serialize_pem(), first);
        let mode = fs::metadata(dir.path().join(NEXT_KEY_FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, MODE);
        forget_next_key(dir.path());
        assert_ne!(next_key(dir.path()).unwrap().serialize_pem(), first);
        fs::write(dir.path().join(NEXT_KEY_FILE), "damaged").unwrap();
        assert!(next_key(dir.path()).is_ok());
    }
}
