//! `quickstart --undo`: removes everything that the record of this machine lists, in reverse order.

use std::time::Duration;

use model::kinds::{address::AddressSpec, resource::Kind};

use super::{
    NAME, client,
    host::{self, AGENT, AGENT_SETTINGS, AGENT_STATE, CONTROL, UnitState},
    name,
    record::{self, ContextRecord, QuickstartRecord},
    unmet,
};
use crate::{
    args::{Global, quickstart::Quickstart},
    client::{Client, Request},
    commands::{context, prompt::confirm, wait},
    error::{ExitCode, Failure},
    output::Terminal,
    views::typed::{decode, items},
};

/// Maximum time until the node has withdrawn the addresses of the pool.
const WITHDRAWAL_TIME_MAX: Duration = Duration::from_secs(30);

pub(super) async fn run(
    global: &Global,
    arguments: &Quickstart,
    terminal: &mut Terminal,
) -> Result<ExitCode, Failure> {
    host::check_system()?;
    let mut record = QuickstartRecord::load()?;
    let lines = lines(&record);
    if lines.is_empty() {
        terminal.print("quickstart has set up nothing on this machine: there is nothing to undo\n")?;
        return Ok(ExitCode::Success);
    }
    let client = client(global)?;
    // The state of the cluster is gone with a package that was purged.
    let has_control = match host::unit(CONTROL)? {
        Some(state) if state.is_active => true,
        Some(_) => {
            return Err(unmet(
                format!("{CONTROL} does not run, so its objects cannot be removed"),
                format!("start it, then undo again: `systemctl start {CONTROL}`"),
            ));
        }
        None => false,
    };
    terminal.print("undo will:\n")?;
    for line in &lines {
        terminal.print(&format!("  {line}\n"))?;
    }
    if has_control && record.has_pool {
        let services = services(&client).await?;
        if !services.is_empty() {
            terminal.print(&format!("Services that lose their addresses: {}\n", services.join(", ")))?;
        }
    }
    if arguments.dry_run {
        return Ok(ExitCode::Success);
    }
    confirm(
        "Continue?",
        arguments.yes,
        "add --yes to confirm, or --dry-run to print the steps only",
        terminal,
    )?;
    if has_control {
        remove_objects(&client, &mut record, terminal).await?;
    }
    remove_agent(has_control.then_some(&client), &mut record).await?;
    remove_context(has_control.then_some(&client), &mut record).await?;
    if let Some(values) = &record.forwarding {
        record::restore_forwarding(values)?;
        record.forwarding = None;
        record.save()?;
    }
    if let Some(before) = record.control.filter(|_| has_control) {
        restore_unit(CONTROL, before)?;
    }
    QuickstartRecord::default().save()?;
    terminal.print("everything that quickstart created is removed\n")?;
    Ok(ExitCode::Success)
}

/// Describes the removed things, one line for each entry of the record.
fn lines(record: &QuickstartRecord) -> Vec<String> {
    let QuickstartRecord { control, agent, node, forwarding, context, has_pool } = record;
    let mut lines = Vec::new();
    lines.extend(has_pool.then(|| format!("delete the AddressPool and the Advertisement {NAME}")));
    lines.extend(agent.map(|before| unit_line(AGENT, before)));
    let node = node.as_ref();
    lines.extend(
        node.map(|node| format!("remove the agent's kernel objects and saved state, and the Node {node}")),
    );
    lines.extend(context.as_ref().map(|context| {
        format!("revoke the token {NAME} and delete the context {NAME} in {}", context.directory.display())
    }));
    lines.extend(forwarding.as_ref().map(|[value, _]| {
        format!("delete {} and set net.ipv4.ip_forward to {value}", record::FORWARDING_FILE)
    }));
    lines.extend(control.map(|before| unit_line(CONTROL, before)));
    lines
}

fn unit_line(unit: &str, before: UnitState) -> String {
    let verbs = [(!before.is_active, "stop"), (!before.is_enabled, "disable")];
    let verbs: Vec<&str> =
        verbs.iter().filter_map(|(is_changed, verb)| is_changed.then_some(*verb)).collect();
    format!("{} {unit}.service", verbs.join(" and "))
}

/// Returns the Services that have addresses of the pool.
async fn services(client: &Client) -> Result<Vec<String>, Failure> {
    let path = format!("/v1/{}", Kind::Address.plural());
    let addresses = client.list(|| Request::get(&path)).await?.envelope;
    let addresses =
        items(&addresses, "/items").iter().filter_map(|address| decode::<AddressSpec>(address.get("spec")?));
    let ours = addresses.filter(|spec| spec.pool.as_ref().is_some_and(|pool| pool.as_str() == NAME));
    let mut services: Vec<String> =
        ours.flat_map(|spec| spec.services).map(|service| service.to_string()).collect();
    services.sort();
    services.dedup();
    Ok(services)
}

async fn remove_objects(
    client: &Client,
    record: &mut QuickstartRecord,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    if !record.has_pool {
        return Ok(());
    }
    for (kind, evict) in [(Kind::Advertisement, None), (Kind::AddressPool, Some("true"))] {
        let request = Request::delete(format!("/v1/{}/{NAME}", kind.plural()));
        let request = request.query("evict", evict).query("confirm", Some("true"));
        existing(client.send(request.message(Some("tidegate quickstart --undo".to_owned()))).await)?;
    }
    match wait::for_all_nodes(client, WITHDRAWAL_TIME_MAX, terminal).await {
        Ok(()) | Err(Failure::NotReached { .. }) => {}
        Err(failure) => return Err(failure),
    }
    record.has_pool = false;
    record.save()
}

async fn remove_agent(client: Option<&Client>, record: &mut QuickstartRecord) -> Result<(), Failure> {
    let Some(before) = record.agent else { return Ok(()) };
    let is_installed = host::unit(AGENT)?.is_some();
    if is_installed {
        restore_unit(AGENT, before)?;
    }
    if let Some(node) = &record.node {
        if is_installed && !before.is_active {
            let arguments = ["--config", AGENT_SETTINGS, "--state-dir", AGENT_STATE, "cleanup"];
            host::output_of(AGENT, &arguments)?;
        }
        if let Some(client) = client {
            let request = Request::delete(format!("/v1/nodes/{node}")).query("confirm", Some("true"));
            existing(client.send(request).await)?;
        }
    }
    (record.agent, record.node) = (None, None);
    record.save()
}

async fn remove_context(client: Option<&Client>, record: &mut QuickstartRecord) -> Result<(), Failure> {
    let Some(own) = &record.context else { return Ok(()) };
    if let Some(client) = client {
        revoke(client, own).await?;
    }
    context::remove(&own.directory, &name()?, own.previous.as_ref())?;
    record.context = None;
    record.save()
}

/// Revokes the token of a context, unless it is revoked already.
pub(super) async fn revoke(client: &Client, context: &ContextRecord) -> Result<(), Failure> {
    existing(client.send(Request::delete(format!("/v1/tokens/{}", context.token_id))).await)
}

/// Stops and disables a unit that was not active or enabled before.
pub(super) fn restore_unit(name: &str, before: UnitState) -> Result<(), Failure> {
    if !before.is_enabled {
        host::output_of("systemctl", &["disable", name])?;
    }
    if !before.is_active {
        host::output_of("systemctl", &["stop", name])?;
    }
    Ok(())
}

/// Ignores that a deleted object does not exist.
fn existing<T>(outcome: Result<T, Failure>) -> Result<(), Failure> {
    match outcome {
        Ok(_) => Ok(()),
        Err(failure) if failure.problem_code() == Some("NotFound") => Ok(()),
        Err(failure) => Err(failure),
    }
}

#[cfg(test)]
mod tests {
    use model::primitives::name::Name;

    use super::*;

    #[test]
    fn undo_lists_what_the_record_has_and_nothing_else() {
        assert!(lines(&QuickstartRecord::default()).is_empty());
        let record = QuickstartRecord {
            agent: Some(UnitState { is_active: false, is_enabled: true }),
            control: Some(UnitState { is_active: false, is_enabled: false }),
            node: Name::parse("a").ok(),
            has_pool: true,
            ..QuickstartRecord::default()
        };
        assert_eq!(
            lines(&record),
            [
                "delete the AddressPool and the Advertisement quickstart",
                "stop tidegate-agent.service",
                "remove the agent's kernel objects and saved state, and the Node a",
                "stop and disable tidegate-api.service",
            ]
        );
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<QuickstartRecord>(&text).unwrap(), record);
    }
}
