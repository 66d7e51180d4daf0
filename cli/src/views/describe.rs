//! `describe`: sections about one object; problems are printed with reason and remedy. Pure functions.

pub(crate) mod addresses;
pub(crate) mod bgp;
pub(crate) mod http;
pub(crate) mod names;
pub(crate) mod networks;
pub(crate) mod objects;
pub(crate) mod policy;

use model::{
    kinds::{metadata::Metadata, resource::Kind},
    observed::{health::addresses_not_checked, status::ServiceStatus},
    primitives::quantity::Timestamp,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    age::age,
    resource::Resource,
    terminal::{
        clean,
        style::{Style, Tone},
        table::Table,
    },
    views::typed::{self, ObjectHeader, TypedObject, UNREADABLE, compiled, decode, decode_or_default, word},
    views::{
        columns::{self, Columns, condition_tone, endpoint_counts, labels},
        describe::{
            addresses as describe_addresses, bgp as describe_bgp, http as describe_http,
            names as describe_names, networks as describe_networks, objects as describe_objects,
            policy as describe_policy,
        },
        health, traffic,
    },
};

/// Width of the label column in characters.
const LABEL_WIDTH: usize = 24;

/// Object to describe, with related data.
#[derive(Debug, Clone, Copy)]
pub struct DescribeSubject<'a> {
    /// Resource type of the object.
    pub resource: Resource,
    /// The object, or the computed endpoints.
    pub object: &'a Value,
    /// Endpoints that the server computed for the Service; `None` for other kinds.
    pub endpoints: Option<&'a Value>,
    /// Traffic of the Service; `None` for other kinds, or if the server reports none.
    pub traffic: Option<&'a Value>,
    /// Endpoint health of the Service; `None` for other kinds, or if the server reports none.
    pub health: Option<&'a Value>,
    /// Address objects of a pool or of a LoadBalancer Service, or of the Services with the names of Gateways; `None` for other
    /// objects.
    pub addresses: Option<&'a [Value]>,
    /// Blocks of a WorkloadNetwork or Node; `None` for other kinds, or if the Node has none.
    pub blocks: Option<&'a [Value]>,
    /// BGP sessions of a Node, as listed by the server; `None` for other kinds, or if the server does not
    /// support BGP.
    pub sessions: Option<&'a Value>,
    /// Endpoints that the server computed for the backends of an HttpRoute; empty for other kinds.
    pub backends: &'a [Value],
}

/// Renders the description of an object.
#[must_use]
pub fn describe(subject: &DescribeSubject<'_>, now: Timestamp, style: Style) -> String {
    let mut page = Page { text: String::new(), style };
    match subject.resource {
        Resource::Endpoints => {
            let compiled = compiled(subject.object);
            page.field("Service", &word(&compiled.as_ref().map(|compiled| &compiled.service)));
            page.field("Revision", &word(&compiled.as_ref().map(|compiled| compiled.revision)));
            endpoints(&mut page, "Endpoints", subject.object, now);
        }
        Resource::Object(kind) => {
            identity(&mut page, subject.object, now);
            let object = subject.object;
            match kind {
                Kind::Service => sections(&mut page, object, describe_objects::service),
                Kind::EndpointSet => sections(&mut page, object, describe_objects::endpoint_set),
                Kind::Workload => sections(&mut page, object, describe_objects::workload),
                Kind::Node => {
                    sections(&mut page, object, |page, node| describe_objects::node(page, node, now))
                }
                Kind::AddressPool => sections(&mut page, object, describe_addresses::pool),
                Kind::Advertisement => sections(&mut page, object, describe_addresses::advertisement),
                Kind::BgpPeer => {
                    sections(&mut page, object, |page, peer| describe_bgp::peer(page, peer, now))
                }
                Kind::BfdProfile => sections(&mut page, object, describe_bgp::profile),
                Kind::DnsZone => sections(&mut page, object, describe_names::zone),
                Kind::Certificate => sections(&mut page, object, describe_http::certificate),
                Kind::Gateway => sections(&mut page, object, describe_http::gateway),
                Kind::HttpRoute => sections(&mut page, object, describe_http::route),
                Kind::TlsRoute => sections(&mut page, object, describe_http::tls_route),
                Kind::WorkloadNetwork => sections(&mut page, object, describe_networks::network),
                Kind::NetworkPolicy => sections(&mut page, object, describe_policy::policy),
                Kind::Block => sections(&mut page, object, describe_networks::block),
                Kind::Attachment => sections(&mut page, object, describe_networks::attachment),
                Kind::Address => {
                    sections(&mut page, object, |page, address| {
                        describe_addresses::address(page, address, now)
                    });
                }
                Kind::EndpointHealth => {
                    let describe = |page: &mut Page, record: &typed::EndpointHealth| {
                        health::describe_record(page, &record.spec, now);
                    };
                    sections(&mut page, object, describe);
                }
            }
            // Records managed by the server have no spec to reconcile, and so no conditions.
            if kind != Kind::EndpointHealth {
                conditions(&mut page, subject.object);
            }
            if let Some(addresses) = subject.addresses {
                describe_addresses::held(&mut page, addresses, now);
            }
            if let Some(blocks) = subject.blocks {
                describe_networks::map(&mut page, blocks, now);
            }
            if let Some(table) =
                subject.sessions.and_then(|listing| crate::views::bgp::peers(listing, false, now, style))
            {
                page.section("BGP sessions");
                table.lines().for_each(|line| page.line(&format!("  {line}")));
            }
            if let Some(compiled) = subject.endpoints {
                endpoints(&mut page, "Endpoints", compiled, now);
            }
            for backend in subject.backends {
                let service = word(&compiled(backend).as_ref().map(|compiled| &compiled.service));
                endpoints(&mut page, &format!("Backend {service}"), backend, now);
            }
            if let Some(table) = subject.health.and_then(|health| health::endpoints(health, now, style)) {
                page.section("Health");
                table.lines().for_each(|line| page.line(&format!("  {line}")));
            }
            if let Some(of_service) = subject.traffic {
                traffic(&mut page, of_service);
            }
            if kind == Kind::Service {
                let status: ServiceStatus = decode_or_default(object.get("status"));
                describe_objects::service_nodes(&mut page, &status.nodes);
            }
        }
    }
    page.text
}

/// Decodes `object` and calls `describe` to add its sections to the page. Adds a placeholder instead if the
/// object cannot be decoded.
fn sections<Spec: DeserializeOwned, Status: DeserializeOwned + Serialize + Default>(
    page: &mut Page,
    object: &Value,
    describe: impl FnOnce(&mut Page, &TypedObject<Spec, Status>),
) {
    if let Some(object) = TypedObject::of(object) {
        describe(page, &object);
    } else {
        page.section("Spec");
        page.line(&format!("  {UNREADABLE}: this version cannot decode the object; `get -o yaml` prints it"));
    }
}

fn identity(page: &mut Page, object: &Value, now: Timestamp) {
    let Some(metadata) = object.get("metadata").and_then(decode::<Metadata>) else {
        page.field("Name", &ObjectHeader::of(object).metadata.name);
        return;
    };
    page.field("Name", &word(&metadata.name));
    page.optional("Namespace", &word(&metadata.namespace));
    page.optional("Labels", &labels(&metadata.labels));
    for (key, value) in &metadata.annotations {
        page.field("Annotation", &format!("{key}={value}"));
    }
    page.optional("Apply set", &word(&metadata.apply_set));
    if let Some(created) = metadata.creation_timestamp {
        page.field("Created", &format!("{created} ({} ago)", age(created, now)));
    }
    let (revision, generation) = (word(&metadata.resource_version), word(&metadata.generation));
    page.field("Revision", &format!("{revision} (generation {generation})"));
}

fn conditions(page: &mut Page, object: &Value) {
    page.section("Conditions");
    let conditions = typed::conditions(object);
    if conditions.is_empty() {
        page.line("  <none>");
    }
    for condition in conditions {
        let [kind, reason, message, hint] =
            [&condition.condition_type, &condition.reason, &condition.message, &condition.hint]
                .map(|text| clean(text));
        let status = format!("{:<8}", word(&condition.status));
        let status = page.style.paint(condition_tone(condition.status), &status);
        page.line(format!("  {kind:<20}{status}{reason}").trim_end());
        for (title, text) in [("", message), ("hint: ", hint)] {
            if !text.is_empty() {
                page.line(&format!("    {title}{text}"));
            }
        }
    }
}

fn endpoints(page: &mut Page, title: &str, object: &Value, now: Timestamp) {
    let Some(compiled) = compiled(object) else {
        page.section(title);
        page.line("  <unreadable>");
        return;
    };
    let (all, ready) = endpoint_counts(&compiled);
    let unchecked = match addresses_not_checked(&compiled).len() {
        0 => String::new(),
        count => format!(", {count} not checked"),
    };
    page.section(&format!("{title} ({ready} of {all} ready{unchecked})"));
    let columns = Columns { wide: true, ..Columns::default() };
    let mut table = columns::empty(Resource::Endpoints, columns);
    columns::push(&mut table, Resource::Endpoints, columns, object, now, "");
    if all == 0 {
        page.line("  <none>");
    } else {
        page.table(&table);
    }
    for unsupported in &compiled.unsupported {
        let line = clean(&format!("  unsupported: {}: {}", unsupported.field, unsupported.message));
        page.line(&page.style.paint(Tone::Bad, &line));
    }
}

fn traffic(page: &mut Page, of_service: &Value) {
    let Some(table) = traffic::by_endpoint(of_service, page.style) else { return };
    page.section(&format!("Traffic (of {})", traffic::reporting_nodes(of_service)));
    for line in table.lines() {
        page.line(&format!("  {line}"));
    }
}

/// Text of a description under construction.
pub(crate) struct Page {
    text: String,
    style: Style,
}

impl Page {
    /// Adds a section title.
    pub(crate) fn section(&mut self, title: &str) {
        let title = self.style.paint(Tone::Title, &clean(title));
        self.text.push_str(&format!("\n{title}\n"));
    }

    /// Adds a labelled value, `<none>` if it is empty.
    pub(crate) fn field(&mut self, label: &str, value: &str) {
        let value = clean(value);
        let value = if value.is_empty() { "<none>" } else { &value };
        self.text.push_str(&format!("{:<LABEL_WIDTH$}{value}\n", format!("{label}:")));
    }

    /// Adds a labelled value unless it is empty.
    pub(crate) fn optional(&mut self, label: &str, value: &str) {
        if !value.is_empty() {
            self.field(label, value);
        }
    }

    /// Adds an indented table.
    pub(crate) fn table(&mut self, table: &Table) {
        for line in table.render(self.style).lines() {
            self.line(&format!("  {line}"));
        }
    }

    /// Adds a line that is already sanitized.
    pub(crate) fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// Sanitizes and colours part of a line.
    pub(crate) fn paint(&self, tone: Tone, text: &str) -> String {
        self.style.paint(tone, &clean(text))
    }
}
