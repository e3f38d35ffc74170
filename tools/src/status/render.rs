//! The status of a job as text and as JSON. The text is a table of one row for each fact, at most twelve, and no row is cut.

use super::gather::{created, Facts, State};
use super::judge::{Cost, Judged, Protection};
use crate::inspect::silent_json;
use crate::prelude::*;
use crate::table::wrap;
use scr_comm::placement::Survives;
use scr_core::flush::FlushUnderWay;
use scr_ops::{Copy, Held};
use scr_prefix::{HaltDue, LastRun};

/// The text in lines of so many columns.
pub(super) fn text(facts: &Facts, judged: &Judged<'_>, columns: usize) -> String {
    let mut rows = Vec::new();
    let mut add = |label: &str, text: String| rows.push([format!("{label:LABEL$}"), text]);
    add("protected", protection(facts, judged));
    add("in cache", in_cache(facts));
    let in_prefix = match &facts.saved {
        None if facts.is_index_unread => "not known: the index cannot be read".to_owned(),
        None if facts.unusable.as_ref().is_some_and(|held| held.is_refused_there) => in_cache(facts),
        None => format!("nothing{}", of_others(facts, facts.of_others[1].as_ref())),
        Some(saved) => checkpoint(facts, saved),
    };
    add("in prefix", in_prefix);
    let one = Vec::from_iter::<Option<String>>;
    let reason = facts.run.as_ref().and_then(LastRun::halted_by).map(str::to_owned);
    for (label, texts) in [
        ("lost with", costs(facts, judged)),
        (if facts.state.may_run() { "flushing" } else { "unfinished" }, one(flushes(facts))),
        ("reason", one(reason.clone())),
        ("room", one(room(facts).filter(|_| reason.is_none()))),
        ("next", one(next(facts, judged))),
        ("last error", one(last_error(facts))),
        ("also runs", facts.others.clone()),
        ("as of", vec![as_of(facts)]),
    ] {
        for (place, text) in texts.into_iter().enumerate() {
            add(if place == 0 { label } else { "" }, text);
        }
    }
    wrap(&first_line(facts), columns).join("\n") + "\n" + &Table::of(&[], rows).layout(columns)
}

/// The columns of a label.
const LABEL: usize = 10;
/// How many nodes are named that have little room.
const NODES: usize = 4;

fn first_line(facts: &Facts) -> String {
    let run = facts.run.as_ref();
    let of = run.map_or_else(String::new, |run| {
        format!("{} on {}", count(run.ranks.into(), "rank"), count(run.nodes.len() as u64, "node"))
    });
    let job = run.map_or_else(|| "a job".to_owned(), |run| format!("job {}", run.job_id));
    let time = run.map_or_else(String::new, |run| ago(facts, run.began));
    let state = match (facts.state, run) {
        (State::Running, None) => "a job runs".to_owned(),
        (State::Running, Some(_)) => format!("{job} runs, {of}, for {time}"),
        (State::Finished, _) => format!("{job} has finished"),
        (State::Stopped, _) => format!("{job} was stopped by a halt condition"),
        (State::Died, _) => format!("{job} has died, {of}, begun {time} ago"),
        (State::NoRun, _) => "no job runs".to_owned(),
        (State::Unknown, _) => format!("it is not known here whether {job} runs"),
    };
    on_one_line(&format!("{}: {state}", facts.prefix))
}

fn protection(facts: &Facts, judged: &Judged<'_>) -> String {
    let scheme =
        judged.newest.map_or("", |newest| newest.entry.in_cache.scheme.as_deref().unwrap_or_default());
    match &judged.protection {
        Protection::InPrefix => "against the loss of all nodes: it is in the prefix directory".to_owned(),
        Protection::OutlivesNodes => "against the loss of all nodes: they do not store it".to_owned(),
        Protection::Nodes(nodes) => {
            let all = facts.run.as_ref().map(|run| format!(" of {}", run.nodes.len())).unwrap_or_default();
            format!("against the loss of any {nodes}{all} nodes ({scheme})")
        }
        Protection::Nothing(why) => format!("against nothing: {why}"),
        Protection::Unknown => match (&facts.nodes, &facts.unusable) {
            (Some(nodes), _) if nodes.room.is_empty() => "not known: no node answers".to_owned(),
            (Some(_), Some(newest)) => {
                format!("not known: {} may be whole", newest.entry.name_text())
            }
            _ => match judged.newest.map(|newest| &newest.copy) {
                Some(Copy::Whole { survival_unknown: Some(why), .. }) => format!("not known: {why}"),
                _ => "not known: the job has not recorded it".to_owned(),
            },
        },
    }
}

fn in_cache(facts: &Facts) -> String {
    match (facts.cached.first(), &facts.unusable) {
        (_, Some(newest)) => {
            let (state, why) = newest.copy.in_words();
            format!("{} is {state}: {why}", newest.entry.name_text())
        }
        (None, None) if facts.is_bypass => {
            "nothing: checkpoints go straight to the prefix directory".to_owned()
        }
        (None, None) => format!("nothing{}", of_others(facts, facts.of_others[0].as_ref())),
        (Some(newest), None) => {
            let age = facts.recorded.filter(|_| facts.state == State::Finished && facts.nodes.is_none());
            let recorded = age.map(|time| format!(", recorded {} ago", ago(facts, time)));
            checkpoint(facts, newest) + &newest.losses_in_words() + &recorded.unwrap_or_default()
        }
    }
}

/// Why a checkpoint does not count.
fn of_others(facts: &Facts, checkpoint: Option<&Held>) -> String {
    let ranks = |of: Option<u32>| of.map_or_else(|| "other".to_owned(), |ranks| ranks.to_string());
    let own = facts.run.as_ref().map(|run| run.ranks);
    checkpoint.map_or_else(String::new, |other| {
        let (own, of) = (ranks(own), ranks(other.entry.dataset.ranks));
        format!(" for {own} ranks: {} is of {of}", other.entry.name_text())
    })
}

fn checkpoint(facts: &Facts, checkpoint: &Held) -> String {
    let age = created(checkpoint).map(|created| format!(", {} old", ago(facts, created)));
    let size = checkpoint.entry.dataset.bytes.map(|bytes| format!(", {}", amount(bytes)));
    let parts = [Some(checkpoint.entry.name_text()), age, size];
    parts.into_iter().flatten().collect()
}

/// The job in a line among others: its id, how it stands, what it is protected against, what may be lost next, and where it runs.
pub(super) fn row(facts: &Facts, judged: &Judged<'_>) -> [String; 5] {
    let job = facts.run.as_ref().map(|run| run.job_id.clone()).unwrap_or_default();
    let state = json!(facts.state).as_str().unwrap_or_default().to_owned();
    let cost = cost_of(facts, judged, judged.next_cost(facts));
    [job, state, protection(facts, judged), cost, facts.prefix.clone()]
}

/// Losses that cost the same are one line.
fn costs(facts: &Facts, judged: &Judged<'_>) -> Vec<String> {
    let mut groups: Vec<(Vec<&str>, &Cost<'_>)> = Vec::new();
    for cost in &judged.costs {
        let is_as = |other: &Cost<'_>| (cost.known, cost.back_to) == (other.known, other.back_to);
        match groups.last_mut().filter(|(_, last)| is_as(last)) {
            Some((losses, _)) => losses.push(cost.lost),
            None => groups.push((vec![cost.lost], cost)),
        }
    }
    let line = |(losses, cost): (Vec<&str>, &Cost<'_>)| {
        let losses =
            if losses.len() == judged.costs.len() { "1 node or more".to_owned() } else { losses.join(", ") };
        format!("{losses}: {}", cost_of(facts, judged, cost))
    };
    groups.into_iter().map(line).collect()
}

/// The cost of a loss in words.
fn cost_of(facts: &Facts, judged: &Judged<'_>, cost: &Cost<'_>) -> String {
    if facts.is_index_unread && cost.back_to.is_none() {
        return "not known, as the index cannot be read".to_owned();
    }
    if !cost.known {
        return "not known".to_owned();
    }
    let Some(back_to) = cost.back_to else {
        return format!("all work, as {}", facts.no_checkpoint(" is left"));
    };
    let time = cost.seconds.map_or_else(|| "the work since then".to_owned(), seconds);
    let lost = match cost.checkpoints {
        _ if judged.protection == Protection::Unknown => "what is not known".to_owned(),
        _ if !facts.state.may_run() && cost.back_to == judged.newest => "nothing more".to_owned(),
        None | Some(0) => time,
        Some(many) => format!("{time}, {}", count(many, "checkpoint")),
    };
    format!("{lost}, back to {}", back_to.entry.name_text())
}

fn flushes(facts: &Facts) -> Option<String> {
    let (first, others) = facts.flushes.split_first()?;
    let name = first.dataset.name_text();
    Some(format!("{name}: {}{}", progress(facts, first), more("; ", others)))
}

/// How many others there are, if there are any.
fn more<T>(between: &str, others: &[T]) -> String {
    others.first().map_or_else(String::new, |_| format!("{between}{} more", others.len()))
}

/// Once the job has died or finished, only a transport that outlives it goes on, and nobody says at which rate.
fn progress(facts: &Facts, flush: &FlushUnderWay) -> String {
    let is_all = flush.arrived.is_some_and(|arrived| arrived >= 1.0);
    let all = flush.dataset.bytes.unwrap_or(0);
    let there = match flush.arrived {
        None => format!("begun {} ago", ago(facts, flush.began)),
        Some(_) if is_all => "all has arrived".to_owned(),
        Some(arrived) => format!("{} of {}", amount((all as f64 * arrived) as u64), amount(all)),
    };
    let lost = facts.unusable.as_ref().filter(|held| matches!(held.copy, Copy::Lost(_)));
    let is_lost = lost.is_some_and(|held| held.entry.id == flush.dataset.id);
    let is_saved = is_all || facts.saves.contains(&flush.dataset.name_text());
    match rest(facts, flush) {
        _ if facts.state.has_ended() && !is_all && is_lost => format!("{there}; the rest is lost"),
        _ if !facts.state.may_run() && is_saved => format!("{there}; a run or `scr postrun' ends it"),
        _ if !facts.state.may_run() => format!("{there}; a run ends it"),
        _ if is_all => there + ", and is being listed",
        Some((rate, left)) => format!("{there}, {}/s, {} left", amount(rate), span(left)),
        None => there,
    }
}

/// The rate in bytes a second, and how long the rest takes at that rate, while the job is at work.
fn rest(facts: &Facts, flush: &FlushUnderWay) -> Option<(u64, Duration)> {
    let seconds = facts.now.saturating_sub(flush.began);
    let (all, arrived) = (flush.dataset.bytes? as f64, flush.arrived?);
    let rate = all * arrived / (facts.state.may_run() && seconds > 0).then_some(seconds as f64)?;
    let left = Duration::try_from_secs_f64((all * (1.0 - arrived) / rate).round()).ok()?;
    (rate >= 1.0).then_some((rate as u64, left))
}

/// The nodes with the least room.
fn room(facts: &Facts) -> Option<String> {
    let nodes = facts.nodes.as_ref()?.room.iter();
    let known: Vec<_> =
        nodes.filter_map(|(node, room)| Some(format!("{node} {}", amount((*room)?)))).collect();
    let (shown, others) = known.split_at(known.len().min(NODES));
    (!shown.is_empty()).then(|| shown.join(", ") + &more(", ", others))
}

fn next(facts: &Facts, judged: &Judged<'_>) -> Option<String> {
    let checkpoint = judged.next_checkpoint.map(|due| match due {
        1.. => format!("checkpoint in {}", seconds(due)),
        0 => "checkpoint now".to_owned(),
        _ => format!("checkpoint {} late", seconds(-due)),
    });
    let after = |what: &str, many: u64| match &checkpoint {
        Some(_) => format!("{what} after {many} more"),
        None => format!("{what} after {}", count(many, "checkpoint")),
    };
    let flush = judged.next_flush.map(|many| after("flush", many));
    let halts = if facts.state.may_run() { "halt" } else { "a run halts" };
    let halt = facts.halt.as_ref().map(|due| match due {
        HaltDue::Now(_) => format!("{halts} at once"),
        HaltDue::AfterCheckpoints(many) => after(halts, u64::try_from(*many).unwrap_or(0)),
        HaltDue::At(time) => format!("{halts} in {}", seconds(time.saturating_sub(facts.now).max(0))),
    });
    let save = facts.saves.split_first();
    let save = save.map(|(first, others)| format!("`scr postrun' saves {first}{}", more(" and ", others)));
    let all = [save.filter(|_| facts.state.has_ended()), restart(facts, judged), checkpoint, flush, halt];
    let all: Vec<_> = all.into_iter().flatten().collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// What a run does after a job that has lost its newest checkpoint, or with settings that choose another one.
fn restart(facts: &Facts, judged: &Judged<'_>) -> Option<String> {
    let is_lost = facts.unusable.as_ref().is_some_and(|held| matches!(held.copy, Copy::Lost(_)));
    let is_due = is_lost && matches!(facts.state, State::Died | State::Stopped);
    let is_set = facts.state.has_ended() && (facts.wish.is_some() || !facts.by_bars().is_empty());
    let halts = matches!(facts.halt, Some(HaltDue::Now(_)));
    let is_known = !facts.is_index_unread && judged.protection != Protection::Unknown;
    let is_due = (is_due || is_set) && is_known && !halts;
    let to = judged.newest.map(|to| format!("a run restarts from {}", to.entry.name_text()));
    let none = if facts.requires_restart {
        "no run starts (SCR_REQUIRE_RESTART=1)"
    } else {
        "a run starts without a checkpoint"
    };
    is_due.then(|| to.unwrap_or_else(|| none.to_owned()))
}

fn last_error(facts: &Facts) -> Option<String> {
    let error = facts.last_error.as_ref()?;
    let time = i64::try_from(error.micros / 1_000_000).unwrap_or(i64::MAX);
    let dataset = error.dataset_name.as_ref().map(|dataset| format!(" {dataset}")).unwrap_or_default();
    let note = error.note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
    Some(format!("{} ago, {}{dataset}{note}", ago(facts, time), error.name))
}

/// How new all of this is, and who says so.
fn as_of(facts: &Facts) -> String {
    let recorded = || {
        let age = facts.recorded.map(|time| format!("{} ago", ago(facts, time)));
        format!("{}, in the prefix directory", age.unwrap_or_else(|| "now".to_owned()))
    };
    let Some(nodes) = &facts.nodes else { return format!("{}; no node was asked", recorded()) };
    let silent = facts.first_silent().map(|silent| format!("; {silent}")).unwrap_or_default();
    match nodes.room.len() as u64 {
        0 => recorded() + &silent,
        many => format!("now, on {}{silent}", count(many, "node")),
    }
}

/// How long ago a time is. Clocks may differ a little.
fn ago(facts: &Facts, time: i64) -> String {
    seconds(facts.now.saturating_sub(time).max(0))
}

fn seconds(seconds: i64) -> String {
    span(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// The answer for programs. Unknown values are null; times are seconds since the epoch.
pub(super) fn json(facts: &Facts, judged: &Judged<'_>) -> Value {
    let run = facts.run.as_ref();
    let room = facts.nodes.iter().flat_map(|nodes| &nodes.room);
    let shown = |held: Option<&Held>| held.map(|held| checkpoint_json(facts, held));
    let others = facts.of_others.each_ref().map(Option::as_ref);
    let unusable = |is_unknown: bool| {
        let newest = facts.unusable.as_ref().map(|held| (held.entry.name_text(), &held.copy));
        let newest = newest.filter(|(_, copy)| matches!(copy, Copy::Unknown(_)) == is_unknown);
        newest.map(|(name, copy)| json!({ "name": name, "why": copy.in_words().1 }))
    };
    let flushes = facts.flushes.iter().map(|flush| {
        let rest = rest(facts, flush);
        json!({
            "id": flush.dataset.id,
            "name": flush.dataset.name_text(),
            "began": flush.began,
            "bytes": flush.dataset.bytes,
            "arrived": flush.arrived,
            "bytes_per_second": rest.map(|(rate, _)| rate),
            "seconds_left": rest.map(|(_, left)| left.as_secs()),
        })
    });
    json!({
        "prefix": facts.prefix,
        "time": facts.now,
        "state": facts.state,
        "stopped_by": run.and_then(LastRun::halted_by),
        "job_id": run.map(|run| &run.job_id),
        "nodes": run.map(|run| run.nodes.len()),
        "ranks": run.map(|run| run.ranks),
        "began": run.map(|run| run.began),
        "also_runs": facts.others,
        "safe": judged.is_safe(),
        "protected": protection_json(judged),
        "in_cache": shown(facts.cached.first()),
        "lost_in_cache": unusable(false),
        "unknown_in_cache": unusable(true),
        "in_prefix": shown(facts.saved.as_ref()),
        "of_other_ranks": { "in_cache": shown(others[0]), "in_prefix": shown(others[1]) },
        "bypass": facts.is_bypass,
        "postrun": { "saves": facts.saves },
        "costs": judged.costs,
        "why": facts.why,
        "flushes": flushes.collect::<Vec<_>>(),
        "room": room.map(|(node, bytes)| json!({ "node": node, "bytes": bytes })).collect::<Vec<_>>(),
        "silent": silent_json(facts.nodes.as_ref().map_or(&[], |nodes| &nodes.silent)),
        "next": {
            "checkpoint_in_seconds": judged.next_checkpoint,
            "flush_in_checkpoints": judged.next_flush,
        },
        "halt": facts.halt.as_ref().map(halt_json),
        "last_error": facts.last_error.as_ref().map(|error| json!({
            "time": error.micros / 1_000_000,
            "event": error.name,
            "dataset": error.dataset_name,
            "note": error.note,
        })),
        "recorded": facts.recorded,
        "asked_nodes": facts.nodes.is_some(),
        "trouble": facts.trouble,
    })
}

fn protection_json(judged: &Judged<'_>) -> Value {
    let why = if let Protection::Nothing(why) = &judged.protection { Some(why) } else { None };
    let nodes = match judged.newest.and_then(|newest| newest.entry.in_cache.survives) {
        Some(Survives::Nodes(nodes)) => json!(nodes),
        Some(Survives::All) => json!("all"),
        None => Value::Null,
    };
    json!({ "nodes": nodes, "why_not": why })
}

fn checkpoint_json(facts: &Facts, checkpoint: &Held) -> Value {
    let Held { entry, copy, .. } = checkpoint;
    json!({
        "id": entry.id,
        "name": entry.name_text(),
        "number": entry.dataset.checkpoint_id,
        "created": created(checkpoint),
        "age_seconds": created(checkpoint).map(|created| facts.now.saturating_sub(created).max(0)),
        "bytes": entry.dataset.bytes,
        "ranks": entry.dataset.ranks,
        "scheme": entry.in_cache.scheme,
        "lost_parts": copy.lost(),
    })
}

fn halt_json(due: &HaltDue) -> Value {
    match due {
        HaltDue::Now(reason) => json!({ "now": reason.to_string() }),
        HaltDue::AfterCheckpoints(many) => json!({ "checkpoints": many }),
        HaltDue::At(time) => json!({ "time": time, "local": time::in_words(*time) }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::gather::Answers;
    use super::super::judge::tests::{checkpoint, every_case, run_on};
    use super::*;
    use scr_plugin_api::LogEntry;
    use scr_prefix::{DatasetDescriptor, HaltReason};

    fn shown(facts: &Facts) -> String {
        text(facts, &Judged::of(facts), 80)
    }

    fn flush(name: &[u8], arrived: Option<f64>) -> FlushUnderWay {
        let dataset = DatasetDescriptor { name: name.to_vec(), bytes: Some(77 << 30), ..Default::default() };
        FlushUnderWay { dataset, began: 7_790, arrived }
    }

    /// A job at work about which there is something to say in every line.
    fn busy() -> Facts {
        let rooms = [("n3", 12), ("n0", 40), ("n1", 41), ("n2", 41)];
        let error = LogEntry {
            name: "FLUSH_FAIL".to_owned(),
            micros: 600_000_000,
            dataset_name: Some("ckpt.110".to_owned()),
            note: Some("no space left on device".to_owned()),
            ..LogEntry::default()
        };
        Facts {
            now: 7_800,
            prefix: "/pfs/ann/run".to_owned(),
            state: State::Running,
            run: Some(run_on(4)),
            cached: vec![checkpoint(127, Some(Survives::Nodes(1)))],
            saved: Some(checkpoint(120, Some(Survives::All))),
            pace: Some((7_620, Duration::from_secs(240))),
            flushes: vec![flush(b"ckpt.127", Some(0.4))],
            halt: Some(HaltDue::At(27_000)),
            last_error: Some(error),
            nodes: Some(Answers {
                room: rooms.map(|(node, gib)| (node.to_owned(), Some(gib << 30))).to_vec(),
                silent: Vec::new(),
            }),
            ..Facts::default()
        }
    }

    /// A job at work, one that has died with a node, and one that has finished.
    fn of_the_page() -> [Facts; 3] {
        let calm = || Facts { flushes: Vec::new(), halt: None, last_error: None, ..busy() };
        let mut answers = busy().nodes.unwrap();
        answers.room.retain(|(node, _)| node != "n3");
        answers.silent.push(("n3".to_owned(), "did not answer: no route to host".to_owned()));
        let without_a_node = Facts {
            state: State::Died,
            cached: vec![Held {
                copy: Copy::Whole { lost: 16, survival_unknown: None },
                ..checkpoint(127, Some(Survives::Nodes(0)))
            }],
            saves: vec!["ckpt.127".to_owned()],
            nodes: Some(answers),
            ..calm()
        };
        let saved = Some(checkpoint(127, Some(Survives::All)));
        let finished = Facts { state: State::Finished, cached: Vec::new(), saved, ..calm() };
        [busy(), without_a_node, finished]
    }

    #[test]
    fn the_page_shows_what_the_command_prints() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/user/see-a-job.md");
        let page = std::fs::read_to_string(page).unwrap();
        let blocks = page.split("```").filter_map(|block| block.split_once("\n$ scr status /pfs/ann/run\n"));
        let found: Vec<_> = blocks.map(|(_, text)| text).collect();
        assert_eq!(found, of_the_page().map(|facts| shown(&facts)), "docs/user/see-a-job.md");
    }

    #[test]
    fn each_state_and_each_reason_has_its_words() {
        let first = |state| {
            let facts = Facts { state, ..busy() };
            shown(&facts).lines().next().unwrap().split_once(": ").unwrap().1.to_owned()
        };
        assert_eq!(first(State::Died), "job 5132 has died, 64 ranks on 4 nodes, begun 2 h 10 min ago");
        let saves = vec!["ckpt.127".to_owned()];
        let died = shown(&Facts { state: State::Died, saves, ..busy() });
        assert!(
            died.contains("next        `scr postrun' saves ckpt.127; a run halts in 5 h 20 min\n"),
            "{died}"
        );
        let lost = Some(Held { copy: Copy::Lost("2 parts".to_owned()), ..checkpoint(127, None) });
        for (saved, restart) in
            [(busy().saved, "a run restarts from ckpt.120"), (None, "a run starts without a checkpoint")]
        {
            let facts = Facts { state: State::Died, saved, cached: Vec::new(), halt: None, ..busy() };
            let text = shown(&Facts { unusable: lost.clone(), ..facts });
            assert!(text.contains(&format!("next        {restart}\n")), "{text}");
        }
        // It was said that nothing more is lost with the allocation.
        let unknown = Some(Held { copy: Copy::Unknown("n1 is silent".to_owned()), ..checkpoint(127, None) });
        let facts = Facts { state: State::Died, cached: Vec::new(), unusable: unknown, ..busy() };
        let text = shown(&facts);
        assert!(text.contains("the allocation: what is not known, back to ckpt.120\n"), "{text}");
        // It was said to be in cache, whatever had become of the nodes.
        let unasked = Facts { state: State::Finished, nodes: None, recorded: Some(7_740), ..busy() };
        assert!(shown(&unasked).contains("GiB, recorded 1 min ago\n"), "{}", shown(&unasked));
        assert_eq!(first(State::Finished), "job 5132 has finished");
        assert_eq!(first(State::Stopped), "job 5132 was stopped by a halt condition");
        assert_eq!(first(State::NoRun), "no job runs");
        assert_eq!(first(State::Unknown), "it is not known here whether job 5132 runs");
        let none = Some(Survives::Nodes(0));
        let one_node = Facts { run: Some(run_on(1)), cached: vec![checkpoint(127, none)], ..busy() };
        assert!(shown(&one_node).contains("\nprotected   against nothing: all ranks are on one node\n"));
        assert!(shown(&one_node)
            .contains("\nlost with   1 node or more: 10 min, 7 checkpoints, back to ckpt.120"));
        let silent = vec![("n3".to_owned(), "did not answer: no route to host".to_owned())];
        let gone = Facts {
            cached: vec![Held {
                copy: Copy::Whole { lost: 16, survival_unknown: None },
                ..checkpoint(127, none)
            }],
            nodes: Some(Answers { silent, ..busy().nodes.unwrap() }),
            ..busy()
        };
        let text = shown(&gone);
        assert!(text.contains("against nothing: 16 parts not known, as n3 did not answer\n"), "{text}");
        assert!(text.contains("77 GiB, 16 of 64 parts to be rebuilt\n"), "{text}");
        assert!(
            text.contains("as of       now, on 4 nodes; n3 did not answer: no route to host\n"),
            "{text}"
        );
        let bypass = Facts { cached: Vec::new(), is_bypass: true, ..busy() };
        let text = shown(&bypass);
        assert!(text.contains("in cache    nothing: checkpoints go straight to the prefix directory\n"));
        assert!(text.contains("protected   against the loss of all nodes: it is in the prefix directory\n"));
        assert!(!text.contains("flush after"), "{text}");
        let due = |halt| shown(&Facts { halt: Some(halt), pace: Some((7_000, Duration::ZERO)), ..busy() });
        let after = due(HaltDue::AfterCheckpoints(1));
        assert!(after.contains("late; flush after 3 more; halt after 1 more\n"), "{after}");
        let now = due(HaltDue::Now(HaltReason::NoCheckpointsLeft));
        assert!(now.contains("next        checkpoint 13 min 20 s late; "), "{now}");
        assert!(now.contains("; halt at once\n"), "{now}");
        let empty = shown(&Facts::default());
        assert!(empty.starts_with(": no job runs\nprotected   against nothing: there is no checkpoint\n"));
        assert!(empty.contains("all work, as no checkpoint is left\n"), "{empty}");
    }

    #[test]
    fn flushes_are_told_as_far_as_they_are_known() {
        let of = |flushes: Vec<FlushUnderWay>| {
            let text = shown(&Facts { flushes, ..busy() });
            text.lines().find_map(|line| line.strip_prefix("flushing    ")).map(str::to_owned)
        };
        assert_eq!(of(Vec::new()), None);
        assert_eq!(of(vec![flush(b"a", None)]).unwrap(), "a: begun 10 s ago");
        assert_eq!(of(vec![flush(b"a", Some(0.0))]).unwrap(), "a: 0 bytes of 77 GiB");
        assert_eq!(of(vec![flush(b"a", Some(1.0))]).unwrap(), "a: all has arrived, and is being listed");
        let three = of(vec![flush(b"a", None), flush(b"b", None), flush(b"c", None)]).unwrap();
        assert_eq!(three, "a: begun 10 s ago; 2 more");
        // It had a rate and an end, or was being listed, for ever.
        for state in [State::Died, State::Finished, State::Stopped, State::NoRun] {
            for (arrived, there) in
                [(None, "begun 10 s ago"), (Some(0.5), "38.5 GiB of 77 GiB"), (Some(1.0), "all has arrived")]
            {
                let facts = Facts { state, flushes: vec![flush(b"a", arrived)], ..busy() };
                let ends = if arrived == Some(1.0) { "a run or `scr postrun'" } else { "a run" };
                let line = format!("\nunfinished  a: {there}; {ends} ends it\n");
                assert!(shown(&facts).contains(&line), "{}", shown(&facts));
                let json = json(&facts, &Judged::of(&facts));
                assert_eq!(json["flushes"][0]["bytes_per_second"], Value::Null);
            }
        }
        let ahead = FlushUnderWay { began: 9_000, ..flush(b"a", Some(0.5)) };
        assert_eq!(of(vec![ahead]).unwrap(), "a: 38.5 GiB of 77 GiB", "the clock of the server is ahead");
    }

    #[test]
    fn nothing_makes_many_rows_or_a_line_wider_than_the_terminal() {
        let names =
            ["", "a", "\n\x1b[2J", &"long".repeat(300), &"\u{754c}".repeat(200), &"e\u{301}".repeat(90)];
        let mut kinds = 0;
        every_case(|case| {
            let odd = names[kinds % names.len()];
            kinds += 1;
            let mut facts = Facts {
                state: case.state,
                cached: case.cached.clone(),
                saved: case.saved.clone(),
                prefix: format!("/p/{odd}"),
                flushes: vec![flush(odd.as_bytes(), Some(0.3)), flush(b"\xff\xfe", None)],
                unusable: Some(Held { copy: Copy::Lost(odd.to_owned()), ..checkpoint(9, None) })
                    .filter(|_| kinds % 2 == 0),
                ..busy()
            };
            facts
                .cached
                .iter_mut()
                .chain(&mut facts.saved)
                .for_each(|it| it.entry.dataset.name = odd.as_bytes().to_vec());
            facts.run.iter_mut().for_each(|run| run.job_id = odd.to_owned());
            facts.last_error.iter_mut().for_each(|error| error.note = Some(format!("{odd} ").repeat(9)));
            let room = (0..40).map(|node| (format!("{odd}{node}"), Some(u64::MAX))).collect();
            facts.nodes = Some(Answers { room, silent: vec![(odd.to_owned(), odd.to_owned()); 40] });
            let rows = text(&facts, &Judged::of(&facts), usize::MAX);
            assert!(rows.lines().count() <= 12 && !rows.contains("..."), "{rows}");
            let text = shown(&facts);
            assert_eq!(
                text.split_whitespace().collect::<Vec<_>>(),
                rows.split_whitespace().collect::<Vec<_>>()
            );
            for line in text.lines() {
                // A name or path is on one line, however long it is.
                let is_one_word = line.chars().skip(12).collect::<String>().split_whitespace().count() <= 1;
                assert!(line.chars().count() <= 80 || is_one_word, "{line}");
                assert!(!line.contains(char::is_control), "{line}");
            }
            let json = json(&facts, &Judged::of(&facts));
            assert_eq!(json["costs"].as_array().unwrap().len(), 3);
        });
    }

    #[test]
    fn json_has_what_the_text_has() {
        let facts = busy();
        let json = json(&facts, &Judged::of(&facts));
        assert_eq!((&json["state"], &json["safe"]), (&"running".into(), &true.into()));
        assert_eq!(json["protected"], json!({ "nodes": 1, "why_not": null }));
        assert_eq!(
            (&json["in_cache"]["age_seconds"], &json["in_cache"]["bytes"]),
            (&180.into(), &(77_u64 << 30).into())
        );
        let all = json!({ "loss": "all_nodes", "known": true, "back_to": "ckpt.120", "checkpoints": 7, "seconds": 600 });
        assert_eq!(json["costs"][1], all);
        assert_eq!(json["flushes"][0]["seconds_left"], 15);
        assert_eq!(json["room"][0], json!({ "node": "n3", "bytes": 12_u64 << 30 }));
        assert_eq!(json["next"], json!({ "checkpoint_in_seconds": 60, "flush_in_checkpoints": 3 }));
        assert_eq!((&json["halt"]["time"], &json["last_error"]["time"]), (&27_000.into(), &600.into()));
    }
}
