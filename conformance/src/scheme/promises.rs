//! The answers of a scheme about a set before any byte is read.

use super::kit::{clean, Kit, Tried};
use super::losses::{refused, REFUSAL};
use super::set::Call;
use crate::bytes::content;
use scr_plugin_api::{PluginErrorKind, SetShape};

/// Every size is taken or refused in order; what is promised makes sense and is the same whoever asks.
pub(super) fn set_sizes(kit: &mut Kit<'_>) -> Tried {
    for size in kit.limits.set_sizes.clone() {
        let answer = kit.ask("losses_survived", move |scheme| scheme.losses_survived(size));
        let result = match answer {
            Err(came) => Err(came),
            Ok(Err(error)) if error.kind == PluginErrorKind::Refused && !error.text.is_empty() => continue,
            Ok(Err(error)) => Err(format!("{:?} with the text `{}' came", error.kind, error.text)),
            Ok(Ok(losses)) if losses >= size => Err(format!("{losses} losses are promised to be survived")),
            Ok(Ok(losses)) => {
                kit.promises.push((size, losses));
                same_length(kit, size)
            }
        };
        let expected =
            "less losses than members, the same lengths from every instance, or `Refused' with a reason";
        kit.record(|| format!("set of {size}"), expected, result)?;
    }
    if kit.promises.is_empty() {
        let came = Err("every size was refused".to_owned());
        kit.record(
            || format!("sets of {:?}", kit.limits.set_sizes.clone().into_inner()),
            "at least one size to be taken",
            came,
        );
    }
    Some(())
}

/// The length of the redundancy depends on the shape alone.
fn same_length(kit: &mut Kit<'_>, size: u32) -> Result<(), String> {
    let lens: Vec<u64> = (0..u64::from(size)).map(|member| 1000 * member).collect();
    for rank in 0..size {
        let mut answers = Vec::new();
        for _ in 0..2 {
            let data_lens = lens.clone();
            let answer = kit.ask("redundancy_len", move |scheme| {
                scheme.redundancy_len(&SetShape { rank, data_lens: &data_lens })
            })?;
            answers
                .push(answer.map_err(|error| format!("the length for member {rank} was refused: {error}"))?);
        }
        if answers[0] != answers[1] {
            return Err(format!("member {rank} got the lengths {} and {}", answers[0], answers[1]));
        }
    }
    Ok(())
}

/// A set of one cannot be protected, and a job on a single node should run anyway.
pub(super) fn set_of_one(kit: &mut Kit<'_>) -> Tried {
    match kit.ask("losses_survived", |scheme| scheme.losses_survived(1)) {
        Ok(Err(error)) if error.kind == PluginErrorKind::Refused => {
            kit.warn(format!("a set of one is refused, so a job on one node cannot use the scheme: {error}"));
            kit.skip("the scheme takes no set of one");
            return None;
        }
        Ok(Ok(0)) => {}
        Ok(answer) => {
            return kit.record(
                || "set of one".to_owned(),
                "no loss to be survived",
                Err(format!("{answer:?} came")),
            );
        }
        Err(came) => return kit.record(|| "set of one".to_owned(), "an answer", Err(came)),
    }
    let set = kit.protected(vec![content(0, 1000)])?;
    let outcome = kit.call(&set, Call::Rebuild(kit.limits.format));
    kit.record(|| "set of one, lost nobody".to_owned(), "success", clean(&outcome))?;
    let before = set.losing(&[true]);
    let outcome = kit.rebuild(&before);
    kit.record(|| "set of one, lost 0".to_owned(), REFUSAL, refused(&outcome, &before))
}
