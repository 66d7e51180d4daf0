//! Output of a listing, or of single objects: tables, documents, names, and values at JSONPaths.

use std::cmp::Ordering;

use serde_json::{Value, json};

use crate::{
    args::{
        Document,
        get::{CustomColumn, Get, GetOutput},
    },
    commands::{document, now},
    error::Failure,
    jsonpath::{self, Path, TooManyValues},
    output::Terminal,
    resource::Resource,
    terminal::table::{Cell, Table},
    views::{
        columns::{self, Columns, identity},
        typed::items,
    },
};

/// Prints the answers of the server, one for each kind if `listed`, else one for each object.
pub(super) fn print(
    arguments: &Get,
    listed: bool,
    mut answers: Vec<(Resource, Value)>,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    if let (true, Some(path)) = (listed, &arguments.sort_by) {
        for (_, answer) in &mut answers {
            sort(answer, path)?;
        }
    }
    match &arguments.output {
        GetOutput::Table | GetOutput::Wide => print_tables(arguments, listed, &answers, terminal),
        GetOutput::Name => {
            for (resource, answer) in &answers {
                for object in ordered(arguments, *resource, objects(listed, answer)) {
                    terminal.print(&name_line(*resource, object))?;
                }
            }
            Ok(())
        }
        GetOutput::Json => terminal.print(&document(&whole(listed, answers), Document::Json)),
        GetOutput::Yaml => terminal.print(&document(&whole(listed, answers), Document::Yaml)),
        GetOutput::JsonPath(template) => {
            let text = jsonpath::rendered(template, &whole(listed, answers)).map_err(too_many)?;
            terminal.print(&line_of(text))
        }
        GetOutput::CustomColumns(columns) => {
            let mut table = custom_table(columns);
            for (resource, answer) in &answers {
                for object in ordered(arguments, *resource, objects(listed, answer)) {
                    table.push(custom_row(columns, object)?);
                }
            }
            let is_empty = table.is_empty();
            let text = rendered(&mut table, arguments.no_headers, terminal);
            if is_empty { Ok(()) } else { terminal.print(&text) }
        }
    }
}

/// Returns the line of `-o name` for an object.
pub(super) fn name_line(resource: Resource, object: &Value) -> String {
    format!("{}/{}\n", resource.singular(), identity(resource, object).1)
}

/// Returns the text of a template as complete lines.
pub(super) fn line_of(mut text: String) -> String {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// Returns the failure of a path with too many values.
pub(super) fn too_many(error: TooManyValues) -> Failure {
    Failure::usage(error.to_string(), "use a path with fewer wildcards")
}

/// Returns an empty table with the headings of custom columns.
pub(super) fn custom_table(columns: &[CustomColumn]) -> Table {
    Table::titled(columns.iter().map(|column| column.title.clone()).collect())
}

/// Returns the cells of an object in custom columns.
pub(super) fn custom_row(columns: &[CustomColumn], object: &Value) -> Result<Vec<Cell>, Failure> {
    let cell = |column: &CustomColumn| {
        let values = jsonpath::values(&column.path, object).map_err(too_many)?;
        let texts: Vec<String> = values.into_iter().map(jsonpath::text_of).collect();
        Ok(Cell::from(texts.join(",")))
    };
    columns.iter().map(cell).collect()
}

/// Returns the selection of columns for tables of the command.
pub(super) fn selected(arguments: &Get) -> Columns {
    Columns {
        wide: arguments.output == GetOutput::Wide,
        namespace: arguments.all_namespaces,
        qualified: arguments.target.resources.len() > 1,
        event: false,
        labels: arguments.show_labels,
    }
}

/// Renders a table, with its headings unless `without_headings`.
pub(super) fn rendered(table: &mut Table, without_headings: bool, terminal: &Terminal) -> String {
    if without_headings { table.take_rows(terminal.style) } else { table.render(terminal.style) }
}

/// Returns one document for all answers. Several kinds or names form one List, which `apply -f` accepts.
fn whole(listed: bool, answers: Vec<(Resource, Value)>) -> Value {
    let mut answers: Vec<Value> = answers.into_iter().map(|(_, answer)| answer).collect();
    if answers.len() == 1 {
        return answers.pop().unwrap_or_default();
    }
    let items: Vec<Value> = if listed {
        answers.iter().flat_map(|answer| objects(true, answer)).cloned().collect()
    } else {
        answers
    };
    json!({ "apiVersion": model::kinds::resource::API_VERSION, "kind": "List", "items": items })
}

fn print_tables(
    arguments: &Get,
    listed: bool,
    answers: &[(Resource, Value)],
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let columns = selected(arguments);
    let (now, mut printed) = (now(), false);
    for resource in &arguments.target.resources {
        let mut table = columns::empty(*resource, columns);
        for (_, answer) in answers.iter().filter(|(of, _)| of == resource) {
            for object in ordered(arguments, *resource, objects(listed, answer)) {
                columns::push(&mut table, *resource, columns, object, now, "");
            }
        }
        if !table.is_empty() {
            let gap = if printed { "\n" } else { "" };
            let text = rendered(&mut table, arguments.no_headers, terminal);
            terminal.print(&format!("{gap}{text}"))?;
            printed = true;
        }
    }
    if !printed {
        let somewhere = arguments.target.resources.iter().any(|resource| resource.is_namespaced());
        let place = if arguments.all_namespaces || !somewhere {
            String::new()
        } else {
            format!(" in namespace {}; -A lists all namespaces", arguments.namespace)
        };
        terminal.note(&format!("nothing found{place}"));
    }
    Ok(())
}

fn objects(listed: bool, answer: &Value) -> &[Value] {
    if listed { items(answer, "/items") } else { std::slice::from_ref(answer) }
}

/// Returns the objects in the order of `--sort-by`, in which they are already, or else in that of the table.
fn ordered<'a>(arguments: &Get, resource: Resource, objects: &'a [Value]) -> Vec<&'a Value> {
    if arguments.sort_by.is_some() { objects.iter().collect() } else { columns::in_order(resource, objects) }
}

/// Sorts the objects of a listing by their first value at a path. Objects without a value come first.
fn sort(answer: &mut Value, path: &Path) -> Result<(), Failure> {
    let Some(Value::Array(objects)) = answer.get_mut("items") else { return Ok(()) };
    let mut failure = None;
    let mut keyed: Vec<(Option<Value>, Value)> = Vec::with_capacity(objects.len());
    for object in std::mem::take(objects) {
        let key = jsonpath::values(path, &object).map(|values| values.first().map(|value| (*value).clone()));
        keyed.push((
            key.unwrap_or_else(|error| {
                failure = Some(error);
                None
            }),
            object,
        ));
    }
    keyed.sort_by(|(a, _), (b, _)| -> Ordering { jsonpath::order(a.as_ref(), b.as_ref()) });
    *objects = keyed.into_iter().map(|(_, object)| object).collect();
    failure.map_or(Ok(()), |error| Err(too_many(error)))
}
