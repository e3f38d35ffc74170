//! A query to a resource manager: which variables, files and commands answer it, and in which format.

use super::process;
use super::read_text;
use anyhow::{bail, Context, Result};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use scr_base::env::Env;
use scr_config::descriptor::hostlist;
use serde::Deserialize;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The source of an answer: the first of the variables that is set, or the file that one names, or else a command.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Query {
    /// Variables that hold the answer.
    pub(crate) variables: Vec<String>,
    /// Variables whose names begin so, and end in 0, 1 and so on: each holds the answer for a group.
    groups: Option<String>,
    /// Variables that name a file with the answer.
    files: Vec<String>,
    /// A command that prints it; `{job}` is the id of the allocation, `{nodes}` the list of its nodes.
    pub(crate) command: Vec<String>,
    /// How to read it.
    #[serde(rename = "as")]
    form: AnswerFormat,
    /// Variables of which one is set where the first node is none of the job.
    but_first_if: Vec<String>,
    /// For nodes with states: those that count, by how they begin.
    states: Vec<String>,
}

/// How an answer is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum AnswerFormat {
    /// A word.
    #[default]
    Text,
    /// Nodes such as `n[1-3]`, on any number of lines.
    NodeList,
    /// One node on each line; one that stands there twice has two slots.
    NodeLines,
    /// `n1 4 n2 4`: each node with its slots.
    NodeCounts,
    /// On each line a node, its state, and anything else.
    NodeStates,
    /// Seconds since the epoch.
    Epoch,
    /// Local time, as in `2026-11-21T18:00:00`.
    LocalTime,
    /// Seconds left.
    SecondsLeft,
    /// Hours and minutes left, as in `1:30`, and anything else.
    HoursLeft,
}

/// The allocation that a query is about.
#[derive(Clone, Copy, Default)]
pub(crate) struct About<'a> {
    /// Stands for `{job}`.
    pub(crate) job: &'a str,
    /// Stand for `{nodes}`.
    pub(crate) nodes: &'a [String],
    /// Variables that the command does not get.
    pub(crate) hidden: &'a [String],
}

impl About<'_> {
    fn fill(&self, text: &str) -> String {
        text.replace("{job}", self.job).replace("{nodes}", &hostlist::compress(self.nodes))
    }
}

/// How long a command of the resource manager may take.
const TIMEOUT: Duration = Duration::from_secs(60);

impl Query {
    /// The answer as text; `None` where nothing answers.
    ///
    /// # Errors
    /// A file or a command fails.
    fn ask(&self, env: &Env, about: About<'_>) -> Result<Option<String>> {
        let groups = self.of_groups(env);
        if !groups.is_empty() {
            return Ok(Some(groups.join(" ")));
        }
        if let Some(value) = self.variables.iter().find_map(|name| env.variable(name)) {
            return Ok(Some(value.to_owned()));
        }
        if let Some((name, path)) = self.files.iter().find_map(|name| Some((name, env.variable(name)?))) {
            let text = read_text(path.as_ref());
            return text.map(Some).with_context(|| format!("cannot read {path}, which {name} names"));
        }
        let command: Vec<_> = self.command.iter().map(|word| about.fill(word)).collect();
        if command.is_empty() {
            return Ok(None);
        }
        let answer = process::output_of(&command, about.hidden, TIMEOUT)?;
        Ok(Some(answer).filter(|answer| !answer.trim().is_empty()))
    }

    /// The answers for the groups, where there are several.
    fn of_groups<'e>(&self, env: &'e Env) -> Vec<&'e str> {
        let Some(start) = &self.groups else { return Vec::new() };
        (0..).map_while(|number: usize| env.variable(&format!("{start}{number}"))).collect()
    }

    /// The nodes of each group, where there are several.
    ///
    /// # Errors
    /// An answer is of another form.
    pub(crate) fn groups(&self, env: &Env) -> Result<Vec<Vec<String>>> {
        self.of_groups(env).into_iter().map(|text| self.nodes_in(text)).collect()
    }

    /// The same query without variables, which hold what was true at the start.
    pub(crate) fn by_command(self) -> Self {
        Self { variables: Vec::new(), ..self }
    }

    /// All words that a command prints.
    ///
    /// # Errors
    /// The command fails.
    pub(crate) fn words(&self, hidden: &[String]) -> Result<Vec<String>> {
        let text = process::output_of(&self.command, hidden, TIMEOUT)?;
        Ok(text.split_whitespace().map(str::to_owned).collect())
    }

    /// A word.
    ///
    /// # Errors
    /// As for `ask`.
    pub(crate) fn text(&self, env: &Env) -> Result<Option<String>> {
        Ok(self.ask(env, About::default())?.map(|text| text.trim().to_owned()))
    }

    /// Nodes, each as often as it has slots, or once where slots are not given.
    ///
    /// # Errors
    /// As for `ask`, or the answer is of another form.
    pub(crate) fn nodes(&self, env: &Env, about: About<'_>) -> Result<Vec<String>> {
        let Some(text) = self.ask(env, about)? else { return Ok(Vec::new()) };
        let mut nodes = self.nodes_in(&text)?;
        if self.but_first_if.iter().any(|name| env.variable(name).is_some()) && nodes.len() > 1 {
            let first = nodes[0].clone();
            nodes.retain(|node| *node != first);
        }
        Ok(nodes)
    }

    fn nodes_in(&self, text: &str) -> Result<Vec<String>> {
        let mut words = text.split_whitespace();
        match self.form {
            AnswerFormat::NodeList => Ok(hostlist::expand(text)?),
            AnswerFormat::NodeLines => Ok(words.map(str::to_owned).collect()),
            AnswerFormat::NodeCounts => {
                let mut nodes = Vec::new();
                while let Some(node) = words.next() {
                    let slots = words.next().and_then(|slots| slots.parse::<u16>().ok());
                    let slots = slots.with_context(|| format!("`{text}' has no number after {node}"))?;
                    if nodes.len() + usize::from(slots) > hostlist::MOST_NODES {
                        bail!("it has more than {} slots", hostlist::MOST_NODES);
                    }
                    nodes.extend(std::iter::repeat_n(node.to_owned(), slots.into()));
                }
                Ok(nodes)
            }
            AnswerFormat::NodeStates => {
                Ok(text.lines().filter_map(|line| self.node_in_state(line)).collect())
            }
            _ => bail!("`as' is no form for nodes"),
        }
    }

    /// The node of a line, if its state is one of those that count. A state may be several: `down,offline`.
    fn node_in_state(&self, line: &str) -> Option<String> {
        let mut words = line.split_whitespace();
        let (node, state) = (words.next()?, words.next()?.to_ascii_lowercase());
        let counts = |state: &str| self.states.iter().any(|known| state.starts_with(known.as_str()));
        state.split([',', '+']).any(counts).then(|| node.to_owned())
    }

    /// A time, in seconds since the epoch; the earliest if the answer has several, one on each line.
    ///
    /// # Errors
    /// As for `ask`, or the answer is of another form.
    pub(crate) fn time(&self, env: &Env, about: About<'_>) -> Result<Option<u64>> {
        let Some(text) = self.ask(env, about)? else { return Ok(None) };
        let now = env.clock.now();
        let time =
            |line: &str| self.time_in(line, now).with_context(|| format!("`{line}' is no time of its form"));
        let times: Vec<_> = text.lines().map(|line| time(line.trim())).collect::<Result<_>>()?;
        Ok(times.into_iter().flatten().min())
    }

    /// Words such as `UNLIMITED` and `-` say that there is no end.
    fn time_in(&self, text: &str, now: SystemTime) -> Result<Option<u64>> {
        if !text.starts_with(|letter: char| letter.is_ascii_digit()) {
            return Ok(None);
        }
        let now = now.duration_since(UNIX_EPOCH)?.as_secs();
        let first = text.split_whitespace().next().unwrap_or(text);
        match self.form {
            AnswerFormat::Epoch => Ok(Some(first.parse()?)),
            AnswerFormat::SecondsLeft => {
                let whole = first.split_once('.').map_or(first, |(whole, _)| whole);
                Ok(Some(now.saturating_add(whole.parse()?)))
            }
            AnswerFormat::HoursLeft => {
                let (hours, minutes) = first.split_once(':').context("there is no colon")?;
                let (hours, minutes): (u64, u64) = (hours.parse()?, minutes.parse()?);
                let left =
                    hours.checked_mul(3600).and_then(|left| left.checked_add(minutes.checked_mul(60)?));
                Ok(Some(now.saturating_add(left.context("it is too long")?)))
            }
            AnswerFormat::LocalTime => {
                let time = DateTime::strptime("%Y-%m-%dT%H:%M:%S", first)?;
                let time = TimeZone::system().to_ambiguous_timestamp(time);
                let time = time.earlier().context("there was no such time")?;
                Ok(Some(time.as_second().try_into()?))
            }
            _ => bail!("`as' is no form for a time"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> Query {
        toml::from_str(text).expect("a query")
    }

    #[test]
    fn nodes_come_in_the_forms_of_the_resource_managers() {
        for (form, text, nodes) in [
            ("node-list", "n[1-2]\nn7\n", "n1 n2 n7"),
            ("node-lines", "n1\nn1\nn2\n", "n1 n1 n2"),
            ("node-counts", "n1 2 n2 1", "n1 n1 n2"),
            ("node-states", "n1 idle\nn2 down* maintenance\nn3 offline,job-busy\n\nn4", "n2 n3"),
        ] {
            let query = query(&format!("as = \"{form}\"\nstates = [\"down\", \"off\"]"));
            assert_eq!(query.nodes_in(text).unwrap().join(" "), nodes, "{form}");
        }
        assert!(query("as = \"node-counts\"").nodes_in("n1 n2").is_err());
        assert!(query("as = \"epoch\"").nodes_in("n1").is_err());
    }

    #[test]
    fn times_come_in_the_forms_of_the_resource_managers() {
        let now = UNIX_EPOCH + Duration::from_secs(1000);
        for (form, text, time) in [
            ("epoch", "1700000000", Some(1_700_000_000)),
            ("seconds-left", "90.5", Some(1090)),
            ("hours-left", "1:30 L", Some(1000 + 5400)),
            ("local-time", "NONE", None),
            ("hours-left", "-", None),
        ] {
            let query = query(&format!("as = \"{form}\""));
            assert_eq!(query.time_in(text, now).unwrap(), time, "{form} {text}");
        }
        let local = query("as = \"local-time\"").time_in("2026-11-21T18:00:00", now).unwrap().unwrap();
        assert!(local.abs_diff(1_795_284_000) <= 14 * 3600, "{local}");
        for (form, text) in [("epoch", "12x"), ("hours-left", "90"), ("local-time", "2026"), ("text", "1")] {
            assert!(query(&format!("as = \"{form}\"")).time_in(text, now).is_err(), "{form} {text}");
        }
    }
}
