//! `describe`: sections about one object; problems are printed with reason and remedy. Pure.

pub(crate) mod addresses;
pub(crate) mod bgp;
pub(crate) mod objects;

use model::{kinds::resource::Kind, primitives::quantity::Timestamp};
use serde_json::Value;

use crate::{
    age::age,
    lenient_json::{clean, condition_tone, endpoint_counts, entries, items, labels, scalar, text, time},
    resource::Resource,
    terminal::{
        style::{Style, Tone},
        table::Table,
    },
    views::{
        columns::{self, Columns},
        describe::{addresses as describe_addresses, bgp as describe_bgp, objects as describe_objects},
        health, traffic,
    },
};

/// Width of the label column.
const LABEL_WIDTH: usize = 24;

/// Object to describe, with related data.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// Resource type.
    pub resource: Resource,
    /// The object, or the computed endpoints.
    pub object: &'a Value,
    /// Computed endpoints of a Service.
    pub endpoints: Option<&'a Value>,
    /// Traffic of a Service.
    pub traffic: Option<&'a Value>,
    /// Endpoint health of a Service.
    pub health: Option<&'a Value>,
    /// Address objects of a pool, or of a LoadBalancer Service.
    pub addresses: Option<&'a [Value]>,
    /// BGP sessions of a Node, as listed by the server.
    pub sessions: Option<&'a Value>,
}

/// Renders the description of an object.
#[must_use]
pub fn describe(subject: &Subject<'_>, now: Timestamp, style: Style) -> String {
    let mut page = Page { text: String::new(), style };
    match subject.resource {
        Resource::Endpoints => {
            page.field("Service", &text(subject.object, "/service"));
            page.field("Revision", &text(subject.object, "/revision"));
            endpoints(&mut page, subject.object, now);
        }
        Resource::Object(kind) => {
            identity(&mut page, subject.object, now);
            match kind {
                Kind::Service => describe_objects::service(&mut page, subject.object),
                Kind::EndpointSet => describe_objects::endpoint_set(&mut page, subject.object),
                Kind::Workload => describe_objects::workload(&mut page, subject.object),
                Kind::Node => describe_objects::node(&mut page, subject.object, now),
                Kind::AddressPool => describe_addresses::pool(&mut page, subject.object),
                Kind::Advertisement => describe_addresses::advertisement(&mut page, subject.object),
                Kind::BgpPeer => describe_bgp::peer(&mut page, subject.object, now),
                Kind::BfdProfile => describe_bgp::profile(&mut page, subject.object),
                Kind::Address => describe_addresses::address(&mut page, subject.object, now),
                Kind::EndpointHealth => health::describe_record(&mut page, subject.object, now),
            }
            // Records managed by the server have no spec to reconcile, and so no conditions.
            if kind != Kind::EndpointHealth {
                conditions(&mut page, subject.object);
            }
            if let Some(addresses) = subject.addresses {
                describe_addresses::held(&mut page, addresses, now);
            }
            if let Some(table) =
                subject.sessions.and_then(|listing| crate::views::bgp::peers(listing, false, now, style))
            {
                page.section("BGP sessions");
                table.lines().for_each(|line| page.line(&format!("  {line}")));
            }
            if let Some(compiled) = subject.endpoints {
                endpoints(&mut page, compiled, now);
            }
            if let Some(table) = subject.health.and_then(|health| health::endpoints(health, now, style)) {
                page.section("Health");
                table.lines().for_each(|line| page.line(&format!("  {line}")));
            }
            if let Some(of_service) = subject.traffic {
                traffic(&mut page, of_service);
            }
            if kind == Kind::Service {
                describe_objects::service_nodes(&mut page, subject.object);
            }
        }
    }
    page.text
}

fn identity(page: &mut Page, object: &Value, now: Timestamp) {
    page.field("Name", &text(object, "/metadata/name"));
    page.optional("Namespace", &text(object, "/metadata/namespace"));
    page.optional("Labels", &labels(object, "/metadata/labels"));
    for (key, value) in entries(object, "/metadata/annotations") {
        page.field("Annotation", &format!("{key}={}", scalar(value)));
    }
    page.optional("Apply set", &text(object, "/metadata/applySet"));
    if let Some(created) = time(object, "/metadata/creationTimestamp") {
        page.field("Created", &format!("{created} ({} ago)", age(created, now)));
    }
    let [revision, generation] =
        ["resourceVersion", "generation"].map(|key| text(object, &format!("/metadata/{key}")));
    page.field("Revision", &format!("{revision} (generation {generation})"));
}

fn conditions(page: &mut Page, object: &Value) {
    page.section("Conditions");
    let conditions = items(object, "/status/conditions");
    if conditions.is_empty() {
        page.line("  <none>");
    }
    for condition in conditions {
        let [kind, status, reason] = ["/type", "/status", "/reason"].map(|at| clean(&text(condition, at)));
        let status = page.style.paint(condition_tone(&status), &format!("{status:<8}"));
        page.line(format!("  {kind:<20}{status}{reason}").trim_end());
        for (title, at) in [("", "/message"), ("hint: ", "/hint")] {
            let said = clean(&text(condition, at));
            if !said.is_empty() {
                page.line(&format!("    {title}{said}"));
            }
        }
    }
}

fn endpoints(page: &mut Page, compiled: &Value, now: Timestamp) {
    let (all, ready) = endpoint_counts(compiled);
    page.section(&format!("Endpoints ({ready} of {all} ready)"));
    let columns = Columns { wide: true, ..Columns::default() };
    let mut table = columns::empty(Resource::Endpoints, columns);
    columns::push(&mut table, Resource::Endpoints, columns, compiled, now, "");
    if all == 0 {
        page.line("  <none>");
    } else {
        page.table(&table);
    }
    for unsupported in items(compiled, "/unsupported") {
        let [field, message] = ["/field", "/message"].map(|at| clean(&text(unsupported, at)));
        page.line(&page.style.paint(Tone::Bad, &format!("  unsupported: {field}: {message}")));
    }
}

fn traffic(page: &mut Page, of_service: &Value) {
    let Some(table) = traffic::by_endpoint(of_service, page.style) else { return };
    page.section(&format!("Traffic (of {})", traffic::reporting_nodes(of_service)));
    for line in table.lines() {
        page.line(&format!("  {line}"));
    }
}

/// Text under construction.
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
