//! Transmission to the collector: a bounded queue of spans, batches, and counts of failures.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use base::chain;
use bytes::Bytes;
use opentelemetry::Context;
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_proto::{
    tonic::resource::v1 as proto, transform::common::tonic::ResourceAttributesWithSchema,
};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    trace::{
        BatchConfigBuilder, BatchSpanProcessor, SdkTracerProvider, Span, SpanData, SpanExporter,
        SpanProcessor,
    },
};
use reqwest::{Client, redirect};
use rustls::{ClientConfig, RootCertStore};
use tls_trust::Trust;
use tokio::runtime::Handle;

use crate::{
    metrics::MetricExport,
    setting::{Setting, SettingError},
    span::Tracer,
};

/// Maximum number of finished spans that wait for the collector, about a kilobyte each. Further spans are dropped.
const QUEUE_MAX: usize = 2048;
/// Maximum size of a response of the collector in bytes. Successful responses are nearly empty.
const RESPONSE_BYTES_MAX: usize = 64 * 1024;

/// Counts of the export since the start of the program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Number of spans that the collector accepted.
    pub spans_sent: u64,
    /// Number of spans that were lost: the queue was full, or the collector failed.
    pub spans_lost: u64,
    /// Number of failed requests with spans or metrics.
    pub failures: u64,
}

/// Counters of the export, shared with its threads.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    sent: AtomicU64,
    lost: AtomicU64,
    failures: AtomicU64,
    waiting: AtomicUsize,
    has_failed: AtomicBool,
}

impl Counts {
    /// Returns the counts up to now.
    #[must_use]
    pub(crate) fn totals(&self) -> Totals {
        Totals {
            spans_sent: self.sent.load(Ordering::Relaxed),
            spans_lost: self.lost.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
        }
    }

    /// Records the outcome of a request. Logs the first failure, and the first success after a failure.
    pub(crate) fn record(&self, outcome: Result<(), String>) {
        match outcome {
            Ok(()) => {
                if self.has_failed.swap(false, Ordering::Relaxed) {
                    tracing::info!("the OpenTelemetry collector accepts data again");
                }
            }
            Err(error) => {
                self.failures.fetch_add(1, Ordering::Relaxed);
                if !self.has_failed.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        error,
                        "the OpenTelemetry collector does not accept data; it is lost until it does"
                    );
                }
            }
        }
    }
}

/// Recorder of spans and export of metrics. The default exports nothing.
#[derive(Debug, Clone, Default)]
pub struct Telemetry {
    /// Recorder of spans.
    pub tracer: Tracer,
    /// Export of metrics; `None` exports none.
    pub metrics: Option<MetricExport>,
}

/// Export that runs until it is ended.
pub struct Export {
    provider: Option<SdkTracerProvider>,
    http: Http,
    setting: Setting,
    resource: Resource,
    counts: Arc<Counts>,
}

impl fmt::Debug for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Export").field("setting", &self.setting).finish_non_exhaustive()
    }
}

impl Export {
    /// Starts the export of a program as the environment variables say. Returns `None` if they enable none.
    ///
    /// # Errors
    /// Returns an error if a variable is invalid or the CA file cannot be used.
    pub fn from_environment(program: (&'static str, &'static str)) -> Result<Option<Self>, SettingError> {
        // Variables that are not Unicode are none of OpenTelemetry.
        let variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        let setting = Setting::from_variables(variables)?;
        setting.map(|setting| Self::start(setting, program)).transpose()
    }

    /// Starts the export of a program inside a tokio runtime, whose threads send the requests.
    ///
    /// # Errors
    /// Returns an error if the CA file cannot be used.
    pub fn start(
        setting: Setting,
        (service, version): (&'static str, &'static str),
    ) -> Result<Self, SettingError> {
        let http = Http { client: http_client(&setting)?, runtime: Handle::current() };
        let counts = Arc::<Counts>::default();
        let resource = Resource::builder_empty()
            .with_attribute(opentelemetry::KeyValue::new("service.version", version))
            // Attributes of `OTEL_RESOURCE_ATTRIBUTES`.
            .with_detector(Box::new(opentelemetry_sdk::resource::EnvResourceDetector::new()))
            .with_service_name(setting.service_name.clone().unwrap_or_else(|| service.to_owned()))
            .build();
        let provider = match &setting.traces_url {
            Some(url) => Some(provider(url.as_str(), &http, &setting, &counts, &resource)?),
            None => None,
        };
        Ok(Self { provider, http, setting, resource, counts })
    }

    /// Returns the parts of the export that other parts of the program use.
    #[must_use]
    pub fn telemetry(&self) -> Telemetry {
        Telemetry { tracer: self.tracer(), metrics: self.metrics() }
    }

    /// Returns the recorder of spans. It counts the losses of this export also if no spans are exported.
    #[must_use]
    pub fn tracer(&self) -> Tracer {
        Tracer::new(self.provider.as_ref(), Arc::clone(&self.counts))
    }

    fn metrics(&self) -> Option<MetricExport> {
        let url = self.setting.metrics_url.clone()?;
        let resource = ResourceAttributesWithSchema::from(&self.resource).attributes;
        Some(MetricExport {
            http: self.http.clone(),
            url,
            interval: self.setting.metric_interval,
            resource: proto::Resource { attributes: resource.0, ..proto::Resource::default() },
            counts: Arc::clone(&self.counts),
        })
    }

    /// Sends the remaining spans, for at most `patience`, and ends the export of traces.
    pub async fn end(self, patience: Duration) {
        let Some(provider) = self.provider else { return };
        // The call blocks until the requests, which need the threads of the runtime, are answered.
        let flush = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(patience));
        let _lost_spans_are_counted = flush.await;
    }
}

fn provider(
    url: &str,
    http: &Http,
    setting: &Setting,
    counts: &Arc<Counts>,
    resource: &Resource,
) -> Result<SdkTracerProvider, SettingError> {
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_http_client(http.clone())
        .with_endpoint(url)
        .with_timeout(setting.timeout)
        .build()
        .map_err(|error| SettingError::new("OTEL_EXPORTER_OTLP_ENDPOINT", chain(&error)))?;
    let exporter = CountingExporter { inner: exporter, counts: Arc::clone(counts) };
    // The bound is enforced in front of this queue, which therefore never drops a span.
    let config = BatchConfigBuilder::default().with_max_queue_size(QUEUE_MAX).build();
    let batches = BatchSpanProcessor::builder(exporter).with_batch_config(config).build();
    let bounded = BoundedProcessor { inner: batches, counts: Arc::clone(counts) };
    Ok(SdkTracerProvider::builder().with_resource(resource.clone()).with_span_processor(bounded).build())
}

fn http_client(setting: &Setting) -> Result<Client, SettingError> {
    const CERTIFICATE: &str = "OTEL_EXPORTER_OTLP_CERTIFICATE";
    let has_tls =
        [&setting.traces_url, &setting.metrics_url].into_iter().flatten().any(|url| url.scheme() == "https");
    let trust = match &setting.ca_file {
        Some(path) => Trust::file(path).map_err(|error| SettingError::new(CERTIFICATE, chain(&error)))?,
        None if has_tls => Trust::system(),
        None => Trust::Roots(RootCertStore::empty()),
    };
    let tls = trust.client().map_err(|error| SettingError::new(CERTIFICATE, chain(&error)))?;
    let tls: ClientConfig = tls.with_no_client_auth();
    let client = Client::builder()
        .tls_backend_preconfigured(tls)
        .no_proxy()
        .redirect(redirect::Policy::none())
        .timeout(setting.timeout)
        .default_headers(setting.headers.clone())
        .user_agent("tidegate")
        .build();
    client.map_err(|error| SettingError::new(CERTIFICATE, chain(&error)))
}

/// HTTP client whose requests run on a tokio runtime, called from a thread without one.
#[derive(Debug, Clone)]
pub(crate) struct Http {
    client: Client,
    runtime: Handle,
}

impl Http {
    /// Posts a message in the encoding of protobuf.
    pub(crate) async fn post(&self, url: reqwest::Url, body: Vec<u8>) -> Result<(), String> {
        let request = self.client.post(url).header("content-type", "application/x-protobuf").body(body);
        let response = request.send().await.map_err(|error| chain(&error.without_url()))?;
        let status = response.status();
        if status.is_success() { Ok(()) } else { Err(format!("the collector answered {status}")) }
    }
}

#[async_trait]
impl HttpClient for Http {
    async fn send_bytes(&self, request: http::Request<Bytes>) -> Result<http::Response<Bytes>, HttpError> {
        let client = self.client.clone();
        let exchange = async move {
            let mut response = client.execute(request.try_into()?).await?;
            let (status, headers) = (response.status(), response.headers().clone());
            let mut body = Vec::new();
            while let Some(chunk) = response.chunk().await?
                && body.len() + chunk.len() <= RESPONSE_BYTES_MAX
            {
                body.extend_from_slice(&chunk);
            }
            let mut answer = http::Response::new(Bytes::from(body));
            (*answer.status_mut(), *answer.headers_mut()) = (status, headers);
            Ok::<_, HttpError>(answer)
        };
        self.runtime.spawn(exchange).await?
    }
}

/// Exporter that counts and logs the outcomes of the inner one.
#[derive(Debug)]
struct CountingExporter<E> {
    inner: E,
    counts: Arc<Counts>,
}

impl<E: SpanExporter> SpanExporter for CountingExporter<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let size = batch.len();
        let outcome = self.inner.export(batch).await;
        self.counts.waiting.fetch_sub(size, Ordering::Relaxed);
        let count = if outcome.is_ok() { &self.counts.sent } else { &self.counts.lost };
        count.fetch_add(size as u64, Ordering::Relaxed);
        self.counts.record(match &outcome {
            Ok(()) => Ok(()),
            Err(error) => Err(chain(error)),
        });
        outcome
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

/// Processor that drops and counts spans while [`QUEUE_MAX`] of them wait.
#[derive(Debug)]
struct BoundedProcessor {
    inner: BatchSpanProcessor,
    counts: Arc<Counts>,
}

impl SpanProcessor for BoundedProcessor {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.inner.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        if self.counts.waiting.fetch_add(1, Ordering::Relaxed) >= QUEUE_MAX {
            self.counts.waiting.fetch_sub(1, Ordering::Relaxed);
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.inner.on_end(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::{SpanKind, setting::Setting};

    fn start(address: std::net::SocketAddr) -> Export {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT".to_owned(), format!("http://{address}"));
        let timeout = ("OTEL_EXPORTER_OTLP_TIMEOUT".to_owned(), "300".to_owned());
        let setting = Setting::from_variables([endpoint, timeout]).unwrap().unwrap();
        Export::start(setting, ("test", "0")).unwrap()
    }

    #[tokio::test]
    async fn a_collector_that_does_not_answer_delays_nobody_and_costs_a_bounded_number_of_spans() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let export = start(silent.local_addr().unwrap());
        let tracer = export.tracer();
        let started = Instant::now();
        for _ in 0..QUEUE_MAX + 10 {
            drop(tracer.start("work", SpanKind::Internal, None));
        }
        assert!(started.elapsed() < Duration::from_millis(300), "no span waited for the collector");
        assert_eq!(tracer.totals().spans_lost, 10, "the queue is full");
        export.end(Duration::from_secs(3)).await;
        let Totals { spans_sent, spans_lost, failures } = tracer.totals();
        assert!(spans_sent == 0 && spans_lost > 10 && failures > 0, "{:?}", tracer.totals());
    }

    #[tokio::test]
    async fn a_child_continues_the_trace_of_its_parent_and_an_unsampled_trace_records_nothing() {
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let export = start(closed);
        let tracer = export.tracer();
        let parent: crate::TraceParent =
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".parse().unwrap();
        let child = tracer.start("work", SpanKind::Server, Some(parent)).context().unwrap();
        assert_eq!((child.trace_id, child.is_sampled), (parent.trace_id, true));
        assert_ne!(child.span_id, parent.span_id);
        let unsampled = crate::TraceParent { is_sampled: false, ..parent };
        assert_eq!(tracer.start("work", SpanKind::Server, Some(unsampled)).context(), None);
        assert_eq!(Tracer::default().start("work", SpanKind::Server, Some(parent)).context(), None);
        export.end(Duration::from_secs(3)).await;
        assert_eq!(tracer.totals(), Totals { spans_sent: 0, spans_lost: 1, failures: 1 });
    }
}
