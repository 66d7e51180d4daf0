//! Comparison of a request with a running attachment of the same identity, which must not be replaced by another one.

use std::{
    fs::{self, File},
    os::unix::fs::MetadataExt as _,
};

use attach_socket::{AttachProblem, AttachRequest, AttachedWorkload, ProblemCode};

use super::{
    request::{NAMESPACE_DEFAULT, problem, workload_default},
    veth,
};

/// Returns the problem of a request whose identity belongs to a running attachment of another network namespace, Workload or
/// network; `None` if the request repeats the one of the attachment, or the attachment does not run. `netns` is the network
/// namespace of the request.
pub(super) fn conflict(
    attached: &AttachedWorkload,
    request: &AttachRequest,
    netns: &File,
    is_running: bool,
) -> Option<AttachProblem> {
    if !is_running {
        return None;
    }
    let key = &attached.key;
    let namespace = request.namespace.as_deref().unwrap_or(NAMESPACE_DEFAULT);
    let workload = request.workload.clone().unwrap_or_else(|| workload_default(key));
    let holder = format!("Workload {}/{}", attached.namespace, attached.workload);
    let difference = if is_other_namespace(attached, netns) {
        format!("the network namespace {}", attached.netns)
    } else if namespace != attached.namespace || workload != attached.workload {
        holder.clone()
    } else if request.network.as_ref().is_some_and(|network| *network != attached.network) {
        format!("network {}", attached.network)
    } else {
        return None;
    };
    let message = format!(
        "the name {key} is in use: {difference} is attached with it (network namespace {}, {holder}); choose another name, or \
         detach {key} first",
        attached.netns
    );
    Some(problem(ProblemCode::InUse, message))
}

/// Returns true if the network namespace of a request is not the one of a running attachment. A path can name another
/// namespace than before, and a namespace can have several paths.
fn is_other_namespace(attached: &AttachedWorkload, netns: &File) -> bool {
    let identity = |found: fs::Metadata| (found.dev(), found.ino());
    let wanted = netns.metadata().map(identity).ok();
    let present = fs::metadata(&attached.netns).map(identity).ok();
    if wanted.is_some() && wanted == present {
        return false;
    }
    // The path of a process that has ended says nothing about the namespace, which others can hold; the interface does.
    !veth::difference(attached, netns).is_ok_and(|difference| difference.is_none())
}
