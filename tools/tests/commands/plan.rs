//! `scr plan`: one plan by the model, the best one for a machine, simulation, the page, and what it says of wrong files.

use crate::answer::{code, err, out};
use crate::installation::Installation;
use serde_json::Value;
use std::fs;
use std::path::Path;

const LEVELS: &str = "\
[[level]]
cost = 9
rate = 7.78e-6
[[level]]
cost = 50
rate = 5.19e-7
[[level]]
cost = 438
rate = 3e-8
";

/// A machine where a checkpoint that only survives processes is worth having.
const MIXED: &str = "\
nodes = 64
checkpoint = \"8GB\"
memory = \"64GB\"
[flush]
cost = 900
[[scheme]]
type = \"SINGLE\"
cost = 1
[[scheme]]
type = \"RS\"
set-size = 16
set-failures = 4
cost = 60
[failures]
processes = \"30m\"
any-node = \"1day\"
all = \"30days\"
";

fn with(files: &[(&str, &str)]) -> Installation {
    let scr = Installation::with_system_file("");
    for (name, text) in files {
        scr.write(Path::new("prefix").join(name), text);
    }
    scr
}

fn json(scr: &Installation, words: &str) -> Value {
    let output = scr.in_prefix(&words.split(' ').collect::<Vec<_>>()).output().unwrap();
    assert_eq!(code(&output), 0, "{words}: {}", err(&output));
    crate::answer::json_of(&output)
}

fn machines() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../etc/machines");
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path().display().to_string()).collect()
}

#[test]
fn the_model_prints_the_published_efficiency_of_one_plan() {
    let scr = with(&[("levels.toml", LEVELS)]);
    for (interval, counts, published) in [
        ("2500", "0,200,1", 0.961310619586),
        ("500", "200,0,1", 0.948598760627),
        ("0", "0,0,1", 0.0),
        ("40000", "0,0,1", 0.8288925),
    ] {
        let words = format!("plan --model levels.toml --interval {interval} --counts {counts} --json");
        let found = json(&scr, &words)["efficiency"].as_f64().unwrap();
        assert!((found - published).abs() < 5e-7, "{words}: {found}");
    }
    let words = ["plan", "--model", "levels.toml", "--interval", "2500", "--counts", "0,200,1"];
    assert_eq!(out(&scr.in_prefix(&words).output().unwrap()), "efficiency: 0.961311\n");
}

#[test]
fn every_machine_that_comes_with_scr_has_a_plan_whose_settings_are_right() {
    let scr = with(&[("mixed.toml", MIXED)]);
    let machines = machines();
    assert!(machines.len() >= 4, "{machines:?}");
    for machine in machines.iter().map(String::as_str).chain(["mixed.toml"]) {
        let found = json(&scr, &format!("plan {machine} --json"));
        let best = &found["best"];
        let efficiency = best["efficiency"].as_f64().unwrap();
        let without =
            found["plans"].as_array().unwrap().iter().find(|plan| plan["schemes"] == serde_json::json!([]));
        assert!(
            efficiency > without.unwrap()["efficiency"].as_f64().unwrap(),
            "{machine}: the cache is worth it"
        );
        assert!(
            efficiency < 1.0 && best["published_model"].as_f64().unwrap() <= efficiency + 1e-3,
            "{machine}: {best}"
        );
        let lines: Vec<_> =
            found["settings"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
        scr.write("prefix/plan.conf", lines.join("\n") + "\n");
        let checked = scr.in_prefix(&["config", "--check", "plan.conf"]).output().unwrap();
        assert_eq!(code(&checked), 0, "{machine}: {lines:?} {}{}", out(&checked), err(&checked));
    }
}

/// The first user had owned the stores of all.
#[test]
fn a_plan_with_two_schemes_keeps_each_in_a_store_of_its_own() {
    let scr = with(&[("mixed.toml", MIXED)]);
    let found = json(&scr, "plan mixed.toml --json");
    assert_eq!(found["best"]["schemes"], serde_json::json!(["SINGLE", "RS 16/4"]));
    let (low, high) = (&found["best"]["counts"][0], &found["best"]["counts"][1]);
    let every = low.as_u64().unwrap() + 1;
    let flush = every * (high.as_u64().unwrap() + 1);
    let lines: Vec<_> =
        found["settings"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
    assert!(lines.contains(&"STORE=/dev/shm/single.$USER GROUP=NODE COUNT=1"), "{lines:?}");
    assert!(lines.contains(&"CKPT=0 INTERVAL=1 STORE=/dev/shm/single.$USER TYPE=SINGLE"), "{lines:?}");
    let rs = format!("CKPT=1 INTERVAL={every} STORE=/dev/shm/rs.$USER TYPE=RS SET_SIZE=16 SET_FAILURES=4");
    assert!(lines.contains(&&*rs) && lines.contains(&&*format!("SCR_FLUSH={flush}")), "{lines:?}");
}

#[test]
fn a_simulation_agrees_with_the_model_and_its_seed_repeats_it() {
    let scr = with(&[("mixed.toml", MIXED), ("levels.toml", LEVELS)]);
    let words = "plan mixed.toml --simulate --years 3 --json";
    let found = json(&scr, words);
    let simulated = &found["simulated"][0];
    let number = |value: &Value| value.as_f64().unwrap();
    let difference = number(&simulated["efficiency"]) - number(&found["best"]["efficiency"]);
    assert!(difference.abs() < 4.0 * number(&simulated["error"]), "{found}");
    assert_eq!(found["simulated"][1]["gaps"], "Weibull, shape 0.7");
    assert_eq!(json(&scr, words)["simulated"], found["simulated"]);
    assert_ne!(json(&scr, &format!("{words} --seed 2"))["simulated"], found["simulated"]);
    let model = json(
        &scr,
        "plan --model levels.toml --interval 2500 --counts 0,200,1 --simulate --years 2000 --json",
    );
    let difference = number(&model["simulated"][0]["efficiency"]) - number(&model["efficiency"]);
    assert!(difference.abs() < 4.0 * number(&model["simulated"][0]["error"]), "{model}");
}

/// A run makes room for a quarter more than the last checkpoint took, and evicts the old one before if there is less.
#[test]
fn room_decides_which_schemes_there_are_and_whether_a_flush_is_hidden() {
    let site = "nodes = 64\ncheckpoint = \"10GB\"\nmemory = \"ROOM\"\n[cache]\nbandwidth = \"1GB\"\nnetwork = \"1GB\"\n\
                [flush]\ncost = 600\nhidden = 0.9\n[failures]\nany-node = \"1day\"\nall = \"30days\"\n";
    let scr = with(&[]);
    let plan = |room: &str| {
        scr.write("prefix/site.toml", site.replace("ROOM", room));
        json(&scr, "plan site.toml --json")
    };
    let ample = plan("100GB");
    assert_eq!((&ample["best"]["count"], &ample["best"]["asynchronous"]), (&2.into(), &true.into()));
    assert_eq!(ample["excluded"], serde_json::json!([]));
    let scarce = plan("24GB");
    assert_eq!((&scarce["best"]["count"], &scarce["best"]["asynchronous"]), (&1.into(), &false.into()));
    let excluded = scarce["excluded"].as_array().unwrap();
    let partner =
        excluded.iter().find(|excluded| excluded["schemes"] == serde_json::json!(["PARTNER"])).unwrap();
    assert_eq!(partner["why"], "needs 45 GiB on each node, which has 24 GiB");
    let evicts_before = plan("22GB");
    let single = &evicts_before["excluded"][0];
    assert_eq!(
        (&single["schemes"][0], &single["why"]),
        (&"SINGLE".into(), &"needs 22.5 GiB on each node, which has 22 GiB".into())
    );
    assert!(scarce["best"]["efficiency"].as_f64() < ample["best"]["efficiency"].as_f64());
    let none = plan("5GB");
    assert_eq!(
        none["best"]["schemes"],
        serde_json::json!([]),
        "nothing fits: straight to the prefix directory"
    );
    assert_eq!(none["settings"][0], "SCR_CACHE_BYPASS=1");
}

#[test]
fn a_name_is_a_machine_of_the_installation_and_a_file_comes_first() {
    let scr = with(&[]);
    scr.write("share/scr/machines/ours.toml", MIXED);
    scr.write("share/scr/machines/theirs.toml", MIXED);
    assert_eq!(json(&scr, "plan ours --json")["machine"], "ours");
    let unknown = scr.in_prefix(&["plan", "nobody"]).output().unwrap();
    assert_eq!(code(&unknown), 2);
    assert!(
        err(&unknown)
            .contains("there is no file nobody, and no machine of that name; there are ours, theirs"),
        "{}",
        err(&unknown)
    );
    let all = scr.in_prefix(&["plan"]).output().unwrap();
    assert_eq!(code(&all), 0);
    assert!(out(&all).contains("\nours ") && out(&all).contains("\ntheirs "), "{}", out(&all));
    scr.write("prefix/ours", format!("name = \"a file\"\n{MIXED}"));
    assert_eq!(json(&scr, "plan ours --json")["machine"], "a file");
}

#[test]
fn the_text_fits_80_columns_and_shows_table_curve_and_settings() {
    let scr = with(&[("mixed.toml", MIXED)]);
    for machine in machines().iter().map(String::as_str).chain(["mixed.toml"]) {
        let output = scr
            .in_prefix(&["plan", machine, "--simulate", "--years", "0.5"])
            .env("COLUMNS", "80")
            .output()
            .unwrap();
        let text = out(&output);
        for part in [
            "Best plan: ",
            "PLAN ",
            "O: the plan",
            "IF  ",
            "SIMULATED GAPS",
            "# For scr.conf\nSCR_CACHE_BYPASS=0\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let is_setting = |line: &&str| line.contains('=') && !line.contains(' ');
        let long = text.lines().filter(|line| !is_setting(line)).find(|line| line.chars().count() > 80);
        assert_eq!(long, None, "{text}");
    }
}

#[test]
fn the_page_needs_nothing_from_elsewhere_and_can_be_heard() {
    let name = "name = \"<b>&'x\\\"\"\nsource = \"</style><script>alert(1)</script>\"\n";
    let scr = with(&[("site.toml", &format!("{name}{MIXED}"))]);
    let output = scr
        .in_prefix(&["plan", "site.toml", "--simulate", "--years", "0.1", "--html", "page.html"])
        .output()
        .unwrap();
    assert_eq!(code(&output), 0, "{}", err(&output));
    let page = fs::read_to_string(scr.path("prefix/page.html")).unwrap();
    for elsewhere in ["http:", "https:", "src=", "href=", "@import", "url(", "<script", "<link", "<b>"] {
        assert!(!page.contains(elsewhere), "{elsewhere}");
    }
    for part in [
        "<html lang=\"en\">",
        "prefers-color-scheme:dark",
        "@media print",
        "role=\"img\" aria-labelledby=\"pt pd\"",
        "<desc id=\"pd\">The efficiency rises from ",
        "<th scope=\"col\">",
        "<th scope=\"row\">",
        "&lt;b&gt;&amp;'x&quot;",
        "CKPT=1 INTERVAL=",
        "id=\"sim\"",
    ] {
        assert!(page.contains(part), "{part}");
    }
    crate::answer::assert_balanced(&page);
}

/// With failure groups of one node each, such a failure takes several members of a set.
#[test]
fn the_settings_have_the_groups_that_the_figures_count_on() {
    let grouped = format!("{MIXED}\n[[failures.several]]\nnodes = 4\nevery = \"60d\"\ngroup = true\n");
    let scr = with(&[("mixed.toml", MIXED), ("grouped.toml", &grouped)]);
    for (machine, is_grouped) in [("mixed.toml", false), ("grouped.toml", true)] {
        let output = scr.in_prefix(&["plan", machine]).output().unwrap();
        let text = out(&output);
        assert_eq!(text.contains("\nSCR_GROUP=RACK\n"), is_grouped, "{text}");
        assert_eq!(text.contains("\nGROUPS=node[1-4] RACK=1\n"), is_grouped, "{text}");
    }
}

/// In two racks no set has members in eight, and the loss of a rack took what was said to survive it.
#[test]
fn sets_that_the_groups_are_too_few_for_do_not_count_as_spread() {
    const RACKS: &str = "nodes = 16\n[flush]\ncost = 100\n[failures]\nnode = \"1y\"\n\
                         [[failures.several]]\nnodes = 8\nevery = \"30d\"\ngroup = true\n";
    let scheme = |name: &str, cost: u64| format!("[[scheme]]\ntype = \"{name}\"\ncost = {cost}\n");
    let both = format!("{RACKS}{}{}", scheme("XOR", 5), scheme("PARTNER", 6));
    let scr = with(&[("both.toml", &both), ("xor.toml", &format!("{RACKS}{}", scheme("XOR", 5)))]);
    let plan = |machine: &str| {
        let output = scr.in_prefix(&["plan", machine]).output().unwrap();
        out(&output)
    };
    let both = plan("both.toml");
    assert!(both.contains("Best plan: PARTNER") && both.contains("\nSCR_GROUP=RACK\n"), "{both}");
    let xor = plan("xor.toml");
    assert!(xor.contains("Best plan: XOR 8") && !xor.contains("SCR_GROUP"), "{xor}");
    let is_true = |line: &&str| line.starts_with("XOR 8 ") && line.ends_with(" 56.8 % of failures");
    assert!(xor.lines().any(|line| is_true(&line)), "{xor}");
}

#[test]
fn a_machine_on_which_nothing_gets_done_is_no_plan() {
    let hopeless = "nodes = 4\n[flush]\ncost = \"1y\"\n[failures]\nany-node = 1\n[[scheme]]\ntype = \"SINGLE\"\ncost = \"1y\"\n";
    let scr = with(&[("site.toml", hopeless)]);
    let output = scr.in_prefix(&["plan", "site.toml"]).output().unwrap();
    assert_eq!(code(&output), 1);
    assert!(out(&output).contains("No plan brings the job forward"), "{}", out(&output));
}

#[test]
fn wrong_files_and_options_are_named() {
    let scr = with(&[
        ("levels.toml", LEVELS),
        ("empty.toml", ""),
        ("typo.toml", "nodse = 3\n"),
        ("mixed.toml", MIXED),
    ]);
    scr.write("prefix/binary.toml", [0xff, 0xfe, 0x00]);
    let model = |rest: &str| format!("plan --model levels.toml {rest}");
    for (words, expected) in [
        ("plan".to_owned(), "name a file that describes one"),
        ("plan missing.toml".to_owned(), "cannot read missing.toml: "),
        ("plan binary.toml".to_owned(), "cannot read binary.toml: "),
        ("plan empty.toml".to_owned(), "empty.toml:1: the key `nodes' is missing"),
        ("plan typo.toml".to_owned(), "typo.toml:1: unknown key `nodse'; did you mean `nodes'?"),
        ("plan --model empty.toml --interval 1 --counts 1".to_owned(), "empty.toml:1: there is no [[level]]"),
        ("plan --model levels.toml".to_owned(), "--interval"),
        (model("--interval -1 --counts 1,1,1"), "not a number of seconds from 0 to 1e12"),
        (model("--interval nan --counts 1,1,1"), "not a number of seconds"),
        (model("--interval x --counts 1,1,1"), "not a number of seconds"),
        (
            model("--interval 5 --counts 1,1"),
            "--counts has 2 numbers; the machine has 3 levels, so give 3 of them",
        ),
        (model("--interval 5 --counts 1,1,2"), "--counts ends with 2; it must end with 1"),
        (model("--interval 5 --counts 1,-1,1"), "the least is 0"),
        (model("--interval 5 --counts 1,99999999999,1"), "the most is 4294967295"),
        ("plan mixed.toml --interval 5".to_owned(), "cannot be used with"),
        ("plan mixed.toml --shape 0.5".to_owned(), "--simulate"),
        ("plan mixed.toml --simulate --shape 0".to_owned(), "not a number from 0.1 to 10"),
        (
            "plan mixed.toml --simulate --years 1e9".to_owned(),
            "are too many to simulate; give at most --years ",
        ),
        ("plan mixed.toml --html /nowhere/page.html".to_owned(), "cannot write /nowhere/page.html: "),
    ] {
        let output = scr.in_prefix(&words.split(' ').collect::<Vec<_>>()).output().unwrap();
        let said = err(&output);
        assert!(code(&output) == 2 && said.contains(expected), "{words}: {said}");
    }
    let output = scr.in_prefix(&["plan", "typo.toml", "--json"]).output().unwrap();
    let json: Value = crate::answer::json_of(&output);
    assert_eq!(json["error"], "typo.toml:1: unknown key `nodse'; did you mean `nodes'?");
}
