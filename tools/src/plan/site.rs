//! A machine as a file describes it: nodes, sizes, costs, and what fails how often. `docs/user/planning.md` explains every key.

use crate::prelude::*;
use scr_config::document::{flag, integer, text, whole, Document, Form, Section};
use scr_plan::{partner_survival, survival};
use std::ops::RangeInclusive;
use toml::de::DeValue;

/// A machine, or the part of it that a job uses.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) name: String,
    pub(super) source: Option<String>,
    pub(super) nodes: u64,
    /// Bytes of a checkpoint on each node.
    pub(super) checkpoint: Option<f64>,
    /// Bytes that each node has for checkpoints.
    pub(super) memory: Option<f64>,
    pub(super) schemes: Vec<Scheme>,
    pub(super) flush: Flush,
    pub(super) failures: Vec<Failure>,
}

/// A redundancy scheme, and what it costs on this machine.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Scheme {
    pub(super) kind: Kind,
    /// Seconds for which a checkpoint stops the job.
    pub(super) cost: f64,
    /// Seconds from a failure until the job computes again.
    pub(super) recover: f64,
}

/// A scheme with its options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kind {
    /// Its name in `TYPE=`.
    pub(super) name: &'static str,
    /// Nodes that a set needs, and how many of them may be lost.
    pub(super) set_size: u64,
    pub(super) failures: u64,
}

/// The way to the prefix directory, in seconds.
#[derive(Debug)]
pub(super) struct Flush {
    pub(super) cost: f64,
    pub(super) recover: f64,
    /// The share during which the job computes.
    pub(super) hidden: f64,
}

/// A kind of failure.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) loses: Loss,
    /// Per second, for the whole job.
    pub(super) rate: f64,
}

/// The loss that a failure causes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    /// Processes end, and their nodes keep what they have.
    Processes,
    /// This many nodes at once: anywhere, or within one failure group.
    Nodes { count: u64, in_group: bool },
    /// All nodes.
    Everything,
}

impl Kind {
    pub(super) const SINGLE: Self = Self { name: "SINGLE", set_size: 1, failures: 0 };
    const PARTNER: Self = Self { name: "PARTNER", set_size: 2, failures: 1 };

    fn xor(set_size: u64) -> Self {
        Self { name: "XOR", set_size, failures: 1 }
    }

    fn rs(set_size: u64, failures: u64) -> Self {
        Self { name: "RS", set_size, failures }
    }

    /// Bytes on a node for each byte of a checkpoint.
    pub(super) fn stored(self) -> f64 {
        1.0 + self.failures as f64 / (self.set_size - self.failures) as f64
    }

    /// Bytes that a node sends for each byte of a checkpoint.
    fn sent(self) -> f64 {
        (self.set_size - 1) as f64 / (self.set_size - self.failures) as f64
    }

    /// The probability that it survives such a failure.
    pub(super) fn survives(self, loss: Loss, nodes: u64) -> f64 {
        match loss {
            Loss::Processes => 1.0,
            Loss::Everything => 0.0,
            _ if self.is_spread(loss, nodes) => 1.0,
            Loss::Nodes { count, in_group: true } => f64::from(u8::from(count <= self.failures)),
            Loss::Nodes { count, .. } if self == Self::PARTNER => partner_survival(nodes, count),
            Loss::Nodes { count, .. } => survival(nodes, self.set_size, self.failures, count),
        }
    }

    /// Whether a failure takes a whole group, and there are enough of these for the members of a set to be in different ones. With
    /// fewer groups, the members are neighbours, as are the nodes of a group.
    pub(super) fn is_spread(self, loss: Loss, nodes: u64) -> bool {
        let is_enough = |group: u64| self.failures > 0 && self.set_size <= nodes / group;
        matches!(loss, Loss::Nodes { count, in_group: true } if is_enough(count))
    }

    /// Its options, as settings name them.
    pub(super) fn options(self) -> impl Iterator<Item = (&'static str, u64)> {
        let known = if self.name == "RS" { 2 } else { usize::from(self.name == "XOR") };
        [("SET_SIZE", self.set_size), ("SET_FAILURES", self.failures)].into_iter().take(known)
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)?;
        self.options().zip([" ", "/"]).try_for_each(|((_, number), before)| write!(f, "{before}{number}"))
    }
}

impl Loss {
    pub(super) fn in_words(self) -> String {
        match self {
            Self::Processes => "processes only".to_owned(),
            Self::Nodes { count: 1, .. } => "one node".to_owned(),
            Self::Nodes { count, in_group: false } => format!("{count} nodes anywhere"),
            Self::Nodes { count, in_group: true } => format!("{count} nodes of one group"),
            Self::Everything => "all nodes".to_owned(),
        }
    }
}

/// Sets to choose from, if the file names no scheme.
fn kinds() -> impl Iterator<Item = Kind> {
    let xor = [4, 8, 16, 32].map(Kind::xor);
    let rs = [(8, 2), (16, 2), (16, 4), (32, 4)].map(|(set_size, failures)| Kind::rs(set_size, failures));
    [Kind::SINGLE, Kind::PARTNER].into_iter().chain(xor).chain(rs)
}

/// Bandwidths of the cache and of the network of a node, in bytes per second.
type Bandwidths = [Option<f64>; 2];

const KEYS: [&str; 9] =
    ["name", "source", "nodes", "checkpoint", "memory", "cache", "scheme", "flush", "failures"];

impl Site {
    /// Reads the description of a machine.
    pub(super) fn read(path: &Path, text: &str) -> Result<Self> {
        let document = Document { path, text };
        let table = document.parse()?;
        let root = document.root(&table).only(&KEYS)?;
        let nodes = root.required("nodes", &whole(1, 100_000_000))?;
        let checkpoint = root.optional("checkpoint", &bytes())?;
        let (bandwidths, restart) = cache(&root)?;
        let with = |kind: Kind| transfer(&root, kind, checkpoint, bandwidths);
        let file_name =
            || path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        Ok(Self {
            name: root.optional("name", &line())?.unwrap_or_else(file_name),
            source: root.optional("source", &line())?,
            nodes,
            checkpoint,
            memory: root.optional("memory", &bytes())?,
            schemes: schemes(&root, nodes, restart, with)?,
            flush: flush(&root, nodes, checkpoint, restart)?,
            failures: failures(&root, nodes)?,
        })
    }
}

fn line() -> Form<'static, String> {
    text("a text", |text| Some(text.to_owned()))
}

fn cache(root: &Section<'_>) -> Result<(Bandwidths, f64)> {
    let Some(cache) = root.section("cache")? else { return Ok(([None; 2], 0.0)) };
    let cache = cache.only(&["bandwidth", "network", "restart"])?;
    let restart = cache.optional("restart", &seconds())?.unwrap_or(0.0);
    let bandwidth = |key| cache.optional(key, &bytes());
    Ok(([bandwidth("bandwidth")?, bandwidth("network")?], restart))
}

/// Seconds for a checkpoint with this scheme, from bandwidths.
fn transfer(
    root: &Section<'_>,
    kind: Kind,
    checkpoint: Option<f64>,
    [cache, network]: Bandwidths,
) -> Result<f64> {
    let missing = |key: &str| {
        root.error(format_args!("the key `{key}' is missing, from which the cost of {kind} follows"))
    };
    let bytes = checkpoint.ok_or_else(|| missing("checkpoint"))?;
    let cache = cache.ok_or_else(|| missing("cache.bandwidth"))?;
    let network = || network.ok_or_else(|| missing("cache.network"));
    let sent = bytes * kind.sent();
    let sending = if sent > 0.0 { sent / network()? } else { 0.0 };
    Ok(bytes * kind.stored() / cache + sending)
}

fn schemes(
    root: &Section<'_>,
    nodes: u64,
    restart: f64,
    cost: impl Fn(Kind) -> Result<f64>,
) -> Result<Vec<Scheme>> {
    let scheme = |kind, cost| Scheme { kind, cost, recover: cost + restart };
    let sections = root.sections("scheme")?;
    if sections.is_empty() {
        let fitting = kinds().filter(|kind| kind.set_size <= nodes);
        return fitting.map(|kind| Ok(scheme(kind, cost(kind)?))).collect();
    }
    let read = |section: Section<'_>| {
        let section = section.only(&["type", "set-size", "set-failures", "cost", "recover"])?;
        let kind = kind(&section, nodes)?;
        let given = section.optional("cost", &seconds())?;
        let scheme = scheme(kind, given.map_or_else(|| cost(kind), Ok)?);
        let recover = section.optional("recover", &seconds())?.unwrap_or(scheme.recover);
        Ok(Scheme { recover, ..scheme })
    };
    sections.into_iter().map(read).collect()
}

/// The scheme of a `[[scheme]]` table, with the defaults that scr has.
fn kind(section: &Section<'_>, nodes: u64) -> Result<Kind> {
    let name = section.required("type", &line())?;
    // How to make it, of the size of a set and the failures, and the keys that it knows.
    type MakeKind = fn(u64, u64) -> Kind;
    let (kind, known): (MakeKind, &[&str]) = match name.as_str() {
        "SINGLE" => (|_, _| Kind::SINGLE, &[]),
        "PARTNER" => (|_, _| Kind::PARTNER, &[]),
        "XOR" => (|set_size, _| Kind::xor(set_size), &["set-size"]),
        "RS" => (Kind::rs, &["set-size", "set-failures"]),
        _ => bail!(section.error_of("type", format!("is `{name}'; it must be SINGLE, PARTNER, XOR or RS"))),
    };
    for key in ["set-size", "set-failures"] {
        let is_known = known.contains(&key) || !section.has(key);
        ensure!(is_known, section.error_of(key, format_args!("has no meaning for {name}")));
    }
    let failures = section.optional("set-failures", &whole(1, 128))?.unwrap_or(2);
    let least = if name == "RS" { failures + 1 } else { 2 };
    let set_size = section.optional("set-size", &whole(least, 1024))?.unwrap_or(8.max(least));
    let kind = kind(set_size, failures);
    let needed = kind.set_size;
    ensure!(needed <= nodes, section.error(format!("{kind} needs {needed} nodes, and there are {nodes}")));
    Ok(kind)
}

fn flush(root: &Section<'_>, nodes: u64, checkpoint: Option<f64>, restart: f64) -> Result<Flush> {
    let what = "[flush] with `cost', or `bandwidth' of the file system";
    let flush = root.section("flush")?.ok_or_else(|| root.error(format_args!("there is no {what}")))?;
    let flush = flush.only(&["cost", "bandwidth", "recover", "hidden"])?;
    let bandwidth = flush.optional("bandwidth", &bytes())?;
    let cost = match (flush.optional("cost", &seconds())?, bandwidth, checkpoint) {
        (Some(cost), None, _) => cost,
        (None, Some(bandwidth), Some(bytes)) => bytes * nodes as f64 / bandwidth,
        (None, Some(_), None) => {
            bail!(flush.error_of("bandwidth", "says nothing without `checkpoint', the bytes on each node"))
        }
        (Some(_), Some(_), _) => bail!(flush.error_of("bandwidth", "and `flush.cost' exclude each other")),
        (None, None, _) => bail!(flush.error("`flush.cost' or `flush.bandwidth' is missing")),
    };
    let recover = flush.optional("recover", &seconds())?.unwrap_or(cost + restart);
    let hidden = flush.optional("hidden", &number("a share", 0.0..=1.0, |_| None))?.unwrap_or(0.0);
    Ok(Flush { cost, recover, hidden })
}

fn failures(root: &Section<'_>, nodes: u64) -> Result<Vec<Failure>> {
    let what = "there is no [failures] with the times between failures";
    let section = root.section("failures")?.ok_or_else(|| root.error(what))?;
    let section = section.only(&["processes", "node", "any-node", "several", "all"])?;
    let gap = time(1e-3);
    let between = |key| section.optional(key, &gap);
    let one = Loss::Nodes { count: 1, in_group: false };
    let mut failures = Vec::new();
    let mut add =
        |loses, gap: Option<f64>| failures.extend(gap.map(|gap| Failure { loses, rate: 1.0 / gap }));
    add(Loss::Processes, between("processes")?);
    let (node, any) = (between("node")?, between("any-node")?);
    let is_clear = node.is_none() || any.is_none();
    ensure!(is_clear, section.error_of("any-node", "and `failures.node' exclude each other"));
    add(one, node.map(|gap| gap / nodes as f64).or(any));
    for several in section.sections("several")? {
        let several = several.only(&["nodes", "every", "group"])?;
        let in_group = several.optional("group", &flag())?.unwrap_or(false);
        let count = several.required("nodes", &whole(2, nodes.max(2)))?;
        add(Loss::Nodes { count, in_group }, Some(several.required("every", &gap)?));
    }
    add(Loss::Everything, between("all")?);
    let cure = "nothing fails; give `node', `any-node', `processes', `all' or [[failures.several]]";
    ensure!(!failures.is_empty(), section.error(cure));
    Ok(failures)
}

/// Seconds: up to a hundred thousand years.
pub(super) fn seconds() -> Form<'static, f64> {
    time(0.0)
}

/// Bytes.
pub(super) fn bytes() -> Form<'static, f64> {
    let size = |text: &str| param::Kind::Bytes { least: 0 }.value::<u64>(text).map(|bytes| bytes as f64);
    number("bytes, or a size such as \"2GB\"", 1.0..=1e18, size)
}

/// Failures per second.
pub(super) fn rate() -> Form<'static, f64> {
    number("failures per second", 0.0..=1e3, |_| None)
}

fn time(least: f64) -> Form<'static, f64> {
    let length = |text: &str| crate::time::length(text).ok().map(|time| time.as_secs_f64());
    number("seconds, or a time such as \"30m\" or \"5years\"", least..=3.2e12, length)
}

/// A number in its range; `read` reads one that is a text.
fn number(what: &str, range: RangeInclusive<f64>, read: fn(&str) -> Option<f64>) -> Form<'static, f64> {
    let what = format!("{what}, from {} to {}", range.start(), range.end());
    Form::new(what, move |value| {
        let number = match value {
            DeValue::Float(number) => number.as_str().parse().ok(),
            DeValue::String(text) => read(text),
            value => integer(value).map(|number| number as f64),
        };
        number.filter(|number| range.contains(number))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Site> {
        Site::read(Path::new("m.toml"), text)
    }

    const WHOLE: &str = "\
nodes = 1000
checkpoint = \"10GB\"
memory = \"64GB\"
[cache]
bandwidth = \"1GB\"
network = \"2GB\"
restart = 60
[flush]
bandwidth = \"100GB\"
hidden = 0.9
[failures]
processes = \"7d\"
node = \"5years\"
all = \"1y\"
[[failures.several]]
nodes = 4
every = \"60d\"
group = true
";

    #[test]
    fn costs_follow_from_bandwidths_as_the_schemes_move_their_bytes() {
        let site = read(WHOLE).unwrap();
        let cost =
            |kind| site.schemes.iter().find(|scheme| scheme.kind == kind).map(|scheme| scheme.cost).unwrap();
        assert_eq!(cost(Kind::SINGLE), 10.0);
        assert_eq!(cost(Kind::PARTNER), 20.0 + 5.0);
        assert!((cost(Kind::xor(8)) - (10.0 * 8.0 / 7.0 + 5.0)).abs() < 1e-9);
        let rs = Kind::rs(16, 4);
        assert!((cost(rs) - (10.0 * 16.0 / 12.0 + 5.0 * 15.0 / 12.0)).abs() < 1e-9);
        assert_eq!((site.flush.cost, site.flush.recover, site.flush.hidden), (100.0, 160.0, 0.9));
        assert_eq!(site.name, "m");
    }

    #[test]
    fn failures_are_rates_of_the_whole_job() {
        let site = read(WHOLE).unwrap();
        let found: Vec<_> =
            site.failures.iter().map(|failure| (failure.loses, (1.0 / failure.rate).round())).collect();
        let node = Loss::Nodes { count: 1, in_group: false };
        let group = Loss::Nodes { count: 4, in_group: true };
        let year = 365.25 * 86400.0;
        assert_eq!(
            found,
            [
                (Loss::Processes, 604_800.0),
                (node, (5.0 * year / 1000.0_f64).round()),
                (group, 5_184_000.0),
                (Loss::Everything, year)
            ]
        );
    }

    #[test]
    fn a_scheme_survives_what_its_sets_can_lose() {
        let one = Loss::Nodes { count: 1, in_group: false };
        let two = Loss::Nodes { count: 2, in_group: false };
        let group = Loss::Nodes { count: 4, in_group: true };
        let xor = Kind::xor(8);
        assert_eq!(
            [Loss::Processes, one, group, Loss::Everything].map(|loss| xor.survives(loss, 64)),
            [1.0, 1.0, 1.0, 0.0]
        );
        assert_eq!(
            [Loss::Processes, one, group].map(|loss| Kind::SINGLE.survives(loss, 64)),
            [1.0, 0.0, 0.0]
        );
        // Of 31 nodes there are seven such groups, and a set of eight has two members in one of them.
        assert_eq!([xor, Kind::xor(4), Kind::rs(8, 4)].map(|kind| kind.survives(group, 31)), [0.0, 1.0, 1.0]);
        assert!((xor.survives(two, 64) - 56.0 / 63.0).abs() < 1e-12, "the second is in another set");
        assert_eq!(Kind::rs(8, 2).survives(two, 64), 1.0);
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said_with_its_line() {
        let without = |line: &str| WHOLE.replace(line, "");
        let with = |from: &str, to: &str| WHOLE.replace(from, to);
        let cases = [
            (String::new(), "m.toml:1: the key `nodes' is missing: a whole number from 1 to 100000000"),
            (with("nodes = 1000", "nodse = 1000"), "m.toml:1: unknown key `nodse'; did you mean `nodes'?"),
            (
                with("nodes = 1000", "nodes = 0"),
                "m.toml:1: `nodes' is 0; it must be a whole number from 1 to 100000000",
            ),
            (with("nodes = 1000", "nodes = -4"), "m.toml:1: `nodes' is -4; it must be a whole number"),
            (with("nodes = 1000", "nodes = 1e3"), "m.toml:1: `nodes' is 1e3; it must be a whole number"),
            (
                with("\"10GB\"", "\"much\""),
                "m.toml:2: `checkpoint' is \"much\"; it must be bytes, or a size such as \"2GB\"",
            ),
            (with("\"10GB\"", "0"), "m.toml:2: `checkpoint' is 0; it must be bytes"),
            (with("\"64GB\"", "nan"), "m.toml:3: `memory' is nan; it must be bytes"),
            (
                without("bandwidth = \"1GB\""),
                "m.toml:1: the key `cache.bandwidth' is missing, from which the cost of SINGLE follows",
            ),
            (
                without("network = \"2GB\""),
                "m.toml:1: the key `cache.network' is missing, from which the cost of PARTNER follows",
            ),
            (with("network", "netwrok"), "m.toml:6: unknown key `cache.netwrok'; did you mean `network'?"),
            (without("bandwidth = \"100GB\""), "m.toml:8: `flush.cost' or `flush.bandwidth' is missing"),
            (
                with("bandwidth = \"100GB\"", "bandwidth = 5\ncost = 5"),
                "m.toml:9: `flush.bandwidth' and `flush.cost' exclude each other",
            ),
            (
                with("hidden = 0.9", "hidden = 1.9"),
                "m.toml:10: `flush.hidden' is 1.9; it must be a share, from 0 to 1",
            ),
            (
                with("\"7d\"", "\"-7d\""),
                "m.toml:12: `failures.processes' is \"-7d\"; it must be seconds, or a time such as",
            ),
            (with("\"7d\"", "0"), "m.toml:12: `failures.processes' is 0; it must be seconds"),
            (
                with("all = \"1y\"", "any-node = 5"),
                "m.toml:14: `failures.any-node' and `failures.node' exclude each other",
            ),
            (
                with("nodes = 4", "nodes = 1"),
                "m.toml:16: `failures.several.nodes' is 1; it must be a whole number from 2 to 1000",
            ),
            (without("every = \"60d\""), "m.toml:15: the key `failures.several.every' is missing: seconds"),
            (
                with("group = true", "group = 1"),
                "m.toml:18: `failures.several.group' is 1; it must be true or false",
            ),
            (
                "nodes = 8\n[flush]\ncost = 1\n".to_owned() + SCHEME,
                "m.toml:1: there is no [failures] with the times between failures",
            ),
            (
                "nodes = 8\n".to_owned() + SCHEME,
                "m.toml:1: there is no [flush] with `cost', or `bandwidth' of the file system",
            ),
            (
                with("[cache]", "[[scheme]]\ntype = \"XRO\"\n[cache]"),
                "m.toml:5: `scheme.type' is `XRO'; it must be SINGLE, PARTNER, XOR or RS",
            ),
            (
                with("[cache]", "[[scheme]]\ntype = \"XOR\"\nset-failures = 2\n[cache]"),
                "m.toml:6: `scheme.set-failures' has no meaning for XOR",
            ),
            (
                with("[cache]", "[[scheme]]\ntype = \"RS\"\nset-failures = 4\nset-size = 4\n[cache]"),
                "m.toml:7: `scheme.set-size' is 4; it must be a whole number from 5",
            ),
            (with("nodes = 1000", "nodes = 4") + SCHEME, "m.toml:19: XOR 8 needs 8 nodes, and there are 4"),
            (with("[cache]", "[cache"), "m.toml:4: "),
            ("nodes = 5\nflush = 7".to_owned(), "m.toml:"),
        ];
        for (text, expected) in cases {
            let error = read(&text).expect_err(&text).to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
            assert!(!error.contains('\n'), "{error:?}");
        }
        let nothing = read(WHOLE.split("processes").next().unwrap()).unwrap_err().to_string();
        assert!(nothing.starts_with("m.toml:11: nothing fails; give `node'"), "{nothing}");
    }

    const SCHEME: &str = "[[scheme]]\ntype = \"XOR\"\ncost = 5\n";
}
