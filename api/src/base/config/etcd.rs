//! Settings of the etcd store: flags, the files they name, and validation.

use std::{io::Read, path::PathBuf};

use clap::Args;
use store::{EtcdOptions, Options};

/// Maximum size of a certificate, key or password file in bytes. Certificate chains are far smaller.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Flags for the connection to etcd.
#[derive(Debug, Clone, Default, Args)]
pub struct EtcdFlags {
    /// With --store etcd: local store for agent reports and the audit log, sqlite:PATH or memory: [default:
    /// memory:]
    #[arg(long, global = true, env = "TIDEGATE_LOCAL_STORE", value_name = "URL")]
    pub local_store: Option<String>,
    /// Prefix of the keys in etcd; each prefix is one store [default: /tidegate/]
    #[arg(long, global = true, env = "TIDEGATE_ETCD_PREFIX", value_name = "PREFIX")]
    pub etcd_prefix: Option<String>,
    /// PEM file with the CA certificates that sign the certificates of the etcd members
    #[arg(long, global = true, env = "TIDEGATE_ETCD_CA_FILE", value_name = "FILE")]
    pub etcd_ca_file: Option<PathBuf>,
    /// PEM file with the client certificate for etcd
    #[arg(long, global = true, env = "TIDEGATE_ETCD_CERT_FILE", value_name = "FILE")]
    pub etcd_cert_file: Option<PathBuf>,
    /// PEM file with the key of --etcd-cert-file
    #[arg(long, global = true, env = "TIDEGATE_ETCD_KEY_FILE", value_name = "FILE")]
    pub etcd_key_file: Option<PathBuf>,
    /// User name for etcd
    #[arg(long, global = true, env = "TIDEGATE_ETCD_USER", value_name = "NAME")]
    pub etcd_user: Option<String>,
    /// File with the password of --etcd-user
    #[arg(long, global = true, env = "TIDEGATE_ETCD_PASSWORD_FILE", value_name = "FILE")]
    pub etcd_password_file: Option<PathBuf>,
}

/// Contradiction in the etcd settings, or an unreadable file.
#[derive(Debug, thiserror::Error)]
pub enum InvalidStore {
    /// Flag that has no effect with the chosen store.
    #[error("{0} is for --store etcd:…; leave it out, or name etcd")]
    NotEtcd(&'static str),
    /// The first flag is set without the second one, which it requires.
    #[error("{0} and {1} belong together; give both")]
    HalfAPair(&'static str, &'static str),
    /// The file that a flag names cannot be read.
    #[error("{flag} {} cannot be read", path.display())]
    Unreadable {
        /// Flag that names the file, such as `--etcd-ca-file`.
        flag: &'static str,
        /// Path given to the flag.
        path: PathBuf,
        /// I/O error of the read.
        #[source]
        cause: std::io::Error,
    },
    /// The password file does not contain exactly one non-empty line of text.
    #[error("--etcd-password-file {} must hold the password in one line of text", .0.display())]
    Password(PathBuf),
}

impl EtcdFlags {
    /// Validates the flags against the store URL, reads the files they name, and returns the store options.
    ///
    /// # Errors
    /// Returns the contradictory flag, or the path of the file that cannot be read or contains no valid
    /// password.
    pub(super) fn check(self, store: &str) -> Result<Options, InvalidStore> {
        let Self {
            local_store,
            etcd_prefix,
            etcd_ca_file,
            etcd_cert_file,
            etcd_key_file,
            etcd_user,
            etcd_password_file,
        } = self;
        let said = [
            ("--local-store", local_store.is_some()),
            ("--etcd-prefix", etcd_prefix.is_some()),
            ("--etcd-ca-file", etcd_ca_file.is_some()),
            ("--etcd-cert-file", etcd_cert_file.is_some()),
            ("--etcd-key-file", etcd_key_file.is_some()),
            ("--etcd-user", etcd_user.is_some()),
            ("--etcd-password-file", etcd_password_file.is_some()),
        ];
        if let Some((flag, _)) = said.iter().find(|(_, is_said)| *is_said && !store.starts_with("etcd:")) {
            return Err(InvalidStore::NotEtcd(flag));
        }
        let mut etcd = EtcdOptions::default();
        if let Some(prefix) = etcd_prefix {
            etcd.prefix = prefix;
        }
        etcd.ca_pem = etcd_ca_file.map(|path| read("--etcd-ca-file", path)).transpose()?;
        etcd.identity_pem = match (etcd_cert_file, etcd_key_file) {
            (Some(certificate), Some(key)) => {
                Some((read("--etcd-cert-file", certificate)?, read("--etcd-key-file", key)?))
            }
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => {
                return Err(InvalidStore::HalfAPair("--etcd-cert-file", "--etcd-key-file"));
            }
        };
        etcd.user = match (etcd_user, etcd_password_file) {
            (Some(user), Some(path)) => Some((user, password(path)?)),
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => {
                return Err(InvalidStore::HalfAPair("--etcd-user", "--etcd-password-file"));
            }
        };
        Ok(Options { etcd, local: local_store })
    }
}

fn password(path: PathBuf) -> Result<String, InvalidStore> {
    let bytes = read("--etcd-password-file", path.clone())?;
    let text = String::from_utf8(bytes).map_err(|_| InvalidStore::Password(path.clone()))?;
    let password = text.trim_end_matches(['\r', '\n']);
    let is_line = !password.is_empty() && !password.contains(char::is_control);
    if is_line { Ok(password.to_owned()) } else { Err(InvalidStore::Password(path)) }
}

fn read(flag: &'static str, path: PathBuf) -> Result<Vec<u8>, InvalidStore> {
    let read = || {
        let mut bytes = Vec::new();
        std::fs::File::open(&path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(std::io::Error::other("it is larger than 1 MiB"));
        }
        Ok(bytes)
    };
    read().map_err(|cause| InvalidStore::Unreadable { flag, path: path.clone(), cause })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(flags: EtcdFlags, store: &str) -> String {
        flags.check(store).expect_err("is refused").to_string()
    }

    #[test]
    fn settings_of_etcd_are_refused_alone_and_read_from_files() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, body: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, body).unwrap();
            Some(path)
        };
        let flags = EtcdFlags {
            etcd_user: Some("jo".to_owned()),
            etcd_password_file: file("password", "hush\n"),
            ..EtcdFlags::default()
        };
        let options = flags.clone().check("etcd:http://h").unwrap();
        assert_eq!(options.etcd.user, Some(("jo".to_owned(), "hush".to_owned())));
        assert!(!format!("{options:?}").contains("hush"));
        assert!(text(flags.clone(), "sqlite:x").contains("--etcd-user is for --store etcd:"));
        let alone = EtcdFlags { etcd_user: None, ..flags.clone() };
        assert!(text(alone, "etcd:http://h").contains("--etcd-user and --etcd-password-file"));
        for body in ["", "\n", "a\nb", "x\0"] {
            let bad = EtcdFlags { etcd_password_file: file("bad", body), ..flags.clone() };
            assert!(text(bad, "etcd:http://h").contains("one line of text"), "{body:?}");
        }
        let missing = EtcdFlags { etcd_ca_file: Some(directory.path().join("none")), ..EtcdFlags::default() };
        assert!(text(missing, "etcd:https://h").starts_with("--etcd-ca-file"));
        let local = EtcdFlags { local_store: Some("sqlite:x".to_owned()), ..EtcdFlags::default() };
        assert_eq!(local.check("etcd:http://h").unwrap().local.as_deref(), Some("sqlite:x"));
    }
}
