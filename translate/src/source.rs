//! Detects the format of an input, and translates it.

use std::{fmt, str::FromStr};

use serde_json::Value;

use crate::{
    ImportResult, all,
    draft::Draft,
    ingress, ipvsadm,
    json::text,
    keepalived, kube_proxy,
    metallb::config_map as metallb_config,
    parse::{Language, objects},
};

/// Maximum size of a text input in bytes.
pub(crate) const TEXT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Format of an import input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Format {
    /// Kubernetes Service, Endpoints, EndpointSlice, Node, Ingress and Secret with a certificate.
    Kubernetes,
    /// Resources of `metallb.io`, and the legacy `ConfigMap`.
    Metallb,
    /// `KubeProxyConfiguration`, also in the `ConfigMap` of kubeadm.
    KubeProxy,
    /// Output of `ipvsadm -S -n`.
    Ipvsadm,
    /// Configuration file of keepalived (`keepalived.conf`).
    Keepalived,
}

impl Format {
    /// Every format that can be imported.
    pub const ALL: [Self; 5] =
        [Self::Kubernetes, Self::Metallb, Self::KubeProxy, Self::Ipvsadm, Self::Keepalived];

    /// Returns the name of the format, as used on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Kubernetes => "kubernetes",
            Self::Metallb => "metallb",
            Self::KubeProxy => "kube-proxy",
            Self::Ipvsadm => "ipvsadm",
            Self::Keepalived => "keepalived",
        }
    }

    /// Returns the format of a document; `None` if it cannot be imported.
    #[must_use]
    pub fn of(document: &Value) -> Option<Self> {
        let is_metallb = text(document, "/apiVersion").starts_with("metallb.io/");
        match text(document, "/kind").as_str() {
            "IPAddressPool" | "AddressPool" | "L2Advertisement" | "BGPAdvertisement" | "BFDProfile"
            | "Community" => Some(Self::Metallb),
            "BGPPeer" if is_metallb => Some(Self::Metallb),
            "Service" | "Endpoints" | "EndpointSlice" | "Node" | "Ingress" => Some(Self::Kubernetes),
            "Secret" if ingress::is_certificate(document) => Some(Self::Kubernetes),
            "KubeProxyConfiguration" => Some(Self::KubeProxy),
            "ConfigMap" if kube_proxy::is_config_map(document) => Some(Self::KubeProxy),
            "ConfigMap" if ingress::settings::is_settings(document) => Some(Self::Kubernetes),
            "ConfigMap" => Some(Self::Metallb),
            "" if metallb_config::is_config(document) => Some(Self::Metallb),
            _ => None,
        }
    }

    /// Detects ipvsadm or keepalived input by its first significant line. Returns `None` for other text. YAML
    /// is never mistaken for these formats: its separator `---` is not an ipvsadm command, and its keys end
    /// with a colon.
    fn of_text(bytes: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(bytes.get(..TEXT_BYTES_MAX.min(bytes.len())).unwrap_or_default());
        let lines = text.lines().map(str::trim);
        let first =
            lines.into_iter().find(|line| !line.is_empty() && !line.starts_with(['#', '!', '$', '@']))?;
        let first_word = first.split_whitespace().next().unwrap_or_default();
        if first_word == "ipvsadm" || ipvsadm::is_command(first_word) {
            return Some(Self::Ipvsadm);
        }
        let is_named = keepalived::KEYWORDS.contains(&first_word.trim_end_matches('{'));
        is_named.then_some(Self::Keepalived)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|format| format.as_str() == word);
        found
            .ok_or_else(|| format!("must be one of {}, not `{word}`", Self::ALL.map(Self::as_str).join(", ")))
    }
}

/// Input file of an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Display name in the report.
    pub name: String,
    /// Contents of the file.
    pub bytes: Vec<u8>,
}

/// Translates inputs together, because they may refer to each other. With `from`, all inputs have this
/// format; otherwise each format is detected.
///
/// # Errors
/// Returns the index of an unreadable input, and the reason.
pub fn import(sources: &[Source], from: Option<Format>) -> Result<ImportResult, (usize, String)> {
    let mut draft = Draft::default();
    let mut documents: Vec<(&str, Vec<Value>)> = Vec::new();
    let mut tables = Vec::new();
    for (number, source) in sources.iter().enumerate() {
        let wrong = |cause: String| (number, cause);
        match from.or_else(|| Format::of_text(&source.bytes)) {
            // Processed last, because other inputs may define pools for the addresses.
            Some(Format::Ipvsadm) => tables.push((number, source)),
            Some(Format::Keepalived) => {
                let text = plain_text(&source.bytes).map_err(wrong)?;
                keepalived::text(&mut draft, &source.name, text).map_err(wrong)?;
            }
            Some(Format::Kubernetes | Format::Metallb | Format::KubeProxy) | None => {
                let language = Language::detect(&source.name, &source.bytes);
                documents.push((&source.name, objects(language, &source.bytes).map_err(wrong)?));
            }
        }
    }
    for (number, source) in tables {
        let text = plain_text(&source.bytes).map_err(|cause| (number, cause))?;
        ipvsadm::text(&mut draft, &source.name, text).map_err(|cause| (number, cause))?;
    }
    let each = documents.iter().flat_map(|(name, documents)| documents.iter().map(move |at| (*name, at)));
    all(&mut draft, each.collect(), from);
    Ok(draft.finish())
}

fn plain_text(bytes: &[u8]) -> Result<&str, String> {
    if bytes.len() > TEXT_BYTES_MAX {
        return Err(format!("more than {} MiB; split it", TEXT_BYTES_MAX / (1024 * 1024)));
    }
    std::str::from_utf8(bytes).map_err(|error| format!("not UTF-8: {error}"))
}
