//! `scr halt-cntl`, and C SCR's name for it: sets, unsets and lists the conditions of one halt file, for scripts. `scr halt` is
//! what people use.

use super::{change, HaltStatus};
use crate::prelude::*;

/// The action, and the file.
#[derive(Args)]
pub(crate) struct HaltCntlArgs {
    /// The halt file: .scr/halt.scr in a prefix directory
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// List the conditions, and change nothing
    #[arg(short, long)]
    list: bool,
    /// Set how many checkpoints are left
    #[arg(short, long, value_name = "N")]
    checkpoints: Option<i64>,
    /// Set the time to halt before, in seconds since the epoch or as `scr halt` takes it
    #[arg(short, long, value_name = "TIME", value_parser = time::seconds_or_ahead)]
    before: Option<i64>,
    /// Set the time to halt after, in seconds since the epoch or as `scr halt` takes it
    #[arg(short, long, value_name = "TIME", value_parser = time::seconds_or_ahead)]
    after: Option<i64>,
    /// Set the halt seconds
    #[arg(short, long, value_name = "SECONDS", value_parser = time::whole_seconds)]
    seconds: Option<i64>,
    /// Set the reason
    #[arg(short, long, value_name = "REASON")]
    reason: Option<String>,
    /// Remove the condition of the option with this letter, as in -xc; may be repeated
    #[arg(short = 'x', long, value_name = "CONDITION", value_parser = ["c", "b", "a", "s", "r"])]
    unset: Vec<String>,
}

/// Runs the command.
pub(crate) fn run(args: &HaltCntlArgs) -> Result<Answer> {
    let env = environment::env()?;
    let prefix = prefix_of(&env.current_dir.join(&args.file))
        .with_context(|| format!("{} is not .scr/halt.scr in a prefix directory", args.file.display()))?;
    let change = |halt: &mut Halt| (args.apply(halt) + "\n", Some(halt.clone()));
    let (changes, halt) = match args.list {
        true => (String::new(), Halt::read(&*env.files, &prefix)?),
        false => Halt::update(&*env.files, &prefix, change)?.value,
    };
    let mut status = HaltStatus::of(&env, &prefix, halt.as_ref());
    status.file = args.file.display().to_string();
    print(changes + &status.text())
}

/// The prefix directory whose halt file this is.
fn prefix_of(file: &Path) -> Option<Prefix> {
    let prefix = Prefix::new(file.parent()?.parent()?);
    (prefix.halt_file() == file).then_some(prefix)
}

impl HaltCntlArgs {
    fn apply(&self, halt: &mut Halt) -> String {
        let unset = |letter| self.unset.iter().any(|unset| unset == letter);
        [
            change("CheckpointsLeft", &mut halt.checkpoints_left, self.checkpoints, unset("c")),
            change("ExitAfter", &mut halt.exit_after, self.after, unset("a")),
            change("ExitBefore", &mut halt.exit_before, self.before, unset("b")),
            change("HaltSeconds", &mut halt.halt_seconds, self.seconds, unset("s")),
            change("ExitReason", &mut halt.exit_reason, self.reason.clone(), unset("r")),
        ]
        .concat()
    }
}
