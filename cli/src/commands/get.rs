//! `get`: prints objects as tables or documents, once or continuously with `-w`.

mod follow;
mod print;

use model::primitives::name::{Name, Namespace};

use crate::{
    args::get::Get,
    client::{Client, Request},
    error::{ExitCode, Failure},
    output::Terminal,
    resource::{self, Resource},
};

pub(crate) async fn run(
    client: &Client,
    arguments: Get,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let names = names(&arguments)?;
    check(&arguments, &names)?;
    if arguments.watch {
        return follow::run(client, &arguments, names.first(), terminal).await;
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
        print::print(&arguments, names.is_empty(), answers, terminal)?;
    }
    let Some(last) = missing.pop() else { return Ok(ExitCode::Success) };
    terminal.flush()?;
    for failure in &missing {
        terminal.report(failure);
    }
    Err(last)
}

/// Returns the API path of all objects of a type; `None` selects all namespaces.
pub(crate) fn collection_path(resource: Resource, namespace: Option<&Namespace>) -> String {
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
    if endpoints && arguments.show_labels {
        return Err(Failure::usage("endpoints have no labels", "omit --show-labels"));
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
