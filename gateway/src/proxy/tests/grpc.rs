//! Calls of gRPC to endpoints with HTTP/2: streams in both directions, trailers, and connections that endpoints close.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use http::{HeaderMap, HeaderValue, Request, Response};
use hyper::{
    body::{Body, Frame, Incoming},
    client::conn::http2::{self, SendRequest},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{sync::mpsc, task::JoinHandle};

use super::*;

/// Body whose parts come from a channel.
struct StreamedBody(mpsc::Receiver<Frame<Bytes>>);

impl Body for StreamedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|frame| frame.map(Ok))
    }
}

/// Answers a call with the parts of its body as they arrive, and with a status in the trailers.
async fn call(request: Request<Incoming>) -> Result<Response<StreamedBody>, Infallible> {
    let (sender, receiver) = mpsc::channel(1);
    let te = request.headers().get("te").cloned();
    let mut body = request.into_body();
    tokio::spawn(async move {
        while let Some(Ok(frame)) = body.frame().await {
            let _ = sender.send(frame).await;
        }
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        trailers.insert("received-te", te.unwrap_or(HeaderValue::from_static("none")));
        let _ = sender.send(Frame::trailers(trailers)).await;
    });
    let mut response = Response::new(StreamedBody(receiver));
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    Ok(response)
}

/// Serves one connection after another with HTTP/2 only.
fn serve_calls(listener: TcpListener, connections: Arc<AtomicUsize>) -> JoinHandle<()> {
    tokio::spawn(async move {
        // A dropped server closes its connections.
        let mut open = tokio::task::JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            connections.fetch_add(1, Ordering::Relaxed);
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            open.spawn(server.serve_connection(TokioIo::new(stream), service_fn(call)));
        }
    })
}

/// Begins a call, and returns the sender of its messages and its response.
async fn begin(client: &mut SendRequest<StreamedBody>) -> (mpsc::Sender<Frame<Bytes>>, Response<Incoming>) {
    let (sender, receiver) = mpsc::channel(1);
    let request = Request::post("http://api.example/pkg.Service/Method").header("te", "trailers");
    let request = request.header("content-type", "application/grpc").body(StreamedBody(receiver)).unwrap();
    (sender, client.send_request(request).await.unwrap())
}

/// Messages pass in both directions while a call goes on, and its status in the trailers reaches the client. All calls share
/// one connection to the endpoint. A call after the end of that connection opens a new one.
#[tokio::test]
async fn calls_of_grpc_pass_with_streams_and_trailers() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let server = serve_calls(listener, Arc::clone(&connections));
    let mut objects = service("web", &[address.port()]);
    let ports = json!([{"name": "web", "port": 80, "appProtocol": "kubernetes.io/h2c"}]);
    objects[0] = object("Service", "web", &json!({"clusterIP": "10.96.0.10", "ports": ports}));
    objects.push(routes(&json!([{"backendRefs": [{"name": "web", "port": 80}]}])));
    let gateway = TestGateway::start(objects).await;
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut client, connection) = handshake.unwrap();
    tokio::spawn(connection);
    for _ in 0..3 {
        let (sender, response) = begin(&mut client).await;
        assert_eq!(
            (response.status().as_u16(), response.headers()["content-type"].as_bytes()),
            (200, &b"application/grpc"[..])
        );
        let mut body = response.into_body();
        for text in ["first", "second"] {
            sender.send(Frame::data(Bytes::from(text))).await.unwrap();
            let frame = body.frame().await.unwrap().unwrap();
            assert_eq!(frame.into_data().unwrap(), text);
        }
        drop(sender);
        let trailers = body.frame().await.unwrap().unwrap().into_trailers().unwrap();
        assert_eq!(
            (&trailers["grpc-status"], &trailers["received-te"]),
            (&HeaderValue::from_static("0"), &HeaderValue::from_static("trailers"))
        );
    }
    assert_eq!(connections.load(Ordering::Relaxed), 1);

    server.abort();
    assert!(server.await.unwrap_err().is_cancelled());
    let server = serve_calls(TcpListener::bind(address).await.unwrap(), Arc::clone(&connections));
    let (sender, response) = begin(&mut client).await;
    drop(sender);
    assert_eq!(response.status().as_u16(), 200);
    let trailers = response.into_body().collect().await.unwrap();
    assert_eq!(trailers.trailers().unwrap()["grpc-status"], "0");
    assert_eq!(connections.load(Ordering::Relaxed), 2);
    server.abort();
}
