//! `get -w`: prints the objects, then each change.

use std::collections::BTreeMap;

use model::primitives::{
    name::{Name, Namespace},
    text::escape_json,
};
use serde_json::Value;

use super::print::{custom_row, custom_table, line_of, name_line, selected, too_many};
use crate::{
    args::{
        Document,
        get::{Get, GetOutput},
    },
    client::Client,
    commands::{document, now, watch::Follow},
    error::{ExitCode, Failure},
    jsonpath,
    output::Terminal,
    resource::Resource,
    terminal::table::Table,
    views::{
        columns::{self, Columns, identity},
        typed::{ObjectHeader, documents::WatchEvent},
    },
};

/// Table of the first listing, whose rows are collected until it is complete, so that its columns fit.
struct FirstTable {
    resource: Resource,
    columns: Columns,
    without_headings: bool,
    table: Table,
    /// Objects of the listing; `None` once it is printed. Keyed by identity, because an interrupted listing starts over.
    initial: Option<BTreeMap<(String, String), Value>>,
}

pub(super) async fn run(
    client: &Client,
    arguments: &Get,
    named: Option<&(Namespace, Name)>,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let namespace = named.map_or(&arguments.namespace, |(namespace, _)| namespace);
    let Some(Resource::Object(kind)) = arguments.target.resources.first().copied() else {
        return Ok(ExitCode::Success);
    };
    let resource = Resource::Object(kind);
    let columns = Columns { qualified: false, event: true, ..selected(arguments) };
    let table = columns::empty(resource, columns);
    let without_headings = arguments.no_headers;
    let mut first = FirstTable { resource, columns, without_headings, table, initial: Some(BTreeMap::new()) };
    if let (GetOutput::CustomColumns(columns), false) = (&arguments.output, without_headings) {
        terminal.print(&custom_table(columns).render(terminal.style))?;
    }
    let mut follow = Follow {
        kinds: vec![kind],
        namespace: (!arguments.all_namespaces && kind.is_namespaced()).then(|| namespace.clone()),
        selector: arguments.selector.clone(),
        position: None,
    };
    follow
        .run(client, terminal, |event, terminal| {
            let is_named = |object: &&Value| {
                named.is_none_or(|(_, name)| ObjectHeader::of(object).metadata.name == name.as_str())
            };
            let object = WatchEvent::object(event).filter(is_named);
            match (&arguments.output, object) {
                (GetOutput::Table | GetOutput::Wide, object) => first.take(event, object, terminal),
                (_, None) => Ok(()),
                (GetOutput::Name, Some(object)) => terminal.print(&name_line(resource, object)),
                (GetOutput::Json, Some(_)) => {
                    terminal.print(&format!("{}\n", escape_json(&event.to_string())))
                }
                (GetOutput::Yaml, Some(_)) => {
                    terminal.print(&format!("---\n{}", document(event, Document::Yaml)))
                }
                (GetOutput::JsonPath(template), Some(object)) => {
                    terminal.print(&line_of(jsonpath::rendered(template, object).map_err(too_many)?))
                }
                (GetOutput::CustomColumns(columns), Some(object)) => {
                    let mut table = custom_table(columns);
                    table.push(custom_row(columns, object)?);
                    terminal.print(&table.take_rows(terminal.style))
                }
            }
        })
        .await
}

impl FirstTable {
    /// Prints the first listing once it is complete, and later changes row by row.
    fn take(
        &mut self,
        event: &Value,
        object: Option<&Value>,
        terminal: &mut Terminal,
    ) -> Result<(), Failure> {
        let Self { resource, columns, without_headings, table, initial } = self;
        let word = WatchEvent::of(event).event_type;
        if let Some(object) = object {
            match initial {
                Some(initial) => drop(initial.insert(identity(*resource, object), object.clone())),
                None => columns::push(table, *resource, *columns, object, now(), &word),
            }
        }
        if let Some(first) = initial.take_if(|_| word == "BOOKMARK") {
            let objects: Vec<Value> = first.into_values().collect();
            for object in columns::in_order(*resource, &objects) {
                columns::push(table, *resource, *columns, object, now(), "ADDED");
            }
            if !*without_headings {
                let rows = table.render(terminal.style);
                let _printed = table.take_rows(terminal.style);
                return terminal.print(&rows);
            }
        }
        let rows = table.take_rows(terminal.style);
        terminal.print(&rows)
    }
}
