//! Import of configurations of other load balancers. Inputs and results are text files next to this test;
//! `UPDATE_GOLDEN=1 cargo test -p translate --test it import::` rewrites the results.

use std::{collections::BTreeSet, fs, path::PathBuf};

use model::admission::decode::{Expect, decode};
use translate::{Fidelity, Format, ImportResult, Source, import};

fn directory(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

fn source(file: &str) -> Source {
    Source { name: file.to_owned(), bytes: fs::read(directory("import").join(file)).unwrap() }
}

fn read(text: &str, from: Option<Format>) -> Result<ImportResult, (usize, String)> {
    import(&[Source { name: "input".to_owned(), bytes: text.as_bytes().to_owned() }], from)
}

fn shown(imported: &ImportResult) -> String {
    let objects: Vec<String> =
        imported.objects.iter().map(|object| serde_saphyr::to_string(object).unwrap()).collect();
    let settings = imported.agent_settings.iter().map(|(setting, value)| format!("--{setting} {value}\n"));
    let settings: String = settings.collect();
    format!(
        "{}\n# Settings of agents\n{settings}\n# Report\n{}",
        objects.join("---\n"),
        imported.report.text()
    )
}

/// Checks that all created objects are valid, and that the result matches the golden files.
fn check(file: &str) -> ImportResult {
    let imported = import(&[source(file)], None).unwrap();
    for object in &imported.objects {
        assert!(decode(object, &Expect::default()).is_ok(), "the server would take {object:#}");
    }
    let (path, actual) = (directory("golden").join(format!("{file}.txt")), shown(&imported));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &actual).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(actual, expected, "{} differs; UPDATE_GOLDEN=1 rewrites it", path.display());
    imported
}

fn count(imported: &ImportResult, kind: &str) -> usize {
    imported.objects.iter().filter(|object| object["kind"] == kind).count()
}

/// Each virtual server in a file with every `ipvsadm` option becomes a Service, except the one with a
/// firewall mark.
#[test]
fn what_ipvsadm_saves_becomes_services_and_every_option_is_accounted_for() {
    let imported = check("ipvsadm.txt");
    assert_eq!((count(&imported, "Service"), count(&imported, "EndpointSet")), (7, 8));
    assert!(imported.report.text().contains("firewall mark 1"), "{}", imported.report.text());
}

/// Every line of an `ipvsadm -S -n` output (1.31) with all kinds of virtual servers is translated, except
/// those with firewall marks.
#[test]
fn a_table_that_a_kernel_had_is_read_as_ipvsadm_saved_it() {
    let imported = check("ipvsadm_saved.txt");
    assert_eq!((count(&imported, "Service"), count(&imported, "EndpointSet")), (8, 7));
    let left_out: Vec<_> =
        imported.report.lines().filter(|(_, _, line)| line.contains("the line is left out")).collect();
    assert!(
        left_out.len() == 3 && left_out.iter().all(|(_, _, line)| line.contains("firewall mark")),
        "{left_out:?}"
    );
}

/// Valid lines written by people or other tools are translated, and each invalid line is reported with its
/// reason.
#[test]
fn lines_of_ipvsadm_that_cannot_be_read_are_named_and_stop_nothing() {
    let imported = check("ipvsadm_odd.txt");
    assert_eq!(count(&imported, "Service"), 1);
    let said: Vec<_> =
        imported.report.lines().filter(|(_, fidelity, _)| *fidelity == Fidelity::Ignored).collect();
    assert!(
        said.iter()
            .any(|(title, _, line)| title.contains("lb.example.com") && line.contains("ipvsadm -S -n"))
    );
}

/// Virtual servers of keepalived become Services with health checks, and the VRRP addresses become pools and
/// advertisements.
#[test]
fn keepalived_s_virtual_servers_and_addresses_become_services_pools_and_advertisements() {
    let imported = check("keepalived.conf");
    assert_eq!((count(&imported, "Service"), count(&imported, "AddressPool")), (6, 3));
    assert!(!imported.report.text().contains("hunter22"), "no secret stands in a report");
}

#[test]
fn a_configuration_that_goes_on_elsewhere_is_refused_with_a_word() {
    for (text, said) in [
        ("global_defs {\n}\ninclude /etc/keepalived/conf.d/*.conf\n", "line 3: `include` is not supported"),
        (
            "$VIP=192.0.2.1\nvirtual_server $VIP 80 {\n}\n",
            "line 1: `$VIP=192.0.2.1`: definitions are not supported",
        ),
        ("virtual_server 192.0.2.1 80 {\n", "the brace of `virtual_server` is not closed"),
        ("virtual_server 192.0.2.1 80\n}\n", "line 2: closing brace without an opening brace"),
        ("virtual_server \"192.0.2.1 80 {\n}\n", "line 1: a quote is not closed"),
    ] {
        let (_, error) = read(text, None).unwrap_err();
        assert!(error.contains(said), "{text}: {error}");
    }
}

/// A kube-proxy configuration with IPVS mode and strict ARP is imported as the agent settings `mode` and
/// `strict-arp`, and no field of it is ignored.
#[test]
fn f130_the_kube_proxy_configuration_of_the_documents_is_read_and_its_settings_are_reported() {
    let imported = check("kube_proxy_seed.yaml");
    let settings: Vec<String> =
        imported.agent_settings.iter().map(|(setting, value)| format!("{setting}={value}")).collect();
    assert_eq!(settings, ["mode=\"ipvs\"", "strict-arp=true"]);
    assert_eq!(imported.report.count(Fidelity::Ignored), 0, "{}", imported.report.text());
}

/// Every field that kubeadm sets in a kube-proxy configuration has a line in the report.
#[test]
fn f130_every_setting_of_kubeadm_s_kube_proxy_is_accounted_for() {
    let imported = check("kube_proxy.yaml");
    assert!(imported.report.text().contains("flavour: not supported"));
}

/// The Services of a dumped cluster are imported with their endpoints. Kinds that run pods are left out with
/// a reason.
#[test]
fn f023_services_and_endpoints_of_kubernetes_are_imported_and_what_runs_pods_is_not() {
    let imported = check("kubernetes.yaml");
    assert_eq!((count(&imported, "Service"), count(&imported, "EndpointSet")), (4, 4));
    let text = imported.report.text();
    assert!(text.contains("Tidegate does not run workloads, so a Deployment cannot be imported"), "{text}");
}

#[test]
fn formats_are_recognised_by_their_content_and_another_can_be_asked_for() {
    let all = ["ipvsadm.txt", "keepalived.conf", "kube_proxy.yaml", "kubernetes.yaml"].map(source);
    let together = import(&all, None).unwrap();
    // One virtual server is in both tables, and its address in one pool.
    assert_eq!(count(&together, "Service"), 7 + 6 - 1 + 4, "{}", together.report.text());
    let pools = together.objects.iter().filter(|object| object["kind"] == "AddressPool");
    let addresses: Vec<_> = pools.flat_map(|pool| pool["spec"]["addresses"].as_array().unwrap()).collect();
    let different: BTreeSet<_> = addresses.iter().map(ToString::to_string).collect();
    assert_eq!(addresses.len(), different.len(), "{addresses:?}");
    assert!(!together.agent_settings.is_empty());
    // A document of a format other than the requested one is skipped.
    let [ipvsadm, _, _, kubernetes] = all;
    let one = import(std::slice::from_ref(&kubernetes), Some(Format::Metallb)).unwrap();
    assert!(
        one.objects.is_empty()
            && one.report.text().contains("format is kubernetes, but metallb was requested")
    );
    assert!(import(&[ipvsadm], Some(Format::Kubernetes)).unwrap().objects.is_empty(), "a text is no object");
    let bare = read("mode: nftables\nnftables: {masqueradeBit: 9}\n", Some(Format::KubeProxy)).unwrap();
    assert_eq!(bare.agent_settings.len(), 2);
}

/// The import of any input, valid or not, yields a report and only valid objects.
#[test]
fn no_bytes_stop_an_import() {
    let mut inputs: Vec<Vec<u8>> = Vec::new();
    for file in ["ipvsadm.txt", "ipvsadm_odd.txt", "keepalived.conf", "kube_proxy.yaml", "kubernetes.yaml"] {
        let bytes = source(file).bytes;
        inputs.extend((0..bytes.len()).step_by(97).map(|end| bytes[..end].to_vec()));
    }
    inputs.extend([
        b"\xff\xfe".to_vec(),
        b"{".repeat(5000),
        b"a {\n".repeat(5000),
        b"-A -t [".to_vec(),
        Vec::new(),
    ]);
    for bytes in inputs {
        for from in [None].into_iter().chain(Format::ALL.map(Some)) {
            if let Ok(imported) = import(&[Source { name: "cut".to_owned(), bytes: bytes.clone() }], from) {
                assert!(imported.objects.iter().all(|object| decode(object, &Expect::default()).is_ok()));
                assert!(!imported.report.text().is_empty());
            }
        }
    }
}

/// Hosts, paths, backends and certificates of Ingresses become Gateways, HttpRoutes and Certificates. Every annotation of
/// ingress-nginx has a line in the report, and a lost restriction takes its Ingress with it.
#[test]
fn ingresses_become_gateways_and_routes() {
    let imported = check("ingress.yaml");
    assert_eq!((count(&imported, "Gateway"), count(&imported, "Certificate")), (4, 1));
    let report = imported.report.text();
    let of_host = |host: &str| {
        let is_host = |object: &&serde_json::Value| object.to_string().contains(host);
        imported.objects.iter().filter(is_host).collect::<Vec<_>>()
    };
    // The paths of an Ingress that is left out are refused, so that no other rule serves them.
    for name in ["forced", "private"] {
        let refused = of_host(&format!("{name}.example.org"));
        let [route] = &refused[..] else { panic!("{refused:?}") };
        let reason = &route["spec"]["rules"][0]["refuse"]["reason"];
        assert_eq!(route["metadata"]["name"], format!("{name}-refused"), "{route}");
        assert!(reason.as_str().unwrap().starts_with("Ingress "), "{route}");
    }
    for annotation in
        ["whitelist-source-range", "auth-type", "invented", "proxy-read-timeout", "canary-weight"]
    {
        assert!(report.contains(annotation), "{annotation}: {report}");
    }
    assert!(!report.contains("PRIVATE KEY"));
}

/// The report on a NetworkPolicy names the program that reads them.
#[test]
fn a_network_policy_is_refused_with_the_program_that_mirrors_it() {
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: [{port: 80}]}\n";
    let policy = "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: deny}\nspec: {podSelector: {}}\n";
    let imported = read(&(service.to_owned() + policy), None).unwrap();
    let report = imported.report.text();
    assert!(report.contains("tidegate-sync kubernetes --network-policies"), "{report}");
}
