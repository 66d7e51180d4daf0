//! Arguments of `get`.

use clap::{
    Arg, Args, Command,
    builder::{PossibleValue, TypedValueParser},
    error::ErrorKind,
};
use model::{kinds::selector::LabelSelector, primitives::name::Namespace};

use crate::{
    jsonpath::{Path, Template, split_outside_quotes},
    resource::Target,
};

/// Arguments of `get`.
#[derive(Debug, Args)]
pub struct Get {
    /// Kind (see below), several kinds separated by commas, `all`, or KIND/NAME for one object
    #[arg(value_name = "KIND")]
    pub target: Target,
    /// Names of the objects; all objects of the kind if omitted
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Namespace of the objects
    #[arg(
        short, long, default_value = "default",
        value_parser = Namespace::parse
    )]
    pub namespace: Namespace,
    /// List objects of all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// Label selector; requirements are key=value, key!=value, key in (a,b), key notin (a,b), key and !key,
    /// separated by commas
    #[arg(short = 'l', long)]
    pub selector: Option<LabelSelector>,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "table", value_parser = GetOutputParser)]
    pub output: GetOutput,
    /// Sort a listing by the first value at this JSONPath, such as .metadata.creationTimestamp
    #[arg(long, value_name = "PATH")]
    pub sort_by: Option<Path>,
    /// Omit the headings of tables
    #[arg(long)]
    pub no_headers: bool,
    /// Add a column with the labels of the objects
    #[arg(long)]
    pub show_labels: bool,
    /// After listing, keep printing changes as they happen; with -o json one event per line
    #[arg(short, long, conflicts_with = "sort_by")]
    pub watch: bool,
}

/// Output formats of `get`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GetOutput {
    /// Table with one row per object.
    Table,
    /// Table with additional columns.
    Wide,
    /// Server response as JSON.
    Json,
    /// Server response as YAML.
    Yaml,
    /// One kind/name per line.
    Name,
    /// Text of a JSONPath template.
    JsonPath(Template),
    /// Table with the values at JSONPaths.
    CustomColumns(Vec<CustomColumn>),
}

/// Column of `-o custom-columns=`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CustomColumn {
    /// Heading of the column.
    pub title: String,
    /// Path to the values of an object; several values are separated by commas.
    pub path: Path,
}

/// Formats with their descriptions. The last two are followed by a template.
const FORMATS: [(&str, &str); 7] = [
    ("table", "Table with one row per object"),
    ("wide", "Table with additional columns"),
    ("json", "Server response as JSON"),
    ("yaml", "Server response as YAML"),
    ("name", "One kind/name per line"),
    ("jsonpath=TEMPLATE", "Values of the response, as in jsonpath='{.items[*].metadata.name}'"),
    (
        "custom-columns=TITLE:PATH,…",
        "Table with the values at JSONPaths, as in custom-columns=IP:.spec.clusterIP",
    ),
];

impl GetOutput {
    /// Parses the value of `--output`.
    ///
    /// # Errors
    /// Returns a message if the format is unknown or its template is malformed.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (format, template) = text.split_once('=').map_or((text, None), |(a, b)| (a, Some(b)));
        match (format, template) {
            ("table", None) => Ok(Self::Table),
            ("wide", None) => Ok(Self::Wide),
            ("json", None) => Ok(Self::Json),
            ("yaml", None) => Ok(Self::Yaml),
            ("name", None) => Ok(Self::Name),
            ("jsonpath", Some(template)) => template.parse().map(Self::JsonPath),
            ("custom-columns", Some(columns)) => custom_columns(columns).map(Self::CustomColumns),
            ("jsonpath", None) => Err("write jsonpath='{.items[*].metadata.name}'".to_owned()),
            ("custom-columns", None) => Err("write custom-columns=NAME:.metadata.name".to_owned()),
            ("go-template" | "template", _) => {
                Err("Go templates are not supported; use jsonpath=TEMPLATE or json".to_owned())
            }
            (_, _) => {
                Err("must be table, wide, json, yaml, name, jsonpath=TEMPLATE or custom-columns=TITLE:PATH,…"
                    .to_owned())
            }
        }
    }
}

fn custom_columns(text: &str) -> Result<Vec<CustomColumn>, String> {
    let column = |text: &str| {
        let (title, path) = text.split_once(':').ok_or_else(|| format!("`{text}` must be TITLE:PATH"))?;
        if title.is_empty() {
            return Err(format!("`{text}` must be TITLE:PATH"));
        }
        Ok(CustomColumn { title: title.to_owned(), path: path.parse()? })
    };
    split_outside_quotes(text, ',').into_iter().map(column).collect()
}

/// Parser of `--output` that lists the formats in the help.
#[derive(Debug, Clone)]
struct GetOutputParser;

impl TypedValueParser for GetOutputParser {
    type Value = GetOutput;

    fn parse_ref(
        &self,
        command: &Command,
        _argument: Option<&Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<GetOutput, clap::Error> {
        let text = value.to_string_lossy();
        GetOutput::parse(&text).map_err(|error| {
            let message = format!("invalid value '{text}' for '--output <FORMAT>': {error}");
            command.clone().error(ErrorKind::ValueValidation, message)
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(FORMATS.iter().map(|(name, help)| PossibleValue::new(*name).help(*help))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_may_have_a_template() {
        assert_eq!(GetOutput::parse("wide"), Ok(GetOutput::Wide));
        assert!(matches!(GetOutput::parse("jsonpath={.items[?(@.a==\"=\")].b}"), Ok(GetOutput::JsonPath(_))));
        let columns = GetOutput::parse("custom-columns=NAME:.metadata.name,P:.spec.ports[0,1].port");
        let Ok(GetOutput::CustomColumns(columns)) = columns else { panic!("{columns:?}") };
        assert_eq!(columns.iter().map(|column| column.title.as_str()).collect::<Vec<_>>(), ["NAME", "P"]);
        for bad in [
            "",
            "xml",
            "table=1",
            "jsonpath",
            "jsonpath={.a",
            "custom-columns=A",
            "custom-columns=:.a",
            "go-template={{.}}",
        ] {
            assert!(GetOutput::parse(bad).is_err(), "{bad}");
        }
    }
}
