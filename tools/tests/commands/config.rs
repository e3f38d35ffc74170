//! `scr config` as users type it: what counts and where it comes from, a parameter explained, and the installation's locks.

use std::process::Output;

use crate::installation::Installation;

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The value of a parameter and where it comes from, by the table.
fn value_and_origin(table: &str, name: &str) -> (String, String) {
    let line = table.lines().find(|line| line.split_whitespace().next() == Some(name));
    let mut words = line.unwrap_or_else(|| panic!("no {name} in\n{table}")).split_whitespace().skip(1);
    let mut next = || words.next().unwrap_or_default().to_owned();
    (next(), next())
}

#[test]
fn each_value_is_shown_with_the_source_that_it_comes_from() {
    let scr = Installation::with_system_file("SCR_CACHE_SIZE=3\nSCR_FLUSH=3\nSCR_DEBUG=1\nSCR_SET_SIZE=3\n");
    let user = scr.write("prefix/.scrconf", "# ours\nSCR_CACHE_SIZE=5\nSCR_FLUSH=5\n");
    scr.write("prefix/.scr/app.conf", "SCR_CACHE_SIZE=6\nSCR_DEBUG=2\n");
    let shown = scr.in_prefix(&["config"]).env("SCR_FLUSH", "7").output().unwrap();
    let table = text(&shown);
    let of = |name| value_and_origin(&table, name);
    let pair = |value: &str, origin: &str| (value.to_owned(), origin.to_owned());
    assert_eq!(of("SCR_FLUSH"), pair("7", "environment"));
    assert_eq!(of("SCR_CACHE_SIZE"), pair("5", &format!("{}:2", user.display())));
    assert_eq!(of("SCR_DEBUG"), pair("2", "SCR_Config"));
    assert_eq!(of("SCR_SET_SIZE"), pair("3", &format!("{}:4", scr.system_file().display())));
    assert_eq!(of("SCR_HALT_SECONDS"), pair("0", "default"));
    assert_eq!(shown.status.code(), Some(0));
}

/// They came by kinds: line 11 before line 2. Only `--check' sorted them.
#[test]
fn mistakes_are_shown_in_the_order_of_the_lines() {
    let scr = Installation::with_system_file("");
    let file = "CKPT=0 GROUP=NOPE\nSCR_FLSH=1\nSCR_HALT_SECONDS=1 hour\nSTORE=/ssd COUNT=x\nSCR_FLUSH=ten\n\
                SCR_COPY_TYPE=FILE\nCKPT=0 SET_SIZE=no\n";
    let place = scr.write("prefix/.scrconf", file).display().to_string() + ":";
    for arguments in [&["config", "--set"][..], &["config"]] {
        let shown = text(&scr.in_prefix(arguments).output().unwrap());
        let places = shown
            .lines()
            .filter_map(|line| line.strip_prefix("scr: ")?.strip_prefix(&place)?.split(':').next());
        let mut places: Vec<u32> = places.map(|line| line.parse().unwrap()).collect();
        assert!(places.is_sorted(), "{shown}");
        places.dedup();
        assert!([1, 2, 3, 4, 5, 7].iter().all(|line| places.contains(line)), "{shown}");
    }
}

#[test]
fn the_descriptors_that_come_of_it_are_shown_as_lines_and_as_json() {
    let scr = Installation::with_system_file(
        "SCR_COPY_TYPE=FILE\nSCR_CACHE_BYPASS=0\nGROUPS=host1 POWER=psu1\nSTORE=/ssd COUNT=3\n\
         CKPT=0 INTERVAL=1 TYPE=XOR SET_SIZE=16\nCKPT=1 INTERVAL=4 STORE=/ssd TYPE=PARTNER REPLICAS=2 GROUP=POWER\n",
    );
    let shown = text(&scr.in_prefix(&["config"]).output().unwrap());
    for line in [
        "GROUPS=host1 POWER=psu1",
        "STORE=/ssd COUNT=3 ENABLED=1 EVICT=auto FLUSH=SYNC GROUP=NODE MKDIR=1 VIEW=PRIVATE",
        "CKPT=1 BYPASS=0 GROUP=POWER INTERVAL=4 OUTPUT=0 REPLICAS=2 SET_FAILURES=2 SET_SIZE=8 STORE=/ssd TYPE=PARTNER",
    ] {
        assert!(shown.lines().any(|shown| shown == line), "no {line} in\n{shown}");
    }
    let json = scr.in_prefix(&["config", "--json"]).env("SCR_NODE_NAME", "host1").output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["descriptors"]["checkpoints"]["1"]["TYPE"], "PARTNER");
    assert_eq!(json["descriptors"]["stores"]["/ssd"]["COUNT"], "3");
    assert_eq!(json["problems"], serde_json::json!([]));
    let row = json["parameters"].as_array().unwrap().iter().find(|row| row["name"] == "SCR_CACHE_BYPASS");
    assert_eq!(row.unwrap()["from"]["source"], "system file");
    assert_eq!(row.unwrap()["from"]["line"], 2);
}

#[test]
fn a_configuration_that_no_job_starts_with_is_shown_all_the_same() {
    let scr = Installation::with_system_file("SCR_GROUP=POWER\nSCR_LOG_DB_PASS=secret\n");
    let shown = scr.in_prefix(&["config", "--json"]).output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert!(json["descriptors"].is_null());
    assert_eq!(json["problems"][0]["stops"], true);
    assert!(!text(&shown).contains("secret"));
}

#[test]
fn a_parameter_is_explained_by_its_name_in_any_form() {
    let scr = Installation::with_system_file("SCR_LOCKED=SCR_FLUSH\nSCR_FLUSH=3\n");
    for name in ["SCR_FLUSH", "flush"] {
        let explained = scr.in_prefix(&["config", "--explain", name]).env("SCR_FLUSH", "4").output().unwrap();
        let shown = text(&explained);
        let words = [
            "Flush every Nth",
            "a whole number",
            "default  10",
            "value    3",
            "scr.conf:2",
            "locked   for users",
        ];
        for word in words.iter().chain(&["SCR_FLUSH is set by the site and cannot be changed"]) {
            assert!(shown.contains(word), "no `{word}' in\n{shown}");
        }
        assert_eq!(explained.status.code(), Some(0));
    }
    let unknown = scr.in_prefix(&["config", "--explain", "SCR_FLSH"]).output().unwrap();
    assert!(text(&unknown).contains("did you mean SCR_FLUSH?"));
    assert_eq!(unknown.status.code(), Some(1));
}

#[test]
fn setting_a_locked_parameter_names_the_file_that_locks_it() {
    let scr = Installation::with_system_file("SCR_LOCKED=SCR_CACHE_BASE,STORE\nSCR_CACHE_BASE=/ssd\n");
    let file = scr.write("my.conf", "SCR_CACHE_BASE=/home/me\nSTORE=/home/me COUNT=3\n");
    let checked = scr.in_prefix(&["config", "--check"]).arg(&file).output().unwrap();
    for (line, name) in [(1, "SCR_CACHE_BASE"), (2, "STORE")] {
        let by = scr.system_file();
        let message = format!(
            "{}:{line}: {name} is set by the site and cannot be changed (locked by {}:1)",
            file.display(),
            by.display()
        );
        assert!(text(&checked).contains(&message), "no `{message}' in\n{}", text(&checked));
    }
    let shown = text(&scr.in_prefix(&["config"]).env("SCR_CACHE_BASE", "/home/me").output().unwrap());
    assert_eq!(value_and_origin(&shown, "SCR_CACHE_BASE").0, "/ssd");
    assert!(shown.contains("environment: SCR_CACHE_BASE is set by the site"), "{shown}");
}

/// Schemes, transports and intervals were looked at only once all groups and stores were described.
#[test]
fn a_group_that_is_not_described_hides_no_other_mistake() {
    let scr = Installation::with_system_file("");
    let file = scr.write(
        "prefix/my.conf",
        "SCR_COPY_TYPE=FILE\nSCR_FLUSH_TYPE=SNYC\nSTORE=/a GROUP=RACK\n\
         CKPT=0 INTERVAL=2 STORE=/b TYPE=XRO GROUP=PSU BYPASS=0\n",
    );
    let checked = scr.in_prefix(&["config", "--check"]).arg(&file).output().unwrap();
    for (line, message) in [
        (2, "SCR_FLUSH_TYPE: there is no transport plugin named SNYC; did you mean SYNC?"),
        (3, "STORE=/a GROUP names the group RACK, which is not defined"),
        (4, "CKPT=0 names the store /b, which is not described"),
        (4, "CKPT=0 GROUP names the group PSU, which is not defined"),
        (4, "CKPT=0: there is no scheme plugin named XRO; did you mean XOR?"),
        (4, "no CKPT descriptor in use has INTERVAL=1"),
    ] {
        let message = format!("{}:{line}: {message}", file.display());
        assert!(text(&checked).contains(&message), "no `{message}' in\n{}", text(&checked));
    }
    assert!(text(&checked).ends_with(": 6 problems\n"), "{}", text(&checked));
    // The group of a line of the site that names none is the user's mistake, who was told that nothing is wrong.
    let scr = Installation::with_system_file("SCR_COPY_TYPE=FILE\nCKPT=0 TYPE=XOR\nCKPT=1 INTERVAL=4\n");
    let file = scr.write("prefix/my.conf", "SCR_CACHE_BYPASS=0\nSCR_GROUP=RAK\n");
    let checked = scr.in_prefix(&["config", "--check"]).arg(&file).output().unwrap();
    let found = format!("{}:2: SCR_GROUP names the group RAK, which is not defined", file.display());
    assert!(text(&checked).starts_with(&found), "{}", text(&checked));
    assert!(text(&checked).ends_with(": 1 problem\n"), "{}", text(&checked));
}

/// "Nothing is wrong" was taken for an answer about the environment.
#[test]
fn a_check_of_a_file_says_that_the_environment_is_not_read() {
    let scr = Installation::with_system_file("");
    scr.write("prefix/good.conf", "SCR_CACHE_BYPASS=1\n");
    for (is_set, name) in [(true, "SCR_COPY_TYPE"), (false, "OTHER")] {
        let checked =
            scr.in_prefix(&["config", "--check", "good.conf"]).env(name, "NOSUCH").output().unwrap();
        assert_eq!(checked.status.code(), Some(0));
        assert_eq!(text(&checked).contains("SCR_COPY_TYPE of the environment"), is_set, "{}", text(&checked));
    }
}

#[test]
fn a_system_file_may_lock_and_is_checked_as_one() {
    let scr = Installation::with_system_file("SCR_FLSH=1\n");
    let file = scr.write("new.conf", "SCR_LOCKED=SCR_FLUSH\nSCR_FLUSH=3\n");
    let checked = scr.in_prefix(&["config", "--system", "--check"]).arg(&file).output().unwrap();
    assert_eq!(
        (text(&checked), checked.status.code()),
        (format!("{}: nothing is wrong\n", file.display()), Some(0))
    );
    // Problems of the system file itself are not reported for a user's file.
    let file = scr.write("my.conf", "SCR_CACHE_BYPASS=1\nSCR_FLUSH=3\n");
    let checked =
        scr.in_prefix(&["config", "--check"]).arg(&file).env("SCR_CACHE_SIZE", "x").output().unwrap();
    assert!(text(&checked).starts_with(&format!("{}: nothing is wrong\n", file.display())));
}

#[test]
fn plugins_in_the_folder_that_the_environment_names_are_known_to_a_check() {
    let scr = Installation::with_system_file("");
    let plugin = scr.write("plugins/mine.toml", scr_test_plugins::manifest("MINE", "scheme", "mine.so"));
    std::fs::copy(scr_test_plugins::built("obedient"), scr.path("plugins/mine.so")).expect("a copy");
    let file = scr.write("prefix/my.conf", "SCR_CACHE_BYPASS=0\nSCR_COPY_TYPE=MINE\n");
    let check = || {
        let mut command = scr.in_prefix(&["config", "--check"]);
        command.arg(&file);
        command
    };
    assert!(text(&check().output().unwrap()).contains("no scheme plugin named MINE"));
    let checked = check().env("SCR_PLUGIN_PATH", plugin.parent().unwrap()).output().unwrap();
    assert_eq!(text(&checked), format!("{}: nothing is wrong\n", file.display()));
}

#[test]
fn the_guides_example_of_three_checkpoints_has_nothing_wrong() {
    let scr = Installation::with_system_file("");
    let file = scr.write(
        "three.conf",
        "SCR_COPY_TYPE=FILE\nSCR_CACHE_BYPASS=0\nGROUPS=host1 POWER=psu1 SWITCH=0\nGROUPS=host2 POWER=psu1 SWITCH=1\n\
         STORE=/dev/shm GROUP=NODE COUNT=1\nSTORE=/ssd GROUP=NODE COUNT=3\n\
         CKPT=0 INTERVAL=1 GROUP=NODE STORE=/dev/shm TYPE=XOR SET_SIZE=16\n\
         CKPT=1 INTERVAL=4 GROUP=NODE STORE=/ssd TYPE=RS SET_SIZE=8 SET_FAILURES=3 OUTPUT=1\n\
         CKPT=2 INTERVAL=8 GROUP=SWITCH STORE=/ssd TYPE=PARTNER BYPASS=1\n",
    );
    let mut check = scr.in_prefix(&["config", "--check"]);
    let checked = check.env("SCR_NODE_NAME", "host1").arg(&file).output().unwrap();
    assert_eq!(
        (text(&checked), checked.status.code()),
        (format!("{}: nothing is wrong\n", file.display()), Some(0))
    );
    // The name of the node was read, and a warning denied that.
    assert_eq!(String::from_utf8_lossy(&checked.stderr), "");
}

#[test]
fn a_message_says_that_a_job_creates_a_missing_prefix_directory() {
    let scr = Installation::with_system_file("");
    let shown = scr.in_prefix(&["config", "--set", "--prefix", "nope"]).output().unwrap();
    let folder = scr.path("prefix/nope");
    let expected = format!("there is no folder {}; a job that starts", folder.display());
    assert!(text(&shown).contains(&expected) && !folder.exists(), "{}", text(&shown));
    let there = scr.in_prefix(&["config", "--set"]).output().unwrap();
    assert!(!text(&there).contains("there is no folder"), "{}", text(&there));
}

#[test]
fn settings_that_are_valid_and_not_what_somebody_wants_are_found() {
    let scr = Installation::with_system_file("");
    for (settings, expected) in [
        ("SCR_LOG_DB_PASS=secret", "SCR_LOG_DB_PASS: others can read the password in "),
        ("SCR_END_TIME=3600", "SCR_END_TIME=3600 has passed: give the end of the allocation in seconds since"),
        ("SCR_COPY_TYPE=RS", "SCR_COPY_TYPE: it has no effect while SCR_CACHE_BYPASS is not 0"),
        ("SCR_CACHE_SIZE=2", "SCR_CACHE_SIZE: it has no effect while SCR_CACHE_BYPASS is not 0"),
        (
            "SCR_NODELIST=n[1-2]\nSCR_GROUP=POWER\nGROUPS=m1 POWER=psu1",
            "SCR_NODELIST: n[1-2] has no POWER, a group in use: SCR_Init fails there; add GROUPS=n[1-2] POWER=value",
        ),
        (
            "SCR_NODELIST=m[1-2]\nSCR_GROUP=POWER\nGROUPS=m1 POWER=psu1",
            "SCR_NODELIST: m2 has no POWER, a group in use: SCR_Init fails there; add GROUPS=m2 POWER=value",
        ),
    ] {
        let file = scr.write("my.conf", settings);
        let checked = scr.in_prefix(&["config", "--system", "--check"]).arg(&file).output().unwrap();
        assert_eq!(checked.status.code(), Some(1), "{}", text(&checked));
        assert!(text(&checked).contains(expected), "{}", text(&checked));
        assert!(!text(&checked).contains("secret"), "{}", text(&checked));
    }
    for settings in [
        "SCR_COPY_TYPE=RS\nSCR_CACHE_SIZE=2\nSCR_CACHE_BYPASS=0",
        "SCR_NODELIST=m[1-2]\nSCR_GROUP=POWER\nGROUPS=m[1-2] POWER=psu1",
        &format!("SCR_CACHE_BASE={}", scr.path("").display()),
    ] {
        let file = scr.write("my.conf", settings);
        let checked = scr.in_prefix(&["config", "--system", "--check"]).arg(&file).output().unwrap();
        assert!(text(&checked).ends_with("nothing is wrong\n"), "{}", text(&checked));
    }
    // A job makes it, and the nodes may have it. It may run on other nodes.
    for (settings, expected) in [
        (format!("SCR_CACHE_BASE={}", scr.path("nowhere").display()), "SCR_CACHE_BASE: there is no folder "),
        ("SCR_GROUP=POWER\nGROUPS=m1 POWER=psu1".to_owned(), "has no POWER, a group in use: SCR_Init fails"),
    ] {
        let file = scr.write("my.conf", settings);
        let checked = scr.in_prefix(&["config", "--system", "--check"]).arg(&file).output().unwrap();
        let said = text(&checked);
        assert!(checked.status.success() && said.contains(expected), "{said}");
        assert!(said.ends_with("nothing is wrong\n"), "{said}");
    }
    let file = scr.write("my.conf", "SCR_LOG_DB_PASS=secret");
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let checked = scr.in_prefix(&["config", "--system", "--check"]).arg(&file).output().unwrap();
    assert!(!text(&checked).contains("others can read"), "{}", text(&checked));
}

/// The later ones were shown only once the first was fixed.
#[test]
fn a_check_shows_every_mistake_that_keeps_a_job_from_starting() {
    let scr = Installation::with_system_file("");
    let stores = scr.write("stores.conf", "STORE=/a GROUP=ONE\nSTORE=/b GROUP=TWO\n");
    let lines = "SCR_COPY_TYPE=FILE\nCKPT=0 STORE=/none\nCKPT=1 INTERVAL=2 GROUP=THREE\nCKPT=2 INTERVAL=4 STORE=/nowhere\n";
    let checkpoints = scr.write("checkpoints.conf", lines);
    let both = scr
        .write("both.conf", "SCR_COPY_TYPE=FILE\nSTORE=/a GROUP=ONE\nCKPT=0 STORE=/a\nCKPT=1 STORE=/none\n");
    for (file, mistakes) in [
        (stores, &["ONE", "TWO"][..]),
        (checkpoints, &["/none", "THREE", "/nowhere"]),
        (both, &["ONE", "/none"]),
    ] {
        let checked = text(&scr.in_prefix(&["config", "--check", file.to_str().unwrap()]).output().unwrap());
        for mistake in mistakes {
            assert!(checked.contains(mistake), "no {mistake} in {checked}");
        }
        assert_eq!(checked.matches("(no job starts with this)").count(), mistakes.len(), "{checked}");
    }
}

#[test]
fn no_line_of_the_settings_is_wider_than_was_asked_for_and_descriptors_read_back() {
    let scr = Installation::with_system_file("");
    let run = |columns: &str| {
        let mut command = scr.in_prefix(&["config"]);
        let output = command.env("COLUMNS", columns).env("SCR_PREFIX", "/p").output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let narrow = run("80");
    assert!(narrow.lines().all(|line| line.chars().count() <= 80), "{narrow}");
    let lines = |text: &str| text.lines().filter(|line| line.starts_with("CKPT=0")).count();
    assert_eq!((lines(&run("1000")), lines(&narrow)), (1, 2), "{narrow}");
    let descriptors: String =
        narrow.lines().skip_while(|line| !line.is_empty()).map(|l| l.to_owned() + "\n").collect();
    let file = scr.write("prefix/my.conf", format!("SCR_COPY_TYPE=FILE\nSCR_CACHE_BYPASS=1\n{descriptors}"));
    let checked = scr.in_prefix(&["config", "--check"]).arg(&file).output().unwrap();
    assert_eq!(text(&checked), format!("{}: nothing is wrong\n", file.display()));
}

/// Any user could set what other users' jobs load, and nobody said so.
#[test]
fn a_file_that_anybody_may_write_is_no_good_file() {
    let scr = Installation::with_system_file("SCR_DEBUG=1\n");
    let user = scr.write("mine.conf", "SCR_DEBUG=1\n");
    let check = |arguments: &[&str], file: &std::path::Path| {
        let output = scr.in_prefix(arguments).arg(file).output().unwrap();
        (output.status.code(), text(&output))
    };
    let is_warned = |file: &std::path::Path| {
        let output = scr.in_prefix(&["config"]).env("SCR_CONF_FILE", &user).output().unwrap();
        let warning = format!("scr: {}: any user may change what this file sets: ", file.display());
        let shown = text(&output);
        shown.contains(&warning) && shown.contains("run chmod go-w on it [SCR-115]")
    };
    for (file, arguments) in
        [(user.clone(), &["config", "--check"][..]), (scr.system_file(), &["config", "--system", "--check"])]
    {
        for (mode, problems) in [(0o644, 0), (0o664, 0), (0o666, 1)] {
            std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
            let (code, shown) = check(arguments, &file);
            assert_eq!(code, Some(problems), "{mode:o}: {shown}");
            assert_eq!(is_warned(&file), problems > 0, "{mode:o}");
        }
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    }
}
