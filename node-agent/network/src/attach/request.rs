//! Checks of requests, and the problems with which they are answered.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
};

use attach_socket::{AttachProblem, AttachRequest, AttachmentKey, ProblemCode};
use model::{
    kinds::metadata::{LABELS_MAX, check_key, check_value},
    primitives::name::{Label, Name},
};
use nix::{
    errno::Errno,
    fcntl::OFlag,
    sys::statfs::{NSFS_MAGIC, fstatfs},
};
use tracing::warn;

/// Namespace of a Workload whose request names none.
pub(super) const NAMESPACE_DEFAULT: &str = "default";

/// Returns the name of a Workload whose request names none.
pub(super) fn workload_default(key: &AttachmentKey) -> String {
    key.container_id.to_ascii_lowercase()
}

/// Checks the fields of a request.
pub(super) fn check(request: &AttachRequest) -> Result<(), AttachProblem> {
    let invalid = |message: String| problem(ProblemCode::Invalid, message);
    if let Some(fault) = request.key.fault() {
        return Err(invalid(fault.to_owned()));
    }
    for (field, text) in [("network", &request.network), ("workload", &request.workload)] {
        if let Some(Err(error)) = text.as_deref().map(Name::parse) {
            return Err(invalid(format!("`{field}` is not a name: {error}")));
        }
    }
    if let Some(Err(error)) = request.namespace.as_deref().map(Label::parse) {
        return Err(invalid(format!("`namespace` is not a name: {error}")));
    }
    let id = workload_default(&request.key);
    if request.workload.is_none() && Name::parse(&id).is_err() {
        return Err(invalid("the container ID is not a name of a Workload; set `workload`".to_owned()));
    }
    if !request.netns.starts_with('/') {
        return Err(invalid("`netns` must be an absolute path".to_owned()));
    }
    Ok(())
}

/// Opens a network namespace. Without `O_NONBLOCK`, a FIFO would stop the thread until another process writes to it.
pub(super) fn open_netns(path: &str) -> Result<File, AttachProblem> {
    let file = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path);
    let file = file.map_err(|error| {
        let message = format!("the network namespace `{path}` cannot be opened: {error}");
        problem(ProblemCode::NoNamespace, message)
    })?;
    let is_namespace = fstatfs(&file).is_ok_and(|found| found.filesystem_type() == NSFS_MAGIC);
    if is_namespace {
        return Ok(file);
    }
    let message = format!("`{path}` is not a network namespace; use /run/netns/NAME or /proc/PID/ns/net");
    Err(problem(ProblemCode::NoNamespace, message))
}

/// Returns the labels that a Workload can have. One that the control server would reject must not take the others with it.
pub(super) fn usable_labels(labels: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let is_usable = |key: &String, value: &String| match check_key(key).and_then(|()| check_value(value)) {
        Ok(()) => true,
        Err(reason) => {
            warn!(key, value, reason, "ignored a label of a workload");
            false
        }
    };
    labels.into_iter().filter(|(key, value)| is_usable(key, value)).take(LABELS_MAX).collect()
}

/// Returns the problem of a change that the kernel rejected.
pub(super) fn rejected(error: &io::Error) -> AttachProblem {
    let hint = match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EINVAL) => "; the path may not be a network namespace",
        Some(Errno::EPERM | Errno::EACCES) => "; the agent needs CAP_SYS_ADMIN to enter network namespaces",
        Some(_) | None => "",
    };
    problem(ProblemCode::Kernel, format!("the kernel rejected a change: {error}{hint}"))
}

/// Creates a problem.
pub(super) const fn problem(code: ProblemCode, message: String) -> AttachProblem {
    AttachProblem { code, message }
}
