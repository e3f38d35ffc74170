//! The tables. Their names and first columns are those of C SCR's database, so that queries of a site still work. Columns that C
//! SCR does not have come after them and may be empty. A database of C SCR is kept: it gets the missing columns, and its rows
//! stay.

use super::server::{DatabaseError, Server, NO_SUCH_DATABASE};
use mysql::prelude::Queryable;
use mysql::Conn;
use scr_plugin_api::above_standard;

/// A table, with the columns of C SCR, but for the number of a row, and those added to them.
struct Table {
    name: &'static str,
    columns: &'static str,
    added: &'static [&'static [(&'static str, &'static str)]],
    keys: &'static str,
}

const ID: &str = "`id` INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY";

/// Numbers for names: of events and transfers, of users, of jobs.
const fn names(name: &'static str) -> Table {
    let keys = "UNIQUE INDEX `name` (`name`)";
    Table { name, columns: "`name` VARCHAR(512) NOT NULL", added: &[], keys }
}

/// The further columns of every entry: when it was made to the microsecond, by which allocation, where, for which prefix
/// directory.
const OF_ENTRY: &[(&str, &str)] = &[
    ("micros", "BIGINT UNSIGNED NULL"),
    ("jobid", "VARCHAR(255) NULL"),
    ("host", "VARCHAR(255) NULL"),
    ("cluster", "VARCHAR(255) NULL"),
    ("prefix", "BLOB NULL"),
];

const ENTRY_KEYS: &str =
    "INDEX `jobid_start` (`job_id`, `start`), INDEX `jobid_typeid_start` (`job_id`, `type_id`, `start`), \
     INDEX `typeid_start` (`type_id`, `start`), INDEX `prefix` (`prefix`(255)), INDEX `micros` (`micros`)";

const TABLES: &[Table] = &[
    names("types"),
    names("usernames"),
    names("jobnames"),
    // The runs of a user under one name are one job.
    Table {
        name: "jobs",
        columns: "`username_id` INT UNSIGNED NOT NULL, `jobname_id` INT UNSIGNED NOT NULL, `start` DATETIME NOT NULL",
        added: &[],
        keys: "UNIQUE INDEX `name` (`username_id`, `jobname_id`)",
    },
    Table {
        name: "transfers",
        columns: "`job_id` INT UNSIGNED NOT NULL, `type_id` INT UNSIGNED NOT NULL, `dset_id` INT UNSIGNED NOT NULL, \
                  `dset_name` VARCHAR(1024) NOT NULL, `start` DATETIME NOT NULL, `end` DATETIME NOT NULL, \
                  `secs` DOUBLE NOT NULL, `bytes` DOUBLE NOT NULL, `files` INT UNSIGNED NOT NULL, `bw` DOUBLE NOT NULL, \
                  `from` BLOB NOT NULL, `to` BLOB NOT NULL",
        added: &[OF_ENTRY],
        keys: ENTRY_KEYS,
    },
    Table {
        name: "events",
        columns: "`job_id` INT UNSIGNED NOT NULL, `type_id` INT UNSIGNED NOT NULL, `dset_id` INT UNSIGNED NULL, \
                  `dset_name` VARCHAR(1024) NULL, `start` DATETIME NULL, `secs` DOUBLE NULL, `note` BLOB NULL",
        added: &[OF_ENTRY, &[("procs", "INT UNSIGNED NULL"), ("nodes", "INT UNSIGNED NULL")]],
        keys: ENTRY_KEYS,
    },
];

/// Makes the database and the tables that are not there, and gives a line for each thing that was made.
pub(crate) fn prepare(server: &Server) -> Result<Vec<String>, DatabaseError> {
    let mut done = Vec::new();
    let mut connection = match server.connect() {
        Err(error) if error.code() == Some(NO_SUCH_DATABASE) => {
            let name = server.database.replace('`', "``");
            let mut connection = above_standard(|| Conn::new(server.options()))?;
            connection.query_drop(format!("CREATE DATABASE IF NOT EXISTS `{name}`"))?;
            done.push(format!("made the database {}", server.database));
            server.connect()?
        }
        outcome => outcome?,
    };
    for table in TABLES {
        done.extend(table.prepare(&mut connection)?);
    }
    if done.is_empty() {
        done.push(format!("the database {} has everything already", server.database));
    }
    Ok(done)
}

impl Table {
    fn prepare(&self, connection: &mut Conn) -> Result<Option<String>, DatabaseError> {
        let known: Vec<String> = connection.exec(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = ?",
            (self.name,),
        )?;
        if known.is_empty() {
            connection.query_drop(self.creation())?;
            return Ok(Some(format!("made the table {}", self.name)));
        }
        let is_known = |name: &str| known.iter().any(|known| known.eq_ignore_ascii_case(name));
        let missing: Vec<_> =
            self.added.iter().copied().flatten().filter(|(name, _)| !is_known(name)).collect();
        if missing.is_empty() {
            return Ok(None);
        }
        let columns: Vec<_> =
            missing.iter().map(|(name, kind)| format!("ADD COLUMN `{name}` {kind}")).collect();
        connection.query_drop(format!("ALTER TABLE `{}` {}", self.name, columns.join(", ")))?;
        let names: Vec<_> = missing.iter().map(|(name, _)| *name).collect();
        Ok(Some(format!("added to the table {}: {}", self.name, names.join(", "))))
    }

    fn creation(&self) -> String {
        let Self { name, columns, keys, .. } = self;
        let added = self.added.iter().copied().flatten();
        let added: String = added.map(|(name, kind)| format!("`{name}` {kind}, ")).collect();
        format!(
            "CREATE TABLE IF NOT EXISTS `{name}` ({ID}, {columns}, {added}{keys}) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
        )
    }
}
