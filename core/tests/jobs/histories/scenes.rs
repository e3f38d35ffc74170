//! Sequences of events that are drawn too rarely one by one. Each can lead to a wrong restart, or to none, if one rule is broken.

use super::history::{Area, Death, Event, Probe, Reaction, Run, Settings, Step, Stumble};
use super::POOL;
use proptest::prelude::*;
use proptest::sample::{select, Index};

/// The beginning of a history. The rest is drawn at random as in any other history.
#[derive(Debug, Clone)]
pub(super) enum Scene {
    /// A job elsewhere finds that the copy of a checkpoint in cache is damaged.
    DamagedCopy { which: Index },
    /// The first checkpoint of the index cannot be read by a run on other nodes, which may write another one.
    Unread { passes: bool, writes: bool },
    /// Another program begins to write over a checkpoint without checksums, and dies.
    WrittenOver,
    /// A flush fails once all files have arrived, while it takes the place of an older checkpoint.
    FailsAfterMark { record: &'static str, at: u64 },
    /// In bypass mode, files without checksums are written over for a checkpoint of another name that turns out invalid.
    OverwrittenInPlace { bad: usize },
    /// The user goes back to a checkpoint while there is a newer one in cache only.
    WentBack { drops: bool },
    /// The application refuses a checkpoint in cache, and begins again.
    Refused { rank: usize },
    /// A write to a filemap ends halfway, and the application tries again, or dies.
    TornFilemap { rank: usize, at: u64, dies: bool },
    /// A byte changes in cache, and a node is lost.
    FlippedAndLost { which: Index, lost: usize },
    /// A rank's part is on two nodes, and one of the copies is cut short when another node is lost.
    TwoCopies { rank: usize, other: usize, cuts: [Index; 3] },
    /// A run dies while parts move between its nodes.
    DiesMoving { at: u64, swaps: bool },
    /// The index cannot be read once, by a run that adds a checkpoint to it and deletes that one.
    UnreadIndex { at: u64 },
}

pub(super) fn scene() -> impl Strategy<Value = Scene> {
    let any_index = any::<Index>;
    prop_oneof![
        1 => any_index().prop_map(|which| Scene::DamagedCopy { which }),
        2 => (any::<bool>(), any::<bool>()).prop_map(|(passes, writes)| Scene::Unread { passes, writes }),
        1 => Just(Scene::WrittenOver),
        1 => (select(&["summary.scr", "index.scr"][..]), 1..6_u64)
            .prop_map(|(record, at)| Scene::FailsAfterMark { record, at }),
        2 => (0..4_usize).prop_map(|bad| Scene::OverwrittenInPlace { bad }),
        1 => any::<bool>().prop_map(|drops| Scene::WentBack { drops }),
        1 => (0..3_usize).prop_map(|rank| Scene::Refused { rank }),
        2 => (0..3_usize, 3..6_u64, any::<bool>())
            .prop_map(|(rank, at, dies)| Scene::TornFilemap { rank, at, dies }),
        1 => (any_index(), 0..3_usize).prop_map(|(which, lost)| Scene::FlippedAndLost { which, lost }),
        1 => (0..3_usize, 1..3_usize, [any_index(), any_index(), any_index()])
            .prop_map(|(rank, next, cuts)| Scene::TwoCopies { rank, other: (rank + next) % 3, cuts }),
        2 => (1..160_u64, any::<bool>()).prop_map(|(at, swaps)| Scene::DiesMoving { at, swaps }),
        2 => (1..40_u64).prop_map(|at| Scene::UnreadIndex { at }),
    ]
}

impl Scene {
    /// Makes it of the first runs of a history. There are two at least.
    pub(super) fn stage(self, runs: &mut [Run]) {
        let [first, second, later @ ..] = runs else { return };
        let nodes = first.nodes.clone();
        first.goes_well();
        first.settings.bypass = false;
        match self {
            Self::DamagedCopy { which } => {
                first.settings = Settings { flush: 1, flush_sums: true, ..first.settings.clone() };
                first.writes(&[0]);
                first.after = vec![Event::FlipInPrefix { which, noticed: true }];
                first.probe = Probe::Later { wants: None };
                second.follows(first);
            }
            Self::Unread { passes, writes } => {
                first.settings = Settings { flush: 1, window: writes.into(), ..first.settings.clone() };
                first.writes(&[0, 1]);
                second.follows(first);
                second.steps = Vec::new();
                second.writes(if writes { &[0] } else { &[] });
                second.nodes = nodes.iter().map(|node| (node + POOL / 2) % POOL).collect();
                // Once is enough, and what follows must be possible.
                let many = if writes { 1 } else { u64::MAX };
                second.stumbles = Some(Stumble { passes, many, ..everywhere(Area::First) });
            }
            Self::WrittenOver => {
                let settings = Settings { flush: 1, flush_sums: false, ..first.settings.clone() };
                first.settings = settings;
                first.writes(&[0]);
                first.after = vec![Event::WriteOver(0)];
            }
            Self::FailsAfterMark { record, at } => {
                first.settings.flush = 1;
                first.writes(&[0]);
                second.follows(first);
                second.writes(&[0]);
                let failing = Stumble { reads: false, many: 1, ..everywhere(Area::Record(record)) };
                second.stumbles = Some(Stumble { at, ..failing });
            }
            Self::OverwrittenInPlace { bad } => {
                first.settings = Settings { bypass: true, flush_sums: false, ..first.settings.clone() };
                first.writes(&[1, 0]);
                second.follows(first);
                second.steps = vec![Step::Checkpoint { name: 2, output: false, bad: Some(bad) }];
            }
            Self::WentBack { drops } => {
                let settings = Settings { flush: 2, keep: 2, window: 0, ..first.settings.clone() };
                first.settings = Settings { drop_after_current: drops, ..settings };
                first.writes(&[1, 0, 1]);
                first.finalizes = false;
                first.probe = Probe::Later { wants: Some(0) };
            }
            Self::Refused { rank } => {
                first.writes(&[0]);
                second.follows(first);
                second.steps = Vec::new();
                second.reaction = Reaction::Refuse(rank);
                second.probe = Probe::Here { lost: None };
            }
            Self::TornFilemap { rank, at, dies } => {
                first.settings = Settings { scheme: "SINGLE", sums: true, ..first.settings.clone() };
                first.steps = Vec::new();
                first.writes(&[0]);
                let area = Area::Filemaps;
                if dies {
                    // Of several ranks one that dies before all are prepared takes the dataset with it.
                    first.nodes.truncate(1);
                    first.dies = Some(Death { at, area, torn: true });
                } else {
                    let torn = Stumble { rank, at, many: 1, reads: false, tears: true, ..everywhere(area) };
                    first.stumbles = Some(torn);
                }
                first.probe = Probe::Here { lost: None };
            }
            Self::FlippedAndLost { which, lost } => {
                first.settings.scheme = "XOR";
                first.writes(&[0]);
                first.after = vec![Event::Flip(which)];
                first.probe = Probe::Here { lost: Some(lost) };
            }
            Self::TwoCopies { rank, other, cuts } => {
                let Some(spare) = (0..POOL).find(|node| !nodes.contains(node)) else { return };
                first.settings.scheme = "XOR";
                first.writes(&[0]);
                first.finalizes = false;
                second.follows(first);
                second.steps = Vec::new();
                second.nodes[rank] = spare;
                second.after = cuts.map(|which| Event::CutOn(nodes[rank], which)).to_vec();
                if let Some(third) = later.first_mut() {
                    third.follows(first);
                    third.nodes[other] = spare;
                }
            }
            Self::DiesMoving { at, swaps } => {
                // There is no other copy of what moves.
                let settings = Settings { scheme: "SINGLE", sums: true, flush: 0, ..first.settings.clone() };
                first.settings = settings;
                first.steps = Vec::new();
                first.writes(&[0]);
                first.finalizes = false;
                second.follows(first);
                match swaps {
                    true => second.nodes.swap(0, nodes.len() - 1),
                    false => second.nodes.rotate_left(1),
                }
                second.dies = Some(Death { at, area: Area::Cache, torn: false });
                second.probe = Probe::Here { lost: None };
            }
            Self::UnreadIndex { at } => {
                first.settings = Settings { flush: 1, window: 0, ..first.settings.clone() };
                first.settings.drop_after_current = false;
                first.writes(&[0]);
                second.follows(first);
                second.steps = Vec::new();
                second.writes(&[1]);
                // What it lists hides the loss of what was listed before.
                second.steps.push(Step::Delete { name: 1 });
                second.stumbles = Some(Stumble { at, many: 1, ..everywhere(Area::Record("index.scr")) });
            }
        }
    }
}

/// All that rank 0, or every rank, does there fails.
fn everywhere(area: Area) -> Stumble {
    Stumble { rank: 0, at: 1, many: u64::MAX, reads: true, area, passes: false, tears: false }
}

impl Run {
    /// Nothing goes wrong, and what there is to restart from is taken.
    fn goes_well(&mut self) {
        (self.dies, self.stumbles, self.meets, self.outage) = (None, None, None, None);
        (self.wants, self.reaction) = (None, Reaction::Take);
        self.after = Vec::new();
    }

    /// It goes well where another one was, and is set alike.
    fn follows(&mut self, other: &Self) {
        self.goes_well();
        (self.settings, self.nodes) = (other.settings.clone(), other.nodes.clone());
    }

    /// The last that it does is to write checkpoints of these names.
    fn writes(&mut self, names: &[u8]) {
        let checkpoint = |&name: &u8| Step::Checkpoint { name, output: false, bad: None };
        self.steps.truncate(2);
        self.steps.extend(names.iter().map(checkpoint));
    }
}
