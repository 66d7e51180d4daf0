//! Namespace and name of an object of HTTP routing.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::name::{Name, Namespace};

/// Namespace and name of a Gateway, HttpRoute or Certificate. In JSON, it is a string `NAMESPACE/NAME`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HttpObjectKey {
    /// Namespace of the object.
    pub namespace: Namespace,
    /// Name of the object.
    pub name: Name,
}

impl fmt::Display for HttpObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl From<HttpObjectKey> for String {
    fn from(key: HttpObjectKey) -> Self {
        key.to_string()
    }
}

impl TryFrom<String> for HttpObjectKey {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for HttpObjectKey {
    type Err = String;

    /// Parses `NAMESPACE/NAME`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (namespace, name) = text.split_once('/').ok_or("must have the form NAMESPACE/NAME")?;
        let namespace = Namespace::parse(namespace).map_err(|error| error.to_string())?;
        Ok(Self { namespace, name: Name::parse(name).map_err(|error| error.to_string())? })
    }
}
