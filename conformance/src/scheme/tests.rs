//! Tests of the kit: a correct scheme passes, and each defective one fails in the check for its defect.

use super::{run, Limits, Report};
use scr_plugin_api::{PluginError, PluginErrorKind, ReceiveFrom, Scheme, SendTo, Set, SetShape};
use std::time::Duration;

/// The defect of a scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrong {
    Nothing,
    /// This is allowed.
    WritesTwice,
    LeavesOutTheLastByte,
    InventsZeros,
    DropsTheLastByte,
    DropsTheData,
    ForgetsTheRedundancy,
    TrustsAnyHeader,
    ChecksOnlyTheDataset,
    ReversesTheBytes,
    ShiftsTheBytes,
    GivesItsOwn,
    PromisesOneMore,
    RefusesWhatItCanDo,
    GoesOnAfterFailedReads,
    PanicsAtEmptyFiles,
    NeverProtects,
    PanicsInItsPromise,
    WaitsForNobody,
    SpinsForEver,
    NeverGivesUp,
    WritesPastTheEnd,
    SpoilsASurvivor,
    SendsPadding,
    WritesBeforeItRefuses,
    PromisesAlone,
    AsksForAnyLength,
}

/// Each member keeps a header and the data of its left neighbour; one loss, or any that are not neighbours.
struct Neighbour {
    wrong: Wrong,
    made: u64,
}

const HEADER: u64 = 16;

impl Neighbour {
    fn is(&self, wrong: Wrong) -> bool {
        self.wrong == wrong
    }

    fn header(set: &dyn Set) -> [u8; HEADER as usize] {
        let mut header = [0; HEADER as usize];
        header[..8].copy_from_slice(&set.dataset().to_be_bytes());
        header[8..12].copy_from_slice(&set.world_rank(set.rank()).to_be_bytes());
        header[12..].copy_from_slice(&set.rank().to_be_bytes());
        header
    }

    fn check_header(&self, set: &dyn Set) -> Result<(), PluginError> {
        let mut found = [0; HEADER as usize];
        set.redundancy().read_at(0, &mut found)?;
        let known = match self.wrong {
            Wrong::TrustsAnyHeader => 0,
            Wrong::ChecksOnlyTheDataset => 8,
            _ => 16,
        };
        if found[..known] == Self::header(set)[..known] {
            return Ok(());
        }
        Err(PluginError::new(PluginErrorKind::Corrupt, "redundancy of something else"))
    }

    /// Reads this member's own data or the copy of its neighbour's.
    fn read(&self, set: &dyn Set, own: bool) -> Result<Vec<u8>, PluginError> {
        let (file, offset, owner) =
            if own { (set.data(), 0, set.rank()) } else { (set.redundancy(), HEADER, left(set)) };
        let mut bytes = vec![0; set.data_len(owner) as usize];
        match file.read_at(offset, &mut bytes) {
            Err(_) if self.is(Wrong::GoesOnAfterFailedReads) => Ok(bytes),
            result => result.map(|()| bytes),
        }
    }

    /// Sends `bytes` to a member and gets this many from another, where each is wanted.
    fn pass(
        &self,
        set: &dyn Set,
        send: Option<(u32, &[u8])>,
        receive: Option<(u32, u64)>,
    ) -> Result<Vec<u8>, PluginError> {
        let mut buffer = vec![0; receive.map_or(0, |(_, len)| len as usize)];
        let padded: Vec<u8> = send.map_or(Vec::new(), |(_, bytes)| [bytes, &[0]].concat());
        let pads = self.is(Wrong::SendsPadding) && padded.len().is_multiple_of(2);
        let sends: Vec<SendTo<'_>> = send
            .iter()
            .map(|&(to, bytes)| SendTo { to, bytes: if pads { &padded } else { bytes } })
            .collect();
        let mut receives = Vec::new();
        if let Some((from, _)) = receive {
            receives.push(ReceiveFrom { from, bytes: &mut buffer });
        }
        let mut result = set.exchange(&sends, &mut receives);
        // In `protect` only, since a rebuild ends badly in an earlier check.
        let is_protect = !(0..set.size()).any(|member| set.lost(member));
        while result.is_err() && is_protect && self.is(Wrong::NeverGivesUp) {
            result = set.exchange(&[], &mut []);
        }
        result.map(|()| buffer)
    }

    fn keep_copy(&self, set: &dyn Set, copy: &[u8]) -> Result<(), PluginError> {
        if self.is(Wrong::WritesTwice) {
            set.redundancy().write_at(0, &vec![0xAA; set.redundancy().len() as usize])?;
        }
        set.redundancy().write_at(0, &Self::header(set))?;
        let written = copy.len() - usize::from(self.is(Wrong::LeavesOutTheLastByte) && !copy.is_empty());
        set.redundancy().write_at(HEADER, &copy[..written])
    }

    fn restore(&self, set: &dyn Set, bytes: &[u8]) -> Result<(), PluginError> {
        let mut bytes = bytes.to_vec();
        match self.wrong {
            Wrong::DropsTheLastByte => drop(bytes.pop()),
            Wrong::DropsTheData => bytes.clear(),
            Wrong::WritesPastTheEnd => bytes.push(1),
            Wrong::ReversesTheBytes => bytes.reverse(),
            Wrong::ShiftsTheBytes if !bytes.is_empty() => bytes.rotate_left(1),
            _ => {}
        }
        if self.is(Wrong::WritesTwice) {
            set.data().write_at(0, &vec![0xAA; bytes.len()])?;
        }
        set.data().write_at(0, &bytes)
    }
}

fn left(set: &dyn Set) -> u32 {
    (set.rank() + set.size() - 1) % set.size()
}

fn right(set: &dyn Set) -> u32 {
    (set.rank() + 1) % set.size()
}

impl Scheme for Neighbour {
    fn losses_survived(&self, set_size: u32) -> Result<u32, PluginError> {
        assert!(!self.is(Wrong::PanicsInItsPromise), "a panic on purpose");
        match set_size {
            1 => Ok(u32::from(self.is(Wrong::PromisesAlone))),
            2 => Ok(1),
            _ => Ok(1 + u32::from(self.is(Wrong::PromisesOneMore))),
        }
    }

    fn recoverable(&self, lost: &[bool]) -> bool {
        let neighbours = (0..lost.len()).any(|member| lost[member] && lost[(member + 1) % lost.len()]);
        let count = lost.iter().filter(|lost| **lost).count();
        !(neighbours || count > 0 && self.is(Wrong::RefusesWhatItCanDo))
    }

    fn redundancy_len(&self, shape: &SetShape<'_>) -> Result<u64, PluginError> {
        let size = shape.data_lens.len();
        let odd = if self.is(Wrong::AsksForAnyLength) { self.made } else { 0 };
        Ok(HEADER + odd + shape.data_lens[(shape.rank as usize + size - 1) % size])
    }

    fn protect(&self, set: &dyn Set) -> Result<(), PluginError> {
        if self.is(Wrong::NeverProtects) {
            return Err(PluginError::io("no room"));
        }
        assert!(!self.is(Wrong::PanicsAtEmptyFiles) || set.data_len(set.rank()) > 0, "a panic on purpose");
        let own = self.read(set, true)?;
        let copy = self.pass(set, Some((right(set), &own)), Some((left(set), set.data_len(left(set)))))?;
        self.keep_copy(set, &copy)
    }

    fn rebuild(&self, set: &dyn Set, _format: u32) -> Result<(), PluginError> {
        let lost: Vec<bool> = (0..set.size()).map(|member| set.lost(member)).collect();
        let (mine, lefts, rights) = (set.lost(set.rank()), set.lost(left(set)), set.lost(right(set)));
        if self.is(Wrong::WritesBeforeItRefuses) && mine {
            set.data().write_at(0, &[9])?;
        }
        let possible = Self { wrong: Wrong::Nothing, made: 0 }.recoverable(&lost);
        if !possible {
            return match self.wrong {
                Wrong::InventsZeros => Ok(()),
                _ => Err(PluginError::new(PluginErrorKind::TooManyLost, "neighbours are lost")),
            };
        }
        if self.is(Wrong::WaitsForNobody) && lost.contains(&true) {
            self.pass(set, None, Some((left(set), 1)))?;
        }
        while self.is(Wrong::SpinsForEver) && lost.contains(&true) && set.rank() == 1 {
            std::thread::park();
        }
        if !mine {
            self.check_header(set)?;
        }
        if self.is(Wrong::SpoilsASurvivor) && rights && set.data_len(set.rank()) > 0 {
            set.data().write_at(0, &[0])?;
        }
        // The data of the lost goes one to the left, out of the copies.
        let mut copy = if lefts { self.read(set, self.is(Wrong::GivesItsOwn))? } else { Vec::new() };
        copy.resize(if lefts { set.data_len(left(set)) as usize } else { 0 }, 1);
        let wanted = mine.then(|| (right(set), set.data_len(set.rank())));
        let found = self.pass(set, lefts.then_some((left(set), &copy)), wanted)?;
        if mine {
            self.restore(set, &found)?;
        }
        // The copies of the lost come from the left, out of the data.
        let own = if rights { self.read(set, true)? } else { Vec::new() };
        let wanted = mine.then(|| (left(set), set.data_len(left(set))));
        let copy = self.pass(set, rights.then_some((right(set), &own)), wanted)?;
        if mine && !self.is(Wrong::ForgetsTheRedundancy) {
            self.keep_copy(set, &copy)?;
        }
        Ok(())
    }
}

fn report(wrong: Wrong) -> Report {
    report_of(wrong, None)
}

fn report_of(wrong: Wrong, tolerates: Option<u32>) -> Report {
    let made = std::cell::Cell::new(0);
    let factory = || {
        made.set(made.get() + 1);
        Box::new(Neighbour { wrong, made: made.get() }) as Box<dyn Scheme>
    };
    // A call that never returns costs that time. It is enough for one that returns, also on a busy machine.
    let hangs = matches!(wrong, Wrong::WaitsForNobody | Wrong::SpinsForEver | Wrong::NeverGivesUp);
    let call = Duration::from_secs(if hangs { 5 } else { 60 });
    run(&factory, &Limits { set_sizes: 2..=4, much: 101_000, call, tolerates, ..Limits::default() })
}

/// Runs the kit and expects the first check that fails to be the one with this name, for a reason with these words.
fn fails(wrong: Wrong, check: &str, words: &str) {
    let report = report(wrong);
    let first = report.checks.iter().find(|check| check.failed > 0);
    let right = first.is_some_and(|first| {
        first.name.starts_with(check)
            && [words, "to fix it: "].iter().all(|text| first.to_string().contains(text))
    });
    assert!(first.is_none_or(|first| first.to_string().contains("to fix it: ")), "{report}");
    assert!(right, "{wrong:?} should fail `{check}' with `{words}', but:\n{report}");
}

/// Each rule said what to do where it is broken alone.
#[test]
fn where_nothing_can_be_protected_only_that_is_advised() {
    let report = report(Wrong::NeverProtects).to_string();
    assert!(report.contains("to fix it: Let `protect` succeed on every member"), "{report}");
    assert_eq!(report.matches("to fix it: ").count(), 1, "{report}");
}

#[test]
fn an_honest_scheme_passes() {
    for right in [Wrong::Nothing, Wrong::WritesTwice] {
        let report = report(right);
        assert!(report.passed() && report.checks.iter().all(|check| check.tried > Some(0)), "{report}");
        let warnings: Vec<_> = report.checks.iter().flat_map(|check| &check.warnings).collect();
        let words = "member 0 writes byte 0 of its redundancy twice";
        let right = match (right, &warnings[..]) {
            (Wrong::WritesTwice, [warning]) => warning.contains(words),
            (_, warnings) => right == Wrong::Nothing && warnings.is_empty(),
        };
        assert!(right, "{report}");
    }
}

#[test]
fn a_manifest_that_says_more_than_comes_back_is_found() {
    let report = report_of(Wrong::Nothing, Some(1));
    assert!(report.passed(), "{report}");
    for (tolerates, words) in [(2, "neighbours are lost"), (4, "`tolerates = 4'")] {
        let report = report_of(Wrong::Nothing, Some(tolerates));
        let failed: Vec<_> = report.checks.iter().filter(|check| check.failed > 0).collect();
        let right = matches!(failed[..], [check] if check.name.starts_with("tolerated losses") && check.to_string().contains(words));
        assert!(right, "{report}");
    }
    // It passed untried.
    let report = report_of(Wrong::DropsTheData, Some(1));
    assert!(report.broken().iter().any(|name| name.starts_with("tolerated losses")), "{report}");
}

macro_rules! wrong {
    ($($name:ident: $wrong:ident => $check:literal, $words:literal;)*) => {
        $(
            #[test]
            fn $name() {
                fails(Wrong::$wrong, $check, $words);
            }
        )*
    };
}

wrong! {
    a_panic_in_the_promise_is_found: PanicsInItsPromise => "set sizes", "`losses_survived' panicked at conformance/src/";
    lengths_that_depend_on_the_weather_are_found: AsksForAnyLength => "set sizes", "member 0 got the lengths";
    promising_to_survive_the_loss_of_all_is_found: PromisesAlone => "set of one", "Ok(1) came";
    inventing_zeros_is_found: InventsZeros => "set of one", "member 0 succeeded";
    writing_before_refusing_is_found: WritesBeforeItRefuses => "set of one", "byte 0 of the data of member 0 is written over";
    sending_more_than_agreed_is_found: SendsPadding => "round trip", "who expected";
    leaving_out_a_byte_is_found: LeavesOutTheLastByte => "each byte once", "member 0 left out byte";
    dropping_the_last_byte_is_found: DropsTheLastByte => "promised losses", "byte 999 of the data of member 0 is wrong: zeros stand there";
    dropping_the_data_is_found: DropsTheData => "promised losses", "byte 0 of the data of member 0 is wrong: zeros stand there";
    forgetting_the_redundancy_is_found: ForgetsTheRedundancy => "promised losses", "redundancy of member 0";
    giving_bytes_in_the_wrong_order_is_found: ReversesTheBytes =>
        "promised losses", "byte 0 of the data of member 0 is wrong: no file has what stands there";
    giving_bytes_from_another_place_is_found: ShiftsTheBytes =>
        "promised losses", "byte 0 of the data of member 0 is wrong: there stands the data of member 0 from byte 1 on";
    giving_bytes_of_another_member_is_found: GivesItsOwn =>
        "promised losses", "byte 0 of the data of member 0 is wrong: there stands the data of member 1 from byte 0 on";
    promising_too_much_is_found: PromisesOneMore => "promised losses", "neighbours are lost";
    refusing_what_was_promised_is_found: RefusesWhatItCanDo => "promised losses", "Ok(false) came";
    writing_past_the_end_is_found: WritesPastTheEnd => "promised losses", "wrote past the end of its data";
    changing_a_survivors_file_is_found: SpoilsASurvivor => "promised losses", "byte 0 of the data of member 1 is written over";
    waiting_for_a_message_that_nobody_sends_is_found: WaitsForNobody => "promised losses", "for what nobody sends";
    never_returning_is_found: SpinsForEver => "promised losses", "but member 1 did not return, and hangs in rebuild itself\n";
    a_panic_at_an_empty_file_is_found: PanicsAtEmptyFiles => "uneven and empty files", "panicked at conformance/src/scheme/tests.rs:";
    trusting_any_header_is_found: TrustsAnyHeader => "stale redundancy", "the dataset before";
    trusting_the_redundancy_of_another_set_is_found: ChecksOnlyTheDataset => "stale redundancy", "other ranks";
    passing_on_what_could_not_be_read_is_found: GoesOnAfterFailedReads =>
        "failures and deaths in protect", "returned success although one of its calls had failed";
    going_on_after_an_abort_is_found: NeverGivesUp => "failures and deaths in protect", "did not return";
}
