//! The `scr` command.
//!
//! Exit codes, the same for all subcommands but `run`, which ends as the job does: 0 yes or done, 1 no, 2 an error. The answer
//! goes to standard output, everything else to standard error. A reader who closes the pipe early is no error.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "a test fails if it gets no thread"))]

mod agent;
mod classic;
mod clean;
mod cli;
mod colour;
mod config;
mod copy;
mod doctor;
mod environment;
mod explain;
mod flush_file;
mod halt;
mod index;
mod inspect;
mod log;
mod machine;
mod output;
mod page;
mod pages;
mod plan;
mod plugin;
mod poststage;
mod prelude;
mod progress;
mod report;
mod run;
mod scrub;
mod status;
mod table;
mod time;

use output::Answer;
use scr_plugin_api::WritesFail;
use std::process::ExitCode;

fn main() -> ExitCode {
    let _to_the_end = WritesFail::begin();
    let ended = cli::run(classic::expand(std::env::args_os()));
    environment::tell_notes();
    match ended {
        Ok(Answer::Yes) => ExitCode::SUCCESS,
        Ok(Answer::No) => ExitCode::from(1),
        Ok(Answer::Code(code)) => ExitCode::from(code),
        Err(error) if output::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::warn(format_args!("{error:#}"));
            ExitCode::from(if classic::is_meant() { 1 } else { 2 })
        }
    }
}
