//! Tests of the templates and paths that `kubectl` documents.

use serde_json::{Value, json};

use super::{Path, Template, order, rendered, values};

fn document() -> Value {
    json!({ "kind": "List", "items": [
        { "metadata": { "name": "a", "labels": { "example.org/tier": "web" } },
          "spec": { "ports": [{ "port": 80 }, { "port": 443 }] },
          "status": { "conditions": [{ "type": "Ready", "status": "True" }, { "type": "Announced", "status": "False" }] } },
        { "metadata": { "name": "b" }, "spec": { "ports": [{ "port": 53 }] } },
    ] })
}

#[test]
fn templates_of_kubectl_yield_what_kubectl_prints() {
    for (template, expected) in [
        ("{.items[*].metadata.name}", "a b"),
        (".items[*].metadata.name", "a b"),
        ("{$.items[0].metadata.name}", "a"),
        ("{.items[-1].metadata['name']}", "b"),
        ("{.items[0].spec.ports[0:1].port}", "80"),
        ("{.items[0].spec.ports[:].port}", "80 443"),
        ("{.items[0].spec.ports[5].port}", ""),
        ("{..port}", "80 443 53"),
        ("{.items[*]['metadata.name', 'kind']}", ""),
        ("{.items[0].metadata['name','labels']}", r#"a {"example.org/tier":"web"}"#),
        (r"{.items[0].metadata.labels.example\.org/tier}", "web"),
        (r#"{.items[0].status.conditions[?(@.type=="Ready")].status}"#, "True"),
        ("{.items[?(@.metadata.name!='a')].metadata.name}", "b"),
        ("{.items[*].spec.ports[?(@.port>=80)].port}", "80 443"),
        ("{.items[?(@.status)].metadata.name}", "a"),
        (r#"{range .items[*]}{.metadata.name}{"\t"}{.spec.ports[*].port}{"\n"}{end}"#, "a\t80 443\nb\t53\n"),
        ("kind={.kind};", "kind=List;"),
        ("{.nosuch.field}", ""),
        ("{range .items[*]}{range .spec.ports[*]}<{.port}>{end}{end}", "<80><443><53>"),
    ] {
        let parsed: Template = template.parse().unwrap_or_else(|error| panic!("{template}: {error}"));
        assert_eq!(rendered(&parsed, &document()).as_deref(), Ok(expected), "{template}");
    }
}

#[test]
fn malformed_templates_are_errors() {
    for bad in [
        "",
        "{",
        "{}",
        "{.a",
        "{.a[}",
        "{.a[x]}",
        "{range .a}",
        "{end}",
        "{.a[?(@.b==c)]}",
        "{.a b[}",
        "{..}",
        "{.a(}",
        "{range .a}{range .a}{range .a}{range .a}{range .a}{end}{end}{end}{end}{end}",
    ] {
        assert!(bad.parse::<Template>().is_err(), "{bad}");
    }
    assert!(".a".repeat(3000).parse::<Path>().is_err(), "a long path");
}

/// A path cannot use more memory than its limit allows, whatever the document.
#[test]
fn a_path_with_too_many_values_is_an_error() {
    let wide = Value::from(vec![Value::from(vec![1; 1100]); 1000]);
    let path: Path = "$..*".parse().unwrap();
    assert!(values(&path, &wide).is_err());
    let path: Path = "..*".parse().unwrap();
    assert!(values(&path, &json!([1, [2]])).is_ok());
}

#[test]
fn values_are_ordered_as_people_order_them() {
    let sorted = [
        json!(null),
        json!(2),
        json!(10),
        json!("10.0.0.2"),
        json!("10.0.0.10"),
        json!("a2"),
        json!("a10"),
        json!("b"),
    ];
    for (at, value) in sorted.iter().enumerate().skip(1) {
        for (before, other) in sorted.iter().enumerate().skip(1) {
            assert_eq!(order(Some(value), Some(other)), at.cmp(&before), "{value} {other}");
        }
        assert!(order(None, Some(value)).is_lt());
    }
}
