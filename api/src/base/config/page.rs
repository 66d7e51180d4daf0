//! Settings of the status page: read-only mode and external links.

use clap::Args;
use serde::Serialize;
use utoipa::ToSchema;

/// Maximum number of external links on the status page.
const LINKS_MAX: usize = 20;
/// Maximum length of a link title, in characters.
const TITLE_LENGTH_MAX: usize = 40;
/// Maximum length of a link URL template, in characters.
const TEMPLATE_LENGTH_MAX: usize = 1024;

/// Flags for the settings of the status page.
#[derive(Debug, Clone, Default, Args)]
pub struct PageFlags {
    /// Make the status page read-only. Requests with a token that do not come from the page may still make
    /// changes
    #[arg(long, env = "TIDEGATE_PAGE_READ_ONLY")]
    pub page_read_only: bool,
    /// External link of the status page as TITLE=URL; may be repeated. A URL with {namespace} and {name}
    /// appears on the page of each Service, one with {node} on the page of each Node, one without
    /// placeholders on the first page
    #[arg(long, env = "TIDEGATE_PAGE_LINK", value_name = "TITLE=URL", value_delimiter = '\n')]
    pub page_link: Vec<String>,
}

/// Settings of the status page, which the server sends to the browser.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PageSettings {
    /// True if the status page offers no actions that change objects.
    pub is_read_only: bool,
    /// External links, shown in the order of the flags.
    pub links: Vec<PageLink>,
}

/// A link from the status page to another site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PageLink {
    /// Title of the link. 1 to 40 characters.
    #[schema(max_length = 40, example = "Grafana")]
    pub title: String,
    /// Kind of page on which the link appears.
    pub of: LinkKind,
    /// URL template with the placeholders `{namespace}` and `{name}`, or `{node}`. Values must be
    /// percent-encoded when they are inserted.
    #[schema(
        max_length = 1024,
        example = "https://grafana.example/d/tidegate?var-service={namespace}/{name}"
    )]
    pub template: String,
}

/// Kind of page on which an external link appears.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum LinkKind {
    /// Page of each Service.
    Service,
    /// Page of each Node.
    Node,
    /// First page, which shows the whole cluster.
    Cluster,
}

/// Reason why the settings of the status page are rejected.
#[derive(Debug, thiserror::Error)]
pub enum InvalidPage {
    /// A link is malformed.
    #[error(
        "--page-link `{link}` {reason}; write TITLE=URL, such as Grafana=https://grafana.example/d/x?var-service={{namespace}}/{{name}}"
    )]
    Link {
        /// Text of the link as configured.
        link: String,
        /// Rule that the link violates, worded as the predicate of the error message, such as `has no =`.
        reason: &'static str,
    },
    /// More links than `LINKS_MAX` are configured. The payload is their number.
    #[error("--page-link may be given {LINKS_MAX} times, not {0}")]
    TooMany(usize),
}

impl PageSettings {
    /// Parses and validates the external links of the status page.
    ///
    /// # Errors
    /// Returns the first malformed link, or an error if there are more than [`LINKS_MAX`].
    pub fn new(is_read_only: bool, links: &[String]) -> Result<Self, InvalidPage> {
        if links.len() > LINKS_MAX {
            return Err(InvalidPage::TooMany(links.len()));
        }
        let link = |text: &String| {
            PageLink::parse(text).map_err(|reason| InvalidPage::Link { link: text.clone(), reason })
        };
        Ok(Self { is_read_only, links: links.iter().map(link).collect::<Result<_, _>>()? })
    }
}

impl PageLink {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let (title, template) = text.split_once('=').ok_or("has no =")?;
        let title = title.trim();
        if title.is_empty() || title.chars().count() > TITLE_LENGTH_MAX || title.chars().any(char::is_control)
        {
            return Err("must have a title of 1 to 40 characters");
        }
        let is_visible =
            template.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"'<>\\^`|".contains(&byte));
        if template.len() > TEMPLATE_LENGTH_MAX || !is_visible {
            return Err("must have a URL of at most 1024 visible ASCII characters, others percent-encoded");
        }
        // Other schemes, such as `javascript:`, would be executed by browsers.
        let lower = template.to_ascii_lowercase();
        let rest = ["https://", "http://"].iter().find_map(|scheme| lower.strip_prefix(scheme));
        let site = rest.ok_or("must have a URL that begins with https:// or http://")?;
        let site = site.split(['/', '?', '#']).next().unwrap_or_default();
        if site.parse::<http::uri::Authority>().is_err() || site.contains(['@', '{']) {
            return Err("must name a host and no user, and put names only after the host");
        }
        let of = kind_of(template)?;
        Ok(Self { title: title.to_owned(), of, template: template.to_owned() })
    }
}

fn kind_of(template: &str) -> Result<LinkKind, &'static str> {
    let has = |place: &str| template.contains(place);
    let rest = ["{namespace}", "{name}", "{node}"]
        .iter()
        .fold(template.to_owned(), |rest, place| rest.replace(place, ""));
    if rest.contains(['{', '}']) {
        return Err("may have {namespace}, {name} and {node} in its URL and no other { or }");
    }
    match (has("{namespace}"), has("{name}"), has("{node}")) {
        (false, false, false) => Ok(LinkKind::Cluster),
        (false, false, true) => Ok(LinkKind::Node),
        (true, true, false) => Ok(LinkKind::Service),
        _ => Err("must have {namespace} and {name} in its URL, or {node}, or none of them"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_to_http_and_say_what_they_are_about() {
        let kind = |text: &str| PageLink::parse(text).map(|link| link.of);
        assert_eq!(kind("G=https://g.example/d?v={namespace}/{name}"), Ok(LinkKind::Service));
        assert_eq!(kind("G=http://g.example:3000/{node}#x=1"), Ok(LinkKind::Node));
        assert_eq!(kind("Runbooks=https://wiki.example"), Ok(LinkKind::Cluster));
        for wrong in [
            "",
            "https://g.example",
            "=https://g.example",
            "G=javascript:alert(1)",
            "G=//g.example",
            "G=https://",
            "G=https:///d",
            "G=https://{name}.example/{namespace}",
            "G=https://u:p@g.example",
            "G=https://g.example/{name}",
            "G=https://g.example/{namespace}/{name}/{node}",
            "G=https://g.example/{other}",
            "G=https://g.example/{",
            "G=https://g.example/a b",
            "G=https://g.example/\"onclick",
            "G\nH=https://g.example",
            &format!("{}=https://g.example", "x".repeat(TITLE_LENGTH_MAX + 1)),
            &format!("G=https://g.example/{}", "x".repeat(TEMPLATE_LENGTH_MAX)),
        ] {
            assert!(kind(wrong).is_err(), "{wrong}");
        }
        let links = vec!["G=https://g.example".to_owned(); LINKS_MAX + 1];
        assert!(PageSettings::new(false, &links).is_err());
        let refusal = PageSettings::new(false, &["x".to_owned()]).unwrap_err().to_string();
        assert!(refusal.starts_with("--page-link `x` has no =; write TITLE=URL"), "{refusal}");
    }
}
