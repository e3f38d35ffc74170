//! Resource managers and launchers, as the files below `etc/scr` describe them.
//!
//! Those of the project are part of the command, so that it works from any place. A file of the installation with the same name
//! takes precedence, and a site can add more. The page "Running jobs" explains every key.

use super::{process, read_text};
use crate::prelude::*;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use std::io::ErrorKind;
use std::time::{SystemTime, UNIX_EPOCH};

/// The manager of the nodes of a job.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct ResourceManager {
    /// Its name, for people.
    pub(crate) name: String,
    /// A job of it has one of these variables.
    pub(crate) detect: Vec<String>,
    /// The id of the allocation.
    pub(crate) job_id: Query,
    /// Which element of an array of jobs the allocation is; 0 if it is none.
    pub(crate) job_index: Query,
    /// The nodes of the allocation.
    pub(crate) nodes: Query,
    /// When the allocation ends.
    pub(crate) end_time: Query,
    /// Which nodes of the allocation are out of order.
    pub(crate) down: Query,
    /// The ids of the user's allocations that have not ended.
    pub(crate) live_jobs: Query,
    /// How to run a command on one of the nodes.
    pub(crate) on_node: Option<OnNode>,
    /// The command that ends a job step; `{step}` is its id.
    pub(crate) kill_step: Vec<String>,
    /// The form of the id of a job step.
    pub(crate) step_id: StepId,
    /// Whether an agent needs a job step of its own, as all processes of the application's step may end with it.
    pub(crate) agent_steps: bool,
    /// Variables that its commands take for options, and that commands of scr do not pass on to them; a star at the end stands
    /// for any end.
    hide: Vec<String>,
    /// Those that are passed on all the same.
    keep: Vec<String>,
    /// Seconds to wait before a job is started again, so that nodes come to rest.
    pub(crate) pause: u64,
}

impl ResourceManager {
    /// The variables of this environment that its commands must not see.
    pub(crate) fn hidden(&self, env: &Env) -> Vec<String> {
        let is_meant = |pattern: &String, name: &str| match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => pattern == name,
        };
        let is_hidden = |name: &&String| {
            self.hide.iter().any(|pattern| is_meant(pattern, name)) && !self.keep.contains(name)
        };
        env.variables.keys().filter(is_hidden).cloned().collect()
    }

    /// The allocation as its commands name it, an element of an array with its index; `None` outside of any.
    ///
    /// # Errors
    /// A command fails.
    pub(crate) fn own_job_id(&self, env: &Env) -> Result<Option<String>> {
        let (id, index) = (self.job_id.text(env)?, self.job_index.text(env)?);
        let index = index.filter(|index| index.bytes().any(|digit| digit != b'0'));
        Ok(id.map(|id| index.into_iter().fold(id, |id, index| format!("{id}[{index}]"))))
    }
}

/// The form of the id of a job step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum StepId {
    /// A word.
    #[default]
    Word,
    /// A number from 1.
    Number,
    /// The number of a process that is not everybody's.
    Process,
    /// The job's id, a dot, and the step's; without the dot it would be the whole job.
    OfJob,
}

impl StepId {
    /// The form in words, for a message.
    pub(crate) fn shape(self) -> &'static str {
        match self {
            Self::Word => "one word of letters, digits, `.', `_' and `+'",
            Self::Number => "a number from 1 on",
            Self::Process => "the process id of its launcher",
            Self::OfJob => "JOBID.STEP",
        }
    }

    /// Whether this may be one. It becomes a word of a command line.
    pub(crate) fn allows(self, step: &str) -> bool {
        let begins_with_digit = step.starts_with(|first: char| first.is_ascii_digit());
        let number = step.parse::<i32>().ok().filter(|_| begins_with_digit);
        // Flux begins its ids with this letter.
        let word = step.strip_prefix('\u{192}').unwrap_or(step);
        let parts = step.split_once('.').filter(|_| begins_with_digit);
        match self {
            Self::Word => is_word(word) && !matches!(step.parse(), Ok(0..=1_u64)),
            Self::Number => number >= Some(1),
            Self::Process => number >= Some(2),
            Self::OfJob => parts.is_some_and(|(job, step)| is_word(job) && is_word(step)),
        }
    }
}

fn is_word(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'+');
    !text.is_empty() && text.bytes().all(allowed)
}

/// How a command is run on a node.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct OnNode {
    /// The words before the command; `{node}` is the node.
    pub(crate) command: Vec<String>,
    /// Whether a shell over there reads the command, and neither folder nor environment come along.
    #[serde(default)]
    pub(crate) shell: bool,
    /// An argument that names the group of the node, `{group}`, where the allocation has several.
    pub(crate) group: Option<String>,
}

/// The program that starts the ranks of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Launcher {
    /// The names of its program.
    pub(crate) programs: Vec<String>,
    /// The word that must follow the program: `run`, for `flux run`.
    pub(crate) subcommand: Option<String>,
    /// Arguments that it always gets, before those of the user.
    pub(crate) always: Vec<String>,
    /// Arguments that name nodes to leave out; `{nodes}` is the list.
    pub(crate) exclude: Vec<String>,
    /// Whether a colon begins another part of the command line, with options and a program of its own.
    pub(crate) parts: bool,
    /// Text in the `--version` output of a launcher that takes the file with the nodes once, and not for each part.
    pub(crate) file_once_if: Option<String>,
    /// Arguments that name a file with the nodes to use; `{file}` is the file.
    pub(crate) hostfile: Vec<String>,
}

/// Everything that is described.
pub(crate) struct Manifests {
    resource_managers: BTreeMap<String, ResourceManager>,
    launchers: BTreeMap<String, Launcher>,
}

/// Name of the resource manager that is none.
pub(crate) const NONE: &str = "none";

macro_rules! built_in {
    ($kind:literal: $($name:literal),*) => {
        &[$(($name, include_str!(concat!("../../../etc/", $kind, "/", $name, ".toml")))),*]
    };
}

const RESOURCE_MANAGERS: &[(&str, &str)] =
    built_in!("resource-managers": "flux", "lsf", "none", "pbs", "slurm");
const LAUNCHERS: &[(&str, &str)] = built_in!("launchers": "aprun", "flux", "jsrun", "lrun", "mpirun", "srun");

impl Manifests {
    /// Those of the project, and those of the installation.
    ///
    /// # Errors
    /// A file cannot be read, or is none of its kind; the error names it.
    pub(crate) fn load(env: &Env) -> Result<Self> {
        let site = env.etc().map(|etc| etc.join("scr"));
        let site = site.as_deref();
        let nameless = |found: &ResourceManager| found.name.is_empty().then_some("name");
        let programless = |found: &Launcher| found.programs.is_empty().then_some("programs");
        Ok(Self {
            resource_managers: manifests(RESOURCE_MANAGERS, site, "resource-managers", nameless)?,
            launchers: manifests(LAUNCHERS, site, "launchers", programless)?,
        })
    }

    /// The one that is asked for, or else the one that this job runs under, or else `none`.
    ///
    /// # Errors
    /// There is none of the name that is asked for.
    pub(crate) fn resource_manager(&self, wanted: Option<&str>, env: &Env) -> Result<&ResourceManager> {
        let all = &self.resource_managers;
        let is_here =
            |manager: &&ResourceManager| manager.detect.iter().any(|name| env.variable(name).is_some());
        if let (None, Some(found)) = (wanted, all.values().find(is_here)) {
            return Ok(found);
        }
        let key = wanted.unwrap_or(NONE);
        let known = || joined(all.keys(), ", ");
        all.get(key)
            .with_context(|| format!("there is no resource manager `{key}'; described are {}", known()))
    }

    /// All of them.
    pub(crate) fn resource_managers(&self) -> impl Iterator<Item = &ResourceManager> {
        self.resource_managers.values()
    }

    /// The one that starts jobs with this program.
    pub(crate) fn launcher(&self, command: &[std::ffi::OsString]) -> Option<&Launcher> {
        let program = Path::new(command.first()?).file_name()?.to_str()?;
        let next = command.get(1).and_then(|argument| argument.to_str());
        self.launchers.values().find(|launcher| {
            let subcommand = launcher.subcommand.as_deref();
            launcher.programs.iter().any(|name| name == program)
                && (subcommand.is_none() || subcommand == next)
        })
    }
}

fn manifests<T: DeserializeOwned>(
    built_in: &[(&str, &str)],
    site: Option<&Path>,
    kind: &str,
    lacks: impl Fn(&T) -> Option<&'static str>,
) -> Result<BTreeMap<String, T>> {
    let mut all = BTreeMap::new();
    for (name, text) in built_in {
        let manifest = toml::from_str(text).with_context(|| format!("in the built-in {kind}/{name}.toml"))?;
        all.insert((*name).to_owned(), manifest);
    }
    let Some(folder) = site.map(|site| site.join(kind)) else { return Ok(all) };
    let paths = match paths_in(&folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        listed => listed.or_cannot("list", &folder)?,
    };
    for path in paths {
        let name = path.file_stem().and_then(|name| name.to_str()).map(str::to_owned);
        if let (Some(name), Some("toml")) = (name, path.extension().and_then(|end| end.to_str())) {
            let text = read_text(&path).or_cannot("read", &path)?;
            let manifest = toml::from_str(&text).with_context(|| format!("in {}", path.display()))?;
            if let Some(key) = lacks(&manifest) {
                bail!("in {}: missing field `{key}'", path.display());
            }
            all.insert(name, manifest);
        }
    }
    Ok(all)
}

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
        let nodes = hostlist::compress(about.nodes);
        let fill = |word: &String| word.replace("{job}", about.job).replace("{nodes}", &nodes);
        let command: Vec<_> = self.command.iter().map(fill).collect();
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
                    let most = hostlist::MOST_NODES;
                    ensure!(nodes.len() + usize::from(slots) <= most, "it has more than {most} slots");
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
    use scr_base::fs::RealFiles;
    use scr_config::param::{self, DefaultValue};
    use scr_test_kit::TestEnv;
    use std::ffi::OsString;
    use std::sync::Arc;

    fn world() -> scr_test_kit::TestEnv {
        TestEnv::new(Arc::new(RealFiles), "/")
    }

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn a_resource_manager_is_known_by_the_variables_of_its_jobs() {
        let manifests = Manifests::load(&world().env()).unwrap();
        for (variable, name) in [
            ("SLURM_JOB_ID", "Slurm"),
            ("LSB_JOBID", "LSF"),
            ("PBS_JOBID", "PBS"),
            ("FLUX_JOB_ID", "Flux"),
            ("NOTHING", "none"),
        ] {
            let env = world().with_variable(variable, "7").env();
            assert_eq!(manifests.resource_manager(None, &env).unwrap().name, name);
        }
        let error = manifests.resource_manager(Some("moab"), &world().env()).unwrap_err();
        assert!(error.to_string().contains("described are flux, lsf, none, pbs, slurm"));
    }

    /// Else what a run has left in cache is not found by the next one, or by the commands.
    #[test]
    fn a_job_takes_its_id_from_the_same_variables_as_the_commands() {
        let DefaultValue::VariablesOr(of_a_job, _) = param::JOB_ID.info().default else {
            panic!("it has others")
        };
        for manager in Manifests::load(&world().env()).unwrap().resource_managers.values() {
            let of_commands = &manager.job_id.variables;
            let known: Vec<_> =
                of_a_job.iter().filter(|name| of_commands.iter().any(|of| of == *name)).collect();
            assert!(known.into_iter().eq(of_commands), "{}: {of_commands:?}, {of_a_job:?}", manager.name);
        }
    }

    #[test]
    fn a_launcher_is_known_by_its_program() {
        let manifests = Manifests::load(&world().env()).unwrap();
        let exclude =
            |command: &str| manifests.launcher(&words(command)).map(|launcher| launcher.exclude.len());
        assert_eq!(exclude("/usr/bin/srun -n 4 ./app"), Some(1));
        assert_eq!(exclude("flux run -n 4 ./app"), Some(1));
        assert_eq!(exclude("flux submit ./app"), None);
        assert_eq!(exclude("./app"), None);
        assert!(!manifests.launcher(&words("mpirun.openmpi ./app")).unwrap().hostfile.is_empty());
    }

    #[test]
    fn a_file_of_the_installation_counts_before_the_one_that_is_built_in() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("etc/scr/resource-managers");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("slurm.toml"), "name = \"ours\"\ndetect = [\"OURS\"]\n").unwrap();
        let env = world().with_install_dir(dir.path()).with_variable("OURS", "1").env();
        let manifests = Manifests::load(&env).unwrap();
        assert_eq!(manifests.resource_manager(None, &env).unwrap().name, "ours");
        std::fs::write(folder.join("slurm.toml"), "nmae = \"ours\"\n").unwrap();
        let Err(error) = Manifests::load(&env) else { panic!("the slip is not seen") };
        assert!(format!("{error:#}").contains("slurm.toml"), "{error:#}");
    }
}

#[cfg(test)]
mod query_tests {
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
