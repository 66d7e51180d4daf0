//! `health`: shows the health check results of a Service's endpoints. `--guard` lists the unhealthy endpoints
//! that stay in service because too many failed at once, and `--confirm` takes them out of service.

use model::{kinds::resource::Kind, observed::service_health::HealthGuard};

use super::{document, get::object_path, now};
use crate::{
    args::{
        Document,
        health::{Health, HealthOutput},
    },
    client::{Client, Request},
    error::{ExitCode, Failure},
    output::Terminal,
    resource::Resource,
    views::{health, typed::decode_or_default},
};

/// API path of the guard that keeps unhealthy endpoints in service if too many fail at once.
const GUARD: &str = "/v1/guards/health";

pub(crate) async fn run(
    client: &Client,
    arguments: Health,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let Some(service) = arguments.service else {
        return guard(client, arguments.confirm, arguments.output, terminal).await;
    };
    let resource = Resource::Object(Kind::Service);
    let (namespace, name) = service.or_in(arguments.namespace);
    let path = format!("{}/health", object_path(resource, &namespace, &name));
    let answer = client.send(Request::get(path)).await?;
    let table = match arguments.output {
        HealthOutput::Table => health::endpoints(&answer, now(), terminal.style),
        HealthOutput::Wide => health::endpoints_wide(&answer, now(), terminal.style),
        HealthOutput::Json => Some(document(&answer, Document::Json)),
        HealthOutput::Yaml => Some(document(&answer, Document::Yaml)),
    };
    let Some(text) = table else {
        terminal.note("no health checks: the Service has no spec.healthCheck, or no endpoints");
        return Ok(ExitCode::Success);
    };
    if let Some(panic) = health::panic(&answer) {
        terminal.note(&panic);
    }
    terminal.print(&text)?;
    Ok(ExitCode::Success)
}

async fn guard(
    client: &Client,
    is_confirmed: bool,
    output: HealthOutput,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    let request = if is_confirmed { Request::post(format!("{GUARD}/confirm")) } else { Request::get(GUARD) };
    let answer = client.send(request).await?;
    let text = match output {
        HealthOutput::Table | HealthOutput::Wide => health::held(&answer, now(), terminal.style),
        HealthOutput::Json => Some(document(&answer, Document::Json)),
        HealthOutput::Yaml => Some(document(&answer, Document::Yaml)),
    };
    let HealthGuard { held_total: held, .. } = decode_or_default(Some(&answer));
    match (held, is_confirmed) {
        (0, _) => terminal.note("no unhealthy endpoint is kept in service"),
        (_, true) => terminal.note(&format!("{held} unhealthy endpoints are taken out of service")),
        (_, false) => terminal.note(&format!(
            "{held} unhealthy endpoints are kept in service because too many failed at once; `tidegate \
             health --confirm` takes them out of service"
        )),
    }
    terminal.print(&text.unwrap_or_default())?;
    Ok(ExitCode::Success)
}
