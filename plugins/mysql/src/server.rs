//! The place of the database, how it is reached, and what an error means to the one who has to fix it.
//!
//! No text made here ever holds the password.

use mysql::{Conn, OptsBuilder, SslOpts};
use scr_plugin_api::{above_standard, KvTree, PluginError};
use std::path::PathBuf;
use std::time::Duration;

/// How long a server may take to answer a new connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// How long it may take to answer a statement.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
const PORT: u16 = 3306;

/// A database on a server, and whom to be there.
pub(crate) struct Server {
    place: ServerAddress,
    /// As the user wrote it.
    host: String,
    pub(crate) database: String,
    user: Option<String>,
    password: Option<String>,
    /// Certificates of authorities: the connection is encrypted, and the server's certificate is checked with them.
    authorities: Option<PathBuf>,
}

#[derive(Debug, PartialEq, Eq)]
enum ServerAddress {
    Socket(String),
    Host(String, u16),
}

/// Why the database did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DatabaseError {
    /// The error of the client or the server.
    #[error(transparent)]
    MySql(#[from] mysql::Error),
    /// A row holds what no row should.
    #[error("a row of the table {table} has no {column}")]
    Row { table: &'static str, column: &'static str },
}

/// Errors of the server that are handled, by their numbers.
pub(crate) const NO_SUCH_DATABASE: u16 = 1049;
const NO_SUCH_COLUMN: u16 = 1054;
const NO_SUCH_TABLE: u16 = 1146;
const DENIED: &[u16] = &[1044, 1045, 1142, 1698];

impl DatabaseError {
    pub(crate) fn code(&self) -> Option<u16> {
        match self {
            Self::MySql(mysql::Error::MySqlError(error)) => Some(error.code),
            _ => None,
        }
    }
}

impl Server {
    pub(crate) fn from_options(options: &KvTree) -> Result<Self, PluginError> {
        let text = |key| options.text(key).filter(|text| !text.is_empty()).map(str::to_owned);
        let refused = |why: String| PluginError::refused(why);
        let host = text("HOST").ok_or_else(|| {
            refused("no server is named: set SCR_LOG_DB_HOST to the host of the database".to_owned())
        })?;
        let place = place_of(&host).ok_or_else(|| {
            refused(format!("SCR_LOG_DB_HOST={host} is neither HOST, HOST:PORT nor the path of a socket"))
        })?;
        let database = text("NAME").unwrap_or_else(|| "scr".to_owned());
        let (user, password, authorities) = (text("USER"), text("PASS"), options.path("CA"));
        Ok(Self { place, host, database, user, password, authorities })
    }

    /// A connection to the database.
    pub(crate) fn connect(&self) -> Result<Conn, DatabaseError> {
        Ok(above_standard(|| Conn::new(self.options().db_name(Some(&self.database))))?)
    }

    /// How to connect to the server, as to make the database.
    pub(crate) fn options(&self) -> OptsBuilder {
        let options = OptsBuilder::new()
            .user(self.user.as_ref())
            .pass(self.password.as_ref())
            .tcp_connect_timeout(Some(CONNECT_LIMIT))
            .read_timeout(Some(ANSWER_LIMIT))
            .write_timeout(Some(ANSWER_LIMIT))
            // It would go to whatever socket the server names, which may be another server's here.
            .prefer_socket(false)
            // A text that is longer than its column is cut, rather than the row refused.
            .init(vec!["SET SESSION sql_mode = ''"]);
        match &self.place {
            ServerAddress::Socket(path) => options.socket(Some(path)),
            ServerAddress::Host(host, port) => {
                let tls =
                    self.authorities.clone().map(|path| SslOpts::default().with_root_cert_path(Some(path)));
                options.ip_or_hostname(Some(host)).tcp_port(*port).ssl_opts(tls)
            }
        }
    }

    /// The event, its place, and what to do about it.
    pub(crate) fn explain(&self, error: &DatabaseError) -> PluginError {
        let (host, database) = (&self.host, &self.database);
        let what = match error {
            DatabaseError::MySql(mysql::Error::MySqlError(error)) => {
                format!("{} (error {})", error.message, error.code)
            }
            // Without the name of the kind of error around it.
            DatabaseError::MySql(mysql::Error::DriverError(error)) => error.to_string(),
            DatabaseError::MySql(mysql::Error::IoError(error)) => error.to_string(),
            other => other.to_string(),
        };
        let advice = match error.code() {
            Some(NO_SUCH_DATABASE | NO_SUCH_TABLE | NO_SUCH_COLUMN) => {
                "; `scr log init-db` makes what is missing"
            }
            Some(code) if DENIED.contains(&code) => "; check SCR_LOG_DB_USER and SCR_LOG_DB_PASS",
            _ => "",
        };
        PluginError::io(format!("the database {database} at {host}: {what}{advice}"))
    }
}

/// `/path`, `host`, `host:port`, `[address]:port`, or an address of IPv6 by itself.
fn place_of(host: &str) -> Option<ServerAddress> {
    if host.starts_with('/') {
        return Some(ServerAddress::Socket(host.to_owned()));
    }
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let (address, rest) = rest.split_once(']')?;
            (address, if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) })
        }
        None => match host.split_once(':') {
            Some((name, port)) if !port.contains(':') => (name, Some(port)),
            _ => (host, None),
        },
    };
    let port = port.map_or(Some(PORT), |port| port.parse().ok())?;
    (!name.is_empty()).then(|| ServerAddress::Host(name.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_by_host_port_or_socket() {
        let host = |name: &str, port| Some(ServerAddress::Host(name.to_owned(), port));
        for (text, place) in [
            ("db.site.org", host("db.site.org", 3306)),
            ("db:3307", host("db", 3307)),
            ("::1", host("::1", 3306)),
            ("[fe80::1]", host("fe80::1", 3306)),
            ("[::1]:3307", host("::1", 3307)),
            ("/run/mysqld/mysqld.sock", Some(ServerAddress::Socket("/run/mysqld/mysqld.sock".to_owned()))),
            (":3306", None),
            ("db:", None),
            ("db:65536", None),
            ("[::1", None),
            ("[::1]3306", None),
        ] {
            assert_eq!(place_of(text), place, "{text}");
        }
    }

    #[test]
    fn without_a_server_the_message_names_the_parameter() {
        let error = Server::from_options(&KvTree::new()).map(drop).unwrap_err();
        assert!(error.text.contains("set SCR_LOG_DB_HOST"), "{error}");
    }

    #[test]
    fn no_message_holds_the_password() {
        let mut options = KvTree::new();
        options.set("HOST", "/nowhere/socket");
        options.set("PASS", "hunter2");
        let server = Server::from_options(&options).unwrap();
        let error = server.explain(&server.connect().map(drop).unwrap_err());
        assert!(error.text.contains("the database scr at /nowhere/socket: "), "{error}");
        assert!(!error.text.contains("hunter2") && !format!("{error:?}").contains("hunter2"), "{error:?}");
    }
}
