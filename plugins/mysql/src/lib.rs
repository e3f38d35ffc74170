//! The log sink `MYSQL`: events and transfers of jobs as rows in a MySQL or MariaDB database. See
//! docs/user/logging.md.
//!
//! | part | what it is |
//! |---|---|
//! | `server` | where the database is, and what to do when it cannot be reached |
//! | `schema` | the tables: those of C SCR, with columns added |
//! | `write` | turns an entry into a row |
//! | `read` | turns rows into entries |
//!
//! Each entry has a connection of its own. One that stayed open could be closed by the application, which shares all descriptors
//! with this library, and statements would go into its next file. Servers close idle connections too, and checkpoints are far
//! apart.

#![deny(unsafe_code)]

mod read;
mod schema;
mod server;
mod write;

use scr_plugin_api::{held, KvTree, LogEntry, LogQuery, LogSink, PluginError};
use server::Server;
use std::sync::Mutex;
use write::{Known, Writer};

/// A database, and what is known of it.
pub struct MySql {
    server: Server,
    /// Whether statements are to be shown.
    debug: bool,
    known: Mutex<Known>,
}

impl MySql {
    /// The database that the options describe. Nothing is connected yet.
    ///
    /// # Errors
    /// There is no server among the options, or what is there is none.
    pub fn new(options: &KvTree) -> Result<Self, PluginError> {
        let debug = options.text("DEBUG") == Some("1");
        Ok(Self { server: Server::from_options(options)?, debug, known: Mutex::default() })
    }
}

impl LogSink for MySql {
    fn write(&self, entry: &LogEntry) -> Result<Vec<String>, PluginError> {
        let mut known = held(&self.known);
        let written =
            self.server.connect().and_then(|connection| Writer::new(connection, &mut known).write(entry));
        let statements = written.map_err(|error| self.server.explain(&error))?;
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
