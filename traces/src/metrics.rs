//! Export of the metrics that a program offers to Prometheus, as OTLP metrics.
//!
//! The text of `/metrics` is translated, so that both ways have the same names and values. Counters and histograms are
//! cumulative since the start of the program.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use opentelemetry_proto::tonic::{
    collector::metrics::v1::ExportMetricsServiceRequest,
    common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value},
    metrics::v1::{
        AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
        ResourceMetrics, ScopeMetrics, Sum, metric::Data, number_data_point,
    },
    resource::v1::Resource,
};
use prost::Message as _;
use reqwest::Url;
use tokio::time::MissedTickBehavior;

use crate::export::{Counts, Http};

/// Export of metrics at an interval.
#[derive(Debug, Clone)]
pub struct MetricExport {
    pub(crate) http: Http,
    pub(crate) url: Url,
    pub(crate) interval: Duration,
    pub(crate) resource: Resource,
    pub(crate) counts: Arc<Counts>,
}

impl MetricExport {
    /// Sends the metrics at each interval until the future is dropped. `text` returns them in the OpenMetrics text
    /// format.
    pub async fn run(self, text: impl Fn() -> String) {
        let started = nanos_now();
        let mut turn = tokio::time::interval(self.interval);
        turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            turn.tick().await;
            let metrics = translate(&text(), started, nanos_now());
            let request = ExportMetricsServiceRequest {
                resource_metrics: vec![ResourceMetrics {
                    resource: Some(self.resource.clone()),
                    scope_metrics: vec![ScopeMetrics {
                        scope: Some(InstrumentationScope {
                            name: "tidegate".to_owned(),
                            ..InstrumentationScope::default()
                        }),
                        metrics,
                        ..ScopeMetrics::default()
                    }],
                    ..ResourceMetrics::default()
                }],
            };
            self.counts.record(self.http.post(self.url.clone(), request.encode_to_vec()).await);
        }
    }
}

fn nanos_now() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
}

/// Metric family that is being read.
#[derive(Debug, Default)]
struct Family {
    name: String,
    description: String,
    kind: String,
    points: Vec<NumberDataPoint>,
    histograms: Vec<(Vec<KeyValue>, HistogramDataPoint)>,
}

/// Translates metrics in the OpenMetrics text format. `started` and `now` are in nanoseconds since 1970.
fn translate(text: &str, started: u64, now: u64) -> Vec<Metric> {
    let mut metrics = Vec::new();
    let mut family = Family::default();
    for line in text.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (keyword, name, rest) = (words.next(), words.next().unwrap_or_default(), words.next());
            if name != family.name {
                metrics.extend(std::mem::take(&mut family).into_metric());
                name.clone_into(&mut family.name);
            }
            match keyword {
                Some("HELP") => rest.unwrap_or_default().clone_into(&mut family.description),
                Some("TYPE") => rest.unwrap_or_default().clone_into(&mut family.kind),
                _ => {}
            }
        } else if let Some(sample) = sample(line) {
            family.add(sample, (started, now));
        }
    }
    metrics.extend(family.into_metric());
    metrics
}

impl Family {
    fn add(&mut self, sample: Sample<'_>, (started, now): (u64, u64)) {
        let Sample { name, mut labels, value } = sample;
        let limit = labels.iter().position(|(label, _)| label == "le").map(|at| labels.remove(at).1);
        let attributes: Vec<_> = labels.into_iter().map(|(label, value)| attribute(label, value)).collect();
        if self.kind != "histogram" {
            let value = Some(number_data_point::Value::AsDouble(value));
            self.points.push(NumberDataPoint {
                attributes,
                start_time_unix_nano: if self.kind == "counter" { started } else { 0 },
                time_unix_nano: now,
                value,
                ..NumberDataPoint::default()
            });
            return;
        }
        if self.histograms.last().is_none_or(|(of, _)| *of != attributes) {
            let point = HistogramDataPoint {
                attributes: attributes.clone(),
                start_time_unix_nano: started,
                time_unix_nano: now,
                ..HistogramDataPoint::default()
            };
            self.histograms.push((attributes, point));
        }
        let Some((_, point)) = self.histograms.last_mut() else { return };
        match (name.strip_prefix(self.name.as_str()), limit) {
            (Some("_sum"), _) => point.sum = Some(value),
            (Some("_count"), _) => point.count = count(value),
            (Some("_bucket"), Some(limit)) => {
                let before: u64 = point.bucket_counts.iter().sum();
                point.bucket_counts.push(count(value).saturating_sub(before));
                point.explicit_bounds.extend(limit.parse().ok().filter(|limit: &f64| limit.is_finite()));
            }
            (Some(_) | None, _) => {}
        }
    }

    fn into_metric(self) -> Option<Metric> {
        let Self { name, description, kind, points, histograms } = self;
        let aggregation_temporality = AggregationTemporality::Cumulative.into();
        let data = match kind.as_str() {
            "histogram" => {
                let data_points: Vec<_> = histograms.into_iter().map(|(_, point)| point).collect();
                (!data_points.is_empty())
                    .then_some(Data::Histogram(Histogram { data_points, aggregation_temporality }))
            }
            _ if points.is_empty() => None,
            "counter" => {
                Some(Data::Sum(Sum { data_points: points, aggregation_temporality, is_monotonic: true }))
            }
            _ => Some(Data::Gauge(Gauge { data_points: points })),
        };
        Some(Metric { name, description, data: Some(data?), ..Metric::default() })
    }
}

/// Converts a count, which the text has as a number that may have a fraction.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts are whole and not negative"
)]
const fn count(value: f64) -> u64 {
    value as u64
}

fn attribute(key: String, value: String) -> KeyValue {
    let value = Some(AnyValue { value: Some(any_value::Value::StringValue(value)) });
    KeyValue { key, value, ..KeyValue::default() }
}

/// Value of a metric.
struct Sample<'a> {
    /// Name of the family, with the suffix of its type.
    name: &'a str,
    labels: Vec<(String, String)>,
    value: f64,
}

/// Splits a line with a sample into name, labels and value. A time or an exemplar behind the value is ignored.
fn sample(line: &str) -> Option<Sample<'_>> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(list) = rest.strip_prefix('{') {
        rest = list;
        while !rest.starts_with('}') {
            let (label, quoted) = rest.split_once("=\"")?;
            let (value, after) = unquote(quoted)?;
            labels.push((label.to_owned(), value));
            rest = after.strip_prefix(',').unwrap_or(after);
        }
        rest = rest.strip_prefix('}')?;
    }
    let value = rest.trim_start().split(' ').next()?;
    Some(Sample { name, labels, value: value.parse().ok()? })
}

/// Reads the value of a label up to its closing quote. Returns it without escapes, and the text behind the quote.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return Some((value, text.get(at + 1..)?)),
            '\\' => value.push(match chars.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r##"# HELP requests Requests.
# TYPE requests counter
requests_total{route="/v1/\"x\"",method="GET"} 3
requests_total{route="a,b} c",method="PUT"} 4
# HELP watchers Open watches.
# TYPE watchers gauge
watchers 2.5
# HELP took_seconds Time.
# TYPE took_seconds histogram
# UNIT took_seconds seconds
took_seconds_sum{call="a"} 1.5
took_seconds_count{call="a"} 4
took_seconds_bucket{le="0.1",call="a"} 1
took_seconds_bucket{le="1.0",call="a"} 3
took_seconds_bucket{le="+Inf",call="a"} 4
# HELP unused Nothing yet.
# TYPE unused counter
# EOF
"##;

    #[test]
    fn counters_gauges_and_histograms_keep_names_labels_and_values() {
        let metrics = translate(TEXT, 7, 9);
        let names: Vec<_> = metrics.iter().map(|metric| metric.name.as_str()).collect();
        assert_eq!(names, ["requests", "watchers", "took_seconds"]);
        let Some(Data::Sum(sum)) = &metrics[0].data else { panic!("{metrics:?}") };
        assert!(sum.is_monotonic && sum.data_points[0].start_time_unix_nano == 7);
        let labels: Vec<_> = sum.data_points.iter().map(|point| point.attributes[0].clone()).collect();
        let expected = [r#"/v1/"x""#, "a,b} c"].map(|value| attribute("route".to_owned(), value.to_owned()));
        assert_eq!(labels, expected);
        assert_eq!(sum.data_points[1].value, Some(number_data_point::Value::AsDouble(4.0)));
        let Some(Data::Gauge(gauge)) = &metrics[1].data else { panic!("{metrics:?}") };
        assert_eq!(gauge.data_points[0].value, Some(number_data_point::Value::AsDouble(2.5)));
        let Some(Data::Histogram(histogram)) = &metrics[2].data else { panic!("{metrics:?}") };
        let [point] = &histogram.data_points[..] else { panic!("{histogram:?}") };
        assert_eq!((point.count, point.sum, &point.bucket_counts[..]), (4, Some(1.5), &[1, 2, 1][..]));
        assert_eq!(point.explicit_bounds, [0.1, 1.0]);
    }

    #[test]
    fn a_line_that_is_no_sample_is_skipped() {
        for line in ["", "name", "name{a=\"b", "name{a} 1", "name x", "name{a=\"b\\"] {
            assert!(sample(line).is_none(), "{line}");
        }
    }
}
