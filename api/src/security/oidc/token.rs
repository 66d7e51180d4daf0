//! Text of an ID token: a JSON Web Token (RFC 7519) in the compact serialization with one signature (RFC 7515).

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, de::IgnoredAny};

use super::claims::Claims;

/// Maximum length of an ID token in bytes. Requests with longer headers are rejected anyway.
const TOKEN_BYTES_MAX: usize = 16 * 1024;
/// Types in the header of ID tokens. Other values denote access tokens, logout tokens and others (RFC 8725, 3.11).
const TYPE: &str = "JWT";

/// Signature algorithm of ID tokens. Algorithms with shared secrets and `none` are not supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SigningAlgorithm {
    /// RSASSA-PKCS1-v1_5 with SHA-256 (RFC 7518, 3.3).
    Rs256,
    /// ECDSA with P-256 and SHA-256 (RFC 7518, 3.4).
    Es256,
    /// Ed25519 (RFC 8037, RFC 9864).
    Ed25519,
}

impl SigningAlgorithm {
    /// Returns the algorithm with a name of the registry of JSON Object Signing and Encryption.
    pub(super) fn parse(name: &str) -> Option<Self> {
        match name {
            "RS256" => Some(Self::Rs256),
            "ES256" => Some(Self::Es256),
            "EdDSA" | "Ed25519" => Some(Self::Ed25519),
            _ => None,
        }
    }
}

/// Reason why an ID token is rejected, without any part of the token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum TokenFault {
    /// Text that is not a signed JSON Web Token.
    #[error("the ID token is malformed")]
    Malformed,
    /// Header with a type of other tokens.
    #[error("the token is not an ID token")]
    Type,
    /// Unsigned, or signed with another algorithm.
    #[error("the ID token must be signed with RS256, ES256 or EdDSA")]
    Algorithm,
    /// Claim `iss` of another issuer.
    #[error("the ID token is from another issuer than {0}")]
    Issuer(String),
    /// No published key has the id in the header.
    #[error("the ID token is signed with a key that the issuer does not publish")]
    UnknownKey,
    /// The keys of the issuer were never fetched successfully.
    #[error("the keys of the issuer cannot be fetched; the log of the control server has the reason")]
    NoKeys,
    /// No key of the issuer verifies the signature.
    #[error("the signature of the ID token is not valid")]
    Signature,
    /// Claim `aud` or `azp` of another client.
    #[error("the ID token was issued to another client")]
    Audience,
    /// Claim `nonce` of another login.
    #[error("the ID token belongs to another login")]
    Nonce,
    /// Claim `exp` in the past.
    #[error("the ID token has expired")]
    Expired,
    /// Claim `nbf` or `iat` in the future.
    #[error("the ID token is not valid yet")]
    NotYet,
    /// Claim that is missing or has an unusable value.
    #[error("the ID token has no usable claim `{0}`")]
    Claim(String),
    /// The name is an e-mail address that the issuer has not verified.
    #[error("the e-mail address in the ID token is not verified")]
    EmailNotVerified,
}

/// Header of the token (RFC 7515, 4.1).
#[derive(Debug, Deserialize)]
struct TokenHeader {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    crit: Option<IgnoredAny>,
}

/// ID token whose signature has not been verified yet.
#[derive(Debug)]
pub(super) struct IdToken<'a> {
    /// Algorithm of the signature.
    pub(super) algorithm: SigningAlgorithm,
    /// Id of the key.
    pub(super) key_id: Option<String>,
    /// Claims.
    pub(super) claims: Claims,
    /// Text that is signed.
    pub(super) signed: &'a [u8],
    /// Signature of the text.
    pub(super) signature: Vec<u8>,
}

impl<'a> IdToken<'a> {
    /// Parses a token. Its claims must not be used before the signature is verified.
    pub(super) fn parse(text: &'a str) -> Result<Self, TokenFault> {
        if text.len() > TOKEN_BYTES_MAX {
            return Err(TokenFault::Malformed);
        }
        let (signed, signature) = text.rsplit_once('.').ok_or(TokenFault::Malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(TokenFault::Malformed)?;
        let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|_| TokenFault::Malformed);
        let header: TokenHeader =
            serde_json::from_slice(&decode(header)?).map_err(|_| TokenFault::Malformed)?;
        // Extensions marked as critical must be understood, and this parser knows none (RFC 7515, 4.1.11).
        if header.crit.is_some() {
            return Err(TokenFault::Malformed);
        }
        if header.typ.is_some_and(|name| !name.eq_ignore_ascii_case(TYPE)) {
            return Err(TokenFault::Type);
        }
        let algorithm = SigningAlgorithm::parse(&header.alg).ok_or(TokenFault::Algorithm)?;
        let claims = serde_json::from_slice(&decode(claims)?).map_err(|_| TokenFault::Malformed)?;
        let signature = decode(signature)?;
        Ok(Self {
            algorithm,
            key_id: header.kid,
            claims: Claims(claims),
            signed: signed.as_bytes(),
            signature,
        })
    }
}

/// Returns true if a bearer token has the form of a signed JSON Web Token: three parts, of which the first is a JSON object.
pub(crate) fn is_json_web_token(text: &str) -> bool {
    text.starts_with("eyJ") && text.bytes().filter(|byte| *byte == b'.').count() == 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(header: &str, claims: &str) -> String {
        let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
        format!("{}.{}.{}", encode(header), encode(claims), encode("signature"))
    }

    #[test]
    fn only_signed_id_tokens_without_critical_extensions_are_parsed() {
        let good = text(r#"{"alg":"RS256","typ":"jwt","kid":"k"}"#, r#"{"sub":"kim"}"#);
        let token = IdToken::parse(&good).unwrap();
        assert_eq!((token.algorithm, token.key_id.as_deref()), (SigningAlgorithm::Rs256, Some("k")));
        for (header, fault) in [
            (r#"{"alg":"none"}"#, TokenFault::Algorithm),
            (r#"{"alg":"None"}"#, TokenFault::Algorithm),
            (r#"{"alg":"HS256"}"#, TokenFault::Algorithm),
            (r#"{"alg":"RS256 "}"#, TokenFault::Algorithm),
            (r#"{"alg":""}"#, TokenFault::Algorithm),
            (r#"{"alg":"RS256","crit":["b64"],"b64":false}"#, TokenFault::Malformed),
            (r#"{"alg":"RS256","typ":"at+jwt"}"#, TokenFault::Type),
            (r#"{"alg":"none","alg":"RS256"}"#, TokenFault::Malformed),
            (r#"{"kid":"k"}"#, TokenFault::Malformed),
            ("[]", TokenFault::Malformed),
        ] {
            assert_eq!(IdToken::parse(&text(header, "{}")).unwrap_err(), fault, "{header}");
        }
        let long = text(r#"{"alg":"RS256"}"#, &format!(r#"{{"x":"{}"}}"#, "x".repeat(TOKEN_BYTES_MAX)));
        for bad in ["", ".", "..", "a.b", "a.b.c.d", &format!("{good}="), &format!("{good}.{good}"), &long] {
            assert_eq!(IdToken::parse(bad).unwrap_err(), TokenFault::Malformed, "{bad}");
        }
        assert_eq!(IdToken::parse(&text(r#"{"alg":"RS256"}"#, "[1]")).unwrap_err(), TokenFault::Malformed);
    }
}
