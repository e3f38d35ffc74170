//! Examples of descriptors, and fifty configurations with something wrong in them.

use super::*;
use crate::param::tests::world_of;
use crate::param::{AppConfig, Settings};
use proptest::prelude::*;
use scr_base::Rank;

const USER: &str = "/pfs/run1/.scrconf";

type Built = (Result<Descriptors, ConfigError>, Vec<Problem>);

/// The descriptors of a user file, with everything that is wrong with it.
fn built(text: &str) -> Built {
    let env = world_of(&[(USER, text)]).env();
    let (params, mut problems) = Params::resolve(&Settings::load(&env, &AppConfig::default()), &env);
    (Descriptors::build(&params, &mut problems), problems)
}

fn clean(text: &str) -> Descriptors {
    let (descriptors, problems) = built(text);
    assert_eq!(problems, []);
    descriptors.unwrap()
}

const GUIDE: &str = "\
SCR_COPY_TYPE=FILE
SCR_CACHE_BYPASS=0
GROUPS=host1  POWER=psu1  SWITCH=0
GROUPS=host2  POWER=psu1  SWITCH=1
GROUPS=host3  POWER=psu2  SWITCH=0
GROUPS=host4  POWER=psu2  SWITCH=1
STORE=/dev/shm      GROUP=NODE   COUNT=1
STORE=/ssd          GROUP=NODE   COUNT=3  FLUSH=PTHREAD
STORE=/dev/persist  GROUP=NODE   COUNT=1  ENABLED=1  MKDIR=0
STORE=/p/lscratcha  GROUP=WORLD
# three checkpoint configurations
CKPT=0 INTERVAL=1 GROUP=NODE   STORE=/dev/shm TYPE=XOR     SET_SIZE=16
CKPT=1 INTERVAL=4 GROUP=NODE   STORE=/ssd     TYPE=RS      SET_SIZE=8  SET_FAILURES=3 OUTPUT=1
CKPT=2 INTERVAL=8 GROUP=SWITCH STORE=/ssd     TYPE=PARTNER BYPASS=1
";

#[test]
fn without_settings_there_is_the_guides_default_descriptor() {
    let descriptors = clean("");
    let [only] = descriptors.redundancy.all()[..] else { panic!("one descriptor") };
    assert_eq!((only.index, only.interval, only.group.as_str()), (0, 1, "NODE"));
    assert_eq!((only.store.as_str(), only.scheme.as_str()), ("/dev/shm", "XOR"));
    assert_eq!((only.set_size, only.bypass), (8, true));
    assert_eq!(descriptors.stores.len(), 1);
    assert_eq!((descriptors.stores[0].count, descriptors.control.name.as_str()), (1, "/dev/shm"));
}

#[test]
fn the_guides_stores_are_as_described() {
    let stores = clean(GUIDE).stores;
    let names: Vec<_> = stores.iter().map(|store| store.name.as_str()).collect();
    assert_eq!(names, ["/dev/shm", "/ssd", "/dev/persist", "/p/lscratcha"]);
    assert_eq!((stores[0].count, stores[0].flush.as_str()), (1, "SYNC"));
    assert_eq!((stores[1].count, stores[1].flush.as_str()), (3, "PTHREAD"));
    assert!(!stores[2].mkdir && stores[1].mkdir && stores[2].enabled);
    assert_eq!((stores[3].group.as_str(), stores[3].view, stores[3].count), (WORLD, View::Global, 1));
    assert_eq!(stores[0].view, View::Private);
}

#[test]
fn the_guides_three_descriptors_share_sixteen_checkpoints() {
    let descriptors = clean(GUIDE);
    let chosen: Vec<_> = (1..=16).map(|id| descriptors.redundancy.choose(id, true, false).index).collect();
    assert_eq!(chosen, [0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2]);
    assert_eq!(
        descriptors.redundancy.choose(3, true, true).index,
        1,
        "output goes to the descriptor that is marked"
    );
    assert_eq!(descriptors.redundancy.choose(8, false, true).index, 1);
    assert_eq!(descriptors.redundancy.choose(8, false, false).index, 0);
    let second = descriptors.redundancy.choose(4, true, false);
    assert_eq!((second.scheme.as_str(), second.set_size, second.set_failures), ("RS", 8, 3));
    assert!(descriptors.redundancy.choose(8, true, false).bypass);
}

#[test]
fn without_a_mark_output_that_is_no_checkpoint_goes_to_interval_1() {
    let descriptors = clean("SCR_COPY_TYPE=FILE\nCKPT=0\nCKPT=1 INTERVAL=4\n");
    assert_eq!(descriptors.redundancy.choose(4, true, true).index, 1);
    assert_eq!(descriptors.redundancy.choose(4, false, true).index, 0);
}

#[test]
fn a_descriptor_for_output_alone_may_share_an_interval() {
    let descriptors = clean("SCR_COPY_TYPE=FILE\nCKPT=0 TYPE=XOR\nCKPT=1 TYPE=RS OUTPUT=1\n");
    assert_eq!(descriptors.redundancy.choose(5, true, false).index, 0);
    assert_eq!(descriptors.redundancy.choose(5, true, true).index, 1);
}

#[test]
fn hosts_are_grouped_by_their_lines() {
    let groups = clean(GUIDE).groups;
    assert_eq!(groups.names().collect::<Vec<_>>(), ["NODE", "WORLD", "POWER", "SWITCH"]);
    let value = |group, host| groups.value(group, host, Rank(3)).unwrap();
    assert_eq!((value("POWER", "host1"), value("POWER", "host2")), ("psu1".into(), "psu1".into()));
    assert_eq!((value("SWITCH", "host2"), value("SWITCH", "host3.site.org")), ("1".into(), "0".into()));
    assert_eq!((value("NODE", "host9"), value("WORLD", "host9")), ("host9".into(), "WORLD".into()));
}

#[test]
fn a_host_without_a_line_is_named_with_the_file_and_the_rank() {
    let groups = clean(GUIDE).groups;
    let error = groups.value("POWER", "host9", Rank(3)).unwrap_err().to_string();
    assert_eq!(
        error,
        "/pfs/run1/.scrconf:3: rank 3 runs on host9, for which there is no GROUPS line; add GROUPS=host9 with its groups"
    );
}

/// Any host whose name begins as another's was given that one's line: of n1.east, or of the address 10.0.0.1.
#[test]
fn a_host_has_no_line_of_another_domain_or_address() {
    let groups = clean("GROUPS=n1.east POWER=a\nGROUPS=10.0.0.1 POWER=b\nGROUPS=n2 POWER=c\n").groups;
    let value = |host| groups.value("POWER", host, Rank(0)).ok();
    let known = ["n1.east", "n1", "N1.East", "10.0.0.1", "n2", "n2.west", "N2"].map(value);
    assert_eq!(known, ["a", "a", "a", "b", "c", "c", "c"].map(|value| Some(value.to_string())));
    assert_eq!(["n1.west", "10.0.0.2", "n2x"].map(value), [None, None, None]);
}

#[test]
fn one_line_gives_the_groups_of_many_nodes() {
    let groups = clean("GROUPS=node[1-4000] POWER=a\nGROUPS=gpu1,gpu[2-3].east POWER=b\n").groups;
    for (node, power) in [("node1", "a"), ("NODE4000.east", "a"), ("gpu1", "b"), ("gpu3", "b")] {
        assert_eq!(groups.value("POWER", node, Rank(0)).unwrap(), power, "{node}");
    }
    assert!(groups.value("POWER", "node4001", Rank(0)).is_err());
    for list in ["node[1-", "node[1-999999999]", "-x"] {
        let (_, problems) = built(&format!("GROUPS={list} POWER=a\n"));
        assert!(problems[0].to_string().contains("a name or a list of nodes"), "{list}: {problems:?}");
    }
}

#[test]
fn a_host_whose_line_lacks_the_group_is_named_with_its_line() {
    let groups = clean("GROUPS=host1 POWER=a\nGROUPS=host2 SWITCH=b\n").groups;
    let error = groups.value("POWER", "host2", Rank(1)).unwrap_err().to_string();
    assert!(
        error.starts_with("/pfs/run1/.scrconf:2: the GROUPS line of host2 (rank 1) has no value for POWER")
    );
    assert!(groups
        .value("RACK", "host2", Rank(1))
        .unwrap_err()
        .to_string()
        .contains("NODE, WORLD, POWER, SWITCH"));
}

#[test]
fn a_vendors_scheme_keeps_its_own_options() {
    let descriptors = clean("SCR_COPY_TYPE=FILE\nCKPT=0 TYPE=ACME MIRRORS=3 SET_FAILURES=2\n");
    let only = descriptors.redundancy.choose(1, true, false);
    assert_eq!((only.scheme.as_str(), only.options["MIRRORS"].as_str()), ("ACME", "3"));
}

#[test]
fn stores_take_sizes_and_words() {
    let stores = clean("STORE=/ssd/ SIZE=1TB EVICT=before VIEW=GLOBAL BLOCK=4\n").stores;
    assert_eq!((stores[0].name.as_str(), stores[0].size), ("/ssd", Some(1 << 40)));
    assert_eq!((stores[0].evict, stores[0].view), (Evict::Before, View::Global));
    assert_eq!(stores[0].options["BLOCK"], "4");
}

#[test]
fn the_store_of_the_cache_base_is_there_whether_described_or_not() {
    let described = clean("SCR_CACHE_SIZE=4\nSTORE=/dev/shm COUNT=2\n");
    assert_eq!((described.stores.len(), described.stores[0].count), (1, 2));
    let added = clean("SCR_CACHE_SIZE=4\nSTORE=/ssd COUNT=2\n");
    assert_eq!((added.stores.len(), added.store("/dev/shm").unwrap().count), (2, 4));
}

#[test]
fn keys_absent_from_a_line_default_to_the_parameters() {
    let parameters = "SCR_CACHE_BASE=/cache\nSCR_CACHE_SIZE=5\nSCR_CACHE_BYPASS=0\nSCR_FLUSH_TYPE=PTHREAD\nSCR_GROUP=WORLD\n\
                      SCR_SET_SIZE=4\nSCR_SET_FAILURES=3\n";
    let lines = "SCR_COPY_TYPE=FILE\nSTORE=/ssd\nCKPT=0\nCKPT=1 INTERVAL=2 STORE=/ssd TYPE=RS\n";
    let described = clean(&format!("{parameters}{lines}"));
    let stores: Vec<_> =
        described.stores.iter().map(|s| (s.path.to_str().unwrap(), s.count, &*s.flush)).collect();
    assert_eq!(stores, [("/ssd", 5, "PTHREAD"), ("/cache", 5, "PTHREAD")]);
    let of = |one: &Redundancy| {
        (one.store.clone(), one.scheme.clone(), one.group.clone(), one.set_size, one.set_failures, one.bypass)
    };
    let like = |store: &str, scheme: &str| (store.into(), scheme.into(), "WORLD".into(), 4, 3, false);
    assert_eq!(of(described.redundancy.choose(1, true, false)), like("/cache", "XOR"));
    assert_eq!(of(described.redundancy.choose(2, true, false)), like("/ssd", "RS"));
    // Without lines there is one descriptor, of the parameters alone.
    let implied = clean(&format!("{parameters}SCR_COPY_TYPE=RS\n"));
    assert_eq!(of(implied.redundancy.choose(2, true, true)), like("/cache", "RS"));
    let bypassed = clean("SCR_COPY_TYPE=FILE\nCKPT=0\n");
    assert_eq!(
        of(bypassed.redundancy.choose(1, true, false)),
        ("/dev/shm".into(), "XOR".into(), "NODE".into(), 8, 2, true)
    );
}

#[test]
fn a_store_with_a_variable_has_one_name_and_a_path_per_node() {
    let text = "SCR_CACHE_BASE=/tmp/$SCR_NODE_NAME\nSTORE=/ssd/${SCR_NODE_NAME}\n";
    let zero = world_of(&[(USER, text)]).with_variable("SCR_NODE_NAME", "n0").env();
    let raw = Settings::load(&zero, &AppConfig::default());
    for node in ["n0", "n1"] {
        let env = world_of(&[]).with_variable("SCR_NODE_NAME", node).env();
        let (params, _) = Params::resolve(&raw, &env);
        let mut problems = Vec::new();
        let descriptors = Descriptors::build(&params, &mut problems).unwrap();
        assert_eq!(problems, []);
        let chosen = descriptors.redundancy.choose(1, true, false);
        assert_eq!(chosen.store, "/tmp/$SCR_NODE_NAME");
        assert_eq!(descriptors.store(&chosen.store).unwrap().path, Path::new("/tmp").join(node));
        assert_eq!(descriptors.stores[0].path, Path::new("/ssd").join(node));
        assert_eq!(params.get(&param::NODE_NAME), node);
    }
}

#[test]
fn the_debug_tree_has_the_keys_that_users_know() {
    let tree = clean(GUIDE).to_tree();
    let ckpt = tree.find("CKPT", 1).unwrap();
    assert_eq!(
        (ckpt.text("TYPE"), ckpt.text("SET_SIZE"), ckpt.text("STORE")),
        (Some("RS"), Some("8"), Some("/ssd"))
    );
    assert_eq!(tree.find("STORE", "/ssd").unwrap().text("COUNT"), Some("3"));
    assert_eq!(tree.find("GROUPS", "host3").unwrap().text("POWER"), Some("psu2"));
}

/// A user file with one thing wrong, the line it is on, and what is said. `false`: the run cannot continue.
const BROKEN: &[(&str, u32, &str, bool)] = &[
    ("SCR_FLSH=1", 1, "there is no parameter SCR_FLSH, did you mean SCR_FLUSH?", true),
    ("SCR_FLUSH=1\nscr_debug=1", 2, "did you mean SCR_DEBUG?", true),
    ("CACHE_SIZE=2", 1, "did you mean SCR_CACHE_SIZE?", true),
    ("NONSENSE=1", 1, "there is no parameter NONSENSE", true),
    ("SCR_FLUSH=ten", 1, "SCR_FLUSH holds `ten', which is not a whole number", true),
    ("\n\nSCR_FLUSH=1.5", 3, "not a whole number", true),
    ("SCR_FLUSH=-1", 1, "not 0 or more", true),
    ("SCR_FLUSH=99999999999999999999999", 1, "not within 0 to 18446744073709551615", true),
    ("SCR_SET_SIZE=1", 1, "SCR_SET_SIZE holds 1, which is not within 2 to 4294967295", true),
    ("SCR_CACHE_BYPASS=maybe", 1, "not 0 or 1", true),
    ("SCR_CACHE_BYPASS=2", 1, "not 0 or 1", true),
    ("SCR_FILE_BUF_SIZE=10XB", 1, "not a number of bytes such as", true),
    ("SCR_FILE_BUF_SIZE=1", 1, "not within 4096 to", true),
    ("SCR_HALT_SECONDS=1 week", 1, "`week' after the value of SCR_HALT_SECONDS", true),
    ("SCR_HALT_SECONDS=1x", 1, "not a number of seconds", true),
    ("SCR_CHECKPOINT_OVERHEAD=5%", 1, "not a number", true),
    ("SCR_CHECKPOINT_OVERHEAD=200", 1, "not within 0 to 100", true),
    ("SCR_COPY_TYPE=../../evil", 1, "not one of SINGLE, PARTNER, XOR, RS, FILE or the name of a plugin", true),
    ("SCR_COPY_TYPE=LOCAL", 1, "means SINGLE today", true),
    ("SCR_PLUGIN_PATH=plugins:.", 1, "not absolute paths separated by colons", true),
    ("SCR_RUNS=-2", 1, "not within -1 to", true),
    ("SCR_FLUSH", 1, "`SCR_FLUSH' has no `='", true),
    ("SCR_FLUSH: 10", 1, "has no `='", true),
    ("export SCR_FLUSH=10", 1, "has no `='", true),
    ("=10", 1, "a value has no name", true),
    ("SCR_FLUSH=", 1, "SCR_FLUSH has no value", true),
    ("SCR_FLUSH=1 SCR_DEBUG=1", 1, "`SCR_DEBUG=1' after the value of SCR_FLUSH", true),
    ("SCR_CURRENT=\"open", 1, "a \" is opened and not closed", true),
    ("SCR_CURRENT=a\u{0}b", 1, "control characters", true),
    ("SCR_FLUSH=1\nSCR_FLUSH=2", 2, "SCR_FLUSH is set a second time, after /pfs/run1/.scrconf:1", true),
    ("SCR_CACHE_BASE=/tmp/$NO_SUCH_VARIABLE", 1, "uses $NO_SUCH_VARIABLE, which is not set", true),
    ("SCR_CONF_FILE=/x", 1, "only in the environment or with SCR_Config", true),
    ("SCR_LOCKED=SCR_FLUSH", 1, "only in the system configuration file", true),
    ("SCR_PREFIX=/elsewhere", 1, "SCR_PREFIX cannot be changed to /elsewhere", true),
    ("SCR_HOP_DISTANCE=2", 1, "of a former version", true),
    ("CKPTDESC=0 TYPE=XOR", 1, "describe checkpoints with CKPT lines", true),
    ("CACHEDESC=/tmp SIZE=1", 1, "describe storage with STORE lines", true),
    ("SCR_FLUSH_ASYNC=1\nSCR_FLUSH_TYPE=SYNC", 1, "SCR_FLUSH_ASYNC=1 and SCR_FLUSH_TYPE=SYNC contradict", true),
    ("SCR_CACHE_BYPASS=0\nSCR_CACHE_SIZE=0", 2, "SCR_CACHE_SIZE keeps no dataset in /dev/shm", true),
    ("SCR_COPY_TYPE=RS\nSCR_SET_FAILURES=8", 2, "SET_FAILURES=8 with SET_SIZE=8", true),
    ("SCR_GROUP=RACK", 1, "SCR_GROUP names the group RACK, which is not defined; the groups are NODE, WORLD", false),
    ("SCR_COPY_TYPE=FILE", 1, "there is none; add CKPT=0", false),
    ("CKPT=0 TYPE=XOR", 1, "the CKPT descriptors are not used with SCR_COPY_TYPE=XOR", true),
    ("STORE=/dev/shm ENABLED=0", 0, "SCR_CACHE_BASE names the store /dev/shm, which has ENABLED=0", false),
    ("STORE=relative/path", 1, "STORE=relative/path is not an absolute path", true),
    ("STORE=/ssd GROUP=NOD", 1, "names the group NOD, which is not defined; the groups are NODE, WORLD, did you mean NODE?", false),
    ("STORE=/ssd COUNT=many", 1, "STORE=/ssd COUNT holds `many'", true),
    ("STORE=/ssd VIEW=SIDEWAYS", 1, "not one of PRIVATE, GLOBAL", true),
    ("STORE=/ssd EVICT=never", 1, "not one of auto, before, after", true),
    ("STORE=/ssd SIZE=0", 1, "SIZE holds 0, which is not within 1 to", true),
    ("STORE=/ssd MKDIR=", 1, "STORE=/ssd MKDIR has no value", true),
    ("STORE=/ssd\nSTORE=/ssd/", 2, "STORE=/ssd/ is described a second time", true),
    ("STORE=/ssd COUNT=1 COUNT=2", 1, "STORE=/ssd COUNT is set a second time", true),
    ("GROUPS=POWER=a", 1, "`POWER=a', which is not a name or a list of nodes", true),
    ("GROUPS=host1 NODE=5", 1, "the group NODE is made by scr itself", true),
    ("GROUPS=host1 POWER", 1, "`POWER' has no `='", true),
    ("GROUPS=host1 POWER=a\nGROUPS=host1 POWER=b", 2, "GROUPS=host1 POWER is set a second time", true),
    ("GROUPS=host[1-4] POWER=a\nGROUPS=host2 POWER=b", 2, "GROUPS=host2 has host2, which GROUPS=host[1-4] has as well", true),
    ("SCR_COPY_TYPE=FILE\nCKPT=0 OUTPUT=1\nCKPT=1 INTERVAL=1\nCKPT=2 INTERVAL=4", 3, "CKPT=1 and CKPT=0 both have INTERVAL=1, so CKPT=1 is never chosen; give CKPT=0, which has OUTPUT=1, a higher number", true),
    ("SCR_COPY_TYPE=FILE\nCKPT=0 INTERVAL=10\nCKPT=1 OUTPUT=1", 3, "CKPT=1 has OUTPUT=1, and takes every checkpoint", true),
    ("SCR_COPY_TYPE=FILE\nCKPT=0 INTERVAL=2", 2, "no CKPT descriptor in use has INTERVAL=1", false),
    ("SCR_COPY_TYPE=FILE\nCKPT=0\nCKPT=1", 3, "CKPT=1 and CKPT=0 both have INTERVAL=1", true),
    ("SCR_COPY_TYPE=FILE\nCKPT=0\nCKPT=2 INTERVAL=2", 2, "numbered 0, 2 and not from 0", true),
    ("SCR_COPY_TYPE=FILE\nCKPT=1", 2, "numbered 1 and not from 0", true),
    ("SCR_COPY_TYPE=FILE\nCKPT=0\nCKPT=one", 3, "CKPT holds `one', which is not a number from 0", true),
    ("SCR_COPY_TYPE=FILE\nCKPT=0\nCKPT=00", 3, "CKPT=0 is described a second time, after /pfs/run1/.scrconf:2", true),
    ("SCR_COPY_TYPE=FILE\nCKPT=0 TYPE=XOR\nCKPT=0 GROUP=RACK", 3, "CKPT=0 GROUP names the group RACK", false),
    ("SCR_COPY_TYPE=FILE\nCKPT=0 TYPE=XOR\nCKPT=0 SET_SIZE=none", 3, "CKPT=0 SET_SIZE holds `none'", true),
    ("SCR_COPY_TYPE=FILE\nCKPT=0 GROUP=RACK", 2, "CKPT=0 GROUP names the group RACK", false),
    ("SCR_COPY_TYPE=FILE\nSTORE=/ssd\nCKPT=0 STORE=/sdd", 3, "CKPT=0 names the store /sdd, which is not described; the stores are /ssd, /dev/shm, did you mean /ssd?", false),
    ("SCR_COPY_TYPE=FILE\nSTORE=/ssd ENABLED=0\nCKPT=0\nCKPT=1 INTERVAL=2 STORE=/ssd", 4, "CKPT=1 names the store /ssd, which has ENABLED=0", true),
    ("SCR_COPY_TYPE=FILE\nCKPT=0 TYPE=FILE", 2, "not the name of a scheme", true),
    ("SCR_COPY_TYPE=FILE\nCKPT=0 TYPE=LOCAL", 2, "CKPT=0 TYPE=LOCAL is of a former version", true),
    ("SCR_COPY_TYPE=FILE\nCKPT=0 TYPE=RS SET_SIZE=4 SET_FAILURES=4", 2, "CKPT=0 asks for SET_FAILURES=4 with SET_SIZE=4", true),
    ("SCR_COPY_TYPE=FILE\nCKPT=0 INTERVAL=0", 2, "CKPT=0 INTERVAL holds 0", true),
    ("SCR_COPY_TYPE=FILE\nCKPT=0 HOP_DISTANCE=4", 2, "HOP_DISTANCE is of a former version", true),
    ("SCR_COPY_TYPE=FILE\nCKPT=0 OUTPUT=1\nCKPT=1 INTERVAL=2 OUTPUT=1", 3, "CKPT=1 and CKPT=0 both have OUTPUT=1", true),
    ("STORE=/ssd COUNT=0\nSCR_CACHE_BASE=/ssd\nSCR_CACHE_BYPASS=0", 1, "STORE=/ssd keeps no dataset in /ssd", true),
    ("SCR_COPY_TYPE=FILE\nSTORE=/ssd COUNT=0\nCKPT=0 STORE=/ssd BYPASS=0", 3, "CKPT=0 keeps no dataset in /ssd", true),
    ("SCR_COPY_TYPE=FILE\nCKPT=0 TYPE XOR", 2, "`TYPE XOR' has no `='", true),
    ("SCR_COPY_TYPE=FILE\nCKPT=0 ENABLED=0", 2, "no CKPT descriptor in use has INTERVAL=1", false),
];

#[test]
fn each_problem_is_reported_once_with_its_line() {
    assert!(BROKEN.len() >= 50);
    for (text, line, expected, goes_on) in BROKEN {
        let (descriptors, mut problems) = built(text);
        assert_eq!(descriptors.is_ok(), *goes_on, "{text}: {descriptors:?}");
        problems.extend(descriptors.err().iter().flat_map(|error| error.problems().to_vec()));
        let matching: Vec<_> = problems.iter().filter(|p| p.to_string().contains(expected)).collect();
        assert_eq!(matching.len(), 1, "{text}: {problems:?}");
        let found = matching[0].origin.place().map_or(0, |place| place.line);
        assert_eq!(found, *line, "{text}: {}", matching[0]);
        assert!(!matching[0].to_string().contains('\n'), "{text}");
    }
}

#[test]
fn one_mistake_is_one_message() {
    for (text, _, _, goes_on) in
        BROKEN.iter().filter(|(text, ..)| !text.contains("CKPT=1") && !text.contains("XOR"))
    {
        let (descriptors, problems) = built(text);
        assert_eq!(problems.len() + usize::from(descriptors.is_err()), 1, "{text} {goes_on}: {problems:?}");
    }
}

proptest! {
    #[test]
    fn any_configuration_gives_descriptors_or_an_error_and_never_a_panic(
        pieces in proptest::collection::vec(
            prop_oneof![
                Just("SCR_COPY_TYPE=FILE\n"), Just("CKPT="), Just("STORE="), Just("GROUPS="), Just("0"), Just("1"),
                Just(" INTERVAL="), Just(" TYPE="), Just(" STORE="), Just(" GROUP="), Just("/dev/shm"), Just("/ssd"),
                Just(" SET_SIZE="), Just(" SET_FAILURES="), Just(" OUTPUT=1"), Just(" ENABLED="), Just("\n"),
                Just("4"), Just("18446744073709551615"), Just("-1"), Just("NODE"), Just("XOR"), Just("RS"),
                Just(" COUNT="), Just("$X"), Just("\""), Just(" "),
            ],
            0..60,
        ),
        id in any::<u64>(),
    ) {
        let text: String = pieces.concat();
        if let (Ok(descriptors), _) = built(&text) {
            let chosen = descriptors.redundancy.choose(id, true, false);
            prop_assert_eq!(id % chosen.interval, 0);
            prop_assert!(descriptors.store(&chosen.store).is_some());
        }
    }
}

/// The problem of settings for a cache that nothing goes to.
fn unused_cache(text: &str) -> Option<String> {
    let env = world_of(&[(USER, text)]).env();
    let (params, mut problems) = Params::resolve(&Settings::load(&env, &AppConfig::default()), &env);
    let descriptors = Descriptors::build(&params, &mut problems).unwrap();
    check_cache_in_use(&params, &descriptors).map(|problem| problem.to_string())
}

#[test]
fn settings_for_a_cache_that_nothing_goes_to_are_reported_once() {
    for (text, first) in [
        ("SCR_COPY_TYPE=RS", "SCR_COPY_TYPE"),
        ("SCR_FLUSH=1\nSCR_CACHE_SIZE=2\nSCR_SET_SIZE=4", "SCR_CACHE_SIZE"),
        ("STORE=/ssd COUNT=3", "STORE=/ssd"),
        ("SCR_COPY_TYPE=FILE\nCKPT=0 TYPE=XOR", "SCR_COPY_TYPE"),
    ] {
        let problem = unused_cache(text).unwrap();
        let expected = format!(": {first}: it has no effect while SCR_CACHE_BYPASS is not 0");
        assert!(problem.contains(&expected) && problem.starts_with(USER), "{problem}");
        assert_eq!(unused_cache(&format!("{text}\nSCR_CACHE_BYPASS=0")), None, "it is used");
        assert_eq!(unused_cache(&format!("{text}\nSCR_CACHE_BYPASS=1")), None, "it is meant");
    }
    assert!(unused_cache("SCR_FLUSH=1").unwrap().contains(": SCR_FLUSH: it has no effect"));
    assert_eq!(unused_cache("SCR_COPY_TYPE=FILE\nCKPT=0 TYPE=XOR BYPASS=0"), None);
    assert_eq!(unused_cache("SCR_COPY_TYPE=FILE\nCKPT=0 TYPE=XOR BYPASS=1"), None, "its own line says so");
    assert_eq!(unused_cache("CKPT=0 TYPE=XOR"), None, "another message says why it is not used");
}

#[test]
fn a_store_that_keeps_one_of_weak_and_strong_datasets_is_reported_with_the_lines_that_help() {
    let lines = "SCR_COPY_TYPE=FILE\nCKPT=0 TYPE=SINGLE BYPASS=0\nCKPT=1 INTERVAL=5 TYPE=XOR BYPASS=0\n";
    let found = |more: &str| {
        let env = world_of(&[(USER, &format!("{lines}{more}"))]).env();
        let (params, mut problems) = Params::resolve(&Settings::load(&env, &AppConfig::default()), &env);
        let descriptors = Descriptors::build(&params, &mut problems).unwrap();
        cautions(&params, &descriptors).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    for more in ["", "STORE=/dev/shm COUNT=1\n"] {
        let [problem] = &found(more)[..] else { panic!("one problem of {more}") };
        for words in
            ["CKPT=0 (SINGLE)", "CKPT=1 (XOR)", "`STORE=/dev/shm COUNT=2'", "`CKPT=1 STORE=/ssd ...'"]
        {
            assert!(problem.contains(words), "{problem}");
        }
    }
    for more in ["STORE=/dev/shm COUNT=2\n", "SCR_CACHE_SIZE=2\n", "STORE=/dev/shm GROUP=WORLD\n"] {
        assert_eq!(found(more), Vec::<String>::new(), "{more}");
    }
    assert_eq!(found("STORE=/ssd\nCKPT=1 STORE=/ssd\n"), Vec::<String>::new(), "each has a store of its own");
}
