//! `scr index`, and `scr_index`: the datasets of a prefix directory. See the user guide's section "Manage datasets".
//!
//! Listing is the default. Exit codes: 0 done, 1 there is no dataset of that name, 2 an error.
//!
//! - `listing`: the table of the guide, and JSON

mod listing;

use crate::output::{complain, print, print_json, Answer};
use crate::world;
use anyhow::{Context, Result};
use clap::Args;
use listing::Listing;
use scr_core::env::Env;
use scr_core::prefix::{Index, Prefix};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Stands under the help text.
pub(crate) const EXIT_CODES: &str = "Exit codes: 0 done, 1 there is no dataset of that name, 2 error.";

/// What to do with which index.
#[derive(Args)]
pub(crate) struct IndexArgs {
    #[command(flatten)]
    wish: Wish,
    /// The prefix directory. Without it: SCR_PREFIX, or else the current folder
    #[arg(long, value_name = "DIR")]
    prefix: Option<PathBuf>,
    /// Answers in JSON
    #[arg(long)]
    json: bool,
}

/// At most one of these.
#[derive(Args)]
#[group(multiple = false)]
struct Wish {
    /// Lists the datasets; the default
    #[arg(long)]
    list: bool,
    /// Makes a checkpoint the one to restart from
    #[arg(long, value_name = "NAME")]
    current: Option<OsString>,
    /// Takes a dataset out of the index; its files stay
    #[arg(long, visible_alias = "remove", value_name = "NAME")]
    drop: Option<OsString>,
}

/// Does what is asked.
pub(crate) fn run(args: &IndexArgs) -> Result<Answer> {
    let env = world::env()?;
    let prefix = world::prefix(&env, args.prefix.as_deref())?;
    let change = |name: &OsString, done: fn(&mut Index, &[u8]) -> bool| {
        let found = Index::update(&*env.files, &prefix, |index| done(index, name.as_bytes()));
        found.with_context(|| format!("cannot change the index of {}", prefix.dir().display()))
    };
    let (name, found) = match &args.wish {
        Wish { current: Some(name), .. } => (name, change(name, |index, name| index.set_current(name))?),
        Wish { drop: Some(name), .. } => {
            (name, change(name, |index, name| !index.drop_name(name).is_empty())?)
        }
        Wish { list: _, current: None, drop: None } => return list(&env, &prefix, args.json),
    };
    if !found {
        let (name, dir) = (name.to_string_lossy(), prefix.dir().display());
        complain(&format!(
            "scr: the index of {dir} has no dataset named `{name}'; `scr index` lists what there is"
        ))?;
    }
    Ok(Answer::from(found))
}

fn list(env: &Env, prefix: &Prefix, json: bool) -> Result<Answer> {
    let index = Index::read(&*env.files, prefix)
        .with_context(|| format!("cannot read the index of {}", prefix.dir().display()))?;
    let listing = Listing::of(&index);
    if json {
        print_json(&listing)?;
    } else {
        print(&listing.in_words())?;
    }
    Ok(Answer::Yes)
}
