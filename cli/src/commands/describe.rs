//! `describe`: everything about one object, with the endpoints that the server computed for it.

use model::resource::Kind;
use serde_json::Value;

use super::{
    get::{object_path, parse_name},
    now,
};
use crate::{
    args::Describe,
    client::{Client, Request},
    describe::{Subject, describe},
    error::{ExitCode, Failure},
    output::Terminal,
    resource::Resource,
};

pub(crate) async fn run(
    client: &Client,
    arguments: Describe,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let [resource] = arguments.target.resources[..] else {
        return Err(Failure::usage("one object is described at a time", "write `describe KIND NAME`"));
    };
    let given: Vec<&String> = arguments.target.name.iter().chain(&arguments.name).collect();
    let [name] = given[..] else {
        let word = resource.singular();
        return Err(Failure::usage(format!("which {word}?"), format!("write `describe {word} NAME`")));
    };
    let name = parse_name(name)?;
    let path = |resource| object_path(resource, &arguments.namespace, &name);
    let object = client.send(Request::get(path(resource))).await?;
    let (endpoints, traffic) = match resource {
        // A Service that is not compiled, such as an ExternalName, has no endpoints; its description goes without.
        Resource::Object(Kind::Service) => (
            unless_missing(client, path(Resource::Endpoints)).await?,
            unless_missing(client, format!("{}/traffic", path(resource))).await?,
        ),
        Resource::Object(
            Kind::EndpointSet
            | Kind::Workload
            | Kind::Node
            | Kind::AddressPool
            | Kind::Advertisement
            | Kind::Address,
        )
        | Resource::Endpoints => (None, None),
    };
    let subject =
        Subject { resource, object: &object, endpoints: endpoints.as_ref(), traffic: traffic.as_ref() };
    terminal.print(&describe(&subject, now(), terminal.style))?;
    Ok(ExitCode::Success)
}

/// The answer, unless there is nothing at the path.
async fn unless_missing(client: &Client, path: String) -> Result<Option<Value>, Failure> {
    match client.send(Request::get(path)).await {
        Ok(answer) => Ok(Some(answer)),
        Err(failure) if failure.problem_code() == Some("NotFound") => Ok(None),
        Err(failure) => Err(failure),
    }
}
