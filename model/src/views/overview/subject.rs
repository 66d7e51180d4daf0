//! Subjects of problems: objects, and programs that report to the control servers without being objects.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    kinds::resource::{Kind, ObjectKey},
    primitives::name::{Name, Namespace},
};

/// Object or program that has a problem.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    /// Kind of the object or program.
    pub kind: SubjectKind,
    /// Namespace of the object; `None` for kinds without namespaces and for programs.
    pub namespace: Option<Namespace>,
    /// Name of the object or program.
    pub name: Name,
}

/// Kind of the subject of a problem; serialized as one word, such as `Service` or `DnsServer`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum SubjectKind {
    /// Objects of a kind.
    Object(Kind),
    /// Programs that report.
    Program(ReportingProgram),
}

/// Program that reports to the control servers and is no object.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, strum::IntoStaticStr,
)]
pub enum ReportingProgram {
    /// DNS server, `tidegate-dns`.
    DnsServer,
}

impl SubjectKind {
    /// Returns the kind as text, such as `Service` or `DnsServer`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Object(kind) => kind.as_str(),
            Self::Program(program) => program.into(),
        }
    }
}

impl Subject {
    /// Returns the subject for a DNS server.
    #[must_use]
    pub const fn dns_server(name: Name) -> Self {
        Self { kind: SubjectKind::Program(ReportingProgram::DnsServer), namespace: None, name }
    }

    /// Returns the key of the object; `None` for a program.
    #[must_use]
    pub fn object(&self) -> Option<ObjectKey> {
        let Self { kind, namespace, name } = self.clone();
        match kind {
            SubjectKind::Object(kind) => Some(ObjectKey { kind, namespace, name }),
            SubjectKind::Program(_) => None,
        }
    }
}

impl From<ObjectKey> for Subject {
    fn from(key: ObjectKey) -> Self {
        let ObjectKey { kind, namespace, name } = key;
        Self { kind: SubjectKind::Object(kind), namespace, name }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, namespace, name } = self;
        match namespace {
            Some(namespace) => write!(f, "{} {namespace}/{name}", kind.as_str()),
            None => write!(f, "{} {name}", kind.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_one_word() {
        for (kind, word) in [
            (SubjectKind::Object(Kind::Service), "\"Service\""),
            (SubjectKind::Program(ReportingProgram::DnsServer), "\"DnsServer\""),
        ] {
            assert_eq!(serde_json::to_string(&kind).unwrap(), word);
            assert_eq!(serde_json::from_str::<SubjectKind>(word).unwrap(), kind);
            assert_eq!(word.trim_matches('"'), kind.as_str());
        }
        let server = Subject::dns_server(Name::parse("node-1").unwrap());
        assert_eq!((server.to_string(), server.object()), ("DnsServer node-1".to_owned(), None));
    }
}
