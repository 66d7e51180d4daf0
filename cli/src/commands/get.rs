//! `get`: prints objects as tables or documents, once or continuously with `-w`.

use std::collections::BTreeMap;

use model::primitives::name::{Name, Namespace};
use serde_json::{Value, json};

use super::{document, now, watch::Follow};
use crate::{
    args::{Document, Get, GetOutput},
    client::{Client, Request},
    error::{ExitCode, Failure},
    output::Terminal,
    resource::{self, Resource},
    terminal::table::Table,
    views::{
        columns::{self, Columns, identity},
        typed::{ObjectHeader, documents::WatchEvent, items},
    },
};

pub(crate) async fn run(
    client: &Client,
    arguments: Get,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let names = names(&arguments)?;
    check(&arguments, &names)?;
    if arguments.watch {
        return follow(client, &arguments, names.first(), terminal).await;
    }
    let (mut answers, mut missing) = (Vec::new(), Vec::new());
    for resource in &arguments.target.resources {
        if names.is_empty() {
            let listing = client.list(|| {
                let namespace = (!arguments.all_namespaces).then_some(&arguments.namespace);
                Request::get(collection_path(*resource, namespace))
                    .query("labelSelector", arguments.selector.as_ref().map(ToString::to_string))
            });
            answers.push((*resource, listing.await?.envelope));
        }
        for (namespace, name) in &names {
            match client.send(Request::get(object_path(*resource, namespace, name))).await {
                Ok(object) => answers.push((*resource, object)),
                Err(failure) if failure.problem_code() == Some("NotFound") => missing.push(failure),
                Err(failure) => return Err(failure),
            }
        }
    }
    // The objects that exist are printed before the error.
    if !answers.is_empty() || missing.is_empty() {
        print(&arguments, names.is_empty(), answers, terminal)?;
    }
    let Some(last) = missing.pop() else { return Ok(ExitCode::Success) };
    terminal.flush()?;
    for failure in &missing {
        terminal.report(failure);
    }
    Err(last)
}

/// Returns the API path of all objects of a type; `None` selects all namespaces.
pub(super) fn collection_path(resource: Resource, namespace: Option<&Namespace>) -> String {
    match namespace.filter(|_| resource.is_namespaced()) {
        Some(namespace) => format!("/v1/namespaces/{namespace}/{}", resource.plural()),
        None => format!("/v1/{}", resource.plural()),
    }
}

/// Returns the API path of one object.
pub(crate) fn object_path(resource: Resource, namespace: &Namespace, name: &Name) -> String {
    format!("{}/{name}", collection_path(resource, Some(namespace)))
}

fn names(arguments: &Get) -> Result<Vec<(Namespace, Name)>, Failure> {
    let resource = arguments.target.resources.first().copied().unwrap_or(Resource::Endpoints);
    let given = arguments.target.name.iter().chain(&arguments.names);
    given.map(|name| parse_located(resource, name, &arguments.namespace)).collect()
}

/// Parses an object name given on the command line, which may be `NAMESPACE/NAME`.
pub(super) fn parse_located(
    resource: Resource,
    text: &str,
    default: &Namespace,
) -> Result<(Namespace, Name), Failure> {
    resource::parse_located(resource, text, default).map_err(|message| Failure::Usage { message, hint: None })
}

/// Parses an object name given on the command line.
pub(crate) fn parse_name(resource: Resource, text: &str) -> Result<Name, Failure> {
    resource::parse_name(resource, text).map_err(|message| Failure::Usage { message, hint: None })
}

fn check(arguments: &Get, names: &[(Namespace, Name)]) -> Result<(), Failure> {
    let endpoints = arguments.target.resources.contains(&Resource::Endpoints);
    if !names.is_empty() && arguments.target.resources.len() > 1 {
        return Err(Failure::usage("names can be given for one kind only", "write `get KIND NAME`"));
    }
    if !names.is_empty() && arguments.all_namespaces {
        return Err(Failure::usage(
            "names cannot be combined with --all-namespaces",
            "use -n NAMESPACE instead of -A",
        ));
    }
    if !names.is_empty() && arguments.selector.is_some() {
        return Err(Failure::usage("names cannot be combined with a selector", "omit the names or -l"));
    }
    if endpoints && arguments.selector.is_some() {
        return Err(Failure::usage("endpoints have no labels", "select Services: `get services -l …`"));
    }
    if !arguments.watch {
        return Ok(());
    }
    if endpoints {
        return Err(Failure::usage(
            "endpoints are computed and cannot be watched",
            "watch their sources instead: `watch services workloads endpointsets`",
        ));
    }
    if arguments.target.resources.len() > 1 || names.len() > 1 {
        return Err(Failure::usage(
            "-w supports one kind or one object",
            "use `watch [KIND…]` for several kinds",
        ));
    }
    Ok(())
}

fn print(
    arguments: &Get,
    listed: bool,
    answers: Vec<(Resource, Value)>,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let form = match arguments.output {
        GetOutput::Table | GetOutput::Wide => return print_tables(arguments, listed, &answers, terminal),
        GetOutput::Name => {
            for (resource, answer) in &answers {
                for object in columns::in_order(*resource, objects(listed, answer)) {
                    terminal.print(&format!(
                        "{}/{}\n",
                        resource.singular(),
                        identity(*resource, object).1
                    ))?;
                }
            }
            return Ok(());
        }
        GetOutput::Json => Document::Json,
        GetOutput::Yaml => Document::Yaml,
    };
    let mut answers: Vec<Value> = answers.into_iter().map(|(_, answer)| answer).collect();
    let whole = match answers.len() {
        1 => answers.pop().unwrap_or_default(),
        // Several kinds or names form one List, which `apply -f` accepts.
        _ if listed => {
            let items: Vec<Value> =
                answers.iter().flat_map(|answer| objects(true, answer)).cloned().collect();
            json!({ "apiVersion": model::kinds::resource::API_VERSION, "kind": "List", "items": items })
        }
        _ => json!({ "apiVersion": model::kinds::resource::API_VERSION, "kind": "List", "items": answers }),
    };
    terminal.print(&document(&whole, form))
}

fn print_tables(
    arguments: &Get,
    listed: bool,
    answers: &[(Resource, Value)],
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let columns = Columns {
        wide: arguments.output == GetOutput::Wide,
        namespace: arguments.all_namespaces,
        qualified: arguments.target.resources.len() > 1,
        event: false,
    };
    let (now, mut printed) = (now(), false);
    for resource in &arguments.target.resources {
        let mut table = columns::empty(*resource, columns);
        for (_, answer) in answers.iter().filter(|(of, _)| of == resource) {
            for object in columns::in_order(*resource, objects(listed, answer)) {
                columns::push(&mut table, *resource, columns, object, now, "");
            }
        }
        if !table.is_empty() {
            let gap = if printed { "\n" } else { "" };
            terminal.print(&format!("{gap}{}", table.render(terminal.style)))?;
            printed = true;
        }
    }
    if !printed {
        let somewhere = arguments.target.resources.iter().any(|resource| resource.is_namespaced());
        let place = if arguments.all_namespaces || !somewhere {
            String::new()
        } else {
            format!(" in namespace {}", arguments.namespace)
        };
        terminal.note(&format!("nothing found{place}"));
    }
    Ok(())
}

fn objects(listed: bool, answer: &Value) -> &[Value] {
    if listed { items(answer, "/items") } else { std::slice::from_ref(answer) }
}

async fn follow(
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
    let columns = Columns {
        wide: arguments.output == GetOutput::Wide,
        namespace: arguments.all_namespaces,
        qualified: false,
        event: true,
    };
    let mut table: Table = columns::empty(resource, columns);
    // Collects the initial listing until it is complete. Keyed by identity, because an interrupted listing
    // starts over.
    let mut initial = Some(BTreeMap::<_, Value>::new());
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
            let form = match arguments.output {
                GetOutput::Table | GetOutput::Wide => {
                    let word = WatchEvent::of(event).event_type;
                    if let Some(object) = object {
                        match &mut initial {
                            Some(initial) => drop(initial.insert(identity(resource, object), object.clone())),
                            None => columns::push(&mut table, resource, columns, object, now(), &word),
                        }
                    }
                    // The first table is printed once complete so that its columns fit; later changes are
                    // printed row by row.
                    match initial.take_if(|_| word == "BOOKMARK") {
                        Some(first) => {
                            let objects: Vec<Value> = first.into_values().collect();
                            for object in columns::in_order(resource, &objects) {
                                columns::push(&mut table, resource, columns, object, now(), "ADDED");
                            }
                            terminal.print(&table.render(terminal.style))?;
                            let _printed = table.take_rows(terminal.style);
                        }
                        None => {
                            let rows = table.take_rows(terminal.style);
                            terminal.print(&rows)?;
                        }
                    }
                    return Ok(());
                }
                GetOutput::Name => None,
                GetOutput::Json => Some(Document::Json),
                GetOutput::Yaml => Some(Document::Yaml),
            };
            let Some(object) = object else { return Ok(()) };
            match form {
                None => {
                    terminal.print(&format!("{}/{}\n", resource.singular(), identity(resource, object).1))
                }
                Some(Document::Json) => terminal.print(&format!("{event}\n")),
                Some(Document::Yaml) => terminal.print(&format!("---\n{}", document(event, Document::Yaml))),
            }
        })
        .await
}
