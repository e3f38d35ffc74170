//! A redundancy set: some of the ranks, which exchange messages until all are done or any gives up.
//!
//! It guarantees that nobody waits forever, and that no message of the set is left when all members have called
//! [`SetComm::finish`]. Each member counts the messages that it sends to each other member. When it ends, it sends everybody a
//! FIN with that count and its outcome. Waiting members watch for FINs. A member gives up if another one has given up, or has
//! finished without sending an expected message. It then receives and discards messages until it has every FIN and as many
//! messages as they say. So the sender of a long message, which ends only when the message is received, is never blocked.

mod error;
pub(super) mod fin;

pub use self::error::SetError;

use std::cell::RefCell;
use std::error::Error;

use scr_base::ensure;
use scr_plugin_api::{ReceiveFrom, SendTo};

use self::fin::{Fin, FIN_BYTES};
use super::{Comm, CommError, Incoming, Outgoing, Rank, Result, Tag, WaitControl};

/// One redundancy set over a communicator. Members are counted from 0 in the order of the list.
///
/// A rank is in one set at a time: who has one open and waits in another would hold up those who wait
/// for it in the first. Before a channel is used again, all members of its last set must have returned from
/// [`finish`](Self::finish), as is so after an `agree` of all ranks.
pub struct SetComm<'a> {
    comm: &'a dyn Comm,
    /// The members, as ranks of the run.
    members: Vec<Rank>,
    /// The same as ranks of the communicator.
    ranks: Vec<Rank>,
    me: u32,
    data: Tag,
    fin: Tag,
    state: RefCell<SetState>,
}

#[derive(Default)]
struct SetState {
    /// Per member: messages sent to it.
    sent: Vec<u64>,
    /// Per member: messages from it that have come, asked for or not.
    arrived: Vec<u64>,
    /// Per member: those of them that were not asked for.
    unclaimed: Vec<u64>,
    fins: Vec<Option<Fin>>,
    /// Set once the set is over for this member, for better or worse.
    ended: bool,
    broken: Option<SetError>,
}

impl<'a> SetComm<'a> {
    /// The set of these ranks, of which this one must be one. All members give the same list and channel.
    ///
    /// # Errors
    /// [`SetError::NoSet`] for a list that no set can be made of, or a channel above [`Self::LAST_CHANNEL`].
    pub fn new(comm: &'a dyn Comm, members: Vec<Rank>, channel: u16) -> Result<Self, SetError> {
        let refuse = |why| SetError::NoSet { channel, why };
        let position = members.iter().position(|&rank| rank == comm.own_rank());
        let me = position.and_then(|me| u32::try_from(me).ok());
        let me = me.ok_or_else(|| refuse("this rank is not among the members"))?;
        let mut sorted = members.clone();
        sorted.sort_unstable();
        let has_twice = sorted.windows(2).any(|pair| pair[0] == pair[1]);
        ensure(!has_twice, || refuse("a rank is in it twice"))?;
        let ranks = members.iter().map(|&member| comm.stand_in(member)).collect::<Option<Vec<_>>>();
        let ranks = ranks.ok_or_else(|| refuse("a rank in it does not exist"))?;
        ensure(channel <= Self::LAST_CHANNEL, || refuse("no such channel"))?;
        let data = FIRST_TAG + 2 * channel;
        let state = RefCell::new(SetState::of(members.len()));
        Ok(Self { comm, members, ranks, me, data: Tag(data), fin: Tag(data + 1), state })
    }

    /// The largest channel there is.
    pub const LAST_CHANNEL: u16 = (Tag::MAX.0 - FIRST_TAG - 1) / 2;

    /// This member.
    pub fn member(&self) -> u32 {
        self.me
    }

    /// Number of members.
    pub fn size(&self) -> u32 {
        u32::try_from(self.members.len()).unwrap_or(u32::MAX)
    }

    /// The rank in the whole run of a member.
    pub fn rank_of(&self, member: u32) -> Option<Rank> {
        self.members.get(usize::try_from(member).ok()?).copied()
    }

    /// Sends and receives one batch, oneself included, and returns when all of it is done.
    ///
    /// # Errors
    /// [`SetError::Aborted`] as soon as another member has given up; each later call says the same. After
    /// a member that is not there, or a message of a wrong length, this member should give up.
    pub fn exchange(&self, sends: &[SendTo<'_>], receives: &mut [ReceiveFrom<'_>]) -> Result<(), SetError> {
        self.state.borrow().usable()?;
        let from = receives.iter().map(|receive| self.place(receive.from));
        let from: Vec<usize> = from.collect::<Result<_, _>>()?;
        let to = sends.iter().map(|send| self.place(send.to));
        let to: Vec<usize> = to.collect::<Result<_, _>>()?;
        let outgoing = sends.iter().zip(&to);
        let outgoing: Vec<Outgoing<'_>> =
            outgoing.map(|(send, &to)| Outgoing { to: self.ranks[to], bytes: send.bytes }).collect();
        let incoming = receives.iter_mut().zip(&from);
        let mut incoming: Vec<Incoming<'_>> = incoming
            .map(|(receive, &from)| Incoming { from: self.ranks[from], bytes: &mut *receive.bytes })
            .collect();
        to.iter().for_each(|&to| self.state.borrow_mut().sent[to] += 1);

        let mut flags = vec![true; from.len()];
        let result = self.comm.exchange(self.data, &outgoing, &mut incoming, &mut |come| {
            let control = self.watch(&from)?;
            // Unless it gives up, it ends only when all have come.
            if control == WaitControl::GiveUp {
                flags.copy_from_slice(come);
            }
            Ok(control)
        });
        self.count(&from, &flags);
        match result {
            Ok(_) | Err(CommError::WrongLength { .. }) if self.state.borrow().broken.is_some() => {
                Err(self.wind_down())
            }
            Ok(_) => Ok(()),
            Err(error @ CommError::WrongLength { .. }) => Err(error.into()),
            Err(error) => Err(self.lost(error)),
        }
    }

    /// The largest of the values that the members give. Called on all members.
    ///
    /// # Errors
    /// As for [`exchange`](Self::exchange).
    pub fn max(&self, value: u64) -> Result<u64, SetError> {
        let size = self.size();
        let mut largest = value;
        let mut distance = 1;
        while distance < size {
            let to = (self.me + distance) % size;
            let from = (self.me + (size - distance)) % size;
            let mut theirs = [0; 8];
            let sends = [SendTo { to, bytes: &largest.to_le_bytes() }];
            self.exchange(&sends, &mut [ReceiveFrom { from, bytes: &mut theirs }])?;
            largest = largest.max(u64::from_le_bytes(theirs));
            distance = distance.saturating_mul(2);
        }
        Ok(largest)
    }

    /// Ends the set, well or badly. Every member calls it once, whatever has happened, and it returns when
    /// nothing of the set's messages is left for this member.
    ///
    /// # Errors
    /// If any member gave up: [`SetError::Failed`] for this one, otherwise [`SetError::Aborted`].
    /// [`SetError::Unclaimed`] on the member that did not receive what was sent to it.
    pub fn finish(self, outcome: Result<(), &dyn Error>) -> Result<(), SetError> {
        self.end(outcome.err().map(scr_base::describe))
    }

    fn end(&self, failure: Option<String>) -> Result<(), SetError> {
        self.state.borrow().usable()?;
        self.state.borrow_mut().broken = failure.map(|text| SetError::Failed { text });
        let fins = self.my_fins();
        self.receive_fins(&fins)?;
        self.take_leftovers()?;
        let mut state = self.state.borrow_mut();
        state.ended = true;
        let verdict = state.broken.clone().or_else(|| self.verdict(&state));
        state.broken = verdict.clone();
        verdict.map_or(Ok(()), Err)
    }

    /// The verdict of the FINs of all members, and of what came, on a set that this member thinks well of.
    fn verdict(&self, state: &SetState) -> Option<SetError> {
        let failed = state.fins.iter().flatten().find_map(|fin| fin.failed.as_ref());
        if let Some((by, text)) = failed {
            return Some(self.aborted(*by, text));
        }
        let unclaimed = (0u32..).zip(&state.unclaimed).find(|(_, &messages)| messages > 0);
        unclaimed.map(|(member, &messages)| SetError::Unclaimed {
            member,
            rank: self.rank_or_own(member),
            messages,
        })
    }

    /// Called while a member waits in an exchange for messages from `from`.
    fn watch(&self, from: &[usize]) -> Result<WaitControl> {
        self.take_early_fins()?;
        if self.state.borrow().broken.is_none() {
            let Some((by, text)) = self.reason_to_stop(from) else { return Ok(WaitControl::Wait) };
            self.state.borrow_mut().broken = Some(self.aborted(by, &text));
            // At once: the others may need to know it before they can take what this one sends.
            let fins = self.my_fins();
            let outgoing = self.outgoing_fins(&fins);
            let receive = &mut |_: &[bool]| self.take_early_fins().map(|()| WaitControl::Wait);
            self.comm.exchange(self.fin, &outgoing, &mut [], receive)?;
        }
        self.take_some()?;
        Ok(WaitControl::GiveUp)
    }

    fn reason_to_stop(&self, from: &[usize]) -> Option<(u32, String)> {
        let state = self.state.borrow();
        if let Some(failed) = state.fins.iter().flatten().find_map(|fin| fin.failed.clone()) {
            return Some(failed);
        }
        let mut expected = state.arrived.clone();
        from.iter().for_each(|&from| expected[from] += 1);
        let deserted = |fin: &Option<Fin>, expected: u64| fin.as_ref().is_some_and(|fin| fin.sent < expected);
        let member = state.fins.iter().zip(expected).position(|(fin, expected)| deserted(fin, expected))?;
        let text =
            format!("it finished while rank {} still expected a message from it", self.comm.own_rank());
        Some((u32::try_from(member).ok()?, text))
    }

    /// Ends an aborted set: this member's FIN is out, those of the others and their messages are to come.
    fn wind_down(&self) -> SetError {
        if let Err(error) = self.receive_fins(&[]).and_then(|()| self.take_leftovers()) {
            return error;
        }
        let mut state = self.state.borrow_mut();
        state.ended = true;
        state.broken.clone().unwrap_or_else(|| SetError::Failed { text: "the set was ended".to_owned() })
    }

    /// Sends this member's FINs, if they are not out, and receives those that have not come.
    fn receive_fins(&self, fins: &[(usize, [u8; FIN_BYTES])]) -> Result<(), SetError> {
        let missing: Vec<usize> =
            self.others().filter(|&member| self.state.borrow().fins[member].is_none()).collect();
        let mut came = vec![[0; FIN_BYTES]; missing.len()];
        let buffers = came.iter_mut().zip(&missing);
        let mut incoming: Vec<Incoming<'_>> =
            buffers.map(|(fin, &member)| Incoming { from: self.ranks[member], bytes: fin }).collect();
        let outgoing = self.outgoing_fins(fins);
        let drain = &mut |_: &[bool]| self.take_some().map(|()| WaitControl::Wait);
        let result = self.comm.exchange(self.fin, &outgoing, &mut incoming, drain);
        result.map_err(|error| self.lost(error))?;
        for (bytes, &member) in came.iter().zip(&missing) {
            self.record_fin(member, bytes).map_err(|error| self.lost(error))?;
        }
        Ok(())
    }

    /// Takes messages until as many have come as all FINs say. They are on their way, so it cannot be long.
    fn take_leftovers(&self) -> Result<(), SetError> {
        while self.state.borrow().is_missing(self.own()) {
            self.take_some().map_err(|error| self.lost(error))?;
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Receives and discards the messages that no exchange will ask for any more.
    fn take_some(&self) -> Result<()> {
        while let Some((rank, _)) = self.comm.take(self.data)? {
            let member = self.member_at(rank)?;
            let mut state = self.state.borrow_mut();
            state.arrived[member] += 1;
            state.unclaimed[member] += 1;
        }
        Ok(())
    }

    fn take_early_fins(&self) -> Result<()> {
        while let Some((rank, bytes)) = self.comm.take(self.fin)? {
            self.record_fin(self.member_at(rank)?, &bytes)?;
        }
        Ok(())
    }

    fn record_fin(&self, member: usize, bytes: &[u8]) -> Result<()> {
        let from = self.members[member];
        let fin = Fin::unpack(bytes).ok_or(CommError::Malformed { from, what: "the end of a set" })?;
        self.state.borrow_mut().fins[member] = Some(fin);
        Ok(())
    }

    /// This member's FIN for each other one.
    fn my_fins(&self) -> Vec<(usize, [u8; FIN_BYTES])> {
        let state = self.state.borrow();
        let failed = match &state.broken {
            None => None,
            // The member that gave up first is passed on, so that all name the same one.
            Some(SetError::Aborted { member, text, .. }) => Some((*member, text.clone())),
            Some(own) => Some((self.me, own.to_string())),
        };
        let fin = |member: usize| Fin { sent: state.sent[member], failed: failed.clone() }.pack();
        self.others().map(|member| (member, fin(member))).collect()
    }

    fn outgoing_fins<'b>(&self, fins: &'b [(usize, [u8; FIN_BYTES])]) -> Vec<Outgoing<'b>> {
        fins.iter().map(|(member, bytes)| Outgoing { to: self.ranks[*member], bytes }).collect()
    }

    fn count(&self, from: &[usize], come: &[bool]) {
        let mut state = self.state.borrow_mut();
        let came = from.iter().zip(come).filter(|(_, &come)| come);
        came.for_each(|(&from, _)| state.arrived[from] += 1);
    }

    /// Records that the communicator is useless from then on.
    fn lost(&self, error: CommError) -> SetError {
        let error = SetError::from(error);
        let mut state = self.state.borrow_mut();
        state.ended = true;
        state.broken = Some(error.clone());
        error
    }

    fn aborted(&self, member: u32, text: &str) -> SetError {
        SetError::Aborted { member, rank: self.rank_or_own(member), text: text.to_owned() }
    }

    fn others(&self) -> impl Iterator<Item = usize> + '_ {
        let own = self.own();
        (0..self.members.len()).filter(move |&member| member != own)
    }

    fn own(&self) -> usize {
        Rank(self.me).index()
    }

    fn rank_or_own(&self, member: u32) -> Rank {
        self.rank_of(member).unwrap_or_else(|| self.comm.own_rank())
    }

    fn place(&self, member: u32) -> Result<usize, SetError> {
        let size = self.size();
        let place = usize::try_from(member).ok().filter(|_| member < size);
        place.ok_or(SetError::NoSuchMember { member, size })
    }

    fn member_at(&self, rank: Rank) -> Result<usize> {
        let member = self.ranks.iter().position(|&member| member == rank);
        member.ok_or(CommError::Malformed { from: rank, what: "a message to a set it is not in" })
    }
}

impl Drop for SetComm<'_> {
    fn drop(&mut self) {
        // A member that just goes away, by a panic for example, must not leave the others waiting.
        if !self.state.borrow().ended {
            let _ = self.end(Some("it left without finishing".to_owned()));
        }
    }
}

impl SetState {
    fn of(members: usize) -> Self {
        let (none, fins) = (vec![0; members], vec![None; members]);
        Self { sent: none.clone(), arrived: none.clone(), unclaimed: none, fins, ..Self::default() }
    }

    fn usable(&self) -> Result<(), SetError> {
        self.broken.clone().map_or(Ok(()), Err)
    }

    /// Whether anybody has sent more than has come. Messages of `own` to itself need no FIN.
    fn is_missing(&self, own: usize) -> bool {
        let mut others = self.fins.iter().zip(&self.arrived);
        self.sent[own] > self.arrived[own]
            || others.any(|(fin, &arrived)| fin.as_ref().is_some_and(|fin| fin.sent > arrived))
    }
}

/// Two tags per channel, from here on.
const FIRST_TAG: u16 = 1024;
