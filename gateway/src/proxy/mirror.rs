//! Copies of requests for mirrors, whose responses are ignored.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use model::http::BackendEndpoints;
use tokio::{sync::oneshot, time::timeout};

use super::{Proxy, body::RequestBody, forward::Outgoing};

/// Maximum number of copies in progress. Further ones are not sent, so that a slow mirror does not hold bodies in memory.
pub(crate) const COPIES_MAX: usize = 256;

impl Proxy {
    /// Sends a copy of a request to an endpoint of each mirror, as soon as the body has been sent to the backend.
    pub(super) fn mirror(self: &Arc<Self>, outgoing: &Outgoing, mirrors: &[Arc<BackendEndpoints>]) {
        if mirrors.is_empty() {
            return;
        }
        for (endpoints, copy) in mirrors.iter().zip(outgoing.body.copies(mirrors.len())) {
            let Ok(slot) = Arc::clone(&self.copies).try_acquire_owned() else {
                self.metrics.mirrors_failed.inc();
                continue;
            };
            let (proxy, endpoints) = (Arc::clone(self), Arc::clone(endpoints));
            // Without the body of the client, which has the sender of the copy: it must end with its request.
            let outgoing = outgoing.with_body(RequestBody::of_copy(Bytes::new()));
            tokio::spawn(async move {
                let is_answered = proxy.send_copy(&outgoing, &endpoints, copy).await;
                let metrics = &proxy.metrics;
                if is_answered {
                    metrics.mirrors.inc()
                } else {
                    metrics.mirrors_failed.inc()
                };
                drop(slot);
            });
        }
    }

    /// Returns true if an endpoint has answered the copy.
    async fn send_copy(
        &self,
        outgoing: &Outgoing,
        endpoints: &BackendEndpoints,
        copy: oneshot::Receiver<Bytes>,
    ) -> bool {
        let Ok(bytes) = copy.await else { return false };
        let outgoing = outgoing.with_body(RequestBody::of_copy(bytes));
        let Some(endpoint) = self.upstream.choose(endpoints, &[]) else { return false };
        let protocol = endpoints.protocol();
        let Ok(request) = outgoing.request(endpoint.address(), protocol) else { return false };
        let exchange = async {
            let mut body = self.upstream.send(request, protocol, &endpoint).await.ok()?.into_body();
            while let Some(frame) = body.frame().await {
                frame.ok()?;
            }
            Some(())
        };
        timeout(self.options.response_timeout, exchange).await.is_ok_and(|answered| answered.is_some())
    }
}
