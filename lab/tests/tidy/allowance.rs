//! Test lanes that may fail beside other lanes (`lab/allowance.txt`): every entry names an existing lane, a cause
//! and a day in the near future.

use std::{fs, os::unix::fs::PermissionsExt as _, process::Command};

use super::root;

/// Maximum number of entries.
const ENTRIES_MAX: usize = 3;
/// Maximum number of days from today to the last day of an entry.
const DAYS_MAX: u32 = 31;

/// Returns the date in `days` days as `YYYY-MM-DD`.
fn day(days: u32) -> String {
    let output = Command::new("date").args(["-d", &format!("{days} days"), "+%F"]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Returns the errors of an allowance file. `has_lane` returns true if a lane with this name exists.
fn faults(text: &str, today: &str, last: &str, has_lane: impl Fn(&str) -> bool) -> Vec<String> {
    let mut faults = Vec::new();
    let entries: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    if entries.len() > ENTRIES_MAX {
        faults.push(format!("{} entries, more than {ENTRIES_MAX}", entries.len()));
    }
    for entry in entries {
        let mut words = entry.splitn(3, ' ');
        let (Some(lane), Some(until), Some(cause)) = (words.next(), words.next(), words.next()) else {
            faults.push(format!("not a lane, a day and a cause: {entry:?}"));
            continue;
        };
        if !has_lane(lane) {
            faults.push(format!("{lane} does not exist"));
        }
        let is_day = until.len() == 10 && until.split('-').map(str::len).eq([4, 2, 2]);
        if !is_day || until < today || until > last {
            faults.push(format!("{lane}: {until} is not a day from {today} to {last}"));
        }
        if cause.split_whitespace().count() < 4 {
            faults.push(format!("{lane}: the cause is too short"));
        }
    }
    faults
}

/// Returns true if the sources have the module or test program of a lane, named `crate.module`.
fn has_lane(lane: &str) -> bool {
    let Some((member, module)) = lane.split_once('.') else { return false };
    let tests = root().join(member).join("tests");
    [tests.join("it").join(format!("{module}.rs")), tests.join(format!("{module}.rs"))]
        .iter()
        .any(|it| it.exists())
}

#[test]
fn allowances_of_lanes_that_fail_beside_others_are_few_and_current() {
    let text = fs::read_to_string(root().join("lab/allowance.txt")).unwrap();
    assert_eq!(faults(&text, &day(0), &day(DAYS_MAX), has_lane), Vec::<String>::new());
}

#[test]
fn expired_distant_unknown_and_unexplained_allowances_are_found() {
    let text = "# comment\nlab.clock 2026-01-31 the clock of the machine jumps\n";
    assert_eq!(faults(text, "2026-01-31", "2026-03-03", has_lane), Vec::<String>::new());
    assert_eq!(faults(text, "2026-02-01", "2026-03-03", has_lane).len(), 1, "expired");
    assert_eq!(faults(text, "2025-12-01", "2026-01-01", has_lane).len(), 1, "distant");
    let text = "lab.no_such_module 2026-01-31 the clock of the machine jumps\nlab.clock 2026-01-31 chance\nlab.clock\n";
    assert_eq!(faults(text, "2026-01-31", "2026-03-03", has_lane).len(), 3);
}

#[test]
fn a_lane_is_allowed_until_the_end_of_the_last_day_only() {
    let file = std::env::temp_dir().join(format!("tidegate-allowance-{}", std::process::id()));
    let text = format!(
        "# lane day cause\nlab.expired 2026-01-31 some cause\nlab.clock {} the clock jumps\n",
        day(0)
    );
    fs::write(&file, text).unwrap();
    let ask = |lane: &str| {
        let mut command = Command::new(root().join("lab/allowance.sh"));
        command.arg(lane).env("ALLOWANCE", &file).output().unwrap()
    };
    let allowed = ask("lab.clock");
    assert!(allowed.status.success());
    assert!(String::from_utf8_lossy(&allowed.stdout).starts_with("the clock jumps (until "));
    assert!(!ask("lab.expired").status.success());
    assert!(!ask("lab.cloc").status.success());
    fs::remove_file(file).unwrap();
}

/// Stand-in for `cargo`: there is nothing to build, and no documentation test.
const CARGO: &str = "#!/bin/sh\necho 'test result: ok. 0 passed; 0 failed; 0 ignored'\n";
/// Stand-in for `lab/test-lanes.py`: one lane, which fails when it runs for the first time.
const LANES: &str = "#!/bin/sh
cat >/dev/null
printf '%s\\n' \"$PWD\" 1 ./lane >\"$1/lab.clock.lane\"
echo lab.clock
";
const LANE: &str = "#!/bin/sh
[ -e ran ] && { echo 'test result: ok. 1 passed; 0 failed; 0 ignored'; exit; }
touch ran
printf 'failures:\\n\\ntest result: FAILED. 0 passed; 1 failed; 0 ignored\\n'
exit 101
";

/// `lab/run-tests.sh` runs a failed lane again, alone. If the lane passes then, the run fails nevertheless, unless the
/// lane is allowed.
#[test]
fn a_lane_that_passes_only_alone_fails_the_run_unless_it_is_allowed() {
    for (allowance, is_good) in
        [(String::new(), false), (format!("lab.clock {} the clock jumps\n", day(0)), true)]
    {
        let home = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = home.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        };
        for script in ["lab/run-tests.sh", "lab/allowance.sh"] {
            write(script, &fs::read_to_string(root().join(script)).unwrap());
        }
        write("lab/allowance.txt", &allowance);
        write("lab/test-lanes.py", LANES);
        write("lane", LANE);
        write("bin/cargo", CARGO);
        let path = format!("{}:{}", home.path().join("bin").display(), std::env::var("PATH").unwrap());
        let output = Command::new(home.path().join("lab/run-tests.sh")).env("PATH", path).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("passed only when run again, alone: lab.clock"), "{output:?}");
        assert_eq!(output.status.success(), is_good, "{text}");
    }
}
