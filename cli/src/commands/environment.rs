//! `env`: prints the addresses and ports of Services as environment variables.

use client::Error;
use model::{discovery::environment::Environment, primitives::name::Name};

use super::document;
use crate::{
    args::{
        Document,
        environment::{Env, EnvOutput},
    },
    client::{Client, Request},
    error::{ExitCode, Failure},
    output::Terminal,
    views::typed::decode,
};

pub(crate) async fn run(
    client: &Client,
    arguments: Env,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let Env { services, namespace, no_links, force, watch: _, output } = arguments;
    let names = services.iter().map(Name::as_str).collect::<Vec<_>>().join(",");
    let request = Request::get(format!("/v1/namespaces/{namespace}/env"))
        .query("names", (!names.is_empty()).then_some(names))
        .query("links", no_links.then(|| "false".to_owned()))
        .query("force", force.then(|| "true".to_owned()));
    let answer = client.send(request).await?;
    let environment: Environment = decode(&answer).ok_or_else(|| {
        let found = "a document without variables".to_owned();
        Failure::Control(Error::Unexpected { url: client.url().to_string(), found })
    })?;
    for conflict in &environment.conflicts {
        terminal.note(&format!(
            "{} is defined by {} and {}; the value is that of {}",
            conflict.name, conflict.ignored, conflict.used, conflict.used
        ));
    }
    let known = |name: &Name| environment.variables.iter().any(|variable| variable.service.name == *name);
    for name in services.iter().filter(|name| !known(name)) {
        terminal.note(&format!(
            "Service {namespace}/{name} has no variables: it does not exist, or it has no cluster IP or no port"
        ));
    }
    let text = match output {
        EnvOutput::Dotenv => environment.to_dotenv(),
        EnvOutput::Json => document(&answer, Document::Json),
        EnvOutput::Docker => document(&environment.to_docker().into(), Document::Json),
    };
    terminal.print(&text)?;
    Ok(ExitCode::Success)
}
