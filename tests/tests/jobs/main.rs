//! Jobs on pretend nodes, servers, documents: what needs a built tree, or more than one crate.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails if it cannot continue")]

mod agent;
mod behind;
mod book;
mod burst_buffers;
mod c_interface;
mod communicator;
mod costs;
mod database;
mod descriptors;
mod documents;
mod flush;
mod halt;
mod installed_pages;
mod interval;
mod languages;
mod lends;
mod messages;
mod mpi_io;
mod new_plugin;
mod node_loss;
mod packages;
mod parts;
mod prefix;
mod process_death;
mod redundancy;
mod releases;
mod run;
mod scavenge;
mod status;
