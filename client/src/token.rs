//! Bearer tokens (RFC 6750) from text or a file.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
};

use reqwest::header::HeaderValue;

/// Maximum size of a token file in bytes. ID tokens of OpenID Connect with many groups have several thousand.
const TOKEN_BYTES_MAX: u64 = 16 * 1024;

/// Description of a valid token, for error messages.
pub const TOKEN_REMEDY: &str = "a token is a single line of letters, digits and punctuation";

/// Bearer token as the value of the `Authorization` header. `Debug` does not print the secret.
#[derive(Debug, Clone)]
pub struct Token(HeaderValue);

/// Source of the bearer token of requests.
#[derive(Debug, Clone, Default)]
pub enum TokenSource {
    /// No token; requests are sent without an `Authorization` header.
    #[default]
    None,
    /// Token given as text, used for all requests.
    Fixed(Token),
    /// File that is read for every request, so that the token can be rotated.
    File(PathBuf),
}

/// Reason why a token cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The token file cannot be read.
    #[error("--token-file {}: {cause}", path.display())]
    Unreadable {
        /// Path of the token file.
        path: PathBuf,
        /// Text of the I/O error.
        cause: String,
    },
    /// Malformed token: not a single line of visible ASCII characters.
    #[error("{place} contains no valid token: {TOKEN_REMEDY}")]
    Invalid {
        /// Name of the file or environment variable that holds the token.
        place: String,
    },
}

impl Token {
    /// Parses a token after removing surrounding white space. `place` names the file or variable in the error.
    ///
    /// # Errors
    /// Returns an error unless the text is one line of visible ASCII characters.
    pub fn parse(text: &str, place: &str) -> Result<Self, TokenError> {
        let text = text.trim();
        let is_valid = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        let header = HeaderValue::from_str(&format!("Bearer {text}")).ok().filter(|_| is_valid);
        let mut header = header.ok_or_else(|| TokenError::Invalid { place: place.to_owned() })?;
        header.set_sensitive(true);
        Ok(Self(header))
    }

    /// Reads a token from a file.
    ///
    /// # Errors
    /// Returns an error if the file is unreadable or contains anything but a token.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let unreadable = |cause: String| TokenError::Unreadable { path: path.to_owned(), cause };
        let file = std::fs::File::open(path).map_err(|error| unreadable(error.to_string()))?;
        let mut bytes = Vec::new();
        file.take(TOKEN_BYTES_MAX + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| unreadable(error.to_string()))?;
        if bytes.len() as u64 > TOKEN_BYTES_MAX {
            return Err(unreadable(format!("the file is longer than {TOKEN_BYTES_MAX} bytes")));
        }
        Self::parse(&String::from_utf8_lossy(&bytes), &path.display().to_string())
    }

    /// Returns the token as the value of the `Authorization` header.
    pub(crate) const fn header(&self) -> &HeaderValue {
        &self.0
    }
}

impl TokenSource {
    /// Returns true if a token is configured, so that requests are authenticated.
    #[must_use]
    pub const fn is_some(&self) -> bool {
        !matches!(self, Self::None)
    }

    /// Returns the token for the next request, or `None` if no token is configured. A token file is read on
    /// each call.
    pub fn token(&self) -> Result<Option<Token>, TokenError> {
        match self {
            Self::None => Ok(None),
            Self::Fixed(token) => Ok(Some(token.clone())),
            Self::File(path) => Token::read(path).map(Some),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_one_visible_line_and_is_never_printed() {
        let token = Token::parse(" tg_abc\n", "it").unwrap();
        assert_eq!(token.header().to_str().unwrap(), "Bearer tg_abc");
        assert!(!format!("{token:?}").contains("abc"));
        for bad in ["", " \n", "a b", "a\nb", "tökén", "a\0"] {
            let error = Token::parse(bad, "$T").unwrap_err().to_string();
            assert!(error.starts_with("$T contains no valid token: a token is"), "{error}");
        }
        assert!(Token::read(Path::new("/dev/zero")).unwrap_err().to_string().contains("longer than 16384"));
        let missing = TokenSource::File("/nonexistent".into()).token().unwrap_err().to_string();
        assert!(missing.starts_with("--token-file /nonexistent: No such file"), "{missing}");
    }
}
