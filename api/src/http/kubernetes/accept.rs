//! Content negotiation of the Kubernetes API: complete objects, or a table of rows (`meta.k8s.io` `Table`). No
//! I/O.

use http::{HeaderMap, header};

use crate::base::error::{Code, Problem};

/// Format of a Kubernetes response with objects: plain objects or a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListFormat {
    /// Complete Kubernetes objects.
    Objects,
    /// Table of rows rendered by the server, in this version of the API group `meta.k8s.io`.
    Table(&'static str),
}

impl ListFormat {
    /// Selects the first supported format in the `Accept` header, or plain objects if the header is absent.
    /// As in Kubernetes, quality values are ignored. Returns a problem if no format is supported.
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        let texts: Vec<_> =
            headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
        let mut ranges = texts.iter().flat_map(|text| text.split(',')).map(str::trim).peekable();
        if ranges.peek().is_none_or(|first| first.is_empty()) {
            return Ok(Self::Objects);
        }
        ranges.find_map(Self::of_range).ok_or_else(|| {
            let detail =
                "`Accept` must allow application/json, or application/json;as=Table;v=v1;g=meta.k8s.io";
            Problem::new(Code::NotAcceptable, detail)
        })
    }

    fn of_range(range: &str) -> Option<Self> {
        let mut pieces = range.split(';').map(str::trim);
        let is_json = matches!(pieces.next(), Some("application/json" | "application/*" | "*/*"));
        let (mut shape, mut version, mut group) = (None, None, None);
        for (name, value) in pieces.filter_map(|piece| piece.split_once('=')) {
            match name {
                "as" => shape = Some(value),
                "v" => version = Some(value),
                "g" => group = Some(value),
                _ => {}
            }
        }
        match (is_json, shape, version, group) {
            (true, None, _, _) => Some(Self::Objects),
            (true, Some("Table"), Some("v1"), Some("meta.k8s.io")) => Some(Self::Table("v1")),
            (true, Some("Table"), Some("v1beta1"), Some("meta.k8s.io")) => Some(Self::Table("v1beta1")),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(accept: &str) -> Option<ListFormat> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, accept.parse().unwrap());
        ListFormat::of(&headers).ok()
    }

    #[test]
    fn the_first_form_that_there_is_is_given() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        assert_eq!(ListFormat::of(&HeaderMap::new()).ok(), Some(ListFormat::Objects));
        assert_eq!(of("application/json"), Some(ListFormat::Objects));
        assert_eq!(of("*/*"), Some(ListFormat::Objects));
        assert_eq!(of(&format!("{table},application/json")), Some(ListFormat::Table("v1")));
        assert_eq!(of(&format!("application/json,{table}")), Some(ListFormat::Objects));
        assert_eq!(of("application/vnd.kubernetes.protobuf, application/json"), Some(ListFormat::Objects));
        assert_eq!(of("application/json;as=Table;v=v9;g=meta.k8s.io"), None);
        assert_eq!(of("application/vnd.kubernetes.protobuf"), None);
        assert_eq!(of(";;;=,"), None);
    }
}
