//! The log sink `MYSQL`: events and transfers of jobs as rows in a MySQL or MariaDB database. The user guide's
//! `SCR_LOG_DB_` parameters.
//!
//! | part | what it is |
//! |---|---|
//! | `server` | where the database is, and what to do when it cannot be reached |
//! | `schema` | the tables: those of C SCR, with columns added |
//! | `write` | turns an entry into a row |
//! | `read` | turns rows into entries |
//!
//! The first entry opens a connection. It is opened once more if it was lost between two entries: servers close idle connections,
//! and checkpoints are far apart.

#![deny(unsafe_code)]

mod read;
mod schema;
mod server;
mod write;

use scr_plugin_api::{KvTree, LogEntry, LogQuery, LogSink, PluginError};
use server::{DatabaseError, Server};
use std::sync::{Mutex, PoisonError};
use write::Writer;

/// A database, and the connection that entries are written through.
pub struct MySql {
    server: Server,
    /// Whether statements are to be shown.
    debug: bool,
    writer: Mutex<Option<Writer>>,
}

impl MySql {
    /// The database that the options describe. Nothing is connected yet.
    ///
    /// # Errors
    /// There is no server among the options, or what is there is none.
    pub fn new(options: &KvTree) -> Result<Self, PluginError> {
        let debug = options.text("DEBUG") == Some("1");
        Ok(Self { server: Server::from_options(options)?, debug, writer: Mutex::new(None) })
    }

    fn write_through(
        &self,
        place: &mut Option<Writer>,
        entry: &LogEntry,
    ) -> Result<Vec<String>, DatabaseError> {
        if let Some(mut writer) = place.take() {
            match writer.write(entry) {
                Err(error) if error.is_lost_connection() => {}
                outcome => {
                    *place = Some(writer);
                    return outcome;
                }
            }
        }
        let writer = place.insert(Writer::new(self.server.connect()?));
        writer.write(entry)
    }
}

impl LogSink for MySql {
    fn write(&self, entry: &LogEntry) -> Result<Vec<String>, PluginError> {
        let mut place = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let statements =
            self.write_through(&mut place, entry).map_err(|error| self.server.explain(&error))?;
        Ok(if self.debug { statements } else { Vec::new() })
    }

    fn prepare(&self) -> Result<Vec<String>, PluginError> {
        schema::prepare(&self.server).map_err(|error| self.server.explain(&error))
    }

    fn read(&self, query: &LogQuery) -> Result<Vec<LogEntry>, PluginError> {
        let read = || read::read(&mut self.server.connect()?, query);
        read().map_err(|error| self.server.explain(&error))
    }
}

scr_plugin_api::export_log! { new: MySql::new }
