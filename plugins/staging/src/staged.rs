//! A transport made of a vendor's service.
//!
//! Files that the service reports as complete are checked: each must have its length, and is synced. The host compares
//! checksums, as no service takes any. The result of a job is remembered, so that the files are checked once. Another process
//! checks again.

use crate::{ticket, Copies, Progress, Service, StagedFile};
use scr_copying::{check_order, confirm, forget_oldest, prepare};
use scr_plugin_api::{held, CopyItem, CopyJob, CopyState, PluginError, PluginErrorKind, Transport};
use std::os::unix::fs::PermissionsExt;
use std::sync::Mutex;
use std::time::Duration;

/// A transport whose copies a service makes.
pub struct Staged<S> {
    service: S,
    known: Mutex<Vec<Known>>,
}

/// A job that this process has asked for, or asked about.
struct Known {
    ticket: Vec<u8>,
    /// The order, where it was given to this process.
    order: Option<CopyJob>,
    /// How it has ended, once that is known.
    ended: Option<CopyState>,
}

impl<S: Service> Staged<S> {
    /// A transport that has copied nothing yet.
    pub fn new(service: S) -> Self {
        Self { service, known: Mutex::default() }
    }

    fn copies(&self, ticket: &[u8]) -> Result<Copies, PluginError> {
        ticket::read(self.service.name(), ticket).ok_or_else(|| {
            self.service
                .error(PluginErrorKind::Refused, "what was given is not a whole ticket of this transport")
        })
    }

    /// The ticket of a job that is under way or done; one that has ended badly may be given again.
    fn known_ticket(&self, job: &CopyJob) -> Result<Option<Vec<u8>>, PluginError> {
        let known = held(&self.known);
        let same_token =
            known.iter().find(|known| known.order.as_ref().is_some_and(|order| order.token == job.token));
        match same_token {
            Some(Known { ended: Some(CopyState::Failed(_)), .. }) | None => Ok(None),
            Some(known) if known.order.as_ref() == Some(job) => Ok(Some(known.ticket.clone())),
            Some(_) => {
                let text = format!("token {} was used for another job", job.token);
                Err(self.service.error(PluginErrorKind::Refused, &text))
            }
        }
    }

    fn examine(&self, copies: &Copies) -> Result<CopyState, PluginError> {
        let progress = match copies.filled().next() {
            Some(_) => self.service.ask(copies)?,
            None => Progress::Arrived,
        };
        Ok(match progress {
            Progress::Running => CopyState::Running(bytes_done(copies)),
            Progress::Arrived => {
                match copies.files.iter().try_for_each(|file| confirm(&file.item, file.mode)) {
                    Ok(()) => CopyState::Done,
                    Err(error) => {
                        let text = format!("the service says that it is done, but {error}");
                        CopyState::Failed(self.service.error(PluginErrorKind::Io, &text))
                    }
                }
            }
            Progress::Cancelled => CopyState::Failed(self.cancelled(copies)),
            Progress::Failed(why) => {
                let text = format!("copying to {} has failed: {why}", unfinished(copies));
                CopyState::Failed(self.service.error(PluginErrorKind::Io, &text))
            }
        })
    }

    fn cancelled(&self, copies: &Copies) -> PluginError {
        let text = format!("copying to {} was cancelled", unfinished(copies));
        self.service.error(PluginErrorKind::Cancelled, &text)
    }

    fn ended(&self, ticket: &[u8]) -> Option<CopyState> {
        held(&self.known).iter().find(|known| known.ticket == ticket)?.ended.clone()
    }

    /// Keeps how a job is, and the newest jobs only: a run may flush for months.
    fn remember(&self, ticket: &[u8], order: Option<&CopyJob>, ended: Option<CopyState>) {
        let mut known = held(&self.known);
        let place = known.iter().position(|known| known.ticket == ticket);
        let order = order.cloned().or_else(|| place.and_then(|place| known[place].order.clone()));
        let entry = Known { ticket: ticket.to_owned(), order, ended };
        known.retain(|known| {
            known.ticket != ticket && (entry.order.is_none() || token_of(known) != token_of(&entry))
        });
        known.push(entry);
        forget_oldest(&mut known, |known| known.ended.is_some());
    }
}

impl<S: Service> Transport for Staged<S> {
    fn start(&self, job: &CopyJob) -> Result<Vec<u8>, PluginError> {
        check_order(self.service.name(), job)?;
        if let Some(ticket) = self.known_ticket(job)? {
            return Ok(ticket);
        }
        let mut modes = Vec::new();
        let mut make_ready = || {
            modes = job.items.iter().map(prepare).collect::<Result<_, _>>()?;
            Ok(())
        };
        let handle = match job.items.iter().any(|item| item.bytes > 0) {
            true => self.service.start(job, &mut make_ready)?,
            false => make_ready().map(|()| String::new())?,
        };
        if modes.is_empty() {
            // The service has the job from another process, which has made the destinations ready.
            modes = job.items.iter().map(mode_now).collect();
        }
        let file = |(item, mode): (&_, _)| StagedFile { item: Clone::clone(item), mode };
        let files = job.items.iter().zip(modes).map(file).collect();
        let copies = Copies { token: job.token.clone(), handle, files };
        let ticket = ticket::write(self.service.name(), &copies);
        self.remember(&ticket, Some(job), None);
        Ok(ticket)
    }

    fn poll(&self, ticket: &[u8]) -> Result<CopyState, PluginError> {
        let copies = self.copies(ticket)?;
        if let Some(state) = self.ended(ticket) {
            return Ok(state);
        }
        let state = self.examine(&copies)?;
        if !matches!(state, CopyState::Running(_)) {
            self.remember(ticket, None, Some(state.clone()));
        }
        Ok(state)
    }

    fn wait(&self, ticket: &[u8]) -> Result<CopyState, PluginError> {
        let mut pause = Duration::from_millis(1);
        loop {
            match self.poll(ticket)? {
                CopyState::Running(_) => std::thread::sleep(pause),
                state => return Ok(state),
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn cancel(&self, ticket: &[u8]) -> Result<(), PluginError> {
        if !matches!(self.poll(ticket)?, CopyState::Running(_)) {
            return Ok(());
        }
        let copies = self.copies(ticket)?;
        self.service.stop(&copies)?;
        // It may have been quicker than the request to stop it.
        let state = match self.examine(&copies) {
            Ok(CopyState::Done) => CopyState::Done,
            _ => CopyState::Failed(self.cancelled(&copies)),
        };
        self.remember(ticket, None, Some(state));
        Ok(())
    }

    fn crc(&self, _ticket: &[u8], _item: usize) -> Option<u32> {
        None
    }
}

fn token_of(known: &Known) -> Option<&str> {
    known.order.as_ref().map(|order| order.token.as_str())
}

fn mode_now(item: &CopyItem) -> u32 {
    std::fs::metadata(&item.destination).map_or(OWNERS, |found| found.permissions().mode() & 0o777)
}

/// As far as the lengths of the destinations show; no service says how many bytes it has copied.
fn bytes_done(copies: &Copies) -> u64 {
    let done = |file: &StagedFile| {
        std::fs::metadata(&file.item.destination).map_or(0, |found| found.len().min(file.item.bytes))
    };
    copies.files.iter().map(done).fold(0, u64::saturating_add)
}

/// The first destination that is not as long as it must be, and how many there are.
fn unfinished(copies: &Copies) -> String {
    let is_whole = |file: &StagedFile| {
        std::fs::metadata(&file.item.destination).is_ok_and(|found| found.len() == file.item.bytes)
    };
    let short: Vec<_> = copies.files.iter().filter(|file| !is_whole(file)).collect();
    let path = |file: &StagedFile| file.item.destination.display().to_string();
    match (short.as_slice(), copies.files.first()) {
        ([], first) => first.map_or_else(|| "nothing".to_owned(), path),
        ([only], _) => path(only),
        ([first, rest @ ..], _) => format!("{} and {} more", path(first), rest.len()),
    }
}

const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// The permissions that the host gives files before they have their own.
const OWNERS: u32 = 0o600;
