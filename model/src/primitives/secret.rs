//! Secret text that logs, debug output and errors never contain.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};

/// Secret text, such as a password, that `Debug` does not print.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Creates a secret that contains `text`.
    #[must_use]
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    /// Returns the secret text. Must not be used for logs, errors or responses.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl<'de> Deserialize<'de> for Secret {
    /// Deserializes a string. Error messages do not contain the input: a secret that was written without
    /// quotes may be parsed as another type, such as a number, and the usual message about the wrong type
    /// would reveal it.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SecretVisitor)
    }
}

struct SecretVisitor;

impl SecretVisitor {
    fn refuse<T, E: Error>() -> Result<T, E> {
        Err(E::custom("must be a string: put it in quotes"))
    }
}

impl<'de> Visitor<'de> for SecretVisitor {
    type Value = Secret;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Secret, E> {
        Ok(Secret(text.to_owned()))
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Secret, E> {
        Ok(Secret(text))
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Secret, E> {
        Self::refuse()
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Secret, E> {
        Self::refuse()
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Secret, E> {
        Self::refuse()
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Secret, E> {
        Self::refuse()
    }

    fn visit_unit<E: Error>(self) -> Result<Secret, E> {
        Self::refuse()
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Secret, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Self::refuse()
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Secret, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Self::refuse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_repeated_neither_when_it_is_shown_nor_when_it_cannot_be_read() {
        let secret: Secret = serde_json::from_str(r#""hush""#).unwrap();
        assert_eq!((secret.reveal(), format!("{secret:?}").as_str()), ("hush", "Secret(…)"));
        for bad in ["4711", "-4711", "4711.5", "true", "null", r#"["4711"]"#, r#"{"a":"4711"}"#] {
            let error = serde_json::from_str::<Secret>(bad).unwrap_err().to_string();
            assert!(error.contains("must be a string") && !error.contains("4711"), "{bad}: {error}");
        }
    }
}
