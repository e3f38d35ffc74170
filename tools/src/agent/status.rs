//! `scr agent --status`: whether an agent runs, and how far its transfers are.

use crate::output::{columns, print, print_json, Answer, JSON_VERSION};
use anyhow::Result;
use scr_agent::{list, AgentPresence, Outcome, Transfer};
use serde::Serialize;
use std::path::Path;

#[derive(Serialize)]
struct Status {
    version: u32,
    control: String,
    /// The agent's process, if one runs.
    pid: Option<u32>,
    transfers: Vec<TransferStatus>,
}

#[derive(Serialize)]
struct TransferStatus {
    token: String,
    state: &'static str,
    files: usize,
    bytes: u64,
    written: u64,
    bytes_per_second: u64,
    percent: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Yes if an agent runs.
pub(super) fn tell(control: &Path, json: bool) -> Result<Answer> {
    let status = Status {
        version: JSON_VERSION,
        control: control.display().to_string(),
        pid: AgentPresence::find(control),
        transfers: list(control).iter().filter_map(|path| Some(of(&Transfer::read(path).ok()??))).collect(),
    };
    if json {
        print_json(&status)?;
    } else {
        print(&status.in_words())?;
    }
    Ok(Answer::from(status.pid.is_some()))
}

fn of(transfer: &Transfer) -> TransferStatus {
    let (state, error) = match &transfer.outcome {
        Some(Outcome::Done) => ("done", None),
        Some(Outcome::Failed(error)) => ("failed", Some(error.text.clone())),
        None if transfer.running => ("running", None),
        None => ("waiting", None),
    };
    TransferStatus {
        token: transfer.token.clone(),
        state,
        files: transfer.files.len(),
        bytes: transfer.bytes(),
        written: transfer.written(),
        bytes_per_second: transfer.limits.bytes_per_second,
        percent: transfer.limits.percent,
        error,
    }
}

impl Status {
    fn in_words(&self) -> String {
        let mut text = match self.pid {
            Some(pid) => format!("an agent runs for {}, process {pid}\n", self.control),
            None => format!("no agent runs for {}\n", self.control),
        };
        let row = |transfer: &TransferStatus| {
            let done = format!("{} of {} bytes", transfer.written, transfer.bytes);
            let why = transfer.error.clone().unwrap_or_default();
            [transfer.token.clone(), transfer.state.to_owned(), done, why]
        };
        text.push_str(&columns(&self.transfers.iter().map(row).collect::<Vec<_>>()));
        text
    }
}
