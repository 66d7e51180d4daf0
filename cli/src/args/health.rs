//! Arguments of `health`.

use clap::{Args, ValueEnum};
use model::primitives::name::Namespace;

use crate::resource::ServiceName;

/// Arguments of `health`.
#[derive(Debug, Clone, Args)]
pub struct Health {
    /// Name of the Service, or NAMESPACE/NAME
    #[arg(value_name = "SERVICE", value_parser = ServiceName::parse, required_unless_present_any = ["guard", "confirm"])]
    pub service: Option<ServiceName>,
    /// Namespace of the objects
    #[arg(
        short, long, default_value = "default",
        value_parser = Namespace::parse
    )]
    pub namespace: Namespace,
    /// List unhealthy endpoints, of all Services, that stay in service because too many failed at once
    #[arg(long, conflicts_with_all = ["service", "namespace", "confirm"])]
    pub guard: bool,
    /// Confirm the failures listed by --guard and take those endpoints out of service
    #[arg(long, conflicts_with_all = ["service", "namespace"])]
    pub confirm: bool,
    /// Print again on each change, until Ctrl-C
    #[arg(short, long, conflicts_with = "confirm")]
    pub watch: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: HealthOutput,
}

/// Output formats of `health`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum HealthOutput {
    /// One row per endpoint
    #[default]
    Table,
    /// Table with the result of each checking node
    Wide,
    /// Server response as JSON
    Json,
    /// Server response as YAML
    Yaml,
}
