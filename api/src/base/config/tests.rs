//! Tests of the flags and of the settings that follow from them.

use clap::CommandFactory as _;

use super::*;

fn merge(flags: &[&str], file: &str) -> anyhow::Result<Config> {
    let path = tempfile::NamedTempFile::new()?;
    std::fs::write(path.path(), file)?;
    let own = ["tidegate-api", "--config", path.path().to_str().unwrap()];
    let words = own.iter().chain(flags).map(std::ffi::OsString::from);
    Ok(Config::load(settings::parse(words, settings::Rules::default())?)?)
}

#[test]
fn every_setting_of_the_example_file_is_one() {
    let example = include_str!("../../../../packaging/etc/tidegate/api.toml");
    assert_eq!(merge(&[], example).unwrap().store, STORE_DEFAULT);
    let file = tempfile::NamedTempFile::new().unwrap();
    let settings = example.lines().filter_map(|line| line.strip_prefix('#'));
    for line in settings.filter(|line| line.starts_with(char::is_alphabetic)) {
        std::fs::write(file.path(), line).unwrap();
        let file = settings::SettingsFile::read(file.path()).unwrap();
        let applied = file.apply(Flags::command(), None, settings::Rules::default());
        applied.unwrap_or_else(|error| panic!("{line}: {error}"));
    }
}

#[test]
fn flags_win_over_the_file_and_the_file_over_defaults() {
    let config = merge(&["--listen", "127.0.0.1:1"], "listen = '127.0.0.1:2'\nstore = 'memory:'").unwrap();
    assert_eq!((config.listen.port(), config.store.as_str()), (1, "memory:"));
    assert_eq!(config.settings.cluster.node_port_range(), &(30000..=32767));
    assert_eq!(config.settings.cluster.asn(), 64_512);
    assert_eq!(merge(&["--asn", "4200000001"], "asn = 65001").unwrap().settings.cluster.asn(), 4_200_000_001);
    assert_eq!(merge(&[], "asn = 65001").unwrap().settings.cluster.asn(), 65_001);
    assert!(merge(&["--asn", "23456"], "").unwrap_err().to_string().contains("--asn"));
}

#[test]
fn workload_ranges_replace_the_private_ones() {
    let ranges = |flags: &[&str], file: &str| merge(flags, file).unwrap().settings.cluster;
    assert_eq!(ranges(&[], "").workload_ranges(), WORKLOAD_RANGES_DEFAULT);
    let own = ranges(&["--workload-range", "10.4.0.0/16,fd00:4::/32"], "workload-range = ['10.0.0.0/8']");
    let own: Vec<_> = own.workload_ranges().iter().map(ToString::to_string).collect();
    assert_eq!(own, ["10.4.0.0/16", "fd00:4::/32"]);
    let refusal = merge(&["--workload-range", "10.4.0.1/16"], "").unwrap_err().to_string();
    assert!(refusal.contains("--workload-range") && refusal.contains("use 10.4.0.0/16"), "{refusal}");
}

#[test]
fn guards_are_on_unless_they_are_set_to_a_hundred() {
    let guards = |flags: &[&str], file: &str| merge(flags, file).unwrap().settings.cluster.guards();
    assert_eq!(guards(&[], ""), Guards { vips_percent: 50, endpoints_percent: 33 });
    let off = guards(&["--guard-vips-percent", "100"], "guard-endpoints-percent = 100");
    assert_eq!(off, Guards::OFF);
    assert!(merge(&[], "guard-vips-percent = 101").is_err());
    assert!(Flags::try_parse_from(["tidegate-api", "--guard-vips-percent", "101"]).is_err());
}

#[test]
fn a_node_is_lost_after_the_time_that_is_set_or_never() {
    let lost_after = |flags: &[&str], file: &str| {
        merge(flags, file).map(|config| config.settings.node_lost_after.lease_secs())
    };
    assert_eq!(lost_after(&[], "").unwrap(), Some(40));
    assert_eq!(lost_after(&["--node-lost-after", "never"], "node-lost-after = 60").unwrap(), None);
    assert_eq!(lost_after(&[], "node-lost-after = 60").unwrap(), Some(60));
    assert_eq!(lost_after(&[], "node-lost-after = 'never'").unwrap(), None);
    for bad in ["9", "86401", "Never", "40s", ""] {
        assert!(lost_after(&["--node-lost-after", bad], "").is_err(), "{bad}");
    }
}

#[test]
fn endpoints_that_nobody_checks_are_checked_by_default_unless_the_setting_is_none() {
    let is_on = |flags: &[&str], file: &str| {
        merge(flags, file).map(|config| config.settings.cluster.default_checks().is_on())
    };
    assert!(is_on(&[], "").unwrap());
    assert!(!is_on(&["--default-health-check", "none"], "").unwrap());
    assert!(!is_on(&[], "default-health-check = 'none'").unwrap());
    assert!(is_on(&["--default-health-check", "http"], "").is_err());
}

#[test]
fn a_control_server_has_a_name_that_can_be_shown() {
    let name = |flags: &[&str], file: &str| merge(flags, file).map(|config| config.settings.replica_name);
    assert_eq!(name(&["--replica-name", "a"], "replica-name = 'b'").unwrap(), "a");
    assert_eq!(name(&[], "replica-name = 'b'").unwrap(), "b");
    assert!(!name(&[], "").unwrap().is_empty());
    for bad in ["", "a b", "ä", &"x".repeat(REPLICA_NAME_LENGTH_MAX + 1)] {
        let refusal = name(&["--replica-name", bad], "").unwrap_err();
        assert!(refusal.to_string().contains("--replica-name"), "{refusal}");
    }
}

#[test]
fn off_loopback_plain_text_needs_the_word_insecure() {
    let refusal = merge(&["--listen", "0.0.0.0:7440", "--tls", "off"], "").unwrap_err();
    assert!(refusal.to_string().contains("--insecure"), "{refusal}");
    assert!(merge(&["--listen", "0.0.0.0:7440", "--insecure"], "").unwrap().settings.is_insecure);
    assert!(merge(&["--listen", "[::1]:7440"], "").is_ok());
}

#[test]
fn who_asks_is_asked_for_when_somebody_says_so_and_a_first_token_lies_beside_the_database() {
    let config = |flags: &[&str]| merge(flags, "").unwrap();
    assert!(!config(&[]).settings.is_auth_required);
    let asked = config(&["--auth", "required", "--store", "sqlite:/var/lib/x/db"]);
    assert!(asked.settings.is_auth_required);
    assert_eq!(asked.bootstrap_token_file, Path::new("/var/lib/x/bootstrap-token"));
    assert_eq!(config(&["--store", "memory:"]).bootstrap_token_file, Path::new("bootstrap-token"));
    let named = config(&["--listen", "0.0.0.0:1", "--insecure", "--allowed-host", "tide.example"]);
    assert!(named.settings.hosts.allow("tide.example") && !named.settings.hosts.allow("evil.example"));
}

#[test]
fn the_view_for_kubectl_is_off_unless_a_flag_or_the_file_says_so() {
    let has_view = |flags: &[&str], file: &str| merge(flags, file).unwrap().settings.has_kubernetes_view;
    assert!(!has_view(&[], ""));
    assert!(has_view(&["--kubernetes-view"], "") && has_view(&[], "kubernetes-view = true"));
}

#[test]
fn unknown_settings_in_the_file_are_refused() {
    let refusal = merge(&[], "lisen = 'x'").unwrap_err().to_string();
    assert!(refusal.contains("unknown setting `lisen` of `tidegate-api`"), "{refusal}");
}
