//! Join tokens of the form `tgj_ID_SECRET_PIN`. The agent interprets only the pin and sends the token as a
//! whole.

use std::{fs::File, io::Read};

use anyhow::Context as _;
use model::primitives::secret::Secret;
use tls_trust::Pin;

use super::EnrolOptions;

/// Prefix of each join token.
const PREFIX: &str = "tgj_";
/// Maximum size of a token file, in bytes.
const FILE_BYTES_MAX: u64 = 4096;

/// Returns the join token from the environment or the token file; `None` without either.
///
/// # Errors
///
/// Returns an error if the file cannot be read.
pub(super) fn given(options: &EnrolOptions) -> anyhow::Result<Option<Secret>> {
    let Some(path) = &options.join_token_file else { return Ok(options.join_token.clone()) };
    let shown = path.display();
    let mut text = String::new();
    let file = File::open(path).with_context(|| format!("cannot read --join-token-file {shown}"))?;
    file.take(FILE_BYTES_MAX)
        .read_to_string(&mut text)
        .with_context(|| format!("cannot read --join-token-file {shown}"))?;
    Ok(Some(Secret::new(text.trim().to_owned())))
}

/// Returns the pin of a token: the SHA-256 hash of a certificate that the control server presents.
///
/// # Errors
/// Returns an error if the token is malformed.
pub(super) fn pin(token: &Secret) -> anyhow::Result<Pin> {
    let parts: Vec<_> = token.reveal().split('_').collect();
    let pin = match parts[..] {
        [_, _, _, digits] if token.reveal().starts_with(PREFIX) => Pin::from_hex(digits),
        _ => None,
    };
    pin.with_context(|| {
        format!(
            "the join token is malformed: it must begin with {PREFIX}, followed by \
                                 three parts"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_taken_whole_and_never_repeated_in_an_error() {
        let hash = "0a".repeat(32);
        let good = Secret::new(format!("tgj_00_hush_{hash}"));
        assert_eq!(pin(&good).unwrap(), Pin::from_hex(&hash).unwrap());
        for bad in [
            "",
            "hush",
            "tgj_00_hush",
            "tgj_00_hush_0a",
            &format!("tgt_00_hush_{hash}"),
            &format!("tgj_00_hush_{hash}_1"),
        ] {
            let error = pin(&Secret::new(bad.to_owned())).unwrap_err().to_string();
            assert!(!error.contains("hush"), "{error}");
        }
    }
}
