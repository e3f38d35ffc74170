//! `scr prerun`: prepares a prefix directory before the first run of a job. See docs/user/own-scripts.md.

use super::{are_configured, Agents, AroundArgs, JobContext};
use crate::machine::health;
use crate::prelude::*;
use scr_base::fs::{unique_number, How};

/// Runs the command.
pub(crate) fn run(args: &AroundArgs) -> Result<Answer> {
    let (env, params, overrides) = args.place.job().environment()?;
    if params.get(&param::ENABLE) {
        let job = JobContext::find(env, params, &overrides)?;
        health::excluded(&job.allocation, &job.params)?;
        prepare(&job)?;
        if are_configured(&job.params) {
            // They stay when this process ends; `scr postrun` ends them.
            Agents::default().start_missing(&job, &job.allocation.nodes);
        }
        warn(format_args!("{} is ready for a job", job.prefix.dir().display()));
    }
    Ok(Answer::Yes)
}

/// Makes the hidden folder of the prefix directory, and sees that files can be written there.
///
/// # Errors
/// The prefix directory is useless.
pub(super) fn prepare(JobContext { env, prefix, .. }: &JobContext) -> Result<()> {
    let in_vain = || format!("cannot use the prefix directory {}", prefix.dir().display());
    let mut env = env.clone();
    if prefix.dir().is_dir() {
        environment::hold(&mut env, prefix.dir())?;
    }
    let is_new = !prefix.is_there(&*env.files);
    prefix.make(&*env.files).with_context(in_vain)?;
    if is_new {
        warn(prefix.was_made());
    }
    expect_writable(&*env.files, &prefix.scr_dir()).with_context(in_vain)
}

/// Fails if no file can be made and written in a folder.
fn expect_writable(files: &dyn Files, folder: &Path) -> Result<()> {
    let probe = folder.join(format!("prerun.{:x}", unique_number()));
    let written = files.open(&probe, How::Create(0o600)).and_then(|file| file.write_at(0, b"scr prerun\n"));
    let _ = files.remove_file(&probe);
    // The whole error has the random name of the file.
    written.map_err(|error| anyhow!("cannot write to {}: {}", folder.display(), error.kind()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use scr_base::fs::RealFiles;

    /// The message had a random name, and "at path" in quotes.
    #[test]
    fn a_folder_that_cannot_be_written_to_is_named_and_no_file_in_it() {
        let why = expect_writable(&RealFiles, Path::new("/proc/self")).unwrap_err().to_string();
        let why = why.strip_prefix("cannot write to /proc/self: ").unwrap();
        assert!(!why.contains("/proc") && !why.contains("os error"), "{why}");
        expect_writable(&RealFiles, &std::env::temp_dir()).unwrap();
    }
}
