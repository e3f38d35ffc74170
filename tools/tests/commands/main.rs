//! The commands as users type them.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails if it cannot continue")]

mod allocation;
mod answer;
mod broken_config;
mod classic;
mod clean;
mod config;
mod dashboard;
mod doctor;
mod finished_job;
mod halt;
mod index;
mod inspect;
mod installation;
mod log;
mod mistyped;
mod other_users;
mod pages;
mod places;
mod plan;
mod plugin;
mod report;
mod run;
mod scrub;
mod status;
