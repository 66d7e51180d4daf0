//! Tests of completion: the words that a shell offers, from a server and from the command line alone.

use std::{fs, path::Path, process::Command};

use crate::stub::{JSON, PROBLEM, Stub, command, ended, run, write_answer};

/// Server with two Services in each of two namespaces, a node and an address.
fn server() -> Stub {
    Stub::new(|_, request, stream| {
        let path = request.split(' ').nth(1).unwrap_or_default().split('?').next().unwrap_or_default();
        let items: &[(&str, &str)] = match path {
            "/v1/namespaces/default/services" => &[("default", "web"), ("default", "wiki")],
            "/v1/namespaces/shop/services" => &[("shop", "cart"), ("shop", "web-shop")],
            "/v1/namespaces" => &[("", "default"), ("", "shop")],
            "/v1/nodes" => &[("", "node1")],
            "/v1/addresses" => &[("", "192.0.2.1"), ("", "2001-0db8-0000-0000-0000-0000-0000-0001")],
            _ => &[],
        };
        let object = |(namespace, name): &(&str, &str)| serde_json::json!({ "name": name, "metadata": { "namespace": namespace, "name": name } });
        let items: Vec<_> = items.iter().map(object).collect();
        write_answer(stream, "200 OK", JSON, &serde_json::json!({ "items": items }).to_string());
    })
}

/// Returns the words other than options that are offered for the last word of a command line.
fn offered(url: &str, line: &str) -> Vec<String> {
    let mut words = vec!["--"];
    words.extend(line.split(' '));
    let (code, out, err) = ended(command(url, &words).env("TIDEGATE_COMPLETE", "fish").output().unwrap());
    assert_eq!((code, err.as_str()), (0, ""), "{line}");
    let words = out.lines().map(|line| line.split('\t').next().unwrap_or_default().to_owned());
    words.filter(|word| !word.starts_with("--")).collect()
}

#[test]
fn names_kinds_namespaces_nodes_and_addresses_of_the_server_are_offered() {
    let stub = server();
    let offered = |line: &str| offered(&stub.url, line);
    assert_eq!(offered("tidegate get svc w"), ["web", "wiki"]);
    assert_eq!(offered("tidegate get svc -n shop "), ["cart", "web-shop"]);
    assert_eq!(offered("tidegate describe svc/w"), ["svc/web", "svc/wiki"]);
    assert_eq!(offered("tidegate get svc shop/c"), ["shop/cart"]);
    assert_eq!(offered("tidegate explain wi"), ["wiki"]);
    assert_eq!(offered("tidegate get svc -n s"), ["shop"]);
    assert_eq!(offered("tidegate drain node "), ["node1"]);
    assert_eq!(offered("tidegate get addr 2"), ["2001:db8::1"]);
    assert_eq!(offered("tidegate get endp"), ["endpointhealths", "endpoints", "endpointsets"]);
    assert!(offered("tidegate app").contains(&"apply".to_owned()));
    assert!(offered("tidegate create service w").is_empty(), "the name of a new Service");
}

/// Without a server, and if it refuses the request, nothing is offered and nothing is printed.
#[test]
fn without_an_answer_nothing_is_offered() {
    let refusing =
        Stub::fixed("401 Unauthorized", PROBLEM, r#"{"title":"no","status":401,"code":"Unauthenticated"}"#);
    for url in [refusing.url.as_str(), "http://127.0.0.1:9"] {
        assert!(offered(url, "tidegate get svc w").is_empty(), "{url}");
        assert!(!offered(url, "tidegate get s").is_empty(), "kinds need no server");
    }
}

/// A real bash that sources the script of `completions` completes the name of a Service.
#[test]
fn bash_completes_the_name_of_a_service() {
    let stub = server();
    let (code, script, err) = run(&stub.url, &["completions", "bash"]);
    assert_eq!(code, 0, "{err}");
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("script"), script).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_tidegate"));
    let bash = format!(
        "source '{}/script'; COMP_WORDS=(tidegate get svc wi); COMP_CWORD=3
         \"$(complete -p tidegate | sed 's/.*-F \\([^ ]*\\).*/\\1/')\" tidegate wi svc
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        directory.path().display()
    );
    let path = format!("{}:/usr/bin:/bin", program.parent().unwrap().display());
    let output = Command::new("bash")
        .args(["--norc", "-c", &bash])
        .env_clear()
        .env("PATH", path)
        .env("TIDEGATE_API", &stub.url)
        .output()
        .unwrap();
    let (_, words, err) = ended(output);
    assert_eq!(words.trim(), "wiki", "{err}");
}
