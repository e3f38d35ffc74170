//! The allocation of a job: its id, its nodes and its end, from the parameters or from the resource manager.

use super::manifest::{About, Manifests, OnNode, ResourceManager};
use super::pretend::PretendNodes;
use super::process::{self, Finished, Limit, Started};
use super::read_text;
use crate::environment::as_setting;
use crate::prelude::*;
use nix::sys::signal::SigSet;
use scr_base::parallel::at_a_time;
use scr_config::descriptor::hostlist::is_same_node;
use scr_config::param::{Kind, Origin};
use scr_prefix::KnownEnd;

/// The user's values, which replace those of the resource manager.
#[derive(Args, Debug, Default, Clone)]
pub(crate) struct Overrides {
    /// The resource manager [default: the one whose variables are set]
    #[arg(long, value_name = "NAME")]
    pub(crate) resource_manager: Option<String>,
    /// A file with the nodes of the job, one per line [default: SCR_NODELIST, or the resource manager's list]
    #[arg(long, value_name = "FILE")]
    pub(crate) hostfile: Option<PathBuf>,
    /// The nodes themselves.
    #[arg(skip)]
    pub(crate) nodes: Option<Vec<String>>,
    /// Whether the job has run: pretend nodes of its last run are then its nodes.
    #[arg(skip)]
    pub(crate) has_run: bool,
}

/// Nodes that belong to a job for some time.
pub(crate) struct Allocation {
    /// Its manager.
    pub(crate) manager: ResourceManager,
    env: Env,
    /// Variables that commands of the resource manager do not get.
    hidden: Vec<String>,
    /// The allocation as these commands name it.
    own_job_id: String,
    /// The nodes of each group, where it has several.
    groups: Vec<Vec<String>>,
    /// The prefix directory of the job.
    pub(crate) prefix: String,
    /// Its id, in paths and logs.
    pub(crate) job_id: String,
    /// Its nodes, each once.
    pub(crate) nodes: Vec<String>,
    /// Lines of a host file: a node and optional words after it.
    pub(crate) host_lines: Vec<(String, String)>,
    /// Whether a launcher cannot know of the nodes by itself.
    pub(crate) nodes_are_ours: bool,
    /// When it ends, in seconds since the epoch.
    pub(crate) end_time: Option<u64>,
    /// Whether the user has said so.
    end_is_given: bool,
}

impl Allocation {
    /// Finds the allocation that this process runs in, and warns about what is missing but not needed.
    ///
    /// # Errors
    /// The nodes cannot be found out, or there is no resource manager of the name that is asked for.
    pub(crate) fn find(env: &Env, params: &Params, manifests: &Manifests, given: &Overrides) -> Result<Self> {
        let mut manager = manifests.resource_manager(given.resource_manager.as_deref(), env)?.clone();
        let job_id = job_id(env, params, &manager);
        let own_job_id = manager.own_job_id(env).ok().flatten().unwrap_or_else(|| job_id.clone());
        let hidden = manager.hidden(env);
        let about = About { job: &own_job_id, nodes: &[], hidden: &hidden };
        let (mut host_lines, mut nodes_are_ours) = nodes(env, params, &manager, given, about)?;
        let dir = params.get(&param::PREFIX);
        let pretend = PretendNodes::noted(env, &dir, &manager);
        if let (true, true, Some(pretend)) = (given.has_run, host_lines.is_empty(), &pretend) {
            host_lines = plain(pretend.of_last_run(env, &dir, &job_id));
            nodes_are_ours = !host_lines.is_empty();
        }
        let groups = if nodes_are_ours { Vec::new() } else { manager.nodes.groups(env)? };
        let nodes = hostlist::unique(host_lines.iter().map(|(node, _)| node.clone()));
        // The names come from files, variables and commands, and become words of command lines.
        let named = nodes.iter().try_for_each(|node| hostlist::check_name(node));
        named.context("in the list of the job's nodes")?;
        if let Some(pretend) = pretend.filter(|pretend| pretend.lead_to(&nodes)) {
            manager.on_node = Some(pretend.on_node);
        }
        let prefix = dir.to_str().context("the name of the prefix directory is not UTF-8")?.to_owned();
        let about = About { nodes: &nodes, ..about };
        let end_time = params.get(&param::END_TIME).or_else(|| {
            manager.end_time.time(env, about).unwrap_or_else(|error| {
                warn(format_args!(
                    "the end of the allocation is not known, so nothing halts the job in time: {error:#}; \
                     set SCR_END_TIME"
                ));
                None
            })
        });
        Ok(Self {
            env: env.clone(),
            end_is_given: *params.origin(&param::END_TIME) != Origin::Default,
            manager,
            hidden,
            own_job_id,
            groups,
            prefix,
            job_id,
            nodes,
            host_lines,
            nodes_are_ours,
            end_time,
        })
    }

    /// Whether the job has this machine and no other.
    pub(crate) fn is_here_alone(&self) -> bool {
        self.host_lines.is_empty()
    }

    /// Whether agents need job steps of their own, on other nodes or on this one.
    pub(crate) fn wants_agent_steps(&self) -> bool {
        self.manager.agent_steps && self.manager.on_node.is_some() && !self.is_here_alone()
    }

    /// When it ends, as halt conditions count.
    pub(crate) fn end(&self) -> KnownEnd<'_> {
        let time = self.end_time.and_then(|end| i64::try_from(end).ok());
        KnownEnd { job_id: &self.job_id, time }
    }

    /// The query that asks the resource manager when the allocation ends, in seconds since the epoch; `None` if the user has
    /// given the end.
    pub(crate) fn end_question(&self) -> Option<impl FnOnce() -> Option<u64> + Send + 'static> {
        if self.end_is_given {
            return None;
        }
        let (mut query, env) = (self.manager.end_time.clone(), self.env.clone());
        // They hold what was true at the start.
        query.variables.clear();
        let (job, hidden) = (self.own_job_id.clone(), self.hidden.clone());
        Some(move || {
            let about = About { job: &job, nodes: &[], hidden: &hidden };
            // It may answer the next time.
            query.time(&env, about).ok().flatten()
        })
    }

    /// The way to run something on its nodes.
    pub(crate) fn on_nodes(&self) -> OnNodes<'_> {
        // On this machine alone there is nobody to be asked.
        let how = self.manager.on_node.as_ref().filter(|_| !self.is_here_alone());
        let variables = [(param::PREFIX.info(), &self.prefix), (param::JOB_ID.info(), &self.job_id)];
        let variables = variables.map(|(info, value)| (info.name.to_owned(), as_setting(value))).to_vec();
        OnNodes { how, env: &self.env, variables, hidden: &self.hidden, groups: &self.groups }
    }

    /// The nodes that the resource manager takes for broken.
    ///
    /// # Errors
    /// It cannot be asked.
    pub(crate) fn reported_down(&self) -> Result<Vec<String>> {
        let about = About { job: &self.own_job_id, nodes: &self.nodes, hidden: &self.hidden };
        self.manager.down.nodes(&self.env, about)
    }
}

/// The parameter where somebody has set it, or else what the resource manager says.
fn job_id(env: &Env, params: &Params, manager: &ResourceManager) -> String {
    let id = params.get(&param::JOB_ID);
    if *params.origin(&param::JOB_ID) != Origin::Default {
        return id;
    }
    match manager.job_id.text(env) {
        Ok(found) => found.unwrap_or(id),
        Err(error) => {
            warn(format_args!("the id of the allocation cannot be found out, `{id}' is taken: {error:#}"));
            id
        }
    }
}

/// The id of the allocation that this process runs in.
///
/// # Errors
/// The descriptions of resource managers cannot be read.
pub(crate) fn current_job_id(env: &Env, params: &Params, manifests: &Manifests) -> Result<String> {
    let manager = manifests.resource_manager(None, env)?;
    Ok(job_id(env, params, manager))
}

/// Lines of a host file, and whether they are the user's own. None: this machine alone.
fn nodes(
    env: &Env,
    params: &Params,
    manager: &ResourceManager,
    given: &Overrides,
    about: About<'_>,
) -> Result<(Vec<(String, String)>, bool)> {
    if let Some(nodes) = &given.nodes {
        return Ok((plain(nodes.clone()), true));
    }
    if let Some(path) = &given.hostfile {
        return Ok((host_lines(path)?, true));
    }
    let found = manager.nodes.nodes(env, about);
    // A default is what one variable says, which need not be all.
    let is_default = *params.origin(&param::NODELIST) == Origin::Default;
    let is_known = found.as_ref().is_ok_and(|found| !found.is_empty());
    match params.get(&param::NODELIST).filter(|_| !(is_default && is_known)) {
        // The default comes from variables of a resource manager.
        Some(list) => {
            let nodes = hostlist::expand(&list).context("in SCR_NODELIST")?;
            let found = found.unwrap_or_default();
            let ours = hostlist::unique(found.clone()) != nodes;
            Ok((if ours { plain(nodes) } else { plain(found) }, ours))
        }
        None => {
            let why = || format!("{} does not give the nodes of the job; set SCR_NODELIST", manager.name);
            Ok((plain(found.with_context(why)?), false))
        }
    }
}

/// The lines of a host file with these nodes.
fn plain(nodes: Vec<String>) -> Vec<(String, String)> {
    nodes.into_iter().map(|node| (node.clone(), node)).collect()
}

/// The lines of a host file, each with its node: what stands before a blank or a colon.
fn host_lines(path: &Path) -> Result<Vec<(String, String)>> {
    let text = read_text(path).or_cannot("read the host file", path)?;
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or(line).trim());
    let lines = lines.filter(|line| !line.is_empty());
    let node = |line: &str| line.split([' ', '\t', ':']).next().unwrap_or(line).to_owned();
    let lines: Vec<_> = lines.map(|line| (node(line), line.to_owned())).collect();
    anyhow::ensure!(!lines.is_empty(), "the host file {} names no node", path.display());
    Ok(lines)
}

/// Runs one command on many nodes, some of them at a time. A node that fails does not affect the others.
pub(crate) struct OnNodes<'a> {
    /// `None`: on this machine.
    how: Option<&'a OnNode>,
    env: &'a Env,
    /// Variables that a command on a node gets besides.
    variables: Vec<(String, String)>,
    /// Variables that a command does not get.
    hidden: &'a [String],
    /// The nodes of each group, where there are several.
    groups: &'a [Vec<String>],
}

/// How many nodes work at the same time: each costs this machine a process and the resource manager a request.
pub(crate) const AT_ONCE: usize = 32;

impl OnNodes<'_> {
    /// Runs a command on each of the nodes, with the `SCR_` settings and the current folder of this process, and with
    /// what is known of the job. The answers come in the order of the nodes.
    pub(crate) fn run(
        &self,
        nodes: &[String],
        command: &[String],
        limit: Limit<'_>,
    ) -> Vec<Result<Finished>> {
        let mask = SigSet::thread_get_mask();
        at_a_time(AT_ONCE as u32, nodes, |node| {
            // Threads take no signals, and a command takes over what is blocked.
            mask.and_then(|mask| mask.thread_set_mask())?;
            process::run(&self.command_line(node, command)?, self.hidden, limit)
        })
    }

    /// Starts a command on a node, as [`run`](Self::run) does, and does not wait for it.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn start(&self, node: &str, command: &[String]) -> Result<Started> {
        process::start(&self.command_line(node, command)?, self.hidden)
    }

    /// The command as it is started on this machine, to run on that node.
    fn command_line(&self, node: &str, command: &[String]) -> Result<Vec<String>> {
        let with_variables = || {
            let mut line = vec!["env".to_owned()];
            line.extend(self.variables.iter().map(|(name, value)| format!("{name}={value}")));
            line.extend_from_slice(command);
            line
        };
        // A machine need not reach itself through a shell elsewhere.
        let how =
            self.how.filter(|how| !how.shell || !(node == "localhost" || is_same_node(node, &self.env.host)));
        let Some(how) = how else { return Ok(with_variables()) };
        let mut line: Vec<_> = how.command.iter().map(|word| word.replace("{node}", node)).collect();
        let group = self.groups.iter().position(|group| group.iter().any(|known| known == node));
        line.extend(
            group.zip(how.group.as_ref()).map(|(number, word)| word.replace("{group}", &number.to_string())),
        );
        if how.shell {
            line.push(self.for_shell(command)?);
        } else {
            line.extend(with_variables());
        }
        Ok(line)
    }

    /// One text that a shell elsewhere understands: the folder, the settings and the command. Without secrets: everybody on
    /// both machines can read the arguments of a process, and no command on a node needs them.
    fn for_shell(&self, command: &[String]) -> Result<String> {
        let settings = self.env.variables.iter().filter(|(name, _)| {
            name.starts_with("SCR_") && !param::find(name).is_some_and(|info| info.kind == Kind::Secret)
        });
        let given = self.variables.iter().map(|(name, value)| (name, value));
        let settings = settings.chain(given).map(|(name, value)| format!("{name}={value}"));
        let dir = self.env.current_dir.to_str().context("the name of the current folder is not UTF-8")?;
        let first = shlex::try_join(["cd", dir])?;
        let words = settings.chain(command.iter().cloned());
        let rest: Vec<_> = std::iter::once("env".to_owned()).chain(words).collect();
        Ok(format!("{first} && exec {}", shlex::try_join(rest.iter().map(String::as_str))?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::tests::WARNINGS;
    use scr_base::fs::RealFiles;
    use scr_config::param::{AppConfig, Settings};
    use scr_test_kit::TestEnv;
    use std::sync::Arc;

    fn find(env: &TestEnv, overrides: &Overrides) -> Result<(Allocation, Vec<String>)> {
        let env = env.env();
        let (params, _) = Params::resolve(&Settings::load(&env, &AppConfig::default()), &env);
        WARNINGS.take();
        let found = Allocation::find(&env, &params, &Manifests::load(&env)?, overrides)?;
        Ok((found, WARNINGS.take()))
    }

    fn world() -> TestEnv {
        TestEnv::new(Arc::new(RealFiles), "/")
    }

    #[test]
    fn without_a_resource_manager_it_is_this_machine_alone_unless_nodes_are_named() {
        let (here, warnings) = find(&world(), &Overrides::default()).unwrap();
        assert!(here.is_here_alone() && here.nodes.is_empty() && warnings.is_empty());
        assert_eq!((here.job_id.as_str(), here.end_time), ("defjobid", None));
        let named = world().with_variable("SCR_NODELIST", "n[0-1]").with_variable("SCR_JOB_ID", "5");
        let (named, _) = find(&named, &Overrides::default()).unwrap();
        assert_eq!((named.nodes.join(" "), named.nodes_are_ours), ("n0 n1".to_owned(), true));
        assert_eq!(named.job_id, "5");
    }

    #[test]
    fn slurm_variables_give_the_allocation() {
        let env = world()
            .with_variable("SLURM_JOB_ID", "77")
            .with_variable("SLURM_JOB_NODELIST", "n[1-3]")
            .with_variable("SLURM_JOB_END_TIME", "1700000000");
        let (slurm, warnings) = find(&env, &Overrides::default()).unwrap();
        assert_eq!((slurm.manager.name.as_str(), slurm.job_id.as_str()), ("Slurm", "77"));
        assert_eq!((slurm.nodes.len(), slurm.nodes_are_ours), (3, false));
        assert_eq!((slurm.end_time, warnings.len()), (Some(1_700_000_000), 0));
    }

    #[test]
    fn slots_are_kept_as_lines_and_nodes_count_once() {
        let env = world()
            .with_variable("LSB_JOBID", "8")
            .with_variable("LSB_MCPU_HOSTS", "a 2 b 1")
            .with_variable("SCR_END_TIME", "1");
        let (lsf, _) = find(&env, &Overrides::default()).unwrap();
        assert_eq!((lsf.nodes.join(" "), lsf.host_lines.len()), ("a b".to_owned(), 3));
    }

    #[test]
    fn a_host_file_is_taken_line_by_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hosts");
        std::fs::write(&path, "# ours\nn0 slots=2\nn1:4 # fast\n\nn2\n").unwrap();
        let overrides = Overrides { hostfile: Some(path.clone()), ..Overrides::default() };
        let (hosts, _) = find(&world().with_variable("SCR_NODELIST", "n9"), &overrides).unwrap();
        assert_eq!(hosts.nodes.join(" "), "n0 n1 n2");
        assert_eq!(hosts.host_lines[1], ("n1".to_owned(), "n1:4".to_owned()));
        std::fs::write(&path, "# none\n").unwrap();
        assert!(find(&world(), &overrides).is_err());
    }

    #[test]
    fn nodes_unknown_to_the_resource_manager_come_from_the_parameter() {
        let env = world().with_variable("PBS_JOBID", "9").with_variable("PBS_NODEFILE", "/no/such/file");
        let Err(error) = find(&env, &Overrides::default()) else { panic!("there are no nodes") };
        assert!(format!("{error:#}").contains("set SCR_NODELIST: cannot read /no/such/file"), "{error:#}");
        let (found, _) = find(&env.with_variable("SCR_NODELIST", "n[0-1]"), &Overrides::default()).unwrap();
        assert_eq!((found.nodes.join(" "), found.nodes_are_ours), ("n0 n1".to_owned(), true));
    }

    #[test]
    fn no_source_of_nodes_can_name_one_that_reads_as_an_option() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hosts");
        std::fs::write(&path, "n0\n-oProxyCommand=touch${IFS}x slots=2\n").unwrap();
        let file = path.to_str().unwrap();
        let hostfile = Overrides { hostfile: Some(path.clone()), ..Overrides::default() };
        for (env, overrides) in [
            (world(), hostfile),
            (
                world().with_variable("PBS_JOBID", "9").with_variable("PBS_NODEFILE", file),
                Overrides::default(),
            ),
            (
                world().with_variable("LSB_JOBID", "8").with_variable("LSB_MCPU_HOSTS", "-x 2"),
                Overrides::default(),
            ),
            (
                world().with_variable("SLURM_JOB_ID", "7").with_variable("SLURM_JOB_NODELIST", "-x"),
                Overrides::default(),
            ),
            (world().with_variable("SCR_NODELIST", "n0,-x"), Overrides::default()),
        ] {
            let Err(error) = find(&env.with_variable("SCR_END_TIME", "1"), &overrides) else {
                panic!("{overrides:?}")
            };
            assert!(format!("{error:#}").contains("is no name of a host"), "{error:#}");
        }
    }

    #[test]
    fn a_list_of_nodes_that_is_none_is_an_error_that_names_the_parameter() {
        let Err(error) = find(&world().with_variable("SCR_NODELIST", "n[1-"), &Overrides::default()) else {
            panic!("it is taken for a list")
        };
        assert!(format!("{error:#}").contains("SCR_NODELIST"), "{error:#}");
    }
}

#[cfg(test)]
mod on_nodes_tests {
    use super::*;
    use scr_base::fs::RealFiles;
    use scr_test_kit::TestEnv;
    use std::sync::Arc;
    use std::time::Duration;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn through<'a>(how: &'a OnNode, env: &'a Env, variables: Vec<(String, String)>) -> OnNodes<'a> {
        OnNodes { how: Some(how), env, variables, hidden: &[], groups: &[] }
    }

    #[test]
    fn each_node_answers_for_itself_and_in_its_place() {
        let env = TestEnv::new(Arc::new(RealFiles), "/").env();
        let how = OnNode {
            command: words("sh -c")
                .into_iter()
                .chain(["[ {node} = n7 ] && exit 3; \"$@\" {node}".into(), "sh".into()])
                .collect(),
            shell: false,
            group: None,
        };
        let nodes: Vec<_> = (0..100).map(|number| format!("n{number}")).collect();
        let answers = through(&how, &env, Vec::new()).run(
            &nodes,
            &words("echo I am"),
            Limit::Total(Duration::from_secs(60)),
        );
        for (number, answer) in answers.into_iter().enumerate() {
            let answer = answer.unwrap();
            assert_eq!(answer.succeeded(), number != 7);
            assert!(number == 7 || answer.stdout == format!("I am n{number}\n"), "{}", answer.stdout);
        }
    }

    /// It was left out, as no ssh server ran there.
    #[test]
    fn this_machine_itself_is_reached_without_a_shell_elsewhere() {
        let env = TestEnv::new(Arc::new(RealFiles), "/").with_host("n1.cluster").env();
        let how = OnNode { command: words("false {node}"), shell: true, group: None };
        let nodes = through(&how, &env, Vec::new());
        let limit = || Limit::Total(Duration::from_secs(60));
        for (node, is_here) in
            [("n1.cluster", true), ("n1", true), ("localhost", true), ("n1.other", false), ("n10", false)]
        {
            let answer = nodes.run(&[node.to_owned()], &["true".to_owned()], limit()).remove(0).unwrap();
            assert_eq!(answer.succeeded(), is_here, "{node}");
        }
    }

    #[test]
    fn a_shell_over_there_gets_folder_settings_and_words_as_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("it's here");
        std::fs::create_dir(&folder).unwrap();
        let env = TestEnv::new(Arc::new(RealFiles), folder.to_str().unwrap());
        let env = env.with_variable("SCR_PREFIX", "/a b").with_variable("HOME", "/none").env();
        let how = OnNode { command: words("sh -c"), shell: true, group: None };
        let command = ["sh", "-c", "pwd; echo \"$SCR_PREFIX $SCR_X $HOME\""].map(str::to_owned);
        let given = vec![("SCR_X".to_owned(), "$1".to_owned())];
        let limit = Limit::Total(Duration::from_secs(60));
        let mut answers = through(&how, &env, given).run(&["n0".to_owned()], &command, limit);
        let answer = answers.remove(0).unwrap();
        let home = std::env::var("HOME").unwrap_or_default();
        assert_eq!(answer.stdout, format!("{}\n/a b $1 {home}\n", folder.display()), "{}", answer.stderr);
    }

    #[test]
    fn no_secret_is_on_the_command_line_of_a_node() {
        let env = TestEnv::new(Arc::new(RealFiles), "/");
        let env =
            env.with_variable("SCR_LOG_DB_PASS", "hunter2").with_variable("SCR_LOG_DB_USER", "me").env();
        let how = OnNode { command: words("ssh {node}"), shell: true, group: None };
        let nodes = through(&how, &env, Vec::new());
        let line = nodes.command_line("n0", &["true".to_owned()]).unwrap().join(" ");
        assert!(line.contains("SCR_LOG_DB_USER=me") && !line.contains("hunter2"), "{line}");
    }
}
