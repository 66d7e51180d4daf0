//! Commands `tidegate-agent attach` and `tidegate-agent detach`: clients of the socket of the agent on this machine.

use std::{collections::BTreeMap, path::Path};

use anyhow::{Context as _, bail};
use attach_socket::{AttachRequest, AttachedWorkload, AttachmentKey, client::AttachClient};

use super::SOCKET_FILE;
use crate::config::options::{AttachArgs, DetachArgs};

/// Manager of the attachments of these commands, so that no container runtime removes them.
const MANAGER: &str = "command";

/// Attaches a network namespace, and returns the lines that describe the attachment.
///
/// # Errors
/// Returns an error if an argument is invalid, the agent cannot be reached, or it rejects the request.
pub async fn attach(state_dir: &Path, arguments: AttachArgs) -> anyhow::Result<String> {
    let AttachArgs { name, netns, pid, interface, network, namespace, label } = arguments;
    let netns = match (netns, pid) {
        (Some(netns), _) if netns.contains('/') => netns,
        (Some(netns), _) => format!("/run/netns/{netns}"),
        (None, Some(pid)) => format!("/proc/{pid}/ns/net"),
        (None, None) => bail!("set --netns or --pid"),
    };
    let request = AttachRequest {
        key: AttachmentKey { container_id: name.clone(), interface },
        netns,
        network,
        namespace,
        workload: Some(name),
        labels: labels(&label)?,
        manager: MANAGER.to_owned(),
    };
    Ok(shown(&client(state_dir).attach(&request).await?))
}

/// Removes an attachment, and returns the line that says so.
///
/// # Errors
/// Returns an error if the agent cannot be reached or rejects the request.
pub async fn detach(state_dir: &Path, arguments: DetachArgs) -> anyhow::Result<String> {
    let DetachArgs { name, interface } = arguments;
    let key = AttachmentKey { container_id: name, interface };
    let detached = client(state_dir).detach(&key).await?;
    let text = if detached.removed > 0 { "detached" } else { "not attached:" };
    Ok(format!("{text} {key}"))
}

fn client(state_dir: &Path) -> AttachClient {
    AttachClient::new(state_dir.join(SOCKET_FILE))
}

fn labels(texts: &[String]) -> anyhow::Result<BTreeMap<String, String>> {
    let pair = |text: &String| {
        let (key, value) =
            text.split_once('=').with_context(|| format!("--workload-label `{text}` must be KEY=VALUE"))?;
        Ok((key.to_owned(), value.to_owned()))
    };
    texts.iter().map(pair).collect()
}

fn shown(attached: &AttachedWorkload) -> String {
    let addresses: Vec<_> = attached.addresses.iter().map(ToString::to_string).collect();
    let recorded = attached.refusal.as_ref().map_or_else(String::new, |refusal| {
        let (reason, message) = (&refusal.reason, &refusal.message);
        format!("\nThe control server does not record the attachment: {reason}, {message}")
    });
    format!(
        "attached {} to network {}: {} (interface {} on this machine, MTU {}){recorded}",
        attached.key,
        attached.network,
        addresses.join(", "),
        attached.host_interface,
        attached.mtu
    )
}
