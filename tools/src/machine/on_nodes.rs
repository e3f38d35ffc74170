//! Runs one command on many nodes, some of them at a time. A node that fails does not affect the others.

use super::manifest::OnNode;
use super::process::{self, Finished, Limit, Started};
use anyhow::{Context, Result};
use scr_base::env::Env;
use scr_config::descriptor::hostlist::is_same_node;
use scr_config::param::{self, Kind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::OnceLock;
use std::thread::Builder;

/// The way to run commands on nodes.
pub(crate) struct OnNodes<'a> {
    /// `None`: on this machine.
    pub(super) how: Option<&'a OnNode>,
    pub(super) env: &'a Env,
    /// Variables that a command on a node gets besides.
    pub(super) variables: Vec<(String, String)>,
    /// Variables that a command does not get.
    pub(super) hidden: &'a [String],
    /// The nodes of each group, where there are several.
    pub(super) groups: &'a [Vec<String>],
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
        let answers: Vec<OnceLock<Result<Finished>>> = nodes.iter().map(|_| OnceLock::new()).collect();
        let next = AtomicUsize::new(0);
        let work = || {
            let next = || nodes.iter().zip(&answers).nth(next.fetch_add(1, Ordering::Relaxed));
            while let Some((node, answer)) = next() {
                let command = self.command_line(node, command);
                let _ = answer.set(command.and_then(|line| process::run(&line, self.hidden, limit)));
            }
        };
        // Not with signals blocked, as those of a library are: the commands take over what is blocked.
        std::thread::scope(|scope| {
            let start = |_| Builder::new().spawn_scoped(scope, work);
            (1..AT_ONCE.min(nodes.len())).map(start).take_while(Result::is_ok).for_each(drop);
            work();
        });
        answers.into_iter().map(|answer| answer.into_inner().context("it was not asked")?).collect()
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
        let how = self.how.filter(|how| !how.shell || !is_name_of(node, &self.env.host));
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
        let settings = self.env.variables.iter().filter(|(name, _)| is_passed_on(name));
        let given = self.variables.iter().map(|(name, value)| (name, value));
        let settings = settings.chain(given).map(|(name, value)| format!("{name}={value}"));
        let dir = self.env.current_dir.to_str().context("the name of the current folder is not UTF-8")?;
        let words = ["cd".to_owned(), dir.to_owned()].into_iter();
        let first = shlex::try_join(words.collect::<Vec<_>>().iter().map(String::as_str))?;
        let rest: Vec<_> =
            std::iter::once("env".to_owned()).chain(settings).chain(command.iter().cloned()).collect();
        Ok(format!("{first} && exec {}", shlex::try_join(rest.iter().map(String::as_str))?))
    }
}

/// Whether a node is this machine.
fn is_name_of(node: &str, host: &str) -> bool {
    node == "localhost" || is_same_node(node, host)
}

fn is_passed_on(name: &str) -> bool {
    name.starts_with("SCR_") && !param::find(name).is_some_and(|info| info.kind == Kind::Secret)
}

#[cfg(test)]
mod tests {
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
