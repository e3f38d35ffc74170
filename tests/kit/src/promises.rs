//! The promises of scr to its users: ten sentences, and a function for each that says whether a moment keeps it.
//!
//! `docs/developer/trust.md` has the same sentences in the same order. The small world of the ledger checks the functions in
//! every state, and random histories of jobs check them at every restart.

/// An enum of which each value is a sentence, which the function of this name gives.
macro_rules! sentences {
    ($(#[$doc:meta])* $name:ident, $text_of:ident: $($value:ident: $text:literal,)*) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name {
            $(#[doc = $text] $value,)*
        }

        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$value),*];

            /// It as a sentence.
            pub fn $text_of(self) -> &'static str {
                match self {
                    $(Self::$value => $text,)*
                }
            }
        }
    };
}

sentences! {
    /// One promise, named after what it is about.
    Promise, text:
    Whole: "A restart hands out only bytes that one dataset wrote.",
    Kept: "A checkpoint that was reported complete can be restarted from until a newer one is protected.",
    Newest: "A restart gets the newest complete checkpoint that it can reach, or says what it skips.",
    Gone: "No restart gets what was dropped, deleted or rolled back past, unless somebody lists it again.",
    Refused: "No restart gets a checkpoint that the application has refused.",
    Name: "A name stands for the newest complete dataset that used it, and a late flush replaces nothing newer.",
    Begin: "A dataset that never becomes complete takes nothing from an older one but files it was given to write over.",
    Readers: "No other run or command replaces, deletes or drops files that a run reads in place.",
    Ends: "A flush ends once, as complete or as rolled back, and leaves nothing under way.",
    Order: "Numbers only count up, and what a later run writes is newer.",
}

/// The statements of a ledger about some datasets.
#[derive(Debug, Clone, Default)]
pub struct Says {
    /// Which are complete and keep their name and files.
    pub counts: Vec<bool>,
    /// Which have their own name.
    pub has_name: Vec<bool>,
    /// Of which no copy in a cache counts.
    pub is_withdrawn: Vec<bool>,
    /// The number of the last run.
    pub last_run: u64,
    /// The first number of a dataset that no run has reserved.
    pub next_id: u64,
}

/// The fate of a dataset, as its users know it and as it lies on disk.
#[derive(Debug, Default, Clone)]
pub struct Fate {
    /// The number of the run that has written it.
    pub run: u64,
    /// Somebody was told that it is complete.
    pub is_complete: bool,
    /// The run that starts can read it: as many ranks wrote it, or any number may have.
    pub is_readable: bool,
    /// A flush of it has made it complete, and was taken back.
    pub has_two_ends: bool,
    /// The user drops it.
    pub is_being_dropped: bool,
    /// The user has dropped it, and was told so.
    pub is_gone: bool,
    /// The application has refused it.
    pub is_refused: bool,
    /// A newer dataset was given one of its files to write over.
    pub is_given_over: bool,
    /// Something else has damaged it.
    pub is_damaged: bool,
    /// Every byte of it has been written.
    pub has_arrived: bool,
    /// Every file has its bytes.
    pub is_whole: bool,
    /// It is in caches only, and nobody was told that it has its name in the prefix directory.
    pub is_only_cached: bool,
    /// A run reads it in place.
    pub is_read: bool,
    /// The datasets, by their places in the view, that have its name.
    pub named_so: Vec<usize>,
    /// Those that have its name or one of its files.
    pub rivals: Vec<usize>,
}

impl Fate {
    /// Whether its user counts on it.
    fn is_promised(&self) -> bool {
        let is_given_up = self.is_being_dropped || self.is_gone || self.is_refused;
        self.is_complete && !is_given_up && !self.is_given_over && !self.is_damaged
    }
}

/// A restart: the place of the dataset in the view, and whether all bytes are those of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restart {
    /// Its place.
    pub dataset: usize,
    /// Whether they are.
    pub is_whole: bool,
}

/// A moment, and what a run that starts then, alone, makes of it. The fates and what is said stand in the order of age.
#[derive(Debug)]
pub struct View<'a> {
    /// The statements of the ledger before.
    pub now: &'a Says,
    /// The fates.
    pub fates: &'a [Fate],
    /// The checkpoint that this run gets.
    pub restart: Option<Restart>,
    /// The checkpoints that it names as passed over.
    pub named: &'a [usize],
    /// The statements of the ledger once it has ended the flushes.
    pub after: &'a Says,
    /// Whether a record of a flush is left then.
    pub is_any_left: bool,
}

impl Promise {
    /// Whether it is kept.
    pub fn is_kept(self, view: &View<'_>) -> bool {
        match self {
            Self::Whole => whole(view),
            Self::Kept => kept(view),
            Self::Newest => newest(view),
            Self::Gone => gone(view),
            Self::Refused => refused(view),
            Self::Name => name(view),
            Self::Begin => begin(view),
            Self::Readers => readers(view),
            Self::Ends => ends(view),
            Self::Order => order(view),
        }
    }
}

fn whole(view: &View<'_>) -> bool {
    view.restart.is_none_or(|restart| restart.is_whole)
}

/// One that a newer complete dataset has replaced does not come back if that one is given up later.
fn kept(view: &View<'_>) -> bool {
    let is_replaced =
        |of: usize| view.fates[of].rivals.iter().any(|&rival| rival > of && view.fates[rival].is_complete);
    let is_owed =
        |of: &usize| view.fates[*of].is_promised() && view.fates[*of].is_readable && !is_replaced(*of);
    let newest = (0..view.fates.len()).rfind(is_owed);
    newest.is_none_or(|newest| view.restart.is_some_and(|restart| restart.dataset >= newest))
}

/// A checkpoint counts too if nobody was told that it is complete, once the run itself finds it so. One that the user gives
/// up is out of reach.
fn newest(view: &View<'_>) -> bool {
    let reached = view.restart.map(|restart| restart.dataset);
    let is_reachable =
        |of: &usize| view.after.counts[*of] && view.fates[*of].is_whole && !view.fates[*of].is_being_dropped;
    let newest = (0..view.fates.len()).rfind(is_reachable);
    newest <= reached || newest.is_some_and(|newest| view.named.contains(&newest))
}

fn gone(view: &View<'_>) -> bool {
    never_again(view, |fate| fate.is_gone)
}

fn refused(view: &View<'_>) -> bool {
    never_again(view, |fate| fate.is_refused)
}

/// Neither the index nor a copy in a cache offers them.
fn never_again(view: &View<'_>, is_meant: impl Fn(&Fate) -> bool) -> bool {
    let is_offered = |of: usize| {
        let says = |says: &Says| says.counts[of] || !says.is_withdrawn[of];
        says(view.now) || says(view.after) || view.restart.is_some_and(|restart| restart.dataset == of)
    };
    (0..view.fates.len()).all(|of| !is_meant(&view.fates[of]) || !is_offered(of))
}

fn name(view: &View<'_>) -> bool {
    (0..view.fates.len()).all(|of| {
        let newer = view.fates[of].named_so.iter().filter(|&&other| other > of);
        let has_newer =
            newer.map(|&newer| &view.fates[newer]).any(|newer| newer.is_promised() && !newer.is_only_cached);
        !view.now.counts[of] || view.now.has_name[of] && !has_newer
    })
}

/// It counts once the flushes are ended, or a rival that takes its files has every byte.
fn begin(view: &View<'_>) -> bool {
    (0..view.fates.len()).filter(|&of| view.fates[of].is_promised()).all(|of| {
        let mut newer = view.fates[of].rivals.iter().filter(|&&other| other > of);
        view.after.counts[of] || newer.any(|&newer| view.fates[newer].has_arrived)
    })
}

fn readers(view: &View<'_>) -> bool {
    view.fates
        .iter()
        .all(|fate| !fate.is_read || fate.is_whole && !fate.is_gone || fate.is_given_over || fate.is_damaged)
}

fn ends(view: &View<'_>) -> bool {
    !view.is_any_left && !view.fates.iter().any(|fate| fate.has_two_ends)
}

fn order(view: &View<'_>) -> bool {
    let is_later = view.after.last_run > view.now.last_run && view.after.next_id >= view.now.next_id;
    let is_older = |fate: &Fate| fate.run <= view.now.last_run;
    is_later && view.fates.iter().filter(|fate| fate.has_arrived).all(is_older)
}
