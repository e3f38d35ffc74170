//! The names that most commands need: the world around the process, where an answer goes, errors, and a few types.

pub(crate) use crate::classic;
pub(crate) use crate::environment::{self, once_each};
pub(crate) use crate::output::{
    count, did_you_mean, merged, on_one_line, or_show_error, print, print_line, print_lines, show, warn,
};
pub(crate) use crate::output::{joined, Answer, OrCannot};
pub(crate) use crate::table::Table;
pub(crate) use crate::time;
pub(crate) use anyhow::{anyhow, bail, ensure, Context, Result};
pub(crate) use clap::{Args, ValueEnum};
pub(crate) use scr_base::describe;
pub(crate) use scr_base::env::Env;
pub(crate) use scr_base::fs::{Files, OwnedDir};
pub(crate) use scr_base::message::{amount, span};
pub(crate) use scr_config::descriptor::hostlist;
pub(crate) use scr_config::param::{self, Params};
pub(crate) use scr_plugin_api::{held, paths_in, KvTree};
pub(crate) use scr_prefix::ledger::LedgerDir;
pub(crate) use scr_prefix::{FlushFile, Halt, Prefix};
pub(crate) use serde::de::DeserializeOwned;
pub(crate) use serde::{Deserialize, Serialize};
pub(crate) use serde_json::{json, Value};
pub(crate) use std::collections::{BTreeMap, BTreeSet};
pub(crate) use std::ffi::{OsStr, OsString};
pub(crate) use std::fs;
pub(crate) use std::path::{Path, PathBuf};
pub(crate) use std::sync::{Arc, Mutex};
pub(crate) use std::time::{Duration, Instant};
