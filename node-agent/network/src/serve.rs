//! Socket for attachments: HTTP/1.1 with JSON. The file mode limits it to root.

use std::{
    fs, io,
    os::unix::{
        fs::{FileTypeExt as _, PermissionsExt as _},
        net::UnixStream as StdStream,
    },
    path::Path,
};

use attach_socket::{
    AttachProblem, AttachRequest, AttachedList, AttachedWorkload, AttachmentKey, CollectRequest,
    DetachedCount, NetworkStatus, ProblemCode, REQUEST_BYTES_MAX, StatusQuery,
};
use axum::{
    Json, Router,
    extract::{
        DefaultBodyLimit, Query, State,
        rejection::{JsonRejection, QueryRejection},
    },
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use tokio::net::{UnixListener, UnixSocket};
use tokio_util::sync::CancellationToken;

use crate::run::NetworkHandle;

/// Mode of the socket: access for root only, because an attachment changes any network namespace.
const MODE: u32 = 0o600;
/// Maximum number of connections that wait until they are accepted.
const BACKLOG: u32 = 128;

/// Creates the socket at a path and listens on it. A socket that an earlier process has left there is replaced.
///
/// # Errors
/// Returns an error if another process listens on the socket, if the path is something else, or if the directory is not
/// writable.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the file is not a socket"));
        }
        Ok(_) if StdStream::connect(path).is_ok() => {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens on the socket"));
        }
        Ok(_) => fs::remove_file(path)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    // A client can connect only after `listen`, when the mode is set.
    let socket = UnixSocket::new_stream()?;
    socket.bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(MODE))?;
    socket.listen(BACKLOG)
}

/// Removes the socket that an ended process has left at a path. Returns true if there was one.
///
/// # Errors
/// Returns an error if the file cannot be removed.
pub fn remove(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Answers requests until `stop` is canceled.
///
/// # Errors
/// Returns an error if the socket fails.
pub async fn run(listener: UnixListener, network: NetworkHandle, stop: CancellationToken) -> io::Result<()> {
    let router = Router::new()
        .route("/v1/status", get(status))
        .route("/v1/attachments", get(list).post(attach))
        .route("/v1/attachments/check", post(check))
        .route("/v1/attachments/detach", post(detach))
        .route("/v1/attachments/collect", post(collect))
        .layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
        .with_state(network);
    axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await
}

type Body<T> = Result<Json<T>, JsonRejection>;

async fn status(
    State(network): State<NetworkHandle>,
    query: Result<Query<StatusQuery>, QueryRejection>,
) -> Result<Json<NetworkStatus>, Failure> {
    Ok(Json(network.status(query?.0.network).await?))
}

async fn list(State(network): State<NetworkHandle>) -> Json<AttachedList> {
    Json(network.attachments())
}

async fn attach(
    State(network): State<NetworkHandle>,
    body: Body<AttachRequest>,
) -> Result<Json<AttachedWorkload>, Failure> {
    Ok(Json(network.attach(body?.0).await?))
}

async fn check(
    State(network): State<NetworkHandle>,
    body: Body<AttachmentKey>,
) -> Result<Json<AttachedWorkload>, Failure> {
    Ok(Json(network.check(body?.0).await?))
}

async fn detach(
    State(network): State<NetworkHandle>,
    body: Body<AttachmentKey>,
) -> Result<Json<DetachedCount>, Failure> {
    Ok(Json(network.detach(body?.0).await?))
}

async fn collect(
    State(network): State<NetworkHandle>,
    body: Body<CollectRequest>,
) -> Result<Json<DetachedCount>, Failure> {
    Ok(Json(network.collect(body?.0).await?))
}

impl From<QueryRejection> for Failure {
    fn from(rejection: QueryRejection) -> Self {
        Self(AttachProblem { code: ProblemCode::Invalid, message: rejection.body_text() })
    }
}

/// Answer to a failed request.
struct Failure(AttachProblem);

impl From<AttachProblem> for Failure {
    fn from(problem: AttachProblem) -> Self {
        Self(problem)
    }
}

impl From<JsonRejection> for Failure {
    fn from(rejection: JsonRejection) -> Self {
        Self(AttachProblem { code: ProblemCode::Invalid, message: rejection.body_text() })
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = match self.0.code {
            ProblemCode::Invalid | ProblemCode::NoNamespace => StatusCode::BAD_REQUEST,
            ProblemCode::NotFound => StatusCode::NOT_FOUND,
            ProblemCode::InterfaceExists | ProblemCode::InUse | ProblemCode::Differs => StatusCode::CONFLICT,
            ProblemCode::NotReady | ProblemCode::Exhausted | ProblemCode::Busy => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            ProblemCode::Kernel | ProblemCode::Journal => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, Json(self.0)).into_response()
    }
}
