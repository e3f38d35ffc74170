//! `scr agent --status`: whether an agent runs, and the progress of its transfers.

use crate::output::{show, Answer};
use crate::table::Table;
use anyhow::Result;
use scr_agent::{list, AgentPresence, Outcome, Transfer};
use scr_base::message::amount;
use serde::Serialize;
use serde_json::json;
use std::path::Path;

#[derive(Serialize)]
struct TransferStatus {
    token: String,
    /// `waiting` for an agent, or for one that has time; `waiting for its turn` among the nodes; `running`, `done`, `failed`.
    state: &'static str,
    files: usize,
    bytes: u64,
    written: u64,
    bytes_per_second: u64,
    percent: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// How many transfers of a control directory an agent has not ended yet; none where no agent runs.
pub(crate) fn under_way(control: &Path) -> usize {
    if AgentPresence::find(control).is_none() {
        return 0;
    }
    let transfers = list(control).into_iter().filter_map(|path| Transfer::read(&path).ok()?);
    transfers.filter(|transfer| transfer.outcome.is_none()).count()
}

/// Yes if an agent runs.
pub(super) fn run(control: &Path, as_json: bool) -> Result<Answer> {
    let pid = AgentPresence::find(control);
    let transfers = list(control);
    let transfers = transfers.iter().filter_map(|path| Some(of(&Transfer::read(path).ok()??, pid.is_some())));
    let transfers: Vec<_> = transfers.collect();
    let json = json!({ "control": control.display().to_string(), "pid": pid, "transfers": transfers });
    show(as_json, json, text(control, pid, &transfers))?;
    Ok(Answer::from(pid.is_some()))
}

fn text(control: &Path, pid: Option<u32>, transfers: &[TransferStatus]) -> String {
    let control = control.display();
    let first = match pid {
        Some(pid) => format!("an agent runs for {control}, process {pid}\n"),
        None => format!("no agent runs for {control}\n"),
    };
    let row = |transfer: &TransferStatus| {
        let done = format!("{} of {}", amount(transfer.written), amount(transfer.bytes));
        let error = transfer.error.clone().unwrap_or_default();
        [label(&transfer.token), transfer.state.to_owned(), done, error]
    };
    first + &Table::of(&[], transfers.iter().map(row)).text()
}

/// The owner of the files that a transfer copies. Its token is that of the flush, which begins with the number of the dataset,
/// and then the rank.
fn label(token: &str) -> String {
    let numbers = token.split_once('.').zip(token.rsplit_once('.'));
    let numbers = numbers.map(|((id, _), (_, rank))| (id.parse::<u64>(), rank.parse::<u32>()));
    match numbers {
        Some((Ok(id), Ok(rank))) => format!("dataset {id}, rank {rank}"),
        _ => token.to_owned(),
    }
}

fn of(transfer: &Transfer, agent_runs: bool) -> TransferStatus {
    let (state, error) = match &transfer.outcome {
        Some(Outcome::Done) => ("done", None),
        Some(Outcome::Failed(error)) => ("failed", Some(error.text.clone())),
        // An agent that was killed has left it as it was.
        None if !agent_runs => ("waiting", None),
        None if transfer.running => ("running", None),
        None if transfer.slots.is_some() => ("waiting for its turn", None),
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

#[cfg(test)]
mod tests {
    use super::*;
    use scr_agent::Slots;

    #[test]
    fn a_transfer_runs_only_where_an_agent_does_and_waits_for_its_turn_where_nodes_take_turns() {
        let state = |agent_runs, running, slots: bool| {
            let slots = slots.then(|| Slots { folder: "/slots".into(), count: 1 });
            of(&Transfer { running, slots, ..transfer() }, agent_runs).state
        };
        assert_eq!([state(true, true, true), state(true, false, true)], ["running", "waiting for its turn"]);
        assert_eq!([state(true, false, false), state(false, true, true)], ["waiting", "waiting"]);
    }

    /// It was a row of hexadecimal digits.
    #[test]
    fn a_transfer_is_named_by_its_dataset_and_its_rank() {
        assert_eq!(label("736.18ea92c9271c1d7d.bb76f7ad.12"), "dataset 736, rank 12");
        assert_eq!(label("t"), "t");
    }

    fn transfer() -> Transfer {
        Transfer {
            path: "/control/transfer.t.scr".into(),
            token: "t".to_owned(),
            files: Vec::new(),
            block_bytes: 1,
            take_crc: true,
            limits: Default::default(),
            width: 0,
            slots: None,
            running: false,
            outcome: None,
        }
    }
}
